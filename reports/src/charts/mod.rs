//! Charts as inline SVG: one file each, all pure functions of the tally.
//!
//! plotters draws into a string; `svg` then rewrites its output for the page: colours become classes (so that light
//! and dark are a matter of the style sheet), sizes become a `viewBox`, and runs of like shapes become one path, which
//! is what keeps a timeline of thousands of writes small. A chart is drawn for one width; the page holds a wide and a
//! narrow one of each, because text that is scaled down to a phone can't be read.

mod canvas;
pub mod first;
pub mod history;
mod ink;
pub mod kinds;
pub mod matrix;
pub mod rates;
mod scale;
mod svg;
pub mod timeline;

use std::collections::BTreeSet;

use crate::labels::{Label, by_row};
use crate::tally::{Cell, Key, Tally};
use crate::verdict::Verdict;

pub use canvas::Width;
pub(crate) use ink::style_sheet;
pub(crate) use scale::place;

/// The id of a cell's details on the page, by its place in the tally.
pub(crate) fn cell_id(index: usize) -> String {
    format!("cell-{}", index + 1)
}

/// A line of a chart that lists cells under their row of the matrix.
enum Line<'a> {
    /// File system and variant.
    Head(String),
    /// One cell.
    Cell(&'a Cell, &'a Label),
}

/// The cells that pass, each row of the matrix under its name.
fn lines<'a>(tally: &'a Tally, labels: &'a [Label], passes: impl Fn(&Cell) -> bool) -> Vec<Line<'a>> {
    let mut lines = Vec::new();
    let mut last = None;
    let cells = by_row(labels).into_iter().map(|index| (&tally.cells[index], &labels[index]));
    for (cell, label) in cells.filter(|(cell, _)| passes(cell)) {
        if last.as_ref() != Some(&label.row()) {
            last = Some(label.row());
            lines.push(Line::Head(label.row()));
        }
        lines.push(Line::Cell(cell, label));
    }
    lines
}

/// The keys of at most so many of the cells that pass: those that are not as expected first, then those with violations.
fn telling(tally: &Tally, most: usize, passes: impl Fn(&Cell) -> bool) -> BTreeSet<&Key> {
    let mut cells: Vec<&Cell> = tally.cells.iter().filter(|cell| passes(cell)).collect();
    cells.sort_by_key(|cell| (cell.verdict == Verdict::AsExpected, cell.counts.violated == 0));
    cells.into_iter().take(most).map(|cell| &cell.key).collect()
}
