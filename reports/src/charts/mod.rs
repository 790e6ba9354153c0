//! Charts as inline SVG: one file each, all pure functions of the tally.
//!
//! plotters draws into a string; `svg` then rewrites its output for the page: colours become classes (so that light
//! and dark are a matter of the style sheet), sizes become a `viewBox`, and runs of like shapes become one path, which
//! is what keeps a timeline of thousands of writes small. A chart is drawn for one width; the page holds a wide and a
//! narrow one of each, because text that is scaled down to a phone can't be read.

mod canvas;
mod ink;
pub mod kinds;
pub mod matrix;
pub mod rates;
mod svg;
pub mod timeline;

use crate::labels::Label;
use crate::tally::{Cell, Tally};

pub use canvas::Width;
pub(crate) use ink::style_sheet;

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
    for (cell, label) in tally.cells.iter().zip(labels).filter(|(cell, _)| passes(cell)) {
        if last.as_ref() != Some(&label.row()) {
            last = Some(label.row());
            lines.push(Line::Head(label.row()));
        }
        lines.push(Line::Cell(cell, label));
    }
    lines
}
