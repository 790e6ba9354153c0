//! The matrix as a heat map: rows are file systems with their variants, columns are modes.
//!
//! The colour says how often a power cut ended in a violation; the sign and the frame say whether that was expected, so
//! a control in the darkest colour is calm and a safe cell in the palest is not. Narrow, it is a list of the same boxes.

use std::collections::BTreeMap;

use crate::labels::{Label, by_row, labels};
use crate::tally::{Cell, MODES, Tally};
use crate::text::{count, percent, short_count};
use crate::verdict::Verdict;

use super::canvas::{At, BODY, Canvas, SMALL, Width, draw, fit, text_width, wrap};
use super::ink::Ink;
use super::{Line, cell_id, lines};

/// Height of a line of small text.
const LINE: i32 = 16;
/// Rows that have room for a line with the verdict.
const ROOMY: usize = 14;
/// Between groups of low rows.
const GROUP: i32 = 10;
/// Between boxes.
const GAP: i32 = 4;

/// Draws it.
pub fn chart(tally: &Tally, width: Width) -> String {
    let labels = labels(&tally.cells);
    match width {
        Width::Wide => wide(tally, &labels),
        Width::Narrow => narrow(tally, &labels),
    }
}

const TITLE: &str = "The matrix of file systems and modes";

fn describe(tally: &Tally) -> String {
    let departing = tally.cells.iter().filter(|cell| cell.verdict != Verdict::AsExpected).count();
    format!(
        "Violated power cuts in {} cells; {departing} of them not as expected. The table below has the same numbers.",
        tally.cells.len()
    )
}

fn wide(tally: &Tally, labels: &[Label]) -> String {
    let modes = modes(labels);
    let mut rows: Vec<&Label> = Vec::new();
    let mut places: BTreeMap<(&str, &str, &str), usize> = BTreeMap::new();
    for index in by_row(labels) {
        let label = &labels[index];
        if rows.last().is_none_or(|last| last.variant != label.variant || last.fs != label.fs) {
            rows.push(label);
        }
        places.insert((&label.fs, &label.variant, &label.mode), index);
    }
    // Very many rows are lower, and say their verdict by sign and frame alone.
    let height = if rows.len() > ROOMY { 48 } else { 66 };
    // At least 64 pixels for a box: with very many modes the chart becomes wider than a page is.
    let least = if labels.iter().any(|label| label.parts.len() > 1) { 204 } else { 146 };
    let column = ((Width::Wide.pixels() - least) / modes.len().max(1) as i32).clamp(64, 150);
    let left = Width::Wide.pixels() - column * modes.len() as i32;
    let left = left.clamp(least, 300);
    let heads: Vec<Vec<String>> = modes.iter().map(|mode| wrap(mode, 12, column - GAP)).collect();
    let head = heads.iter().map(Vec::len).max().unwrap_or(0) as i32 * LINE + 10;
    let legend = 34;
    // A row whose file system and mkfs are those of the row above belongs to it.
    let follows = |row: usize| row > 0 && rows[row].heads() == rows[row - 1].heads();
    let mut ys: Vec<i32> = Vec::new();
    for row in 0..rows.len() {
        let gap = if follows(row) || height > 50 { 0 } else { GROUP };
        ys.push(ys.last().map_or(0, |y| y + height + gap));
    }
    let size = (
        Width::Wide.pixels().max(left + column * modes.len() as i32),
        head + ys.last().map_or(0, |y| y + height) + legend,
    );
    draw(size, TITLE, &describe(tally), |canvas| {
        for (index, lines) in heads.iter().enumerate() {
            let x = left + column * index as i32 + (column - GAP) / 2;
            for (line, text) in lines.iter().rev().enumerate() {
                canvas.text(text, (x, head - 14 - LINE * line as i32), At::Centre, 12, Ink::TEXT);
            }
        }
        for (row, label) in rows.iter().enumerate() {
            let top = head + ys[row];
            row_name(canvas, label, follows(row), (top, height - GAP), left - 12);
            for (index, mode) in modes.iter().enumerate() {
                let (at, size) = ((left + column * index as i32, top), (column - GAP, height - GAP));
                match places.get(&(label.fs.as_str(), label.variant.as_str(), *mode)) {
                    Some(&cell) => {
                        tile(canvas, &tally.cells[cell], at, size);
                        link(canvas, tally, labels, cell, at, size);
                    }
                    None => canvas.text("·", (at.0 + size.0 / 2, at.1 + size.1 / 2), At::Centre, BODY, Ink::MUTED),
                }
            }
        }
        scale(canvas, (left, size.1 - 12));
    })
}

/// File system and mkfs, unless the row above has them already, and what tells the rows apart; as far as there is room.
fn row_name(canvas: &Canvas<'_>, label: &Label, follows: bool, (top, height): (i32, i32), width: i32) {
    let named = usize::from(!follows);
    let room = ((height + 4) / LINE) as usize - named;
    let parts = &label.parts[if follows { label.parts.len().min(1) } else { 0 }..];
    let mut lines: Vec<String> = parts.iter().flat_map(|part| wrap(part, SMALL, width)).collect();
    if lines.len() > room {
        // The last parts tell neighbours apart, so what comes first gives way.
        lines = parts.iter().map(|part| fit(part, SMALL, width)).collect();
        lines.drain(..lines.len().saturating_sub(room));
    }
    let first = top + height / 2 - LINE * (lines.len() + named - 1) as i32 / 2;
    if !follows {
        canvas.bold(&fit(&label.fs, BODY, width), (0, first), At::Left, BODY, Ink::TEXT);
    }
    let first = if follows { first - LINE } else { first };
    for (line, text) in lines.iter().enumerate() {
        canvas.text(text, (0, first + LINE * (line as i32 + 1)), At::Left, SMALL, Ink::MUTED);
    }
}

/// Leads to the cell's details.
fn link(canvas: &Canvas<'_>, tally: &Tally, labels: &[Label], index: usize, at: (i32, i32), size: (i32, i32)) {
    let cell = &tally.cells[index];
    let found = match cell.rate {
        Some(rate) => format!("{} of {}, {}", count(cell.counts.violated), count(cell.counts.judged()), percent(rate)),
        None => "nothing judged".into(),
    };
    let says = format!("{}: {found}; {}", labels[index].whole(), cell.verdict.name());
    canvas.link(at, size, cell_id(index), says);
}

/// A box with rate, count and verdict below each other.
fn tile(canvas: &Canvas<'_>, cell: &Cell, (x, y): (i32, i32), size: (i32, i32)) {
    let middle = x + size.0 / 2;
    let room = size.0 - 6;
    let on = background(canvas, cell, (x, y), size);
    let name = format!("{} {}", cell.verdict.sign(), cell.verdict.name());
    let Some(rate) = cell.rate else {
        let small = size_of(&name, room);
        canvas.text(&fit(&name, small, room), (middle, y + size.1 / 2), At::Centre, small, on);
        return;
    };
    if size.1 < 50 {
        let sum = if cell.verdict == Verdict::AsExpected {
            percent(rate)
        } else {
            format!("{} {}", cell.verdict.sign(), percent(rate))
        };
        canvas.bold(&sum, (middle, y + 14), At::Centre, 13, on);
        canvas.text(&fraction(cell, SMALL, room), (middle, y + 31), At::Centre, SMALL, on);
        return;
    }
    canvas.bold(&percent(rate), (middle, y + 15), At::Centre, 15, on);
    canvas.text(&fraction(cell, SMALL, room), (middle, y + 32), At::Centre, SMALL, on);
    let name = if cell.verdict == Verdict::AsExpected { cell.verdict.sign().to_string() } else { name };
    let small = size_of(&name, room);
    canvas.text(&fit(&name, small, room), (middle, y + 49), At::Centre, small, on);
}

/// The usual small size, or one less where that does not fit.
fn size_of(text: &str, room: i32) -> i32 {
    if text_width(text, SMALL) <= room { SMALL } else { SMALL - 1 }
}

/// Fills a box and gives the ink for what stands in it.
fn background(canvas: &Canvas<'_>, cell: &Cell, at: (i32, i32), size: (i32, i32)) -> Ink {
    let (fill, on) = match cell.rate {
        Some(rate) => Ink::heat(rate),
        None => (Ink::BAND, Ink::TEXT),
    };
    // A frame that touched the fill would be lost on the darker ones.
    let mut inset = 0;
    if cell.verdict != Verdict::AsExpected {
        for (thick, ink) in [(3, Ink::verdict(&cell.verdict)), (2, Ink::PAGE)] {
            canvas.rect((at.0 + inset, at.1 + inset), (size.0 - 2 * inset, size.1 - 2 * inset), ink);
            inset += thick;
        }
    }
    canvas.rect((at.0 + inset, at.1 + inset), (size.0 - 2 * inset, size.1 - 2 * inset), fill);
    on
}

fn fraction(cell: &Cell, size: i32, room: i32) -> String {
    let (violated, judged) = (cell.counts.violated, cell.counts.judged());
    let full = [format!("{} of {}", count(violated), count(judged)), format!("{}/{}", count(violated), count(judged))];
    let fitting = full.into_iter().find(|text| text_width(text, size) <= room);
    fitting.unwrap_or_else(|| format!("{}/{}", short_count(violated), short_count(judged)))
}

/// What the colours mean.
fn scale(canvas: &Canvas<'_>, (x, y): (i32, i32)) {
    const STEPS: [(f64, &str); 8] =
        [(0.0, "0"), (0.001, ">0"), (0.005, "0.3"), (0.02, "1"), (0.05, "3"), (0.2, "10"), (0.5, "30"), (1.0, "60 %")];
    canvas.text("violated, from", (x, y), At::Left, SMALL, Ink::MUTED);
    let start = x + text_width("violated, from", SMALL) + 8;
    for (index, (rate, label)) in STEPS.iter().enumerate() {
        let (fill, on) = Ink::heat(*rate);
        let left = start + index as i32 * 40;
        canvas.rect((left, y - 9), (38, 18), fill);
        canvas.text(label, (left + 19, y), At::Centre, SMALL, on);
    }
}

fn narrow(tally: &Tally, labels: &[Label]) -> String {
    const HEIGHT: i32 = 30;
    const LEFT: i32 = 172;
    let width = Width::Narrow.pixels();
    let lines = lines(tally, labels, |_| true);
    draw((width, lines.len() as i32 * HEIGHT + 4), TITLE, &describe(tally), |canvas| {
        for (index, line) in lines.iter().enumerate() {
            let middle = index as i32 * HEIGHT + HEIGHT / 2;
            let (index, cell, label) = match line {
                Line::Head(name) => {
                    canvas.bold(&fit(name, BODY, width), (0, middle + 3), At::Left, BODY, Ink::TEXT);
                    continue;
                }
                Line::Cell(cell, label) => (index_of(tally, cell), cell, label),
            };
            canvas.text(&fit(&label.mode, BODY, LEFT - 4), (0, middle), At::Left, BODY, Ink::TEXT);
            let (at, size) = ((LEFT, middle - HEIGHT / 2 + 2), (width - LEFT, HEIGHT - GAP));
            let on = background(canvas, cell, at, size);
            match cell.rate {
                Some(rate) => {
                    canvas.bold(&percent(rate), (LEFT + 62, middle), At::Right, BODY, on);
                    canvas.text(&fraction(cell, SMALL, 96), (LEFT + 72, middle), At::Left, SMALL, on);
                }
                None => canvas.text(cell.verdict.name(), (LEFT + 12, middle), At::Left, SMALL, on),
            }
            canvas.bold(cell.verdict.sign(), (width - 12, middle), At::Right, BODY, on);
            link(canvas, tally, labels, index, at, size);
        }
    })
}

/// Which of the tally's cells it is.
fn index_of(tally: &Tally, cell: &Cell) -> usize {
    tally.cells.iter().position(|other| std::ptr::eq(other, cell)).expect("a cell of the tally")
}

/// The modes that occur, as they are described.
fn modes(labels: &[Label]) -> Vec<&str> {
    let mut modes: Vec<&str> =
        MODES.into_iter().filter(|mode| labels.iter().any(|label| label.mode == *mode)).collect();
    let mut others: Vec<&str> =
        labels.iter().map(|label| label.mode.as_str()).filter(|mode| !MODES.contains(mode)).collect();
    others.sort_unstable();
    others.dedup();
    modes.extend(others);
    modes
}
