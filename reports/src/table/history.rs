//! A history for a terminal.

use comfy_table::CellAlignment;

use crate::charts::place;
use crate::history::{History, Series};
use crate::text::{count, percent, percent_range};

use super::{Screen, begin};

/// Nights that fit into a line.
const NIGHTS: usize = 30;

/// The cells as a table, each with its last nights as a row of bars, a sentence for each change, and all of it in one
/// sentence.
pub fn history(history: &History, screen: Screen) -> String {
    let mut table = begin(screen);
    let shown = history.nights.len().min(NIGHTS);
    let first = history.nights.len() - shown;
    let nights = history.nights.get(first).map_or(String::new(), |night| format!("nights since {}", night.name));
    table.set_header(["cell", &nights, "newest", "rate", "95\u{a0}% interval", "changed"]);
    for series in &history.series {
        let newest = series.points.last();
        let changed = series.changes.last().map_or("–".into(), |change| {
            format!("{} {}", if change.rose() { "▲" } else { "▼" }, history.nights[change.night].name)
        });
        table.add_row([
            series.name.clone(),
            bars(series, first, history.nights.len()),
            newest.map_or("–".into(), |point| format!("{}/{}", count(point.violated), count(point.judged))),
            newest.map_or("–".into(), |point| percent(point.rate)),
            newest.map_or("–".into(), |point| percent_range(point.interval.low, point.interval.high)),
            changed,
        ]);
    }
    for column in 2..5 {
        table.column_mut(column).expect("there are six").set_cell_alignment(CellAlignment::Right);
    }
    let mut text = table.trim_fmt();
    text.push('\n');
    for series in history.changed() {
        for change in &series.changes {
            text.push_str(&format!("{} {}\n", series.name, history.describe(change)));
        }
    }
    text.push_str(&history.headline());
    text.push('\n');
    text
}

/// A bar for each night, on the axis of the chart of rates; `_` is none violated, a point a night without it.
fn bars(series: &Series, first: usize, nights: usize) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let bar = |night| match series.points.iter().find(|point| point.night == night) {
        None => '·',
        Some(point) if point.violated == 0 => '_',
        Some(point) => BARS[((place(point.rate) * BARS.len() as f64) as usize).min(BARS.len() - 1)],
    };
    (first..nights).map(bar).collect()
}
