//! One cell as the template is given it.

use std::fmt::Write;

use powerfail_ledger::{Expectation, Recording};
use serde::Serialize;

use crate::charts;
use crate::findings::Group;
use crate::labels::Label;
use crate::notes::{notes, shares};
use crate::tally::{Cell, Violation};
use crate::text::{bytes, count, duration, elide, percent, percent_range};
use crate::verdict::{Verdict, describe};

use super::Limits;
use super::view::Chart;

/// Characters of one finding in the list of violations; its group has it longer.
const SHORT_DETAIL: usize = 240;
/// Characters of the finding that stands for its group.
const LONG_DETAIL: usize = 1200;

#[derive(Serialize)]
pub(super) struct CellView {
    id: String,
    row: String,
    mode: String,
    whole: String,
    /// Shown unfolded: something is to be looked at.
    open: bool,
    violated: String,
    judged: String,
    rate: Option<String>,
    interval: Option<String>,
    kinds: Vec<(&'static str, String)>,
    loose: Option<String>,
    expected: String,
    reference: Option<String>,
    /// The class of the verdict's colour.
    verdict_class: &'static str,
    verdict: &'static str,
    sign: &'static str,
    why: String,
    notes: Vec<String>,
    facts: Vec<(&'static str, String)>,
    explorers: Vec<(String, String)>,
    groups: Vec<GroupView>,
    groups_left_out: Option<String>,
    violations: Vec<ViolationView>,
    violations_left_out: Option<String>,
    timelines: Vec<TimelineView>,
    recordings: Vec<RecordingView>,
}

#[derive(Serialize)]
struct GroupView {
    kind: &'static str,
    detail: String,
    states: String,
    recipe: String,
    replay: Option<String>,
}

#[derive(Serialize)]
struct ViolationView {
    facts: String,
    findings: Vec<(&'static str, String)>,
    recipe: String,
    replay: Option<String>,
}

#[derive(Serialize)]
struct TimelineView {
    chart: Chart,
    recipe: String,
    sampled: Option<String>,
}

#[derive(Serialize)]
struct RecordingView {
    seed: String,
    figures: Vec<(&'static str, String)>,
}

impl CellView {
    pub(super) fn of(
        index: usize,
        cell: &Cell,
        label: &Label,
        pictures: usize,
        limits: Limits,
        room: usize,
    ) -> CellView {
        let counts = &cell.counts;
        let violations = listed_violations(&cell.violations, limits.violations, room);
        CellView {
            id: cell_id(index),
            row: label.row(),
            mode: label.mode.clone(),
            whole: label.whole(),
            open: !matches!(cell.verdict, Verdict::AsExpected | Verdict::Skipped { .. }),
            violated: count(counts.violated),
            judged: count(counts.judged()),
            rate: cell.rate.map(percent),
            interval: cell.interval.map(|interval| percent_range(interval.low, interval.high)),
            kinds: counts.kinds.iter().map(|(kind, &states)| (kind.name(), count(states))).collect(),
            loose: cell.loose_share().map(percent),
            expected: cell.expectations.iter().map(describe).collect::<Vec<_>>().join(" or "),
            reference: reference(&cell.expectations),
            verdict_class: verdict_class(&cell.verdict),
            verdict: cell.verdict.name(),
            sign: cell.verdict.sign(),
            why: cell.verdict.why().to_string(),
            notes: notes(cell),
            facts: facts(cell),
            explorers: cell
                .explorers
                .iter()
                .map(|(name, explored)| {
                    (name.clone(), format!("{} of {}", count(explored.violated), count(explored.judged)))
                })
                .collect(),
            groups: cell
                .groups
                .iter()
                .take(limits.groups)
                .map(|group| GroupView::of(group, &cell.violations))
                .collect(),
            groups_left_out: left_out(cell.groups.len(), limits.groups, "distinct findings"),
            violations_left_out: left_out(cell.violations.len(), violations.len(), "violations"),
            violations,
            timelines: cell.timelines.iter().take(pictures).map(TimelineView::of).collect(),
            recordings: cell.recordings.iter().map(RecordingView::of).collect(),
        }
    }
}

/// Where links to a cell lead.
pub(super) fn cell_id(index: usize) -> String {
    format!("cell-{}", index + 1)
}

pub(super) fn verdict_class(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::AsExpected => "ok",
        Verdict::Worse { .. } => "worse",
        Verdict::Better { .. } => "better",
        Verdict::Inconclusive { .. } => "inconclusive",
        Verdict::Skipped { .. } => "skipped",
        Verdict::Broken { .. } => "broken",
    }
}

fn reference(expectations: &[Expectation]) -> Option<String> {
    expectations.iter().find_map(|expectation| match expectation {
        Expectation::Known { reference, .. } if !reference.is_empty() => Some(reference.clone()),
        _ => None,
    })
}

fn facts(cell: &Cell) -> Vec<(&'static str, String)> {
    let key = &cell.key;
    let seeds: Vec<String> = cell.seeds.iter().take(8).map(u64::to_string).collect();
    let more = if cell.seeds.len() > seeds.len() {
        format!(" and {} more", cell.seeds.len() - seeds.len())
    } else {
        String::new()
    };
    let mut facts = vec![
        ("mkfs", or_defaults(&key.mkfs)),
        ("mount", or_defaults(&key.mount)),
        ("workload", key.workload.clone()),
        ("drive", key.drive.clone()),
        ("rig", key.rig.clone()),
        ("kernel", key.kernel.clone()),
        (if cell.seeds.len() == 1 { "seed" } else { "seeds" }, seeds.join(", ") + &more),
    ];
    facts.extend(shares(cell).map(|shares| ("at the cuts", shares)));
    facts.extend(cell.median_ms.map(|ms| ("to a verdict", format!("{} in the median", duration(ms)))));
    facts
}

fn or_defaults(options: &str) -> String {
    if options.is_empty() { "defaults".into() } else { options.into() }
}

fn left_out(all: usize, shown: usize, what: &str) -> Option<String> {
    (all > shown).then(|| format!("{} more {what} are in the ledger.", count((all - shown) as u64)))
}

/// The first violations that fit both bounds; at least one.
fn listed_violations(violations: &[Violation], limit: usize, room: usize) -> Vec<ViolationView> {
    let mut used = 0;
    let mut listed = Vec::new();
    for violation in violations.iter().take(limit) {
        let view = ViolationView::of(violation);
        used += view.size();
        if used > room && !listed.is_empty() {
            break;
        }
        listed.push(view);
    }
    listed
}

impl GroupView {
    fn of(group: &Group, violations: &[Violation]) -> GroupView {
        let example = &violations[group.example];
        GroupView {
            kind: group.kind.name(),
            detail: elide(&group.detail, LONG_DETAIL),
            states: count(group.states),
            recipe: example.state.clone(),
            replay: example.replay.clone(),
        }
    }
}

impl ViolationView {
    fn of(violation: &Violation) -> ViolationView {
        let mut facts = format!("cut at {}, {}", count(violation.cut), violation.explorer);
        write!(facts, ", {} of {} loose fragments lost", count(violation.lost), count(violation.loose))
            .expect("into a string");
        if violation.in_flight > 0 {
            write!(facts, ", {} in flight", count(violation.in_flight)).expect("into a string");
        }
        write!(facts, ", seed {}, {}", violation.seed, duration(violation.took_ms)).expect("into a string");
        let findings = violation.findings.iter();
        ViolationView {
            facts,
            findings: findings.map(|finding| (finding.kind.name(), elide(&finding.detail, SHORT_DETAIL))).collect(),
            recipe: violation.state.clone(),
            replay: violation.replay.clone(),
        }
    }

    /// About how many bytes it takes on the page.
    fn size(&self) -> usize {
        let findings: usize = self.findings.iter().map(|(_, detail)| detail.len() + 60).sum();
        200 + self.facts.len() + findings + self.recipe.len() + self.replay.as_ref().map_or(0, String::len)
    }
}

impl TimelineView {
    fn of(timeline: &powerfail_ledger::Timeline) -> TimelineView {
        let shown = timeline.writes.len() as u64;
        TimelineView {
            chart: Chart::of(|width| charts::timeline::chart(timeline, width)),
            recipe: timeline.state.clone(),
            sampled: (timeline.of_writes > shown)
                .then(|| format!("{} of {} writes are shown.", count(shown), count(timeline.of_writes))),
        }
    }
}

impl RecordingView {
    fn of(recording: &Recording) -> RecordingView {
        let keeps = &recording.path_keeps;
        RecordingView {
            seed: recording.case.seed.to_string(),
            figures: vec![
                ("events", count(recording.events)),
                ("writes", count(recording.writes)),
                ("written", bytes(recording.written_bytes)),
                ("flushes", count(recording.flushes)),
                ("FUA writes", count(recording.fua)),
                ("trims", count(recording.trims)),
                ("steps", count(recording.steps)),
                ("cuts between", format!("{} and {}", count(recording.first_cut), count(recording.last_cut))),
                ("planned", count(recording.planned)),
                ("planned with loose fragments", percent(recording.loose_permille as f64 / 1000.0)),
                ("the path keeps", format!("FLUSH {}, FUA {}, TRIM {}", keeps.flush, keeps.fua, keeps.trim)),
                ("recording took", duration(recording.took_ms)),
                ("file", recording.path.clone()),
                ("digest", recording.digest.clone()),
            ],
        }
    }
}
