//! Writes a page from a synthetic ledger, to look at: `cargo run --example sample_page -- page.html`.

#[path = "../tests/support/mod.rs"]
mod support;

use powerfail_reports::{Tally, render, table};

fn main() -> std::io::Result<()> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "sample.html".into());
    let tally = Tally::from_ledgers(&[support::night()]);
    print!("{}", table::terminal(&tally, table::Screen::of_stdout()));
    let page = render(&tally);
    println!("{path}: {} bytes", page.len());
    std::fs::write(path, page)
}
