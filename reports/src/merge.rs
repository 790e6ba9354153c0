//! Several ledgers as one: nothing counts twice, nothing is lost.
//!
//! Ledgers of shards, of resumed runs and of the same night read twice overlap. A state is the same if case (its
//! expectation aside) and recipe are. Of several lines about one state:
//! - a verdict takes the place of *broken* and *skipped* (the state was tried again), and *broken* that of *skipped*;
//! - *held* and *violated* for the same image contradict each other: it counts as violated, and as a contradiction;
//! - of lines that say the same, the one that explains more is kept;
//! - two images of one recipe come of two recordings that are named alike: both count, none is dropped in silence.
//!
//! A case that ended skipped or broken was tried again if its ledger judges a state of it later on.
//!
//! How long a case took to its first violation is read from the order of the lines in the ledger that judged most of it.

use std::collections::BTreeMap;

use powerfail_ledger::{Case, CaseEnd, Contents, Expectation, Line, Outcome, Recording, State, Timeline};

use crate::tally::{First, Key};

/// All that the ledgers say of one cell.
#[derive(Default)]
pub(crate) struct Merged<'a> {
    /// Distinct ones, in order.
    pub(crate) expectations: Vec<&'a Expectation>,
    pub(crate) seeds: Vec<u64>,
    /// Each state once, by seed, recipe and image.
    pub(crate) states: Vec<&'a State>,
    /// Cases that ended without states, each reason of a case once.
    pub(crate) ends: Vec<&'a CaseEnd>,
    pub(crate) recordings: Vec<&'a Recording>,
    pub(crate) timelines: Vec<&'a Timeline>,
    /// One a case, by seed.
    pub(crate) firsts: Vec<First>,
    /// Lines that said nothing new.
    pub(crate) duplicates: u64,
    /// Images that both held and were violated.
    pub(crate) contradictions: u64,
    alike: BTreeMap<(u64, &'a str), Vec<&'a State>>,
}

/// Sorts the lines of all ledgers by cell.
pub(crate) fn merge(ledgers: &[Contents]) -> BTreeMap<Key, Merged<'_>> {
    let mut cells: BTreeMap<Key, Merged<'_>> = BTreeMap::new();
    for ledger in ledgers {
        let mut ends: BTreeMap<(Key, u64), &CaseEnd> = BTreeMap::new();
        let mut firsts: BTreeMap<(Key, u64), First> = BTreeMap::new();
        for line in &ledger.lines {
            match line {
                Line::State(state) => {
                    let cell = cell(&mut cells, &state.case);
                    cell.alike.entry((state.case.seed, &state.state)).or_default().push(state);
                    if judged(state) {
                        let case = (Key::of(&state.case), state.case.seed);
                        ends.remove(&case);
                        let first = First { seed: state.case.seed, judged: 0, seen: false };
                        firsts.entry(case).or_insert(first).add(state);
                    }
                }
                Line::Recording(recording) => cell(&mut cells, &recording.case).recordings.push(recording),
                Line::Timeline(timeline) => cell(&mut cells, &timeline.case).timelines.push(timeline),
                Line::Case(end) => {
                    cell(&mut cells, &end.case);
                    ends.insert((Key::of(&end.case), end.case.seed), end);
                }
                Line::Header(_) | Line::Measured(_) | Line::Selftest(_) => {}
            }
        }
        for ((key, _), first) in firsts {
            cells.entry(key).or_default().firsts.push(first);
        }
        for end in ends.into_values() {
            cell(&mut cells, &end.case).ends.push(end);
        }
    }
    cells.values_mut().for_each(Merged::settle);
    cells
}

fn cell<'m, 'a>(cells: &'m mut BTreeMap<Key, Merged<'a>>, case: &'a Case) -> &'m mut Merged<'a> {
    let merged = cells.entry(Key::of(case)).or_default();
    if let Err(place) = merged.expectations.binary_search(&&case.expectation) {
        merged.expectations.insert(place, &case.expectation);
    }
    if let Err(place) = merged.seeds.binary_search(&case.seed) {
        merged.seeds.insert(place, case.seed);
    }
    merged
}

impl First {
    fn add(&mut self, state: &State) {
        if !self.seen {
            self.judged += 1;
            self.seen = matches!(state.outcome, Outcome::Violated { .. });
        }
    }
}

fn judged(state: &State) -> bool {
    matches!(state.outcome, Outcome::Held | Outcome::Violated { .. })
}

impl<'a> Merged<'a> {
    fn settle(&mut self) {
        for alike in std::mem::take(&mut self.alike).into_values() {
            let lines = alike.len();
            let kept = self.states.len();
            self.keep(alike);
            self.duplicates += (lines - (self.states.len() - kept)) as u64;
        }
        // Ledgers of one case overlap: what saw a violation counts, and of two that did the one that took longer, which
        // did not begin in the middle.
        self.firsts.sort_by_key(|first| (first.seed, std::cmp::Reverse((first.seen, first.judged))));
        self.firsts.dedup_by_key(|first| first.seed);
        self.recordings.sort_by(|a, b| (a.case.seed, &a.digest, &a.path).cmp(&(b.case.seed, &b.digest, &b.path)));
        self.recordings.dedup_by(|a, b| a.case.seed == b.case.seed && a.digest == b.digest);
        self.timelines.sort_by(|a, b| (a.case.seed, a.cut, &a.state).cmp(&(b.case.seed, b.cut, &b.state)));
        self.timelines.dedup_by(|a, b| a.case.seed == b.case.seed && a.state == b.state);
        self.ends.sort_by(|a, b| (a.case.seed, reason(&a.outcome)).cmp(&(b.case.seed, reason(&b.outcome))));
        self.ends.dedup_by(|a, b| a.case.seed == b.case.seed && a.outcome == b.outcome);
    }

    fn keep(&mut self, mut alike: Vec<&'a State>) {
        // The order does not depend on that of the ledgers; within one image the most telling line is first.
        let key = |state: &'a State| {
            let explained = [&state.explanation, &state.role].map(|text| (text.is_none(), text));
            (rank(state), &state.image, explained, findings(state), state.took_ms)
        };
        alike.sort_by(|a, b| key(a).cmp(&key(b)));
        let verdicts = alike.partition_point(|state| judged(state));
        if verdicts == 0 {
            self.states.push(alike[0]);
            return;
        }
        let mut by_image: BTreeMap<&str, (&State, bool)> = BTreeMap::new();
        for state in &alike[..verdicts] {
            let (first, differs) = by_image.entry(&state.image).or_insert((state, false));
            *differs |= rank(first) != rank(state);
        }
        for (state, differs) in by_image.into_values() {
            self.contradictions += u64::from(differs);
            self.states.push(state);
        }
    }
}

fn rank(state: &State) -> u8 {
    match state.outcome {
        Outcome::Violated { .. } => 0,
        Outcome::Held => 1,
        Outcome::Broken { .. } => 2,
        Outcome::Skipped { .. } => 3,
    }
}

fn findings(state: &State) -> Vec<(powerfail_ledger::FindingKind, &str)> {
    let Outcome::Violated { findings } = &state.outcome else { return Vec::new() };
    findings.iter().map(|finding| (finding.kind, finding.detail.as_str())).collect()
}

fn reason(outcome: &Outcome) -> (u8, &str) {
    match outcome {
        Outcome::Held | Outcome::Violated { .. } => (0, ""),
        Outcome::Skipped { reason } => (1, reason),
        Outcome::Broken { reason } => (2, reason),
    }
}
