//! The matrix as text: for a terminal of 80 columns and more, and as Markdown.

mod compare;
mod history;

use std::io::IsTerminal;

use comfy_table::presets::{ASCII_MARKDOWN, UTF8_HORIZONTAL_ONLY};
use comfy_table::{CellAlignment, Color, ColumnConstraint, ContentArrangement, LineStyle, Table};

use crate::labels::{Label, by_row, labels};
use crate::live::comparisons;
use crate::notes::notes;
use crate::tally::{Cell, Tally};
use crate::text::{count, percent, percent_range};
use crate::verdict::{Verdict, describe};

pub use compare::comparison;
pub use history::history;

/// Where the table is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Screen {
    /// Columns.
    pub width: u16,
    /// May colours be used?
    pub colours: bool,
}

/// Below this width several values share a column.
const WIDE: u16 = 140;

impl Screen {
    /// That of the standard output: its width, and colours if it is a terminal and `NO_COLOR` is not set.
    pub fn of_stdout() -> Screen {
        let terminal = std::io::stdout().is_terminal();
        let width = Table::new().width().filter(|_| terminal).unwrap_or(WIDE);
        Screen { width: width.max(40), colours: terminal && std::env::var_os("NO_COLOR").is_none() }
    }
}

/// A table that is not wider than the screen.
fn begin(screen: Screen) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_HORIZONTAL_ONLY).set_content_arrangement(ContentArrangement::Dynamic).set_width(screen.width);
    table.force_no_tty();
    if screen.colours {
        table.enforce_styling();
    }
    if screen.width >= WIDE {
        // Most rows are one line here, so lines between them would be half of the table.
        table.style_mut().row_separator = LineStyle::none();
    }
    table
}

/// The matrix for a terminal, and below it a sentence for each cell that is not as expected.
pub fn terminal(tally: &Tally, screen: Screen) -> String {
    let labels = labels(&tally.cells);
    let mut table = begin(screen);
    let columns = if screen.width >= WIDE { &WIDE_COLUMNS[..] } else { &NARROW_COLUMNS[..] };
    fill(&mut table, columns, tally, &labels, |text| text);
    let mut text = table.trim_fmt();
    text.push('\n');
    for index in by_row(&labels) {
        let (cell, label) = (&tally.cells[index], &labels[index]);
        if !cell.verdict.why().is_empty() {
            let (sign, name, why) = (cell.verdict.sign(), cell.verdict.name(), cell.verdict.why());
            text.push_str(&format!("{sign} {}: {name}: {why}\n", label.whole()));
        }
        for note in notes(cell).into_iter().chain(by_explorer(cell)) {
            text.push_str(&format!("  {}: {note}\n", label.whole()));
        }
    }
    for sentence in crate::merging(tally).into_iter().chain(comparisons(tally)) {
        text.push_str(&format!("{sentence}\n"));
    }
    text
}

/// The matrix as a Markdown table.
pub fn markdown(tally: &Tally) -> String {
    let labels = labels(&tally.cells);
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN).set_content_arrangement(ContentArrangement::Disabled).force_no_tty();
    fill(&mut table, &WIDE_COLUMNS, tally, &labels, for_markdown);
    table.to_string() + "\n"
}

struct Column {
    head: &'static str,
    side: Side,
    value: fn(&Cell, &Label) -> String,
}

/// How a column is laid out; what flows gives way where the screen is too narrow.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Left,
    Right,
    Flows,
}

const WIDE_COLUMNS: [Column; 9] = [
    Column { head: "file system", side: Side::Flows, value: |_, label| label.row() },
    Column { head: "mode", side: Side::Left, value: |_, label| label.mode.clone() },
    Column { head: "violated/states", side: Side::Right, value: |cell, _| violated(cell) },
    Column { head: "rate", side: Side::Right, value: |cell, _| cell.rate.map_or("–".into(), percent) },
    Column { head: "95\u{a0}% interval", side: Side::Right, value: |cell, _| interval(cell) },
    Column { head: "findings", side: Side::Flows, value: |cell, _| kinds(cell, ", ") },
    Column { head: "loose", side: Side::Right, value: |cell, _| cell.loose_share().map_or("–".into(), percent) },
    Column { head: "expected", side: Side::Flows, value: |cell, _| expected(cell) },
    Column { head: "verdict", side: Side::Left, value: |cell, _| verdict(cell) },
];

const NARROW_COLUMNS: [Column; 5] = [
    Column { head: "cell", side: Side::Flows, value: |_, label| format!("{}\n{}", label.mode, label.row()) },
    Column { head: "violated", side: Side::Right, value: |cell, _| stacked_rate(cell) },
    Column { head: "findings", side: Side::Left, value: |cell, _| kinds(cell, "\n") },
    Column { head: "loose", side: Side::Right, value: |cell, _| cell.loose_share().map_or("–".into(), percent) },
    Column {
        head: "verdict\nexpected",
        side: Side::Flows,
        value: |cell, _| format!("{}\n{}", verdict(cell), expected(cell)),
    },
];

fn fill(table: &mut Table, columns: &[Column], tally: &Tally, labels: &[Label], write: fn(String) -> String) {
    table.set_header(columns.iter().map(|column| column.head));
    for index in by_row(labels) {
        let (cell, label) = (&tally.cells[index], &labels[index]);
        let last = columns.len() - 1;
        table.add_row(columns.iter().enumerate().map(|(index, column)| {
            let text = comfy_table::Cell::new(write((column.value)(cell, label)));
            if index == last { text.fg(colour(&cell.verdict)) } else { text }
        }));
    }
    for (index, column) in columns.iter().enumerate() {
        let laid_out = table.column_mut(index).expect("a column for each head");
        if column.side == Side::Right {
            laid_out.set_cell_alignment(CellAlignment::Right);
        }
        if column.side != Side::Flows {
            laid_out.set_constraint(ColumnConstraint::ContentWidth);
        }
    }
}

fn colour(verdict: &Verdict) -> Color {
    match verdict {
        Verdict::AsExpected => Color::Green,
        Verdict::Worse { .. } => Color::Red,
        Verdict::Better { .. } => Color::Blue,
        Verdict::Inconclusive { .. } => Color::Yellow,
        Verdict::Broken { .. } => Color::Magenta,
        Verdict::Skipped { .. } => Color::DarkGrey,
    }
}

fn violated(cell: &Cell) -> String {
    format!("{}/{}", count(cell.counts.violated), count(cell.counts.judged()))
}

fn interval(cell: &Cell) -> String {
    cell.interval.map_or("–".into(), |interval| percent_range(interval.low, interval.high))
}

fn stacked_rate(cell: &Cell) -> String {
    match (cell.rate, cell.interval) {
        (Some(rate), Some(_)) => format!("{}\n{}\n{}", violated(cell), percent(rate), interval(cell)),
        _ => violated(cell),
    }
}

/// A rate says what a power cut at a random moment does only where nobody aimed, so others are shown apart.
fn by_explorer(cell: &Cell) -> Option<String> {
    let aimed = |name: &String| !["every-cut", "sampled"].contains(&name.as_str());
    let one = |(name, explored): (&String, &crate::tally::Explored)| {
        format!("{name} {}/{}", count(explored.violated), count(explored.judged))
    };
    let all: Vec<String> = cell.explorers.iter().map(one).collect();
    cell.explorers.keys().any(aimed).then(|| format!("by explorer: {}", all.join(", ")))
}

fn kinds(cell: &Cell, between: &str) -> String {
    let kinds: Vec<String> =
        cell.counts.kinds.iter().map(|(kind, &n)| format!("{}\u{a0}{}", kind.name(), count(n))).collect();
    if kinds.is_empty() { "–".into() } else { kinds.join(between) }
}

fn expected(cell: &Cell) -> String {
    cell.expectations.iter().map(describe).collect::<Vec<_>>().join(" or ")
}

fn verdict(cell: &Cell) -> String {
    format!("{} {}", cell.verdict.sign(), cell.verdict.name())
}

/// A bar would end the column, an angle bracket begin a tag, and these signs emphasis.
pub(crate) fn for_markdown(text: String) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        if matches!(character, '|' | '<' | '>' | '*' | '_' | '`' | '\\' | '^' | '~' | '[') {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}
