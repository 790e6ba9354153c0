//! The result as a value: one cell for each combination of the matrix, and what was found in it.

use std::collections::{BTreeMap, BTreeSet};

use powerfail_ledger::{
    Case, Contents, Expectation, Finding, FindingKind, Header, Line, Measured, Outcome, Recording, Selftest, State,
    Timeline,
};
use serde::Serialize;

use crate::findings::{Group, group};
use crate::merge::{Merged, merge};
use crate::stats::{Interval, median, rate, wilson};
use crate::verdict::Verdict;

/// All that one or several ledgers say.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Tally {
    /// The runs, by when they began.
    pub runs: Vec<Run>,
    /// The cells, by file system, mkfs, kernel, rig and workload, then by mode from safe to unsafe.
    pub cells: Vec<Cell>,
    /// Lines about a state that another line had said already.
    pub duplicates: u64,
    /// Parts of the matrix, such as `3/4`, that no ledger is of though another part of as many is there.
    pub missing_shards: Vec<String>,
}

/// One ledger.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Run {
    /// Its header.
    pub header: Header,
    /// What it measured about itself.
    pub measured: Vec<Measured>,
    /// Its selftest, if it had one.
    pub selftest: Option<Selftest>,
    /// Bytes of a torn last line, left out.
    pub torn_bytes: u64,
}

impl Run {
    /// Lines that are about the run itself; the longer copy of a ledger has more.
    fn lines(&self) -> usize {
        self.measured.len() + usize::from(self.selftest.is_some())
    }
}

/// What makes a cell: a case without its seed and expectation.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Key {
    /// File system.
    pub fs: String,
    /// Options of its mkfs.
    pub mkfs: String,
    /// Mode.
    pub mode: String,
    /// Mount options.
    pub mount: String,
    /// Workload.
    pub workload: String,
    /// Drive.
    pub drive: String,
    /// Rig.
    pub rig: String,
    /// Kernel release.
    pub kernel: String,
}

/// How many states ended how.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Every check passed.
    pub held: u64,
    /// At least one check found something.
    pub violated: u64,
    /// Not tested.
    pub skipped: u64,
    /// The harness failed.
    pub broken: u64,
    /// Whole cases that were skipped.
    pub cases_skipped: u64,
    /// Whole cases that broke.
    pub cases_broken: u64,
    /// Milliseconds that the verdicts took, one after the other.
    pub took_ms: u64,
    /// Judged states that have a loose fragment.
    pub with_loose: u64,
    /// Judged states that have a write in flight at the cut.
    pub with_in_flight: u64,
    /// Violated states by the kinds of their findings; a state with two kinds counts in both.
    pub kinds: BTreeMap<FindingKind, u64>,
    /// Violated states by the kinds of those findings that their expectation does not allow.
    pub unexpected: BTreeMap<FindingKind, u64>,
    /// Why states and cases were skipped, and how many.
    pub skip_reasons: BTreeMap<String, u64>,
    /// Why states and cases broke, and how many.
    pub break_reasons: BTreeMap<String, u64>,
    /// Violated states with at least one finding that their expectation does not allow.
    pub departing: u64,
    /// Violated states by the role of the lost block, where it is known.
    pub roles: BTreeMap<String, u64>,
    /// Images that both held and were violated; they count as violated.
    pub contradictions: u64,
}

/// What one explorer brought.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Explored {
    /// States of it that were judged.
    pub judged: u64,
    /// Of them, violated.
    pub violated: u64,
}

/// How long one case took to its first violation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct First {
    /// Seed of the case.
    pub seed: u64,
    /// States judged until the first violated one, that one with them; all of them if none was.
    pub judged: u64,
    /// Was one violated at all?
    pub seen: bool,
}

/// One violated state.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Violation {
    /// Seed of its case.
    pub seed: u64,
    /// The recipe.
    pub state: String,
    /// Digest of its image.
    pub image: String,
    /// The explorer that made it.
    pub explorer: String,
    /// The event of the cut.
    pub cut: u64,
    /// Loose fragments at the cut.
    pub loose: u64,
    /// Of them, lost.
    pub lost: u64,
    /// Writes in flight at the cut.
    pub in_flight: u64,
    /// What was found.
    pub findings: Vec<Finding>,
    /// The command that replays it.
    pub replay: Option<String>,
    /// How many crashes made it.
    pub depth: u32,
    /// What the lost block is that matters, if it was explained.
    pub role: Option<String>,
    /// Why it is violated, if it was explained.
    pub explanation: Option<String>,
    /// Milliseconds to the verdict.
    pub took_ms: u64,
}

/// One cell of the matrix.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cell {
    /// What makes it.
    pub key: Key,
    /// What is expected of it: one, unless the ledgers disagree.
    pub expectations: Vec<Expectation>,
    /// Seeds of its cases.
    pub seeds: Vec<u64>,
    /// How its states ended.
    pub counts: Counts,
    /// Share of the judged states that are violated; none if none was judged.
    pub rate: Option<f64>,
    /// Its Wilson interval at 95 %.
    pub interval: Option<Interval>,
    /// The cell against its expectation.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// Milliseconds to a verdict, the median of the judged states.
    pub median_ms: Option<u64>,
    /// What each explorer brought.
    pub explorers: BTreeMap<String, Explored>,
    /// What each depth brought: 1 is a cut of the workload, 2 one of the recovery from it.
    pub depths: BTreeMap<u32, Explored>,
    /// How long each case took to its first violation, in the order in which its states were judged; by seed.
    pub firsts: Vec<First>,
    /// The violated states, by seed and recipe.
    pub violations: Vec<Violation>,
    /// Their findings by what they have in common, the most frequent first.
    pub groups: Vec<Group>,
    /// Its recordings.
    pub recordings: Vec<Recording>,
    /// Pictures of its recordings.
    pub timelines: Vec<Timeline>,
}

impl Tally {
    /// Adds up ledgers; in whatever order they come, and however they overlap, the result is the same.
    pub fn from_ledgers(ledgers: &[Contents]) -> Tally {
        let merged = merge(ledgers);
        let duplicates = merged.values().map(|cell| cell.duplicates).sum();
        let mut cells: Vec<Cell> = merged.into_iter().map(|(key, merged)| Cell::of(key, &merged)).collect();
        cells.sort_by(|a, b| a.place().cmp(&b.place()));
        let runs = runs(ledgers);
        if let Some(why) = crate::selftest::failure(&runs) {
            cells.iter_mut().for_each(|cell| cell.verdict.doubt(&why));
        }
        let missing_shards = missing_shards(&runs);
        Tally { runs, cells, duplicates, missing_shards }
    }

    /// Without what is long: violations, groups of findings and timelines; for many nights at once.
    #[must_use]
    pub fn without_details(mut self) -> Tally {
        for cell in &mut self.cells {
            (cell.violations, cell.groups, cell.timelines) = (Vec::new(), Vec::new(), Vec::new());
        }
        self
    }

    /// States that got a verdict: the power cuts of the headline.
    pub fn judged(&self) -> u64 {
        self.cells.iter().map(|cell| cell.counts.judged()).sum()
    }

    /// Of them, violated.
    pub fn violated(&self) -> u64 {
        self.cells.iter().map(|cell| cell.counts.violated).sum()
    }

    /// The exit code of a program that has this result. The first that applies:
    /// 3 a cell is broken (nothing that the run says can be relied on until that is understood);
    /// 1 a cell departs or is inconclusive; 4 nothing was tested: all cells are skipped, or there is none;
    /// 0 every cell that was tested is as expected.
    pub fn exit_code(&self) -> u8 {
        let any = |test: fn(&Verdict) -> bool| self.cells.iter().any(|cell| test(&cell.verdict));
        if any(|verdict| matches!(verdict, Verdict::Broken { .. })) {
            3
        } else if any(|verdict| {
            matches!(verdict, Verdict::Worse { .. } | Verdict::Better { .. } | Verdict::Inconclusive { .. })
        }) {
            1
        } else if any(|verdict| matches!(verdict, Verdict::AsExpected)) {
            0
        } else {
            4
        }
    }
}

/// Each run once. One header is one run, even if its ledger was read twice while it grew.
fn runs(ledgers: &[Contents]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for ledger in ledgers {
        let measured = ledger.lines.iter().filter_map(|line| match line {
            Line::Measured(measured) => Some(measured.clone()),
            _ => None,
        });
        let selftest = ledger.lines.iter().rev().find_map(|line| match line {
            Line::Selftest(selftest) => Some(selftest.clone()),
            _ => None,
        });
        let (header, measured, torn_bytes) = (ledger.header.clone(), measured.collect(), ledger.torn_bytes);
        let run = Run { header, measured, selftest, torn_bytes };
        match runs.iter_mut().find(|known| known.header == run.header) {
            Some(known) if known.lines() >= run.lines() => {}
            Some(known) => *known = run,
            None => runs.push(run),
        }
    }
    runs.sort_by(|a, b| order(&a.header).cmp(&order(&b.header)));
    runs
}

/// Parts of a matrix that was split, and of which another part is here.
fn missing_shards(runs: &[Run]) -> Vec<String> {
    let shards = runs.iter().filter_map(|run| {
        let (part, of) = run.header.shard.as_ref()?.split_once('/')?;
        Some((of.parse::<u32>().ok()?, part.parse::<u32>().ok()?))
    });
    let here: BTreeSet<(u32, u32)> = shards.collect();
    let splits: BTreeSet<u32> = here.iter().map(|&(of, _)| of).collect();
    let parts = splits.into_iter().flat_map(|of| (1..=of).map(move |part| (of, part)));
    parts.filter(|shard| !here.contains(shard)).map(|(of, part)| format!("{part}/{of}")).collect()
}

fn order(header: &Header) -> (&str, u64, &str, &str) {
    (&header.started, header.seed, &header.command, &header.machine)
}

impl Key {
    /// The cell of a case.
    pub fn of(case: &Case) -> Key {
        Key {
            fs: case.fs.clone(),
            mkfs: case.mkfs.clone(),
            mode: case.mode.clone(),
            mount: case.mount.clone(),
            workload: without_seed(&case.workload),
            drive: case.drive.clone(),
            rig: case.rig.clone(),
            kernel: case.kernel.clone(),
        }
    }
}

/// A workload is the same one whatever its seed, which a case has beside it.
fn without_seed(workload: &str) -> String {
    if !workload.contains("seed=") {
        return workload.to_string();
    }
    workload.split(' ').filter(|word| !word.starts_with("seed=")).collect::<Vec<_>>().join(" ")
}

impl Counts {
    /// States that got a verdict.
    pub fn judged(&self) -> u64 {
        self.held + self.violated
    }

    fn add(&mut self, state: &State) {
        match &state.outcome {
            Outcome::Held => self.held += 1,
            Outcome::Violated { findings } => {
                self.violated += 1;
                count_kinds(&mut self.kinds, findings.iter());
                let departs = |finding: &&Finding| !state.case.expectation.allows(finding);
                count_kinds(&mut self.unexpected, findings.iter().filter(departs));
                self.departing += u64::from(findings.iter().any(|finding| departs(&finding)));
                if let Some(role) = &state.role {
                    *self.roles.entry(role.clone()).or_default() += 1;
                }
            }
            Outcome::Skipped { reason } => {
                self.skipped += 1;
                *self.skip_reasons.entry(reason.clone()).or_default() += 1;
            }
            Outcome::Broken { reason } => {
                self.broken += 1;
                *self.break_reasons.entry(reason.clone()).or_default() += 1;
            }
        }
    }

    fn add_end(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Skipped { reason } => {
                self.cases_skipped += 1;
                *self.skip_reasons.entry(reason.clone()).or_default() += 1;
            }
            Outcome::Broken { reason } => {
                self.cases_broken += 1;
                *self.break_reasons.entry(reason.clone()).or_default() += 1;
            }
            // No end of a case: a ledger that says so was not written by us, and must not pass for a verdict.
            Outcome::Held | Outcome::Violated { .. } => {
                self.cases_broken += 1;
                *self.break_reasons.entry("the ledger ends a case with a verdict of no state".into()).or_default() += 1;
            }
        }
    }
}

/// Counts a state once for each kind that is among its findings.
fn count_kinds<'a>(kinds: &mut BTreeMap<FindingKind, u64>, findings: impl Iterator<Item = &'a Finding>) {
    for kind in findings.map(|finding| finding.kind).collect::<BTreeSet<_>>() {
        *kinds.entry(kind).or_default() += 1;
    }
}

impl Cell {
    fn of(key: Key, merged: &Merged<'_>) -> Cell {
        let mut cell = Cell::empty(key);
        cell.expectations = merged.expectations.iter().map(|&expectation| expectation.clone()).collect();
        cell.seeds.clone_from(&merged.seeds);
        cell.counts.contradictions = merged.contradictions;
        merged.states.iter().for_each(|state| cell.add(state));
        merged.ends.iter().for_each(|end| cell.counts.add_end(&end.outcome));
        let judged =
            merged.states.iter().filter(|state| matches!(state.outcome, Outcome::Held | Outcome::Violated { .. }));
        cell.median_ms = median(judged.map(|state| state.took_ms).collect());
        cell.groups = group(&cell.violations);
        cell.firsts.clone_from(&merged.firsts);
        cell.recordings = merged.recordings.iter().map(|&recording| recording.clone()).collect();
        cell.timelines = merged.timelines.iter().map(|&timeline| timeline.clone()).collect();
        cell.rate = rate(cell.counts.violated, cell.counts.judged());
        cell.interval = wilson(cell.counts.violated, cell.counts.judged());
        cell.verdict = Verdict::of(&cell.key.mode, &cell.expectations, &cell.counts);
        cell
    }

    pub(crate) fn empty(key: Key) -> Cell {
        Cell {
            key,
            expectations: Vec::new(),
            seeds: Vec::new(),
            counts: Counts::default(),
            rate: None,
            interval: None,
            verdict: Verdict::Inconclusive { why: "no state was judged".into() },
            median_ms: None,
            explorers: BTreeMap::new(),
            depths: BTreeMap::new(),
            firsts: Vec::new(),
            violations: Vec::new(),
            groups: Vec::new(),
            recordings: Vec::new(),
            timelines: Vec::new(),
        }
    }

    fn add(&mut self, state: &State) {
        self.counts.add(state);
        let violated = match &state.outcome {
            Outcome::Held => None,
            Outcome::Violated { findings } => Some(findings),
            Outcome::Skipped { .. } | Outcome::Broken { .. } => return,
        };
        self.counts.took_ms += state.took_ms;
        self.counts.with_loose += u64::from(state.loose > 0);
        self.counts.with_in_flight += u64::from(state.in_flight > 0);
        let depth = state.depth.unwrap_or(1);
        let by_explorer = self.explorers.entry(state.explorer.clone()).or_default();
        for explored in [by_explorer, self.depths.entry(depth).or_default()] {
            explored.judged += 1;
            explored.violated += u64::from(violated.is_some());
        }
        if let Some(findings) = violated {
            self.violations.push(Violation {
                seed: state.case.seed,
                state: state.state.clone(),
                image: state.image.clone(),
                explorer: state.explorer.clone(),
                cut: state.cut,
                loose: state.loose,
                lost: state.lost,
                in_flight: state.in_flight,
                findings: findings.clone(),
                replay: state.replay.clone(),
                depth,
                role: state.role.clone(),
                explanation: state.explanation.clone(),
                took_ms: state.took_ms,
            });
        }
    }

    /// Share of the judged states that have a loose fragment.
    pub fn loose_share(&self) -> Option<f64> {
        rate(self.counts.with_loose, self.counts.judged())
    }

    /// Share of the judged states that have a write in flight at the cut.
    pub fn in_flight_share(&self) -> Option<f64> {
        rate(self.counts.with_in_flight, self.counts.judged())
    }

    /// States that were planned and have no line at all: the run was stopped before it came to them.
    pub fn missing(&self) -> u64 {
        let planned: u64 = self.recordings.iter().map(|recording| recording.planned).sum();
        let counts = &self.counts;
        planned.saturating_sub(counts.judged() + counts.skipped + counts.broken)
    }

    /// Where it stands among the cells.
    pub(crate) fn place(&self) -> impl Ord + use<'_> {
        let key = &self.key;
        let rank = MODES.iter().position(|&mode| mode == key.mode).unwrap_or(MODES.len());
        ([&key.fs, &key.mkfs, &key.kernel, &key.rig, &key.workload], rank, key)
    }
}

/// The order of the modes, as they are described; others come after, by name.
pub(crate) const MODES: [&str; 9] = [
    "barrier",
    "nobarrier-w0",
    "nobarrier-w1",
    "async-commit",
    "async-commit-w0",
    "async-commit-nobarrier",
    "torn-512",
    "data-journal",
    "fast-commit",
];
