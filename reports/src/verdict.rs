//! Does a cell do what is expected of it?
//!
//! The rules, first that applies:
//! 1. A harness failure in any of its states, or of a whole case: **broken**. It says nothing about the file system, so
//!    it is never merged with what was judged; the counts stay.
//! 2. The ledgers expect different things of the cell: **inconclusive**, for nobody can say what would depart.
//! 3. Nothing was judged: **skipped** if something was skipped, else **inconclusive**. Never a pass.
//! 4. States are violated: *safe* is **worse**; *known* is **worse** if a finding is none of the known ones;
//!    *unsafe* and *open* are **as expected**.
//! 5. No state is violated and *unsafe* was expected: **better** if at 95 % confidence fewer than 5 % of the states can
//!    be violated (0 of 73 says that), for then the control does not fail any more; else **inconclusive**, for too few
//!    states were judged to say that of it. Either way it proves nothing of the harness, and exits 1.
//! 6. No state is violated in a cell without a write cache (its mode says `w0`) of which fewer than 30 % of the states
//!    have a loose fragment: **inconclusive**, nothing was at stake at those cuts.
//! 7. *Known* with a bound: **worse** if the whole interval lies above it, **inconclusive** if the bound lies within the
//!    interval (too few states to tell), else **as expected**.
//! 8. Else **as expected**.
//!
//! Where the selftest of a run failed, what is as expected is **inconclusive**.

use std::collections::BTreeSet;

use powerfail_ledger::{Expectation, FindingKind};
use serde::Serialize;

use crate::stats::wilson;
use crate::tally::Counts;
use crate::text::{count, counted, listed, percent, percent_range};

/// Below this share of states with a loose fragment, in per cent, a W0 cell says nothing.
const W0_LOOSE_PERCENT: u64 = 30;

/// A control of which less than this share can be violated fails no more.
const CONTROL_FAILS: f64 = 0.05;

/// A cell against its expectation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "verdict")]
pub enum Verdict {
    /// What was found is what was expected.
    AsExpected,
    /// Something was found that was not expected, or more of it.
    Worse {
        /// What, in one sentence.
        why: String,
    },
    /// What was expected to fail does not any more.
    Better {
        /// What, in one sentence.
        why: String,
    },
    /// The run can't tell.
    Inconclusive {
        /// What is missing.
        why: String,
    },
    /// Nothing was tested.
    Skipped {
        /// What is missing.
        why: String,
    },
    /// The harness failed.
    Broken {
        /// What failed, and what was judged all the same.
        why: String,
    },
}

impl Verdict {
    /// Two words at most.
    pub fn name(&self) -> &'static str {
        match self {
            Verdict::AsExpected => "as expected",
            Verdict::Worse { .. } => "worse",
            Verdict::Better { .. } => "better",
            Verdict::Inconclusive { .. } => "inconclusive",
            Verdict::Skipped { .. } => "skipped",
            Verdict::Broken { .. } => "broken",
        }
    }

    /// A sign that tells it from the others without colour.
    pub fn sign(&self) -> &'static str {
        match self {
            Verdict::AsExpected => "✓",
            Verdict::Worse { .. } => "▲",
            Verdict::Better { .. } => "▼",
            Verdict::Inconclusive { .. } => "?",
            Verdict::Skipped { .. } => "–",
            Verdict::Broken { .. } => "×",
        }
    }

    /// The reason; empty if there is nothing to say.
    pub fn why(&self) -> &str {
        match self {
            Verdict::AsExpected => "",
            Verdict::Worse { why }
            | Verdict::Better { why }
            | Verdict::Inconclusive { why }
            | Verdict::Skipped { why }
            | Verdict::Broken { why } => why,
        }
    }

    /// The harness did not see what it must see, so that nothing was found is no news. What was found stays found.
    pub(crate) fn doubt(&mut self, why: &str) {
        if *self == Verdict::AsExpected {
            *self = Verdict::Inconclusive { why: why.to_owned() };
        }
    }

    /// Judges a cell by the rules above; `expectations` are the distinct ones that the ledgers hold for it.
    pub fn of(mode: &str, expectations: &[Expectation], counts: &Counts) -> Verdict {
        if counts.broken + counts.cases_broken > 0 {
            return Verdict::Broken { why: broken(counts) };
        }
        let [expectation] = expectations else {
            let expected: Vec<String> = expectations.iter().map(describe).collect();
            return Verdict::Inconclusive {
                why: format!("the ledgers do not agree what to expect: {}", listed(&expected)),
            };
        };
        if counts.judged() == 0 {
            return unjudged(counts);
        }
        if counts.violated > 0 { with_violations(expectation, counts) } else { without(mode, expectation, counts) }
    }
}

/// The expectation in a word or two, for tables; its reference comes beside it where there is room.
pub(crate) fn describe(expectation: &Expectation) -> String {
    match expectation {
        Expectation::Safe => "safe".into(),
        Expectation::Unsafe => "unsafe (control)".into(),
        Expectation::Known { findings, at_most_ppm, .. } => {
            let kinds: BTreeSet<FindingKind> = findings.iter().map(|known| known.kind).collect();
            let kinds = listed(&kinds.iter().map(|kind| kind.name().to_string()).collect::<Vec<_>>());
            let bound = at_most_ppm.map_or(String::new(), |ppm| format!(", at most {}", percent(share_of_ppm(ppm))));
            format!("known: {kinds}{bound}")
        }
        Expectation::Open => "open".into(),
    }
}

fn share_of_ppm(ppm: u32) -> f64 {
    f64::from(ppm) / 1e6
}

fn broken(counts: &Counts) -> String {
    let mut what = Vec::new();
    if counts.broken > 0 {
        what.push(format!("the harness failed in {}", counted(counts.broken, "state", "states")));
    }
    if counts.cases_broken > 0 {
        what.push(format!("{} broke before the end", counted(counts.cases_broken, "case", "cases")));
    }
    let judged = match counts.judged() {
        0 => "nothing was judged".to_string(),
        _ => violated(counts),
    };
    format!("{}; {judged}", listed(&what))
}

fn violated(counts: &Counts) -> String {
    let verb = if counts.violated == 1 { "is" } else { "are" };
    format!("{} of {} {verb} violated", count(counts.violated), counted(counts.judged(), "state", "states"))
}

fn unjudged(counts: &Counts) -> Verdict {
    if counts.skipped + counts.cases_skipped == 0 {
        return Verdict::Inconclusive { why: "no state was judged".into() };
    }
    let why = match counts.skip_reasons.keys().next() {
        Some(reason) if counts.skip_reasons.len() == 1 => reason.clone(),
        Some(reason) => format!("{reason} (and {} more reasons)", counts.skip_reasons.len() - 1),
        None => "no reason was given".into(),
    };
    Verdict::Skipped { why }
}

fn with_violations(expectation: &Expectation, counts: &Counts) -> Verdict {
    match expectation {
        Expectation::Unsafe | Expectation::Open => Verdict::AsExpected,
        Expectation::Safe => Verdict::Worse { why: format!("{}, none was expected", violated(counts)) },
        Expectation::Known { .. } => {
            let others: Vec<String> = counts
                .unexpected
                .iter()
                .map(|(kind, &states)| format!("{} in {}", kind.name(), counted(states, "state", "states")))
                .collect();
            if others.is_empty() {
                return within_bound(expectation, counts);
            }
            Verdict::Worse { why: format!("findings that are not known here: {}", listed(&others)) }
        }
    }
}

fn without(mode: &str, expectation: &Expectation, counts: &Counts) -> Verdict {
    if *expectation == Expectation::Unsafe {
        return control(counts);
    }
    if mode.contains("w0") && counts.with_loose * 100 < counts.judged() * W0_LOOSE_PERCENT {
        let share = percent(counts.with_loose as f64 / counts.judged() as f64);
        let why = format!("only {share} of the states have a loose fragment; without a write cache it takes 30\u{a0}%");
        return Verdict::Inconclusive { why };
    }
    within_bound(expectation, counts)
}

/// A control of which no state is violated.
fn control(counts: &Counts) -> Verdict {
    let most = wilson(0, counts.judged()).map_or(1.0, |interval| interval.high);
    if most >= CONTROL_FAILS {
        return Verdict::Inconclusive { why: "the control was not seen to fail".into() };
    }
    let states = counted(counts.judged(), "state", "states");
    let why = format!("the control fails no more: none of {states} is violated, so at most {} are", percent(most));
    Verdict::Better { why }
}

/// What is known, against the share that is known.
fn within_bound(expectation: &Expectation, counts: &Counts) -> Verdict {
    let Expectation::Known { at_most_ppm: Some(ppm), .. } = expectation else { return Verdict::AsExpected };
    let Some(interval) = wilson(counts.violated, counts.judged()) else { return Verdict::AsExpected };
    let bound = share_of_ppm(*ppm);
    let range = percent_range(interval.low, interval.high);
    let (found, most) = (violated(counts), percent(bound));
    if interval.low > bound {
        Verdict::Worse { why: format!("{found}, a rate of {range}; at most {most} is known") }
    } else if interval.high > bound {
        let why = format!("{found}, too few states to tell a rate of {range} from the {most} that is known");
        Verdict::Inconclusive { why }
    } else {
        Verdict::AsExpected
    }
}
