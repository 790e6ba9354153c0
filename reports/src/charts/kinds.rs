//! What the violated states of each cell failed: findings by kind, as stacked bars.
//!
//! A bar is the whole of a cell's findings, whatever their number, so a control with a thousand violated states does not
//! hide a cell with three; the numbers are in the bar. A state with findings of two kinds is in both.

use powerfail_ledger::FindingKind;

use crate::labels::labels;
use crate::tally::{Cell, Tally};
use crate::text::{count, counted, short_count};

use super::canvas::{At, BODY, Canvas, SMALL, Width, draw, fit, text_width};
use super::ink::Ink;
use super::{Line, lines};

const BAR: i32 = 22;
/// Height of the line with the name of a row of the matrix.
const HEAD: i32 = 28;

/// Draws it; nothing if no state is violated.
pub fn chart(tally: &Tally, width: Width) -> Option<String> {
    let labels = labels(&tally.cells);
    let lines = lines(tally, &labels, |cell| cell.counts.violated > 0);
    let cells = || tally.cells.iter().filter(|cell| cell.counts.violated > 0);
    let kinds: Vec<FindingKind> =
        FindingKind::ALL.into_iter().filter(|kind| cells().any(|cell| cell.counts.kinds.contains_key(kind))).collect();
    if kinds.is_empty() {
        return None;
    }
    let wide = width == Width::Wide;
    let (row, label, plot) = if wide { (30, 190, (214, 822)) } else { (52, 270, (0, 400)) };
    let (legend, places) = legend(&kinds, width.pixels());
    let heights = lines.iter().map(|line| if matches!(line, Line::Head(_)) { HEAD } else { row });
    let size = (width.pixels(), legend + heights.clone().sum::<i32>() + 4);
    let describe = format!("Violated states of {} cells by the kinds of their findings.", cells().count());
    let svg = draw(size, "Findings by kind", &describe, |canvas| {
        for (kind, (x, y)) in kinds.iter().zip(&places) {
            canvas.rect((*x, y - 6), (12, 12), Ink::kind(*kind).0);
            canvas.text(kind.name(), (x + 18, *y), At::Left, 12, Ink::TEXT);
        }
        let mut y = legend;
        for (line, height) in lines.iter().zip(heights) {
            match line {
                Line::Head(name) => {
                    canvas.bold(&fit(name, BODY, label), (0, y + HEAD / 2 + 2), At::Left, BODY, Ink::TEXT)
                }
                Line::Cell(cell, name) => {
                    let states = counted(cell.counts.violated, "state", "states");
                    canvas.text(&fit(&name.mode, BODY, label), (0, y + BAR / 2), At::Left, BODY, Ink::TEXT);
                    canvas.text(&states, (width.pixels() - 6, y + BAR / 2), At::Right, SMALL, Ink::MUTED);
                    bar(canvas, cell, plot, if wide { y } else { y + BAR });
                }
            }
            y += height;
        }
    });
    Some(svg)
}

/// The height of the legend and where each kind stands in it.
fn legend(kinds: &[FindingKind], width: i32) -> (i32, Vec<(i32, i32)>) {
    let (mut x, mut y) = (0, 12);
    let mut places = Vec::new();
    for kind in kinds {
        let needed = 18 + text_width(kind.name(), 12) + 20;
        if x > 0 && x + needed > width {
            (x, y) = (0, y + 22);
        }
        places.push((x, y));
        x += needed;
    }
    (y + 24, places)
}

fn bar(canvas: &Canvas<'_>, cell: &Cell, (left, right): (i32, i32), y: i32) {
    let total: u64 = cell.counts.kinds.values().sum();
    let at = |sum: u64| left + (sum as f64 / total as f64 * f64::from(right - left)).round() as i32;
    let mut sum = 0;
    for (kind, &states) in &cell.counts.kinds {
        let (from, to) = (at(sum), at(sum + states));
        sum += states;
        let (fill, on) = Ink::kind(*kind);
        // A sliver stays visible, and a gap keeps neighbours apart without colour.
        let wide = (to - from - 2).max(2);
        canvas.rect((from, y), (wide, BAR), fill);
        let fits = [count(states), short_count(states)].into_iter().find(|text| text_width(text, SMALL) + 6 <= wide);
        if let Some(text) = fits {
            canvas.text(&text, (from + wide / 2, y + BAR / 2), At::Centre, SMALL, on);
        }
    }
}
