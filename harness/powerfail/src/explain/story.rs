//! The story of a state, in sentences.

use std::collections::BTreeSet;

use powerfail_drive::crash::Recipe;
use powerfail_jbd2::Table;
use powerfail_ledger::{Finding, FindingKind, Outcome};
use powerfail_workloads::catalog::Workload;

use super::ext::{is_committed, is_replayed, length};
use super::{Part, Place};
use crate::cell::Cell;
use crate::evidence::{Evidence, Mounting};
use crate::verify::Judged;

/// What the story is read from, beside what was lost.
pub(super) struct Images<'a> {
    /// The device after the cut.
    pub(super) after: &'a [u8],
    /// Its journal.
    pub(super) journal: Option<&'a Table>,
}

/// Sentences of one kind; a story is read by a person.
const MOST: usize = 4;

pub(super) fn tell(
    cell: &Cell,
    recipe: &Recipe,
    lost: usize,
    parts: &[Part],
    images: &Images<'_>,
    judged: &Judged,
) -> Vec<String> {
    let mut story = vec![beginning(recipe, lost)];
    if let Some(journal) = images.journal {
        let mounted = matches!(judged.evidence.recovery, Some(Mounting::Mounted { .. }));
        story.extend(journal_lines(parts, journal, mounted));
        story.extend(home_lines(parts, images.after));
    }
    story.extend(kernel_lines(&judged.evidence));
    if let Outcome::Violated { findings } = &judged.outcome {
        story.extend(findings.iter().take(MOST).map(|finding| cost(cell, finding)));
        story.extend(checksum_note(findings, images.journal.is_some(), cell));
    }
    story
}

fn beginning(recipe: &Recipe, lost: usize) -> String {
    let loose = recipe.kept.len();
    let what = match lost {
        0 => "and all of them survived".to_owned(),
        1 => "and one of them was lost".to_owned(),
        n => format!("and {n} of them were lost"),
    };
    format!("The power failed at event {}; {loose} fragments of writes were not settled, {what}.", recipe.cut)
}

/// What the lost blocks of the log mean, transaction by transaction.
fn journal_lines(parts: &[Part], journal: &Table, mounted: bool) -> Vec<String> {
    let mut lines = Vec::new();
    let transactions: BTreeSet<u32> = parts.iter().filter_map(|part| part.transaction).collect();
    for transaction in transactions {
        let of = |place: Place| parts.iter().filter(move |p| p.transaction == Some(transaction) && p.place == place);
        let committed = is_committed(journal, transaction);
        let missing: Vec<_> = of(Place::LogData).chain(of(Place::Descriptor)).chain(of(Place::Revoke)).collect();
        if committed && !missing.is_empty() {
            let named: Vec<_> = missing.iter().take(MOST).map(|part| part.text.as_str()).collect();
            let more = if missing.len() > MOST {
                format!(", and {} blocks more", missing.len() - MOST)
            } else {
                String::new()
            };
            lines.push(format!(
                "The commit block of transaction {transaction} is on the platter, but not all that it commits: missing is {}{more}. In \
                 its place in the log stands what was there before.",
                named.join("; ")
            ));
        }
        if of(Place::Commit).next().is_some() {
            lines.push(format!(
                "The commit block of transaction {transaction} was lost, so recovery ends before that transaction."
            ));
        }
    }
    if parts.iter().any(|part| part.place == Place::JournalSuperblock) {
        lines.push("The journal's superblock was lost, so recovery begins where the one before it says.".into());
    }
    if let Some(end) = journal.end.filter(|_| mounted) {
        lines.push(format!("Recovery replays the log up to, and not with, transaction {end}."));
    }
    if let Some(trouble) = &journal.trouble {
        lines.push(format!("Read from its bytes, the log ends in trouble: {trouble}."));
    }
    lines
}

/// What was lost in place, and whether the log still makes up for it.
fn home_lines(parts: &[Part], after: &[u8]) -> Vec<String> {
    let homes: Vec<_> = parts.iter().filter(|part| part.place == Place::Home).collect();
    let mut lines = Vec::new();
    for part in homes.iter().take(MOST) {
        if part.bytes.0 >= length(after) {
            continue;
        }
        let fate = match part.block.and_then(|block| is_replayed(after, block)) {
            Some(transaction) => {
                format!("the log still has it, from transaction {transaction}, and recovery puts it there")
            }
            None => "the log no longer has it, or never had, so what stood there before is there again".into(),
        };
        lines.push(format!("Lost was {}; {fate}.", part.text));
    }
    if homes.len() > MOST {
        lines.push(format!("So were {} blocks more in place.", homes.len() - MOST));
    }
    lines
}

fn kernel_lines(evidence: &Evidence) -> Vec<String> {
    let said = |log: &powerfail_agent::protocol::Log| {
        let lines: Vec<_> = log.lines.iter().map(|line| evidence.neutral(&line.text)).take(MOST).collect();
        if lines.is_empty() { String::new() } else { format!(" It said: {}", lines.join(" | ")) }
    };
    let line = match &evidence.recovery {
        Some(Mounting::Mounted { log }) => format!("The kernel recovered and mounted it.{}", said(log)),
        Some(Mounting::Refused { message, log }) => format!("The kernel refused to mount it ({message}).{}", said(log)),
        Some(_) => "The kernel did not come to the end of its recovery.".into(),
        None => return Vec::new(),
    };
    vec![line]
}

fn cost(cell: &Cell, finding: &Finding) -> String {
    match finding.kind {
        FindingKind::Promises => {
            let step = promised(cell, &finding.detail)
                .map_or_else(String::new, |step| format!(" The promise was made by {step}."));
            format!("A promise was broken: {}.{step}", finding.detail.trim_end_matches('.'))
        }
        kind => format!("The check `{}` found: {}.", kind.name(), finding.detail.trim_end_matches('.')),
    }
}

/// The step that a finding names, in words: "by step 583", of the worker of "file 3:263".
fn promised(cell: &Cell, detail: &str) -> Option<String> {
    let number = |text: &str| text.chars().take_while(char::is_ascii_digit).collect::<String>().parse::<u64>().ok();
    let step = number(detail.split("by step ").nth(1)?)?;
    let worker = u32::try_from(number(detail.split("file ").nth(1)?)?).ok()?;
    let mut steps = (worker < cell.spec.workers()).then(|| cell.spec.steps(worker))?;
    let op = (0..step).map(|_| steps.next()).last()??;
    Some(format!("step {step} of worker {worker}, `{op}`"))
}

/// What the older checksum does instead.
fn checksum_note(findings: &[Finding], has_journal: bool, cell: &Cell) -> Option<String> {
    let refused = findings.iter().any(|finding| {
        finding.kind == FindingKind::Mounts && finding.detail.contains("Invalid checksum recovering data block")
    });
    (refused && has_journal && cell.mount.contains("journal_async_commit")).then(|| {
        "With journal_async_commit the commit block does not wait for the log blocks. In a journal of checksum v3 its \
         checksum covers only itself, so a commit that lands without one of its log blocks counts, and recovery stops at the tag \
         whose checksum is wrong. In a journal of checksum v1 (`--mkfs-opts='-O ^metadata_csum'`) the commit block's checksum covers \
         the log blocks too: the same loss makes the transaction count as not committed, and the mount succeeds."
            .to_owned()
    })
}
