//! How long until the first violation: states judged, one line a cell.
//!
//! The bar is what to expect at the cell's rate, were its states judged in any order: from the number by which 5 % of such
//! runs have seen one to that by which 95 % have, with the median as a tick. The dots are what happened, one a case. A
//! control whose bar ends at 3 proves the harness with three states; a defect whose bar reaches 300 is missed by a run of 60.

use crate::labels::labels;
use crate::stats::until_first;
use crate::tally::{Cell, Tally};
use crate::text::{count, counted, short_count};

use super::canvas::{At, BODY, Canvas, SMALL, Width, draw, fit};
use super::ink::Ink;
use super::{Line, lines, telling};

/// Height of the line with the name of a row of the matrix.
const HEAD: i32 = 30;
/// Where the lines begin.
const TOP: i32 = 24;
/// Dots drawn in each cell.
const DOTS: usize = 60;

/// Draws it, for at most so many cells with violations; nothing if there is none.
pub fn chart(tally: &Tally, width: Width, most: usize) -> Option<String> {
    let labels = labels(&tally.cells);
    let drawn = telling(tally, most, |cell| cell.counts.violated > 0);
    let lines = lines(tally, &labels, |cell| drawn.contains(&&cell.key));
    if lines.is_empty() {
        return None;
    }
    let wide = width == Width::Wide;
    let (label, plot, row) = if wide { (190, (214, 800), 28) } else { (200, (10, 384), 46) };
    let most = tally.cells.iter().map(|cell| cell.counts.judged()).max().unwrap_or(1);
    let axis = Axis { left: plot.0, right: plot.1, most: (most as f64).max(10.0) };
    let heights = lines.iter().map(|line| if matches!(line, Line::Head(_)) { HEAD } else { row });
    let bottom = TOP + heights.clone().sum::<i32>();
    let describe = format!(
        "{}, on a logarithmic axis of states judged: what to expect from 5 to 95 in a hundred runs, and what happened.",
        counted(drawn.len() as u64, "cell", "cells")
    );
    let svg = draw((width.pixels(), bottom + 24), "States judged until the first violation", &describe, |canvas| {
        axis.draw(canvas, bottom);
        let mut y = TOP;
        for (line, height) in lines.iter().zip(heights) {
            match line {
                Line::Head(name) => {
                    canvas.bold(&fit(name, BODY, plot.1 - 20), (0, y + HEAD / 2 + 3), At::Left, BODY, Ink::TEXT);
                }
                Line::Cell(cell, name) => {
                    let bar = if wide { y + 14 } else { y + 33 };
                    canvas.text(&fit(&name.mode, BODY, label), (0, y + 14), At::Left, BODY, Ink::TEXT);
                    canvas.text(&sum(cell), (width.pixels() - 6, y + 14), At::Right, SMALL, Ink::MUTED);
                    axis.cell(canvas, cell, bar);
                }
            }
            y += height;
        }
    });
    Some(svg)
}

fn sum(cell: &Cell) -> String {
    let (hits, trials) = (cell.counts.violated, cell.counts.judged());
    let of = |share| until_first(hits, trials, share).map_or("–".into(), count);
    format!("half by {}, 95\u{a0}% by {}", of(0.5), of(0.95))
}

/// States on a logarithmic axis from 1.
struct Axis {
    left: i32,
    right: i32,
    most: f64,
}

impl Axis {
    fn x(&self, states: u64) -> i32 {
        let share = (states.max(1) as f64).ln() / self.most.ln();
        self.left + (share.min(1.0) * f64::from(self.right - self.left)).round() as i32
    }

    fn draw(&self, canvas: &Canvas<'_>, bottom: i32) {
        for tick in (0..7).map(|power| 10_u64.pow(power)).take_while(|&tick| tick as f64 <= self.most) {
            let x = self.x(tick);
            canvas.rect((x, TOP), (1, bottom - TOP), Ink::GRID);
            for y in [TOP - 12, bottom + 12] {
                canvas.text(&short_count(tick), (x, y), At::Centre, SMALL, Ink::MUTED);
            }
        }
    }

    fn cell(&self, canvas: &Canvas<'_>, cell: &Cell, y: i32) {
        let (hits, trials) = (cell.counts.violated, cell.counts.judged());
        let at = |share| until_first(hits, trials, share).map(|states| self.x(states));
        if let (Some(early), Some(middle), Some(late)) = (at(0.05), at(0.5), at(0.95)) {
            canvas.rect((early - 1, y - 4), ((late - early + 2).max(3), 8), Ink::SERIES_PALE);
            canvas.rect((middle - 1, y - 7), (3, 14), Ink::SERIES);
        }
        for first in cell.firsts.iter().filter(|first| first.seen).take(DOTS) {
            canvas.circle((self.x(first.judged), y), 4, Ink::TEXT);
        }
    }
}
