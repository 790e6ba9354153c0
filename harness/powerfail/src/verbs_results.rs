//! What the verbs do that read results: `report`, `compare`, `history`. Nothing is run here, and no privilege is needed.

use std::path::{Path, PathBuf};

use clap::Args;
use powerfail_reports::compare::{Comparison, Thresholds};
use powerfail_reports::history::History;
use powerfail_reports::table::{self, Screen};
use powerfail_reports::{Limits, Summary, Tally};

use crate::cli::OutputArgs;
use crate::folder::write_whole;
use crate::progress::say;
use crate::results;

/// `powerfail report`.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Folders of runs, or folders of such folders; they are merged, and what is in several counts once
    #[arg(required = true)]
    dirs: Vec<PathBuf>,
    /// What to print and write
    #[command(flatten)]
    output: OutputArgs,
    /// Write headline and table as Markdown, for a chat or the page of a CI job
    #[arg(long, value_name = "FILE")]
    summary: Option<PathBuf>,
    /// Write JUnit XML, one test for each cell
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Put the history of these nights on the page
    #[arg(long, value_name = "DIR")]
    history: Vec<PathBuf>,
}

/// `powerfail compare`.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes: 0 no cell is worse; 1 a cell is worse; 125 nobody can tell: good, bad and skip for `git bisect run`. \
2 a folder can't be read. docs/page.md has a script for bisecting.")]
pub struct CompareArgs {
    /// The run to compare with
    before: PathBuf,
    /// The run that may be worse
    after: PathBuf,
    /// A difference is one if its p-value, corrected for the number of cells, is below this
    #[arg(long, default_value_t = Thresholds::default().level, value_parser = share)]
    level: f64,
    /// `no worse` excludes a rise of the rate by this much, as a share, at 95 % confidence
    #[arg(long, default_value_t = Thresholds::default().margin, value_parser = share)]
    margin: f64,
    /// Print JSON instead of the table
    #[arg(long)]
    json: bool,
}

/// `powerfail history`.
#[derive(Debug, Args)]
pub struct HistoryArgs {
    /// Folders of nights: each a run, or a folder that holds one for each night
    #[arg(required = true)]
    dirs: Vec<PathBuf>,
    /// Write the page of the newest night with the history on it
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print JSON instead of the table
    #[arg(long)]
    json: bool,
}

/// Prints and writes what was asked for; the exit code is that of the result.
///
/// # Errors
/// If a folder can't be read or a file can't be written.
pub fn report(args: &ReportArgs) -> anyhow::Result<u8> {
    let tally = results::tally(&args.dirs)?;
    let nights = if args.history.is_empty() { Vec::new() } else { results::nights(&args.history)? };
    let history = (!nights.is_empty()).then(|| History::of(nights));
    let page = powerfail_reports::render_with(&tally, history.as_ref(), Limits::default());
    let html = args.output.html.clone().unwrap_or_else(|| args.dirs[0].join("page.html"));
    write_whole(&html, page.as_bytes())?;
    if let Some(path) = &args.summary {
        write_whole(path, powerfail_reports::markdown(&tally).as_bytes())?;
    }
    if let Some(path) = &args.junit {
        write_whole(path, powerfail_reports::junit(&tally).as_bytes())?;
    }
    print(&tally, args.output.json)?;
    Ok(tally.exit_code())
}

/// Prints the table of a result, or its summary as JSON.
///
/// # Errors
/// If it is no JSON.
pub fn print(tally: &Tally, json: bool) -> anyhow::Result<()> {
    if json {
        println!("{}", serde_json::to_string_pretty(&Summary::of(tally))?);
    } else {
        println!("{}", table::terminal(tally, Screen::of_stdout()));
    }
    Ok(())
}

/// Compares two results; 0 no worse, 1 worse, 125 nobody can tell.
///
/// # Errors
/// If a folder can't be read.
pub fn compare(args: &CompareArgs) -> anyhow::Result<u8> {
    let of = |folder: &Path| results::tally(&[folder.to_owned()]);
    let thresholds = Thresholds { level: args.level, margin: args.margin };
    let comparison = Comparison::of(&of(&args.before)?, &of(&args.after)?, thresholds);
    if args.json {
        let value = serde_json::json!({
            "headline": comparison.headline(), "exit_code": comparison.exit_code(), "comparison": comparison,
        });
        println!("{}", serde_json::to_string_pretty(&value)?);
    } else {
        print!("{}", table::comparison(&comparison, Screen::of_stdout()));
    }
    Ok(comparison.exit_code())
}

/// Prints the history of nights, and writes the page of the newest.
///
/// # Errors
/// If a folder can't be read or the page can't be written.
pub fn history(args: &HistoryArgs) -> anyhow::Result<u8> {
    let nights = results::nights(&args.dirs)?;
    let newest = nights.last().map(|night| night.tally.clone());
    let history = History::of(nights);
    if let (Some(path), Some(tally)) = (&args.html, newest) {
        let page = powerfail_reports::render_with(&tally, Some(&history), Limits::default());
        write_whole(path, page.as_bytes())?;
        say(&format!("page {}", path.display()));
    }
    if args.json {
        let value = serde_json::json!({ "headline": history.headline(), "history": history });
        println!("{}", serde_json::to_string_pretty(&value)?);
    } else {
        print!("{}", table::history(&history, Screen::of_stdout()));
    }
    Ok(0)
}

/// A share between 0 and 1, neither with it.
fn share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(share) if share > 0.0 && share < 1.0 => Ok(share),
        _ => Err("say a number between 0 and 1, such as 0.01".into()),
    }
}
