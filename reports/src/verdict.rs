//! Does a cell do what is expected of it?
//!
//! The rules, first that applies:
//! 1. A harness failure in any of its states, or of a whole case: **broken**. It says nothing about the file system, so
//!    it is never merged with what was judged; the counts stay.
//! 2. The ledgers expect different things of the cell: **inconclusive**, for nobody can say what would depart.
//! 3. Nothing was judged: **skipped** if something was skipped, else **inconclusive**. Never a pass.
//! 4. States are violated: *safe* **departs**; *known* **departs** if a finding is none of the known ones;
//!    *unsafe* and *open* are **as expected**.
//! 5. No state is violated: *unsafe* is **inconclusive**, the control was not seen to fail. A cell without a write cache
//!    (its mode says `w0`) of which fewer than 30 % of the states have a loose fragment is **inconclusive** whatever is
//!    expected: nothing was at stake at those cuts. Else **as expected**.

use std::collections::BTreeSet;

use powerfail_ledger::{Expectation, FindingKind};
use serde::Serialize;

use crate::tally::Counts;
use crate::text::{count, counted, listed, percent};

/// Below this share of states with a loose fragment, in per cent, a W0 cell says nothing.
const W0_LOOSE_PERCENT: u64 = 30;

/// A cell against its expectation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "verdict")]
pub enum Verdict {
    /// What was found is what was expected.
    AsExpected,
    /// Something was found that was not expected.
    Departs {
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
            Verdict::Departs { .. } => "departs",
            Verdict::Inconclusive { .. } => "inconclusive",
            Verdict::Skipped { .. } => "skipped",
            Verdict::Broken { .. } => "broken",
        }
    }

    /// A sign that tells it from the others without colour.
    pub fn sign(&self) -> &'static str {
        match self {
            Verdict::AsExpected => "✓",
            Verdict::Departs { .. } => "≠",
            Verdict::Inconclusive { .. } => "?",
            Verdict::Skipped { .. } => "–",
            Verdict::Broken { .. } => "×",
        }
    }

    /// The reason; empty if there is nothing to say.
    pub fn why(&self) -> &str {
        match self {
            Verdict::AsExpected => "",
            Verdict::Departs { why }
            | Verdict::Inconclusive { why }
            | Verdict::Skipped { why }
            | Verdict::Broken { why } => why,
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
        Expectation::Known { findings, .. } => {
            let kinds: BTreeSet<FindingKind> = findings.iter().map(|known| known.kind).collect();
            format!("known: {}", listed(&kinds.iter().map(|kind| kind.name().to_string()).collect::<Vec<_>>()))
        }
        Expectation::Open => "open".into(),
    }
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
        Expectation::Safe => Verdict::Departs { why: format!("{}, none was expected", violated(counts)) },
        Expectation::Known { .. } => {
            let others: Vec<String> = counts
                .unexpected
                .iter()
                .map(|(kind, &states)| format!("{} in {}", kind.name(), counted(states, "state", "states")))
                .collect();
            if others.is_empty() {
                return Verdict::AsExpected;
            }
            Verdict::Departs { why: format!("findings that are not known here: {}", listed(&others)) }
        }
    }
}

fn without(mode: &str, expectation: &Expectation, counts: &Counts) -> Verdict {
    if *expectation == Expectation::Unsafe {
        return Verdict::Inconclusive { why: "the control was not seen to fail".into() };
    }
    if mode.contains("w0") && counts.with_loose * 100 < counts.judged() * W0_LOOSE_PERCENT {
        let share = percent(counts.with_loose as f64 / counts.judged() as f64);
        let why = format!("only {share} of the states have a loose fragment; without a write cache it takes 30\u{a0}%");
        return Verdict::Inconclusive { why };
    }
    Verdict::AsExpected
}
