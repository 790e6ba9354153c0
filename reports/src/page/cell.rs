//! One cell as the template is given it.

use std::fmt::Write;

use powerfail_ledger::{Expectation, Recording};
use serde::Serialize;

use crate::charts::cell_id;
use crate::findings::Group;
use crate::labels::Label;
use crate::notes::{notes, shares};
use crate::stats::until_first;
use crate::tally::{Cell, Violation};
use crate::text::{bytes, count, counted, duration, elide, percent, percent_range};
use crate::verdict::{Verdict, describe};

use super::Limits;
use super::picture::TimelineView;
use super::view::left_out;

/// Characters of one finding in the list of violations; its group has it longer.
const SHORT_DETAIL: usize = 240;
/// Seeds listed.
const SEEDS: usize = 8;
/// Findings listed with one violation.
const FINDINGS: usize = 6;
/// Bytes of a recipe that is shown beside the command that replays it.
const LONG_RECIPE: usize = 240;
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
    timelines_left_out: Option<&'static str>,
    recordings: Vec<RecordingView>,
    recordings_left_out: Option<String>,
}

#[derive(Serialize)]
struct GroupView {
    kind: &'static str,
    detail: String,
    states: String,
    role: Option<String>,
    explanation: Option<String>,
    commands: Vec<(&'static str, String)>,
}

#[derive(Serialize)]
struct ViolationView {
    facts: String,
    findings: Vec<(&'static str, String)>,
    findings_left_out: Option<String>,
    role: Option<String>,
    explanation: Option<String>,
    commands: Vec<(&'static str, String)>,
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
        timelines: Vec<TimelineView>,
        limits: Limits,
        room: Room,
    ) -> CellView {
        let counts = &cell.counts;
        let violations = cell.violations.iter().map(ViolationView::of);
        let violations = fitting(violations, limits.violations, room.violations, ViolationView::size);
        let groups = cell.groups.iter().map(|group| GroupView::of(group, &cell.violations));
        let groups = fitting(groups, limits.groups, room.groups, GroupView::size);
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
            groups_left_out: left_out(cell.groups.len(), groups.len(), "distinct findings are in the ledger"),
            groups,
            violations_left_out: left_out(cell.violations.len(), violations.len(), "violations are in the ledger"),
            violations,
            timelines_left_out: (timelines.is_empty() && !cell.timelines.is_empty()).then_some(
                "The picture of its recording is left out to keep the page small; report this folder alone to see it.",
            ),
            timelines,
            recordings: cell.recordings.iter().take(SEEDS).map(RecordingView::of).collect(),
            recordings_left_out: left_out(cell.recordings.len(), SEEDS, "recordings are in the ledger"),
        }
    }
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
    let seeds: Vec<String> = cell.seeds.iter().take(SEEDS).map(u64::to_string).collect();
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
    facts.extend(first_violation(cell).map(|first| ("first violation", first)));
    if cell.depths.keys().any(|&depth| depth > 1) {
        let each = cell.depths.iter();
        let each = each.map(|(depth, e)| format!("{depth}: {} of {}", count(e.violated), count(e.judged)));
        facts.push(("by depth", each.collect::<Vec<_>>().join("; ")));
    }
    facts.extend(cell.median_ms.map(|ms| ("to a verdict", format!("{} in the median", duration(ms)))));
    facts
}

/// How long the first violation took, and takes at this rate.
fn first_violation(cell: &Cell) -> Option<String> {
    let judged = cell.counts.judged();
    let seen: Vec<String> = cell.firsts.iter().filter(|first| first.seen).map(|first| count(first.judged)).collect();
    let until = |share| until_first(cell.counts.violated, judged, share);
    match (until(0.5), until(0.95)) {
        (Some(half), Some(most)) => {
            let seen =
                if seen.len() > SEEDS { format!("{} and more", seen[..SEEDS].join(", ")) } else { seen.join(", ") };
            Some(format!(
                "after {seen} judged; at this rate half of all runs see one within {}, 95\u{a0}% within {}",
                counted(half, "state", "states"),
                count(most)
            ))
        }
        _ => cell.interval.map(|interval| {
            format!(
                "none in {}; a rate above {} would have shown",
                counted(judged, "state", "states"),
                percent(interval.high)
            )
        }),
    }
}

fn or_defaults(options: &str) -> String {
    if options.is_empty() { "defaults".into() } else { options.into() }
}

/// Bytes that a cell has for what it lists.
#[derive(Clone, Copy)]
pub(super) struct Room {
    pub(super) violations: usize,
    pub(super) groups: usize,
}

/// The first that fit both bounds; at least one.
fn fitting<T>(views: impl Iterator<Item = T>, limit: usize, room: usize, size: fn(&T) -> usize) -> Vec<T> {
    let mut used = 0;
    let mut listed = Vec::new();
    for view in views.take(limit) {
        used += size(&view);
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
            role: example.role.clone(),
            explanation: example.explanation.clone(),
            commands: commands(example),
        }
    }

    /// About how many bytes it takes on the page.
    fn size(&self) -> usize {
        200 + self.detail.len() + text_size(&self.role, &self.explanation, &self.commands)
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
        if violation.depth > 1 {
            write!(facts, ", depth {}", violation.depth).expect("into a string");
        }
        let findings = violation.findings.iter().take(FINDINGS);
        ViolationView {
            facts,
            findings: findings.map(|finding| (finding.kind.name(), elide(&finding.detail, SHORT_DETAIL))).collect(),
            findings_left_out: left_out(violation.findings.len(), FINDINGS, "findings"),
            role: violation.role.clone(),
            explanation: violation.explanation.clone(),
            commands: commands(violation),
        }
    }

    /// About how many bytes it takes on the page.
    fn size(&self) -> usize {
        let findings: usize = self.findings.iter().map(|(_, detail)| detail.len() + 60).sum();
        200 + self.facts.len() + findings + text_size(&self.role, &self.explanation, &self.commands)
    }
}

/// What to type to look at a state again. A recipe that is long is left to its casebook.
fn commands(violation: &Violation) -> Vec<(&'static str, String)> {
    let mut commands = Vec::new();
    if let Some(replay) = &violation.replay {
        commands.push(("replay", replay.clone()));
        if let Some(what) = replay.strip_prefix("powerfail replay ") {
            commands.push(("its image", format!("powerfail materialise {what} -o image")));
        }
    }
    if violation.state.len() <= LONG_RECIPE || commands.is_empty() {
        commands.push(("recipe", violation.state.clone()));
    }
    commands
}

fn text_size(role: &Option<String>, explanation: &Option<String>, commands: &[(&str, String)]) -> usize {
    let texts = [role, explanation].into_iter().flatten().map(String::len).sum::<usize>();
    texts + commands.iter().map(|(_, command)| command.len() + 80).sum::<usize>()
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
