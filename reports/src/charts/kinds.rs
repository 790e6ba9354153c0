//! What the violated states of each cell have in common, as stacked bars: findings by kind, or by the role of the lost
//! block.
//!
//! A bar is the whole of a cell's violations, whatever their number, so a control with a thousand violated states does not
//! hide a cell with three; the numbers are in the bar. A state with findings of two kinds is in both.

use std::collections::BTreeMap;

use powerfail_ledger::FindingKind;

use crate::labels::labels;
use crate::tally::{Cell, Tally};
use crate::text::{count, counted, short_count};

use super::canvas::{At, BODY, Canvas, SMALL, Width, draw, fit, text_width};
use super::ink::Ink;
use super::{Line, lines, telling};

const BAR: i32 = 22;
/// Height of the line with the name of a row of the matrix.
const HEAD: i32 = 28;
/// Roles with a colour of their own; the others share one.
const ROLES: usize = 7;

/// A part of the bars: its name, its colours, and its states in a cell.
struct Part<'a> {
    name: String,
    inks: (Ink, Ink),
    states: Box<dyn Fn(&Cell) -> u64 + 'a>,
}

/// Findings by kind, in at most so many cells; nothing if no state is violated.
pub fn chart(tally: &Tally, width: Width, most: usize) -> Option<String> {
    let states = |kind| move |cell: &Cell| cell.counts.kinds.get(&kind).copied().unwrap_or(0);
    let parts = FindingKind::ALL.into_iter().map(|kind| Part {
        name: kind.name().into(),
        inks: Ink::kind(kind),
        states: Box::new(states(kind)),
    });
    bars(tally, width, most, parts.collect(), "Findings by kind", "kinds of their findings")
}

/// Violated states by the role of the lost block, in at most so many cells; nothing if no state was explained.
pub fn roles(tally: &Tally, width: Width, most: usize) -> Option<String> {
    let mut roles: BTreeMap<&str, u64> = BTreeMap::new();
    for (role, &states) in tally.cells.iter().flat_map(|cell| &cell.counts.roles) {
        *roles.entry(role).or_default() += states;
    }
    if roles.is_empty() {
        return None;
    }
    let mut ranked: Vec<(&str, u64)> = roles.into_iter().collect();
    ranked.sort_by_key(|&(_, states)| std::cmp::Reverse(states));
    let of = |cell: &Cell, role: &str| cell.counts.roles.get(role).copied().unwrap_or(0);
    let (named, others) = ranked.split_at(ranked.len().min(ROLES));
    let mut parts: Vec<Part<'_>> = named
        .iter()
        .enumerate()
        .map(|(rank, &(role, _))| Part {
            name: role.into(),
            inks: Ink::role(rank),
            states: Box::new(move |cell| of(cell, role)),
        })
        .collect();
    if !others.is_empty() {
        let states = move |cell: &Cell| others.iter().map(|(role, _)| of(cell, role)).sum();
        parts.push(Part { name: "others".into(), inks: Ink::role(ROLES), states: Box::new(states) });
    }
    let unexplained = |cell: &Cell| cell.counts.violated - cell.counts.roles.values().sum::<u64>();
    parts.push(Part { name: "not explained".into(), inks: (Ink::BAND, Ink::MUTED), states: Box::new(unexplained) });
    bars(tally, width, most, parts, "Violations by the role of the lost block", "role of the lost block")
}

fn bars(tally: &Tally, width: Width, most: usize, mut parts: Vec<Part<'_>>, title: &str, by: &str) -> Option<String> {
    let labels = labels(&tally.cells);
    let drawn = telling(tally, most, |cell| cell.counts.violated > 0);
    let lines = lines(tally, &labels, |cell| drawn.contains(&&cell.key));
    let cells: Vec<&Cell> = tally.cells.iter().filter(|cell| drawn.contains(&&cell.key)).collect();
    parts.retain(|part| cells.iter().any(|cell| (part.states)(cell) > 0));
    if parts.is_empty() {
        return None;
    }
    let wide = width == Width::Wide;
    let (row, label, plot) = if wide { (30, 190, (214, 822)) } else { (52, 270, (0, 400)) };
    let (legend, places) = legend(&parts, width.pixels());
    let heights = lines.iter().map(|line| if matches!(line, Line::Head(_)) { HEAD } else { row });
    let size = (width.pixels(), legend + heights.clone().sum::<i32>() + 4);
    let describe = format!("Violated states of {} cells by the {by}.", cells.len());
    let svg = draw(size, title, &describe, |canvas| {
        for (part, (x, y)) in parts.iter().zip(&places) {
            canvas.rect((*x, y - 6), (12, 12), part.inks.0);
            canvas.text(&part.name, (x + 18, *y), At::Left, 12, Ink::TEXT);
        }
        let mut y = legend;
        for (line, height) in lines.iter().zip(heights) {
            match line {
                Line::Head(name) => {
                    canvas.bold(&fit(name, BODY, plot.1 - 20), (0, y + HEAD / 2 + 2), At::Left, BODY, Ink::TEXT)
                }
                Line::Cell(cell, name) => {
                    let states = counted(cell.counts.violated, "state", "states");
                    canvas.text(&fit(&name.mode, BODY, label), (0, y + BAR / 2), At::Left, BODY, Ink::TEXT);
                    canvas.text(&states, (width.pixels() - 6, y + BAR / 2), At::Right, SMALL, Ink::MUTED);
                    bar(canvas, cell, &parts, plot, if wide { y } else { y + BAR });
                }
            }
            y += height;
        }
    });
    Some(svg)
}

/// The height of the legend and where each part stands in it.
fn legend(parts: &[Part<'_>], width: i32) -> (i32, Vec<(i32, i32)>) {
    let (mut x, mut y) = (0, 12);
    let mut places = Vec::new();
    for part in parts {
        let needed = 18 + text_width(&part.name, 12) + 20;
        if x > 0 && x + needed > width {
            (x, y) = (0, y + 22);
        }
        places.push((x, y));
        x += needed;
    }
    (y + 24, places)
}

fn bar(canvas: &Canvas<'_>, cell: &Cell, parts: &[Part<'_>], (left, right): (i32, i32), y: i32) {
    let total: u64 = parts.iter().map(|part| (part.states)(cell)).sum();
    let at = |sum: u64| left + (sum as f64 / total as f64 * f64::from(right - left)).round() as i32;
    let mut sum = 0;
    for part in parts {
        let states = (part.states)(cell);
        if states == 0 {
            continue;
        }
        let (from, to) = (at(sum), at(sum + states));
        sum += states;
        let (fill, on) = part.inks;
        // A sliver stays visible, and a gap keeps neighbours apart without colour.
        let wide = (to - from - 2).max(2);
        canvas.rect((from, y), (wide, BAR), fill);
        let fits = [count(states), short_count(states)].into_iter().find(|text| text_width(text, SMALL) + 6 <= wide);
        if let Some(text) = fits {
            canvas.text(&text, (from + wide / 2, y + BAR / 2), At::Centre, SMALL, on);
        }
    }
}
