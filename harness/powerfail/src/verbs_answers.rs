//! `powerfail shrink` and `powerfail explain`: what a casebook comes down to.

use std::path::PathBuf;

use clap::Args;
use powerfail_ledger::Outcome;

use crate::casebook;
use crate::doctor;
use crate::explain::explain;
use crate::investigate::investigate;
use crate::plan_file::Entry;
use crate::progress::say;
use crate::replay::{self, Target};
use crate::rigs;
use crate::run::about;
use crate::shrink::REPLAYS;
use crate::stop::Stop;
use crate::verify::{Job, Worker};

/// `powerfail shrink`.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 the small state comes out the same each time; 1 it does not; 3 the harness broke."
)]
pub struct ShrinkArgs {
    /// The folder of a casebook
    casebook: PathBuf,
    /// Verdicts after which the smallest state so far is the result
    #[arg(long, default_value_t = 400)]
    most: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// `powerfail explain`.
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// The folder of a casebook, or a recipe
    what: String,
    /// The folder of the run whose recording a recipe needs
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Shrinks the state of a casebook; the casebook of the small state is beside it.
///
/// # Errors
/// If it is none, or not violated any more.
pub fn shrink(args: &ShrinkArgs) -> anyhow::Result<u8> {
    let what = args.casebook.display().to_string();
    let state = casebook::read(&args.casebook)?;
    let target = replay::target(&what, None)?;
    let stop = Stop::listen()?;
    let found = with_job(&target, |job| {
        investigate(job, &state, args.most, &stop, |verdicts, lost| {
            say(&format!("{verdicts} verdicts: {lost} lost fragments are still enough"));
        })
    })?;
    if args.json {
        let value = serde_json::json!({
            "casebook": found.folder, "state": found.state, "explanation": found.explanation,
            "verdicts": found.shrunk.verdicts, "stable": found.shrunk.stable, "replays": REPLAYS,
        });
        println!("{}", serde_json::to_string_pretty(&value)?);
    } else {
        println!("{}", found.explanation.markdown());
        println!(
            "{} of {} lost fragments matter, after {} verdicts; {} of {REPLAYS} replays came to the same findings",
            found.state.lost, state.lost, found.shrunk.verdicts, found.shrunk.stable
        );
        println!("casebook {}", found.folder.display());
    }
    Ok(u8::from(found.shrunk.stable < REPLAYS))
}

/// Explains a state, which is judged once more for it.
///
/// # Errors
/// If it names nothing that is there.
pub fn explain_state(args: &ExplainArgs) -> anyhow::Result<u8> {
    let target = replay::target(&args.what, args.dir.as_deref())?;
    let (explanation, broken) = with_job(&target, |job| {
        let mut worker = Worker::new(job);
        let state = target.recipe()?.to_string();
        let entry = Entry { state, image: String::new(), explorer: "explain".into(), in_flight: 0 };
        let judged = worker.judge(&entry)?;
        let explanation = explain(job.cell, job.recording, job.about, target.recipe()?, &judged)?;
        Ok((explanation, matches!(judged.outcome, Outcome::Broken { .. })))
    })?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&explanation)?);
    } else {
        println!("{}", explanation.markdown());
    }
    Ok(if broken { 3 } else { 0 })
}

/// Does something with the cell of a state, on its rig.
fn with_job<T>(target: &Target, act: impl FnOnce(&Job<'_>) -> anyhow::Result<T>) -> anyhow::Result<T> {
    doctor::require(target.cell())?;
    let files = target.files()?;
    let recording = target.recording()?;
    let about = about(&files)?;
    let rig = rigs::Pool::default().get(target.cell())?;
    let job = Job {
        cell: target.cell(),
        folder: &files,
        recording: &recording,
        about: &about,
        rig: &*rig,
        jobs: 1,
        until_found: false,
        end: None,
    };
    act(&job)
}
