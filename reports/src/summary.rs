//! The result for other programs, as JSON, and for a chat or the page of a CI job, as Markdown.
//!
//! The JSON leaves out what is long: findings one by one are in the ledger.

use std::collections::BTreeMap;

use powerfail_ledger::FindingKind;
use serde::Serialize;

use crate::headline::headline;
use crate::labels::labels;
use crate::notes::notes;
use crate::table;
use crate::tally::{Cell, Tally};
use crate::text::{count, counted, listed};
use crate::verdict::{Verdict, describe};

/// The result in short.
#[derive(Debug, Serialize)]
pub struct Summary<'a> {
    headline: String,
    exit_code: u8,
    judged: u64,
    violated: u64,
    duplicates: u64,
    missing_states: u64,
    missing_shards: &'a [String],
    cells: Vec<CellSummary<'a>>,
}

#[derive(Debug, Serialize)]
struct CellSummary<'a> {
    name: String,
    fs: &'a str,
    mkfs: &'a str,
    mode: &'a str,
    mount: &'a str,
    workload: &'a str,
    drive: &'a str,
    rig: &'a str,
    kernel: &'a str,
    seeds: &'a [u64],
    expected: Vec<String>,
    held: u64,
    violated: u64,
    departing: u64,
    skipped: u64,
    broken: u64,
    missing: u64,
    rate: Option<f64>,
    wilson_95: Option<[f64; 2]>,
    kinds: &'a BTreeMap<FindingKind, u64>,
    roles: &'a BTreeMap<String, u64>,
    loose_share: Option<f64>,
    in_flight_share: Option<f64>,
    verdict: &'static str,
    why: &'a str,
    notes: Vec<String>,
}

impl<'a> Summary<'a> {
    /// Of a tally.
    pub fn of(tally: &'a Tally) -> Summary<'a> {
        let labels = labels(&tally.cells);
        let cells = tally.cells.iter().zip(&labels).map(|(cell, label)| CellSummary::of(cell, label.whole()));
        Summary {
            headline: headline(tally),
            exit_code: tally.exit_code(),
            judged: tally.judged(),
            violated: tally.violated(),
            duplicates: tally.duplicates,
            missing_states: tally.cells.iter().map(Cell::missing).sum(),
            missing_shards: &tally.missing_shards,
            cells: cells.collect(),
        }
    }
}

impl<'a> CellSummary<'a> {
    fn of(cell: &'a Cell, name: String) -> CellSummary<'a> {
        let (key, counts) = (&cell.key, &cell.counts);
        CellSummary {
            name,
            fs: &key.fs,
            mkfs: &key.mkfs,
            mode: &key.mode,
            mount: &key.mount,
            workload: &key.workload,
            drive: &key.drive,
            rig: &key.rig,
            kernel: &key.kernel,
            seeds: &cell.seeds,
            expected: cell.expectations.iter().map(describe).collect(),
            held: counts.held,
            violated: counts.violated,
            departing: counts.departing,
            skipped: counts.skipped + counts.cases_skipped,
            broken: counts.broken + counts.cases_broken,
            missing: cell.missing(),
            rate: cell.rate,
            wilson_95: cell.interval.map(|interval| [interval.low, interval.high]),
            kinds: &counts.kinds,
            roles: &counts.roles,
            loose_share: cell.loose_share(),
            in_flight_share: cell.in_flight_share(),
            verdict: cell.verdict.name(),
            why: cell.verdict.why(),
            notes: notes(cell),
        }
    }
}

/// The result as Markdown: the headline, what needs a look, what is missing, and the matrix.
pub fn markdown(tally: &Tally) -> String {
    let labels = labels(&tally.cells);
    let mut text = format!("**{}**\n", table::for_markdown(headline(tally)));
    let attention: Vec<String> = tally
        .cells
        .iter()
        .zip(&labels)
        .filter(|(cell, _)| cell.verdict != Verdict::AsExpected)
        .map(|(cell, label)| {
            let line = format!("{}: {}: {}", label.whole(), cell.verdict.name(), cell.verdict.why());
            format!("- {} {}\n", cell.verdict.sign(), table::for_markdown(line))
        })
        .chain(merging(tally).into_iter().map(|sentence| format!("- {}\n", table::for_markdown(sentence))))
        .collect();
    if !attention.is_empty() {
        text.push('\n');
        text.extend(attention);
    }
    text.push('\n');
    text.push_str(&table::markdown(tally));
    text
}

/// A failed selftest; what is missing from the ledgers, torn, or in them twice; a sentence each.
pub fn merging(tally: &Tally) -> Vec<String> {
    let mut sentences: Vec<String> = crate::selftest::failure(&tally.runs).into_iter().collect();
    if !tally.missing_shards.is_empty() {
        let (shards, are) = if tally.missing_shards.len() == 1 { ("shard", "is") } else { ("shards", "are") };
        sentences.push(format!("{shards} {} of the matrix {are} missing", listed(&tally.missing_shards)));
    }
    let unfinished: Vec<u64> = tally.cells.iter().map(Cell::missing).filter(|&missing| missing > 0).collect();
    if !unfinished.is_empty() {
        let states = counted(unfinished.iter().sum(), "state", "states");
        let cells = counted(unfinished.len() as u64, "cell", "cells");
        sentences.push(format!("{states} of {cells} were planned and not judged"));
    }
    if tally.duplicates > 0 {
        let lines = counted(tally.duplicates, "line", "lines");
        sentences.push(format!("{lines} of the ledgers said again what another line had said, and count once"));
    }
    let torn: Vec<u64> = tally.runs.iter().map(|run| run.torn_bytes).filter(|&bytes| bytes > 0).collect();
    if !torn.is_empty() {
        let ledgers = counted(torn.len() as u64, "ledger ends", "ledgers end");
        sentences.push(format!("{ledgers} with a torn line; its {} bytes were left out", count(torn.iter().sum())));
    }
    sentences
}
