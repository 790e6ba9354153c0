//! Writes pages from synthetic ledgers, to look at: `cargo run --example sample_page -- FOLDER`.
//!
//! `night.html` is a night with everything that can be on a page, `matrix.html` one of 324 cells.

#[path = "../tests/support/mod.rs"]
mod support;

use std::path::Path;
use std::time::Instant;

use powerfail_reports::history::History;
use powerfail_reports::{Limits, Tally, render, render_with, table};

fn main() -> std::io::Result<()> {
    let folder = std::env::args().nth(1).unwrap_or_else(|| ".".into());
    let tally = Tally::from_ledgers(&[support::night()]);
    print!("{}", table::terminal(&tally, table::Screen::of_stdout()));
    let history = History::of(support::nights());
    let page = render_with(&tally, Some(&history), Limits::default());
    println!("night.html: {} bytes", page.len());
    std::fs::write(Path::new(&folder).join("night.html"), page)?;
    let ledger = support::matrix();
    let began = Instant::now();
    let page = render(&Tally::from_ledgers(&[ledger]));
    println!("matrix.html: {} bytes, tally and page in {:?}", page.len(), began.elapsed());
    std::fs::write(Path::new(&folder).join("matrix.html"), page)
}
