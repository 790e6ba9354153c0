//! Rates with their Wilson intervals, one line a cell.
//!
//! The axis is that of the inverse hyperbolic sine: linear near zero, which it shows, and logarithmic above 0.1 %, so
//! that 0 of 1,000 and 3 of 1,000 are apart and 100 % is still there.

use crate::labels::labels;
use crate::stats::Interval;
use crate::tally::{Cell, Tally};
use crate::text::count;
use crate::verdict::Verdict;

use super::canvas::{At, BODY, Canvas, SMALL, Width, draw, fit};
use super::ink::Ink;
use super::scale::{self, place};
use super::{Line, lines, telling};

struct Layout {
    /// Room for the names of the modes.
    label: i32,
    /// Left and right end of the axis.
    plot: (i32, i32),
    /// Height of a cell's line.
    row: i32,
    /// Labels stand above the whiskers instead of beside them.
    stacked: bool,
    ticks: &'static [f64],
}

/// Height of the line with the name of a row of the matrix.
const HEAD: i32 = 30;
/// Where the lines begin.
const TOP: i32 = 24;

const WIDE: Layout = Layout {
    label: 190,
    plot: (214, 822),
    row: 28,
    stacked: false,
    ticks: &[0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0],
};
const NARROW: Layout =
    Layout { label: 270, plot: (10, 380), row: 46, stacked: true, ticks: &[0.0, 0.001, 0.01, 0.1, 1.0] };

/// Draws it; cells of which no state was judged are left out, and of more than `most` those that are the least telling.
pub fn chart(tally: &Tally, width: Width, most: usize) -> String {
    let labels = labels(&tally.cells);
    let drawn = telling(tally, most, |cell| cell.rate.is_some());
    let lines = lines(tally, &labels, |cell| drawn.contains(&&cell.key));
    let layout = if width == Width::Wide { WIDE } else { NARROW };
    let heights = lines.iter().map(|line| if matches!(line, Line::Head(_)) { HEAD } else { layout.row });
    let bottom = TOP + heights.clone().sum::<i32>();
    let title = "Violated share of the power cuts, with its 95\u{a0}% interval";
    let cells = lines.iter().filter(|line| matches!(line, Line::Cell(..))).count();
    let describe = format!("{cells} cells, on an axis that is linear near zero and logarithmic above 0.1\u{a0}%.");
    let right = width.pixels() - 6;
    draw((width.pixels(), bottom + 24), title, &describe, |canvas| {
        axis(canvas, &layout, bottom);
        let mut y = TOP;
        for (line, height) in lines.iter().zip(heights) {
            match line {
                Line::Head(name) => {
                    canvas.bold(&fit(name, BODY, layout.plot.1 - 20), (0, y + HEAD / 2 + 3), At::Left, BODY, Ink::TEXT);
                }
                Line::Cell(cell, label) => {
                    let (text, whisker_y) = if layout.stacked { (y + 14, y + 33) } else { (y + 14, y + 14) };
                    canvas.text(&fit(&label.mode, BODY, layout.label), (0, text), At::Left, BODY, Ink::TEXT);
                    let sum = format!("{} of {}", count(cell.counts.violated), count(cell.counts.judged()));
                    canvas.text(&sum, (right, text), At::Right, SMALL, Ink::MUTED);
                    if let (Some(rate), Some(interval)) = (cell.rate, cell.interval) {
                        whisker(canvas, &layout, whisker_y, cell, (rate, interval));
                    }
                }
            }
            y += height;
        }
    })
}

fn x_of(layout: &Layout, rate: f64) -> i32 {
    layout.plot.0 + (place(rate) * f64::from(layout.plot.1 - layout.plot.0)).round() as i32
}

fn axis(canvas: &Canvas<'_>, layout: &Layout, bottom: i32) {
    for &tick in layout.ticks {
        canvas.rect((x_of(layout, tick), TOP), (1, bottom - TOP), Ink::GRID);
    }
    for &tick in layout.ticks {
        let label = scale::tick(tick);
        let x = x_of(layout, tick);
        // Where the axis ends with the chart, the last label does too.
        let (x, at) = if layout.stacked && tick == 1.0 { (x + 18, At::Right) } else { (x, At::Centre) };
        canvas.text(&label, (x, TOP - 12), at, SMALL, Ink::MUTED);
        canvas.text(&label, (x, bottom + 12), at, SMALL, Ink::MUTED);
    }
}

/// The interval as a bar and the rate as a mark whose shape says the verdict too.
fn whisker(canvas: &Canvas<'_>, layout: &Layout, y: i32, cell: &Cell, (rate, interval): (f64, Interval)) {
    let ink = Ink::verdict(&cell.verdict);
    let (low, high) = (x_of(layout, interval.low), x_of(layout, interval.high));
    canvas.rect((low, y - 1), (high - low, 3), ink);
    canvas.rect((low, y - 5), (2, 11), ink);
    canvas.rect((high - 2, y - 5), (2, 11), ink);
    let x = x_of(layout, rate);
    match cell.verdict {
        Verdict::AsExpected => canvas.circle((x, y), 5, ink),
        Verdict::Worse { .. } => canvas.polygon(&[(x, y - 8), (x + 8, y), (x, y + 8), (x - 8, y)], ink),
        Verdict::Better { .. } => canvas.polygon(&[(x, y + 7), (x + 7, y - 6), (x - 7, y - 6)], ink),
        Verdict::Inconclusive { .. } => canvas.polygon(&[(x, y - 7), (x + 7, y + 6), (x - 7, y + 6)], ink),
        Verdict::Skipped { .. } => canvas.rect((x - 4, y - 4), (9, 9), ink),
        Verdict::Broken { .. } => canvas.cross((x, y), 6, 3, ink),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn none_and_three_of_a_thousand_are_apart_and_all_fits() {
        assert_eq!(place(0.0), 0.0);
        assert!((place(1.0) - 1.0).abs() < 1e-12);
        let (none, three) = (x_of(&NARROW, 0.0), x_of(&NARROW, 0.003));
        assert!(three - none >= 60, "3 of 1,000 is {} pixels from zero", three - none);
        assert!(x_of(&NARROW, 1.0) - x_of(&NARROW, 0.5) >= 20);
    }
}
