//! A comparison for a terminal.

use comfy_table::Color;

use crate::compare::{Change, Compared, Comparison, Side};
use crate::text::{count, p_value, percent};

use super::{Screen, begin};

/// The cells as a table, a sentence for each that is not settled, and the result in one sentence.
pub fn comparison(comparison: &Comparison, screen: Screen) -> String {
    let mut table = begin(screen);
    table.set_header(["cell", "before", "after", "p", "change"]);
    for cell in &comparison.cells {
        let p =
            cell.p.map_or("–".into(), |p| p_value(p).trim_start_matches("p = ").trim_start_matches("p ").to_string());
        let change = comfy_table::Cell::new(cell.change.name()).fg(colour(&cell.change));
        let texts = [cell.name.clone(), side(cell.before.as_ref()), side(cell.after.as_ref()), p];
        table.add_row(texts.into_iter().map(comfy_table::Cell::new).chain([change]));
    }
    let mut text = table.trim_fmt();
    text.push('\n');
    for Compared { name, change, .. } in comparison.cells.iter().filter(|cell| !cell.change.why().is_empty()) {
        text.push_str(&format!("{name}: {}: {}\n", change.name(), change.why()));
    }
    text.push_str(&comparison.headline());
    text.push('\n');
    text
}

fn side(side: Option<&Side>) -> String {
    match side {
        None => "–".into(),
        Some(Side { judged: 0, verdict, .. }) => verdict.name().into(),
        Some(side) => {
            let share = percent(side.violated as f64 / side.judged as f64);
            format!("{}/{} {share}", count(side.violated), count(side.judged))
        }
    }
}

fn colour(change: &Change) -> Color {
    match change {
        Change::Worse(_) => Color::Red,
        Change::Better(_) => Color::Blue,
        Change::NoWorse => Color::Green,
        Change::CannotTell(_) => Color::Yellow,
        Change::Control | Change::New | Change::NotTested => Color::DarkGrey,
    }
}
