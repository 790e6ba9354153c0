//! What each verb of the command line does.

use std::path::{Path, PathBuf};

use powerfail_ledger::Outcome;
use powerfail_reports::Tally;

use crate::cell::Cell;
use crate::cli::{BenchVerb, Cli, Format, OutputArgs, RecordingVerb, RunArgs, Verb};
use crate::config::Config;
use crate::doctor::{self, CantTest};
use crate::filesystems;
use crate::folder::{Folder, Usage};
use crate::kernels::Kernel;
use crate::progress::say;
use crate::recording_file::Mapped;
use crate::run::{self, Effort, Until};
use crate::stop::{Stop, Stopped};
use crate::{
    bench, journal_cmd, plan_again, recording_cmd, recoveries, replay, selftest, serve, verbs_answers, verbs_matrix,
    verbs_results,
};

/// Does what was asked for; gives the exit code.
///
/// # Errors
/// See [`exit_code`].
pub fn act(cli: Cli) -> anyhow::Result<u8> {
    match cli.verb {
        Verb::Doctor { json } => doctor::doctor(json),
        Verb::Run(args) => begin(&args, Until::Verified),
        Verb::Record(args) => begin(&args, Until::Recorded),
        Verb::Plan { dir, args } => {
            let folder = plan_again::folder(&dir, &args)?;
            needs_recordings(&folder)?;
            run::run(&folder, Effort::least(), Until::Planned, &Stop::listen()?)?;
            Ok(0)
        }
        Verb::Verify { dir, effort, output } => {
            let folder = Folder::open(&dir)?;
            needs_recordings(&folder)?;
            some_cell_works(&folder.config)?;
            let tally = run::run(&folder, effort.effort(), Until::Verified, &Stop::listen()?)?;
            show(&tally, &dir, &output)
        }
        Verb::Matrix(args) => verbs_matrix::matrix(&args),
        Verb::Report(args) => verbs_results::report(&args),
        Verb::Selftest(args) => selftest::selftest(&args),
        Verb::Compare(args) => verbs_results::compare(&args),
        Verb::History(args) => verbs_results::history(&args),
        Verb::Replay { what, dir, times, json } => replayed(&what, dir.as_deref(), times, json),
        Verb::Shrink(args) => verbs_answers::shrink(&args),
        Verb::Explain(args) => verbs_answers::explain_state(&args),
        Verb::Materialise { what, dir, output } => {
            match &dir {
                Some(dir) if serve::is_served(dir) => serve::materialise(&what, dir, &output)?,
                _ => replay::materialise(&replay::target(&what, dir.as_deref())?, &output)?,
            }
            say(&format!("{} is the image of that state", output.display()));
            Ok(0)
        }
        Verb::Journal { image, json } => journal_cmd::journal(&image, json),
        Verb::Recoveries(args) => recoveries::recoveries(&args),
        Verb::Serve(args) => serve::serve(&args),
        Verb::Ctl(args) => serve::ctl(&args),
        Verb::Recording { verb } => recording(verb),
        Verb::Bench { verb: BenchVerb::Verify { states, jobs, files, rounds, json } } => {
            doctor::require_rig("host-loop", &Kernel::Host, filesystems::named("ext4").expect("it is there"))?;
            bench::verify::bench(states, jobs, files, rounds, json)
        }
        Verb::Bench { verb: BenchVerb::Record { steps, rounds, json } } => {
            doctor::require_rig("host-loop", &Kernel::Host, filesystems::named("ext4").expect("it is there"))?;
            bench::record::bench(steps, rounds, json)
        }
        Verb::Bench { verb: BenchVerb::Guest { states, guests, files, json } } => {
            let ext4 = filesystems::named("ext4").expect("it is there");
            doctor::require_rig("guest", &doctor::guest_kernel(), ext4)?;
            bench::guest::bench(states, guests, files, json)
        }
        Verb::Bench { verb: BenchVerb::Nbd { size, seconds, rounds, json } } => {
            bench::nbd::bench(size, seconds, rounds, json)
        }
    }
}

/// 2 for bad input, 4 where nothing can be tested, 130 after Ctrl-C, 3 where the harness broke.
pub fn exit_code(error: &anyhow::Error) -> u8 {
    if error.is::<Usage>() {
        2
    } else if error.is::<CantTest>() {
        4
    } else if error.is::<Stopped>() {
        130
    } else {
        3
    }
}

fn begin(args: &RunArgs, until: Until) -> anyhow::Result<u8> {
    if args.live && until < Until::Verified {
        anyhow::bail!(Usage("live cuts are recorded and judged one by one; say `run`".into()));
    }
    let config = args.config()?;
    some_cell_works(&config)?;
    let stop = Stop::listen()?;
    let folder = Folder::begin(&args.out, &config, args.resume)?;
    say(&format!("seed {}", config.seed));
    if until == Until::Verified && !args.no_selftest {
        selftest::of_run(&folder, args.effort.effort(), &stop)?;
    }
    let tally = run::run(&folder, args.effort.effort(), until, &stop)?;
    if until < Until::Verified {
        return Ok(if tally.cells.iter().any(|cell| cell.counts.broken > 0) { 3 } else { 0 });
    }
    let code = show(&tally, &args.out, &args.output)?;
    say(&format!("seed {}; page {}", config.seed, page_of(&args.out, &args.output).display()));
    Ok(code)
}

/// A run in which every cell would be skipped is not begun. A cell that can't be tested beside others that can is skipped.
pub(crate) fn some_cell_works(config: &Config) -> anyhow::Result<()> {
    let mut first = None;
    for cell in Cell::all(config) {
        match doctor::require(&cell) {
            Ok(()) => return Ok(()),
            Err(error) if error.is::<CantTest>() => first = first.or(Some(error)),
            Err(error) => return Err(error),
        }
    }
    first.map_or(Ok(()), Err)
}

/// `plan` and `verify` make no recordings of their own.
fn needs_recordings(folder: &Folder) -> anyhow::Result<()> {
    for cell in Cell::all(&folder.config) {
        if !folder.path().join(&cell.name).join("recording").is_file() {
            let text = format!(
                "{} has no recording of {}; go on with `powerfail run --resume`",
                folder.path().display(),
                cell.name
            );
            anyhow::bail!(Usage(text));
        }
    }
    Ok(())
}

fn page_of(dir: &Path, output: &OutputArgs) -> PathBuf {
    output.html.clone().unwrap_or_else(|| dir.join("page.html"))
}

fn show(tally: &Tally, dir: &Path, output: &OutputArgs) -> anyhow::Result<u8> {
    run::write_page(tally, &page_of(dir, output))?;
    verbs_results::print(tally, output.json)?;
    Ok(tally.exit_code())
}

fn replayed(what: &str, dir: Option<&Path>, times: u32, json: bool) -> anyhow::Result<u8> {
    let target = replay::target(what, dir)?;
    doctor::require(target.cell())?;
    let replayed = replay::replay(target, times)?;
    let same = replayed.iter().filter(|replayed| replayed.same()).count();
    let broken = replayed.iter().any(|replayed| matches!(replayed.judged.outcome, Outcome::Broken { .. }));
    if json {
        let outcomes: Vec<_> = replayed.iter().map(|replayed| &replayed.judged.outcome).collect();
        let expected = replayed.first().and_then(|replayed| replayed.expected.as_ref());
        println!(
            "{}",
            serde_json::json!({ "times": replayed.len(), "same": same, "expected": expected, "outcomes": outcomes })
        );
    } else {
        for replayed in &replayed {
            tell(&replayed.judged.outcome);
        }
        match replayed.first().and_then(|replayed| replayed.expected.as_ref()) {
            Some(_) => println!("{same} of {} replays came to the findings of the casebook", replayed.len()),
            None => println!("{} replays; a recipe alone says nothing of what to expect", replayed.len()),
        }
    }
    Ok(if broken { 3 } else { u8::from(same < replayed.len()) })
}

fn tell(outcome: &Outcome) {
    match outcome {
        Outcome::Held => println!("held"),
        Outcome::Violated { findings } => {
            println!("violated");
            findings.iter().for_each(|finding| println!("  {}: {}", finding.kind.name(), finding.detail));
        }
        Outcome::Skipped { reason } => println!("skipped: {reason}"),
        Outcome::Broken { reason } => println!("broken: {reason}"),
    }
}

fn recording(verb: RecordingVerb) -> anyhow::Result<u8> {
    match verb {
        RecordingVerb::Export { dir, format: Format::LogWrites, output } => {
            let entries = recording_cmd::export(&dir, &output)?;
            say(&format!("{}: {entries} entries", output.display()));
        }
        RecordingVerb::Import { file, format: Format::LogWrites, output, size } => {
            let entries = recording_cmd::import(&file, &output, size)?;
            say(&format!("{}: {entries} entries", output.join("recording").display()));
        }
        RecordingVerb::Show { dir, json } => {
            let path = recording_cmd::find(&dir)?;
            let usage = |why: String| Usage(format!("{}: {why}", path.display()));
            let recording = Mapped::open(&path).map_err(|error| usage(error.to_string()))?;
            let span = powerfail_drive::explore::span(recording.bytes()).map_err(|error| usage(error.to_string()))?;
            let counts = recording_cmd::count(recording.bytes())?;
            if json {
                println!(
                    "{}",
                    serde_json::json!({ "counts": counts, "first_cut": span.first, "last_cut": span.last, "blake3": recording.digest() })
                );
            } else {
                println!(
                    "{}: {} events; {} writes with {} bytes, {} flushes, {} FUA, {} trims",
                    path.display(),
                    counts.events,
                    counts.writes,
                    counts.written_bytes,
                    counts.flushes,
                    counts.fua,
                    counts.trims
                );
                println!("cuts may lie from event {} to {}; BLAKE3 {}", span.first, span.last, recording.digest());
            }
        }
    }
    Ok(0)
}
