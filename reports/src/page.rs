//! The page that a person reads in the morning: one HTML file that needs no network and no script.
//!
//! What is shown is bounded, and what was left out is said: a control with a thousand violations must not make a page
//! that nobody opens. Kernel and fsck text is foreign, so the template escapes everything but the charts, which escape
//! their own.

mod cell;
mod past;
mod picture;
mod view;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, UndefinedBehavior, Value};

use crate::history::History;
use crate::tally::Tally;

/// How much of a result the page holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Violations listed in each cell.
    pub violations: usize,
    /// Bytes of recipes, commands and findings of all these lists together, shared evenly among the cells.
    pub violation_bytes: usize,
    /// Groups of findings in each cell.
    pub groups: usize,
    /// Bytes of their recipes, commands and findings together, shared evenly among the cells.
    pub group_bytes: usize,
    /// Bytes of all timelines; cells take turns, and those that are worse than expected come first.
    pub timeline_bytes: usize,
    /// Cells in each chart but the matrix; those that are not as expected come first, then those with violations.
    pub chart_cells: usize,
    /// Cells whose history is drawn; those that changed come first, then those with violations.
    pub series: usize,
    /// Cells named under the headline.
    pub attention: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            violations: 50,
            violation_bytes: 1 << 20,
            groups: 20,
            group_bytes: 1 << 20,
            timeline_bytes: 3 << 20,
            chart_cells: 48,
            series: 24,
            attention: 40,
        }
    }
}

/// The page, with the usual limits.
pub fn render(tally: &Tally) -> String {
    render_with(tally, None, Limits::default())
}

/// The page, with many nights' history if there is one.
///
/// # Panics
/// If the template is wrong, which is a fault of this crate.
pub fn render_with(tally: &Tally, history: Option<&History>, limits: Limits) -> String {
    let mut environment = Environment::new();
    environment.set_auto_escape_callback(|_| AutoEscape::Html);
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    environment.set_syntax(syntax.expect("the usual delimiters"));
    environment.add_template("page.html", include_str!("../templates/page.html")).expect("the template parses");
    environment.add_template("style.css", include_str!("../templates/style.css")).expect("the style sheet parses");
    environment.add_template("history.html", include_str!("../templates/history.html")).expect("the template parses");
    environment.add_template("cell.html", include_str!("../templates/cell.html")).expect("the template parses");
    let page = environment.get_template("page.html").expect("just added");
    page.render(Value::from(Serde(view::Page::of(tally, history, limits)))).expect("the template fits the view")
}
