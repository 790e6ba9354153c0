//! Two runs beside each other: is the second worse?
//!
//! Cells are paired by all that makes them but the kernel, which is what one mostly compares; where a run has a cell on
//! several kernels, by the kernel too. For each pair, the first rule that applies:
//! 1. One side is broken or has nothing judged: **cannot tell**; skipped on both sides, it is left out.
//! 2. A control: it must fail on both sides, or that side proves nothing and nobody can tell; how often it fails is not
//!    judged.
//! 3. Fisher's exact test, two-sided, on the violated states, and on those whose findings are not the expected ones. All
//!    p-values of the comparison are corrected together after Holm; one below the level is a difference: **worse** or
//!    **better**.
//! 4. The second side has findings that are not expected, and the first has none: **cannot tell**. One violation of a
//!    safe cell is no proof of a difference, but nobody may call it no worse.
//! 5. At 95 % confidence the second rate may lie above the first by the margin or more: **cannot tell**, too few states.
//! 6. Else **no worse**.
//!
//! States of one recording have the recording in common, which the test does not know: a level that is strict, and several
//! seeds a side, are what guards against calling a recording a regression.

use std::collections::BTreeMap;

use powerfail_ledger::Expectation;
use serde::Serialize;

use crate::labels::of_keys;
use crate::stats::{difference, fisher, holm};
use crate::tally::{Cell, Key, Tally};
use crate::text::{count, p_value, percent, points};
use crate::verdict::Verdict;

/// When a difference is one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Thresholds {
    /// Corrected p-values below it are a difference.
    pub level: f64,
    /// A rise of the rate that must not be missed, as a share: `no worse` excludes it at 95 % confidence.
    pub margin: f64,
}

impl Default for Thresholds {
    fn default() -> Thresholds {
        Thresholds { level: 0.01, margin: 0.05 }
    }
}

/// The result of a comparison.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// When a difference is one.
    pub thresholds: Thresholds,
    /// The pairs, then what is on one side alone; each in the order of the matrix.
    pub cells: Vec<Compared>,
}

/// One cell on both sides.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Compared {
    /// How the cell is called in this comparison.
    pub name: String,
    /// The first side; none if the cell is not there.
    pub before: Option<Side>,
    /// The second side; none if the cell is not there.
    pub after: Option<Side>,
    /// The smaller p-value of its tests, corrected; none where nothing was tested.
    pub p: Option<f64>,
    /// The 95 % interval of the second rate less the first.
    pub difference: Option<(f64, f64)>,
    /// What that says.
    #[serde(flatten)]
    pub change: Change,
}

/// What one run says of a cell.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Side {
    /// Its kernel.
    pub kernel: String,
    /// States that got a verdict.
    pub judged: u64,
    /// Of them, violated.
    pub violated: u64,
    /// Of them, with findings that are not expected.
    pub departing: u64,
    /// The verdict of that run.
    #[serde(flatten)]
    pub verdict: Verdict,
}

/// What became of a cell.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "change", content = "because")]
pub enum Change {
    /// It fails more often.
    Worse(String),
    /// It fails less often.
    Better(String),
    /// It does not fail more often, by more than the margin.
    NoWorse,
    /// A control that fails on both sides.
    Control,
    /// The runs can't tell.
    CannotTell(String),
    /// The cell is new: there is nothing to compare it with.
    New,
    /// It was skipped in both runs.
    NotTested,
}

impl Change {
    /// Two words at most.
    pub fn name(&self) -> &'static str {
        match self {
            Change::Worse(_) => "worse",
            Change::Better(_) => "better",
            Change::NoWorse => "no worse",
            Change::Control => "control",
            Change::CannotTell(_) => "cannot tell",
            Change::New => "new",
            Change::NotTested => "not tested",
        }
    }

    /// The reason; empty if there is nothing to say.
    pub fn why(&self) -> &str {
        match self {
            Change::Worse(why) | Change::Better(why) | Change::CannotTell(why) => why,
            Change::NoWorse | Change::Control | Change::New | Change::NotTested => "",
        }
    }
}

impl Comparison {
    /// Compares two results.
    pub fn of(before: &Tally, after: &Tally, thresholds: Thresholds) -> Comparison {
        let pairs = pairs(before, after);
        let keys: Vec<&Key> = pairs.iter().filter_map(|(a, b)| b.or(*a).map(|cell| &cell.key)).collect();
        let labels = of_keys(&keys);
        let tests: Vec<Tests> = pairs.iter().map(|&(a, b)| Tests::of(a, b)).collect();
        let corrected = holm(&tests.iter().flat_map(Tests::p_values).collect::<Vec<_>>());
        let mut corrected = corrected.into_iter();
        let cells = pairs.iter().zip(&labels).zip(tests).map(|((&(a, b), label), tests)| {
            let tests = tests.corrected(&mut corrected);
            Compared {
                name: label.whole(),
                before: a.map(Side::of),
                after: b.map(Side::of),
                p: tests.p_values().min_by(f64::total_cmp),
                difference: a.zip(b).and_then(|(a, b)| difference(violated(a), violated(b))),
                change: judge(a, b, &tests, thresholds),
            }
        });
        Comparison { thresholds, cells: cells.collect() }
    }

    /// 1 a cell is worse, 125 nobody can tell (a cell that can't be told, or none in common), 0 no cell is worse: what
    /// `git bisect run` reads as bad, skip and good.
    pub fn exit_code(&self) -> u8 {
        let any = |test: fn(&Change) -> bool| self.cells.iter().any(|cell| test(&cell.change));
        if any(|change| matches!(change, Change::Worse(_))) {
            1
        } else if any(|change| matches!(change, Change::CannotTell(_)))
            || !any(|change| matches!(change, Change::NoWorse | Change::Better(_)))
        {
            125
        } else {
            0
        }
    }

    /// The result in one sentence.
    pub fn headline(&self) -> String {
        let number = |test: fn(&Change) -> bool| self.cells.iter().filter(|cell| test(&cell.change)).count();
        let worse = number(|change| matches!(change, Change::Worse(_)));
        let better = number(|change| matches!(change, Change::Better(_)));
        let unknown = number(|change| matches!(change, Change::CannotTell(_)));
        let of = |some: usize| {
            format!("{some} of {} cell{}", self.cells.len(), if self.cells.len() == 1 { "" } else { "s" })
        };
        match (self.exit_code(), worse) {
            (1, 1) => format!("{} is worse.", of(1)),
            (1, _) => format!("{} are worse.", of(worse)),
            (125, _) if unknown > 0 => format!("Cannot tell: {} can't be told apart.", of(unknown)),
            (125, _) => "Cannot tell: no cell but controls is in both runs.".into(),
            _ if better > 0 => format!("No cell is worse, and {} better.", of(better)),
            _ => "No cell is worse.".into(),
        }
    }
}

type Pair<'a> = (Option<&'a Cell>, Option<&'a Cell>);

/// The cells of both sides, paired; what only the first has comes last.
fn pairs<'a>(before: &'a Tally, after: &'a Tally) -> Vec<Pair<'a>> {
    let mut unpaired: BTreeMap<Key, Vec<&Cell>> = BTreeMap::new();
    for cell in &before.cells {
        unpaired.entry(but_kernel(&cell.key)).or_default().push(cell);
    }
    let mut kernels: BTreeMap<Key, usize> = BTreeMap::new();
    for cell in &after.cells {
        *kernels.entry(but_kernel(&cell.key)).or_default() += 1;
    }
    let mut pairs: Vec<Pair<'_>> = Vec::new();
    for cell in &after.cells {
        let key = but_kernel(&cell.key);
        let alone = kernels[&key] == 1;
        let candidates = unpaired.entry(key).or_default();
        let same = candidates.iter().position(|other| other.key.kernel == cell.key.kernel);
        let place = same.or((alone && candidates.len() == 1).then_some(0));
        pairs.push((place.map(|place| candidates.remove(place)), Some(cell)));
    }
    let left: Vec<&Cell> = unpaired.into_values().flatten().collect();
    let in_order = before.cells.iter().filter(|cell| left.iter().any(|left| std::ptr::eq(*left, *cell)));
    pairs.extend(in_order.map(|cell| (Some(cell), None)));
    pairs
}

fn but_kernel(key: &Key) -> Key {
    Key { kernel: String::new(), ..key.clone() }
}

fn violated(cell: &Cell) -> (u64, u64) {
    (cell.counts.violated, cell.counts.judged())
}

fn departing(cell: &Cell) -> (u64, u64) {
    (cell.counts.departing, cell.counts.judged())
}

fn is_control(cell: &Cell) -> bool {
    cell.expectations == [Expectation::Unsafe]
}

/// The p-values of one pair.
struct Tests {
    violated: Option<f64>,
    departing: Option<f64>,
}

impl Tests {
    fn of(before: Option<&Cell>, after: Option<&Cell>) -> Tests {
        let (Some(a), Some(b)) = (before, after) else { return Tests { violated: None, departing: None } };
        if is_control(b) || a.counts.judged() == 0 || b.counts.judged() == 0 {
            return Tests { violated: None, departing: None };
        }
        // What is the same test twice, or none, must not make the others' correction harder.
        let own = departing(a) != violated(a) || departing(b) != violated(b);
        let some = a.counts.departing + b.counts.departing > 0;
        Tests {
            violated: Some(fisher(violated(a), violated(b))),
            departing: (own && some).then(|| fisher(departing(a), departing(b))),
        }
    }

    fn p_values(&self) -> impl Iterator<Item = f64> + use<> {
        self.violated.into_iter().chain(self.departing)
    }

    fn corrected(self, corrected: &mut impl Iterator<Item = f64>) -> Tests {
        Tests {
            violated: self.violated.and_then(|_| corrected.next()),
            departing: self.departing.and_then(|_| corrected.next()),
        }
    }
}

impl Side {
    fn of(cell: &Cell) -> Side {
        Side {
            kernel: cell.key.kernel.clone(),
            judged: cell.counts.judged(),
            violated: cell.counts.violated,
            departing: cell.counts.departing,
            verdict: cell.verdict.clone(),
        }
    }
}

fn judge(before: Option<&Cell>, after: Option<&Cell>, tests: &Tests, thresholds: Thresholds) -> Change {
    let cannot = |why: String| Change::CannotTell(why);
    let (a, b) = match (before, after) {
        (Some(a), Some(b)) => (a, b),
        (None, _) => return Change::New,
        (_, None) => return cannot("the second run does not have it".into()),
    };
    if [a, b].iter().all(|cell| matches!(cell.verdict, Verdict::Skipped { .. })) {
        return Change::NotTested;
    }
    for (cell, side) in [(a, "first"), (b, "second")] {
        if matches!(cell.verdict, Verdict::Broken { .. }) {
            return cannot(format!("it is broken in the {side} run: {}", cell.verdict.why()));
        }
        if cell.counts.judged() == 0 {
            return cannot(format!("no state of it was judged in the {side} run"));
        }
        if is_control(cell) && cell.counts.violated == 0 {
            return cannot(format!("the control did not fail in the {side} run, so that run proves nothing"));
        }
    }
    if is_control(b) {
        return Change::Control;
    }
    type Test = (Option<f64>, fn(&Cell) -> (u64, u64), &'static str);
    let significant: [Test; 2] =
        [(tests.departing, departing, "with unexpected findings"), (tests.violated, violated, "violated")];
    let mut better = None;
    for (p, of, what) in significant {
        let Some(p) = p.filter(|&p| p < thresholds.level) else { continue };
        let ((x, n), (y, m)) = (of(a), of(b));
        let why =
            format!("{} of {} {what} before, {} of {} after; {}", count(x), count(n), count(y), count(m), p_value(p));
        // Cross products are exact where quotients are not.
        if u128::from(y) * u128::from(n) > u128::from(x) * u128::from(m) {
            return Change::Worse(why);
        }
        better = Some(Change::Better(why));
    }
    if a.counts.departing == 0 && b.counts.departing > 0 {
        let (some, all) = departing(b);
        let why = format!(
            "{} of {} have unexpected findings and none had before, too few to tell by",
            count(some),
            count(all)
        );
        return cannot(why);
    }
    if let Some(better) = better {
        return better;
    }
    match difference(violated(a), violated(b)) {
        Some((_, most)) if most >= thresholds.margin => cannot(format!(
            "{} before, {} after: it may be worse by up to {}, and {} must not be missed; judge more states",
            rate_of(a),
            rate_of(b),
            points(most),
            points(thresholds.margin)
        )),
        _ => Change::NoWorse,
    }
}

fn rate_of(cell: &Cell) -> String {
    cell.rate.map_or("nothing".into(), percent)
}
