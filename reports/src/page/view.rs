//! What the template is given: only text, numbers that are already written, and finished charts.

use std::collections::BTreeMap;

use powerfail_ledger::Expectation;
use serde::Serialize;

use crate::charts::cell_id;
use crate::charts::{self, Width};
use crate::headline::headline;
use crate::history::History;
use crate::labels::{Label, by_row, common, labels};
use crate::live::comparisons;
use crate::stats::{rate, wilson};
use crate::summary::merging;
use crate::tally::{Explored, Run, Tally};
use crate::text::{count, counted, figure, listed, percent, percent_range};
use crate::verdict::Verdict;

use super::Limits;
use super::cell::{CellView, Room, verdict_class};
use super::past::Past;
use super::picture::pictures;

/// Above so many cells the table is folded.
const LONG: usize = 40;
/// Runs listed at the end.
const RUNS: usize = 8;
/// Figures listed with a run.
const FIGURES: usize = 48;
/// Cells named with a reason why they were skipped.
const NAMED: usize = 4;

/// The whole page.
#[derive(Serialize)]
pub(super) struct Page {
    headline: String,
    /// Too long for large letters.
    long_headline: bool,
    /// `fail` if anything is not as expected; for the mark beside the headline.
    mood: &'static str,
    tiles: Vec<Tile>,
    /// Cells that are not as expected.
    attention: Vec<Attention>,
    attention_left_out: Option<String>,
    matrix: Chart,
    /// What all cells have in common.
    common: Option<String>,
    /// So many cells that the table is folded.
    long: bool,
    history: Option<Past>,
    rates: Option<Chart>,
    kinds: Option<Chart>,
    roles: Option<Chart>,
    first: Option<Chart>,
    /// What a chart that is bounded says of the others.
    rates_left_out: Option<String>,
    kinds_left_out: Option<String>,
    depths: Vec<(String, String, String, String)>,
    cells: Vec<CellView>,
    /// Why something was skipped: the reason, how often, and where.
    skipped: Vec<(String, String, String)>,
    runs: Vec<RunView>,
    runs_left_out: Option<String>,
    /// What is missing, torn or double.
    merging: Vec<String>,
    /// Live cuts beside constructed states.
    comparisons: Vec<String>,
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
    measured_left_out: Option<String>,
    torn: Option<String>,
}

impl Page {
    pub(super) fn of(tally: &Tally, history: Option<&History>, limits: Limits) -> Page {
        let labels = labels(&tally.cells);
        let pictures = pictures(tally, limits.timeline_bytes);
        let violated = tally.cells.iter().filter(|cell| cell.counts.violated > 0).count().max(1);
        let room = Room { violations: limits.violation_bytes / violated, groups: limits.group_bytes / violated };
        let mut cells: Vec<Option<CellView>> = tally
            .cells
            .iter()
            .zip(&labels)
            .zip(pictures)
            .enumerate()
            .map(|(index, ((cell, label), pictures))| Some(CellView::of(index, cell, label, pictures, limits, room)))
            .collect();
        let judged = tally.judged() > 0;
        let most = limits.chart_cells;
        let chart = |draw: &dyn Fn(Width) -> Option<String>| {
            draw(Width::Wide).zip(draw(Width::Narrow)).map(|(wide, narrow)| Chart { wide, narrow })
        };
        let attention = attention(tally, &labels);
        Page {
            long_headline: headline(tally).chars().count() > 140,
            headline: headline(tally),
            mood: if tally.exit_code() == 0 { "ok" } else { "worse" },
            tiles: tiles(tally),
            attention_left_out: left_out(attention.len(), limits.attention, "cells are not as expected"),
            attention: attention.into_iter().take(limits.attention).collect(),
            matrix: Chart::of(|width| charts::matrix::chart(tally, width)),
            common: Some(common(&tally.cells).join("; ")).filter(|common| !common.is_empty()),
            long: tally.cells.len() > LONG,
            history: history.map(|history| Past::of(history, limits)),
            rates: judged.then(|| Chart::of(|width| charts::rates::chart(tally, width, most))),
            kinds: chart(&|width| charts::kinds::chart(tally, width, most)),
            roles: chart(&|width| charts::kinds::roles(tally, width, most)),
            first: chart(&|width| charts::first::chart(tally, width, most)),
            rates_left_out: left_out(
                tally.cells.iter().filter(|cell| cell.rate.is_some()).count(),
                most,
                "cells are in the table alone",
            ),
            kinds_left_out: left_out(
                tally.cells.iter().filter(|cell| cell.counts.violated > 0).count(),
                most,
                "cells have violations and are in the table alone",
            ),
            depths: depths(tally),
            cells: by_row(&labels).into_iter().filter_map(|index| cells[index].take()).collect(),
            skipped: skipped(tally, &labels),
            runs: tally.runs.iter().rev().take(RUNS).map(RunView::of).collect(),
            runs_left_out: left_out(tally.runs.len(), RUNS, "runs are in the ledgers"),
            merging: merging(tally),
            comparisons: comparisons(tally),
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
            measured_left_out: left_out(run.measured.len(), FIGURES, "figures are in the ledger"),
            measured: run
                .measured
                .iter()
                .take(FIGURES)
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

/// `12 more cells are in the table.`; none if nothing was left out.
pub(super) fn left_out(all: usize, shown: usize, what: &str) -> Option<String> {
    (all > shown).then(|| format!("{} more {what}.", count((all - shown) as u64)))
}

/// What each depth brought, in all cells; nothing if no state is deeper than one crash.
fn depths(tally: &Tally) -> Vec<(String, String, String, String)> {
    let mut depths: BTreeMap<u32, Explored> = BTreeMap::new();
    for (&depth, explored) in tally.cells.iter().flat_map(|cell| &cell.depths) {
        let sum = depths.entry(depth).or_default();
        sum.judged += explored.judged;
        sum.violated += explored.violated;
    }
    if depths.keys().all(|&depth| depth <= 1) {
        return Vec::new();
    }
    let row = |(depth, explored): (u32, Explored)| {
        let what = match depth {
            0 | 1 => "the workload".to_string(),
            2 => "the recovery from that".to_string(),
            more => format!("recovery number {}", more - 1),
        };
        let sum = format!("{} of {}", count(explored.violated), count(explored.judged));
        let share = rate(explored.violated, explored.judged).map_or("–".into(), percent);
        let range = wilson(explored.violated, explored.judged);
        (what, sum, share, range.map_or("–".into(), |range| percent_range(range.low, range.high)))
    };
    depths.into_iter().map(row).collect()
}

/// Each reason once, with the cells that it kept from being tested; the most frequent first.
fn skipped(tally: &Tally, labels: &[Label]) -> Vec<(String, String, String)> {
    let mut reasons: BTreeMap<&str, (u64, Vec<String>)> = BTreeMap::new();
    for index in by_row(labels) {
        for (reason, times) in &tally.cells[index].counts.skip_reasons {
            let (sum, cells) = reasons.entry(reason).or_default();
            *sum += times;
            cells.push(labels[index].whole());
        }
    }
    let mut reasons: Vec<_> = reasons.into_iter().collect();
    reasons.sort_by_key(|(_, (times, _))| std::cmp::Reverse(*times));
    let row = |(reason, (times, mut cells)): (&str, (u64, Vec<String>))| {
        let more = cells.len().saturating_sub(NAMED);
        cells.truncate(NAMED);
        if more > 0 {
            cells.push(format!("{} more", count(more as u64)));
        }
        (reason.to_string(), counted(times, "time", "times"), listed(&cells))
    };
    reasons.into_iter().map(row).collect()
}
