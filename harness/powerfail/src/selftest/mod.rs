//! `powerfail selftest`: does the harness see what it must see?
//!
//! Drives that lie must be caught, an honest one must not be accused, and canaries must end as they are meant to: held,
//! violated, skipped, broken. Who must catch a lie is written down here: a file system where it can notice, and for every lie the
//! raw witness (an NBD client of our own) too, because some are no file system's to notice: a drive that empties its cache
//! for each FUA does more than it promised.

mod cells;
mod client;
mod raw;
mod silent;
pub mod told;

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Context;
use clap::Args;
use powerfail_ledger::{Ending, Line, SCHEMA, Selftest, Trial, TrialKind};
use powerfail_reports::selftest::table;
use powerfail_seed::Seed;

use crate::cell::Cell;
use crate::cli::Keep;
use crate::doctor::{self, CantTest};
use crate::filesystems::{self, FileSystem};
use crate::folder::{Folder, Usage};
use crate::kernels::Kernel;
use crate::progress::say;
use crate::rigs;
use crate::run::{self, DiskFull, Effort, Until};
use crate::stop::{Stop, Stopped};

/// `powerfail selftest`.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 all is seen that must be; 1 inconclusive: something is not, or could not be tried here."
)]
pub struct SelftestArgs {
    /// Power cuts within which each lie must be caught, and that the honest drive must stand
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(50..))]
    states: u64,
    /// Folder for recordings, ledger and casebooks, new or empty; without it they are kept only if something is not seen
    #[arg(long)]
    out: Option<PathBuf>,
    /// Rig of the file-system cells
    #[arg(long, default_value = "auto")]
    rig: String,
    /// Seed of every decision
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// States verified at a time; 0: twice the processors
    #[arg(long, default_value_t = 0)]
    jobs: usize,
    /// Print JSON instead of the table
    #[arg(long)]
    json: bool,
}

/// How much a selftest tries.
#[derive(Debug)]
pub struct Extent {
    /// Power cuts of the raw witness, and most of a file-system cell.
    states: u64,
    /// Power cuts that the honest cell must stand.
    honest: u64,
    /// The lies that the file system must notice.
    lies: &'static [&'static str],
    /// Steps of each worker.
    steps: u64,
    /// A small tree and few workers.
    small: bool,
}

/// What ext4 with its defaults notices within 200 power cuts, whatever the rig. FUA does not come through host-loop. A block
/// torn below 4 KiB is no harm to it any more, but for its superblock, which a short workload writes in place hardly ever.
const NOTICED: &[&str] = &["flush-ignored", "reorders-across-flush", "comes-back-stale", "lands-elsewhere"];

impl Extent {
    fn whole(states: u64) -> Extent {
        Extent { states, honest: states, lies: NOTICED, steps: 1000, small: false }
    }

    /// A few seconds.
    const SHORT: Extent = Extent { states: 200, honest: 8, lies: &["flush-ignored"], steps: 200, small: true };
}

/// Tries everything and prints what came of it.
///
/// # Errors
/// If the folder can't be used, or the user stops it.
pub fn selftest(args: &SelftestArgs) -> anyhow::Result<u8> {
    let ext4 = ext4();
    let rig = match args.rig.as_str() {
        "auto" => doctor::choose(ext4).map(|(rig, kernel, _)| (rig.to_owned(), kernel)),
        name => {
            let kernel = if name == "guest" { doctor::guest_kernel() } else { Kernel::Host };
            doctor::require_rig(name, &kernel, ext4).map(|()| (name.to_owned(), kernel))
        }
    };
    let rig = or_missing(rig)?;
    let kept = match &args.out {
        Some(out) => (out.clone(), None),
        None => {
            let temporary = tempfile::Builder::new().prefix("powerfail-selftest-").tempdir()?;
            (temporary.path().join("selftest"), Some(temporary))
        }
    };
    let (out, temporary) = kept;
    let jobs = if args.jobs == 0 { std::thread::available_parallelism().map_or(2, usize::from) * 2 } else { args.jobs };
    let selftest = attempt(&out, &Extent::whole(args.states), args.seed, rig, jobs, &Stop::listen()?)?;
    let failed = selftest.failures().count();
    if args.json {
        println!(
            "{}",
            serde_json::to_string_pretty(&serde_json::json!({ "passed": passed(&selftest), "selftest": selftest }))?
        );
    } else {
        print!("{}", table(&selftest));
        println!("{}", sentence(&selftest));
    }
    if failed > 0
        && let Some(temporary) = temporary
    {
        say(&format!("what was seen is kept in {}", temporary.keep().display()));
    }
    Ok(u8::from(!passed(&selftest)))
}

/// The short selftest of a run, once a folder: its line in the ledger says what came of it.
///
/// # Errors
/// If the ledger can't be written, the disk is full or the user stops it. A selftest that breaks is one that failed.
pub fn of_run(folder: &Folder, effort: Effort, stop: &Stop) -> anyhow::Result<()> {
    let (mut ledger, contents) = folder.ledger(|| run::header(&folder.config))?;
    // The ledger of an older powerfail stays readable for it.
    let there = contents.lines.iter().any(|line| matches!(line, Line::Selftest(_)));
    if there || contents.header.schema < SCHEMA {
        return Ok(());
    }
    let out = folder.path().join("selftest");
    if out.exists() {
        std::fs::remove_dir_all(&out).with_context(|| out.display().to_string())?;
    }
    let ext4 = ext4();
    let rig = or_missing(doctor::choose_host(ext4).map(|rig| (rig.to_owned(), Kernel::Host)))?;
    let started = Instant::now();
    let selftest = match attempt(&out, &Extent::SHORT, folder.config.seed, rig, effort.jobs, stop) {
        Ok(selftest) => selftest,
        Err(error) if error.is::<Stopped>() || error.is::<DiskFull>() => return Err(error),
        Err(error) => {
            let ending = Ending::Failed { seen: format!("{error:#}") };
            let trial =
                Trial { kind: TrialKind::Canary, name: "selftest".into(), witness: "itself".into(), states: 0, ending };
            Selftest { trials: vec![trial], took_ms: started.elapsed().as_millis() as u64 }
        }
    };
    say(&sentence(&selftest));
    selftest.failures().for_each(|trial| say(&format!("  {} by {}: {:?}", trial.name, trial.witness, trial.ending)));
    Ok(ledger.append(&Line::Selftest(selftest))?)
}

/// A rig with its kernel, or why there is none.
type Place = Result<(String, Kernel), String>;

fn or_missing(rig: anyhow::Result<(String, Kernel)>) -> anyhow::Result<Place> {
    match rig {
        Ok(rig) => Ok(Ok(rig)),
        Err(error) if error.is::<CantTest>() => Ok(Err(format!("{error:#}"))),
        Err(error) => Err(error),
    }
}

/// Tries all that belongs to this extent, in a new folder.
fn attempt(out: &Path, extent: &Extent, seed: u64, rig: Place, jobs: usize, stop: &Stop) -> anyhow::Result<Selftest> {
    let started = Instant::now();
    // Refuses a folder that is in use before anything is written.
    let cells = match &rig {
        Ok((name, kernel)) => {
            let config = cells::config(extent, seed, name, kernel, out);
            config.check().map_err(|error| Usage(error.to_string()))?;
            Some(Folder::begin(out, &config, false)?)
        }
        Err(_) => None,
    };
    let mut trials = raw::trials(&out.join("raw"), Seed(seed).at("selftest", &[]), extent.states)?;
    trials.extend(match (&cells, rig) {
        (Some(folder), _) => of_cells(folder, extent, jobs, stop)?,
        (None, rig) => cells::not_tried(extent, &rig.err().unwrap_or_default()),
    });
    Ok(Selftest { trials, took_ms: started.elapsed().as_millis() as u64 })
}

fn of_cells(folder: &Folder, extent: &Extent, jobs: usize, stop: &Stop) -> anyhow::Result<Vec<Trial>> {
    // One cell at a time: the others' recordings are told over the first one's.
    let effort = Effort { jobs, until_found: true, cells: 1, keep: Keep::All, shrink: Some(0) };
    run::run(folder, effort, Until::Verified, stop)?;
    let ledger = powerfail_ledger::read(&folder.ledger_path())?;
    let mut trials = cells::trials(&folder.config, extent, &ledger);
    let honest = &Cell::all(&folder.config)[0];
    let ending = rigs::Pool::default().get(honest).and_then(|rig| silent::judge(folder, honest, &*rig));
    let ending = ending.unwrap_or_else(|error| Ending::Failed { seen: format!("{error:#}") });
    let witness = trials[0].witness.clone();
    trials.push(Trial { kind: TrialKind::Canary, name: "hangs".into(), witness, states: 1, ending });
    Ok(trials)
}

fn ext4() -> &'static dyn FileSystem {
    filesystems::named("ext4").expect("it is there")
}

fn passed(selftest: &Selftest) -> bool {
    selftest.failures().next().is_none() && selftest.not_tried().next().is_none()
}

fn sentence(selftest: &Selftest) -> String {
    let seconds = selftest.took_ms as f64 / 1000.0;
    let (all, failed, left) = (selftest.trials.len(), selftest.failures().count(), selftest.not_tried().count());
    let tried = all - left;
    let missing = match left {
        0 => String::new(),
        _ => format!("; {left} more could not be tried here"),
    };
    match failed {
        0 => format!("selftest: all of {tried} trials ended as they must{missing} ({seconds:.1} s)"),
        _ => format!(
            "selftest: {failed} of {tried} trials did not end as they must: inconclusive{missing} ({seconds:.1} s)"
        ),
    }
}
