//! What the template is given: only text, numbers that are already written, and finished charts.

use powerfail_ledger::Expectation;
use serde::Serialize;

use crate::charts::{self, Width};
use crate::headline::headline;
use crate::labels::{Label, labels};
use crate::tally::{Run, Tally};
use crate::text::{count, counted, figure};
use crate::verdict::Verdict;

use super::Limits;
use super::cell::{CellView, cell_id, verdict_class};

/// The whole page.
#[derive(Serialize)]
pub(super) struct Page {
    headline: String,
    /// `fail` if anything is not as expected; for the mark beside the headline.
    mood: &'static str,
    tiles: Vec<Tile>,
    /// Cells that are not as expected.
    attention: Vec<Attention>,
    matrix: Chart,
    rates: Option<Chart>,
    kinds: Option<Chart>,
    cells: Vec<CellView>,
    runs: Vec<RunView>,
    duplicates: Option<String>,
    ink_classes: String,
}

/// One sum by expectation.
#[derive(Serialize)]
struct Tile {
    name: &'static str,
    /// Violations where none was expected.
    alarm: bool,
    violated: String,
    judged: String,
    cells: String,
}

/// A cell that is not as expected, in one line.
#[derive(Serialize)]
struct Attention {
    id: String,
    whole: String,
    sign: &'static str,
    verdict_class: &'static str,
    verdict: &'static str,
    why: String,
}

/// A chart for each width.
#[derive(Serialize)]
pub(super) struct Chart {
    pub(super) wide: String,
    pub(super) narrow: String,
}

#[derive(Serialize)]
struct RunView {
    seed: String,
    command: String,
    machine: String,
    started: String,
    tool: String,
    measured: Vec<(String, String)>,
    torn: Option<String>,
}

impl Page {
    pub(super) fn of(tally: &Tally, limits: Limits) -> Page {
        let labels = labels(&tally.cells);
        let pictures = pictures(tally, limits.timelines);
        let violated = tally.cells.iter().filter(|cell| cell.counts.violated > 0).count().max(1);
        let bytes = limits.violation_bytes / violated;
        let cells = tally.cells.iter().zip(&labels).zip(&pictures).enumerate();
        let judged = tally.judged() > 0;
        Page {
            headline: headline(tally),
            mood: if tally.exit_code() == 0 { "ok" } else { "worse" },
            tiles: tiles(tally),
            attention: attention(tally, &labels),
            matrix: Chart::of(|width| charts::matrix::chart(tally, width)),
            rates: judged.then(|| Chart::of(|width| charts::rates::chart(tally, width))),
            kinds: (tally.violated() > 0)
                .then(|| Chart::of(|width| charts::kinds::chart(tally, width).unwrap_or_default())),
            cells: cells
                .map(|(index, ((cell, label), &pictures))| CellView::of(index, cell, label, pictures, limits, bytes))
                .collect(),
            runs: tally.runs.iter().map(RunView::of).collect(),
            duplicates: (tally.duplicates > 0).then(|| {
                let lines = counted(tally.duplicates, "line", "lines");
                format!("{lines} of the ledgers said again what another line had said, and count once.")
            }),
            ink_classes: charts::style_sheet(),
        }
    }
}

impl Chart {
    pub(super) fn of(draw: impl Fn(Width) -> String) -> Chart {
        Chart { wide: draw(Width::Wide), narrow: draw(Width::Narrow) }
    }
}

impl RunView {
    fn of(run: &Run) -> RunView {
        let header = &run.header;
        RunView {
            seed: header.seed.to_string(),
            command: header.command.clone(),
            machine: header.machine.clone(),
            started: header.started.clone(),
            tool: header.tool.clone(),
            measured: run
                .measured
                .iter()
                .map(|measured| (measured.what.clone(), format!("{} {}", figure(measured.value), measured.unit)))
                .collect(),
            torn: (run.torn_bytes > 0).then(|| {
                let bytes = counted(run.torn_bytes, "byte", "bytes");
                format!("The last line of the ledger is torn; its {bytes} were left out.")
            }),
        }
    }
}

/// Violated of judged by what is expected; only what occurs.
fn tiles(tally: &Tally) -> Vec<Tile> {
    const NAMES: [&str; 5] = ["expected safe", "controls", "known defects", "open questions", "disputed"];
    let kind = |expectations: &[Expectation]| match expectations {
        [Expectation::Safe] => 0,
        [Expectation::Unsafe] => 1,
        [Expectation::Known { .. }] => 2,
        [Expectation::Open] => 3,
        _ => 4,
    };
    let mut tiles = Vec::new();
    for (index, name) in NAMES.into_iter().enumerate() {
        let cells = || tally.cells.iter().filter(|cell| kind(&cell.expectations) == index);
        let number = cells().count() as u64;
        if number > 0 {
            let violated = cells().map(|cell| cell.counts.violated).sum();
            tiles.push(Tile {
                name,
                alarm: index == 0 && violated > 0,
                violated: count(violated),
                judged: count(cells().map(|cell| cell.counts.judged()).sum()),
                cells: counted(number, "cell", "cells"),
            });
        }
    }
    tiles
}

/// Those that depart first, then in the order of the matrix.
fn attention(tally: &Tally, labels: &[Label]) -> Vec<Attention> {
    let mut cells: Vec<_> = tally.cells.iter().zip(labels).enumerate().collect();
    cells.retain(|(_, (cell, _))| cell.verdict != Verdict::AsExpected);
    cells.sort_by_key(|(_, (cell, _))| match cell.verdict {
        Verdict::Worse { .. } | Verdict::AsExpected => 0,
        Verdict::Broken { .. } => 1,
        Verdict::Better { .. } | Verdict::Inconclusive { .. } => 2,
        Verdict::Skipped { .. } => 3,
    });
    cells
        .into_iter()
        .map(|(index, (cell, label))| Attention {
            id: cell_id(index),
            whole: label.whole(),
            sign: cell.verdict.sign(),
            verdict_class: verdict_class(&cell.verdict),
            verdict: cell.verdict.name(),
            why: cell.verdict.why().to_string(),
        })
        .collect()
}

/// How many timelines each cell shows. Cells take turns, those that need a look first.
fn pictures(tally: &Tally, limit: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..tally.cells.len()).collect();
    order.sort_by_key(|&index| {
        let cell = &tally.cells[index];
        (!matches!(cell.verdict, Verdict::Worse { .. }), cell.counts.violated == 0)
    });
    let mut shown = vec![0; tally.cells.len()];
    let mut left = limit;
    let mut turn = 0;
    while left > 0 {
        let before = left;
        for &index in &order {
            if left > 0 && tally.cells[index].timelines.len() > turn {
                shown[index] += 1;
                left -= 1;
            }
        }
        if left == before {
            break;
        }
        turn += 1;
    }
    shown
}
