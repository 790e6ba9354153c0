//! `powerfail matrix`: a night's cells, from a file.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::cli::{EffortArgs, OutputArgs};
use crate::config::{CellConfig, Config};
use crate::folder::{Folder, Usage, write_whole};
use crate::kernels::Kernel;
use crate::progress::say;
use crate::run::{self, Effort, Until};
use crate::shard::Shard;
use crate::stop::Stop;
use crate::verbs::some_cell_works;
use crate::{doctor, filesystems, matrix, selftest, verbs_results};
use powerfail_workloads::catalog::Workload;

/// `powerfail matrix`.
#[derive(Debug, Args)]
pub struct MatrixArgs {
    /// The matrix file; scripts/smoke.toml and scripts/nightly.toml are examples
    file: PathBuf,
    /// Folder of the run; must be new or empty
    #[arg(long, default_value = "powerfail-out")]
    out: PathBuf,
    /// Go on with the run in the folder
    #[arg(long)]
    resume: bool,
    /// Only a part of the cells: I/N (the first of four is 0/4), auto/N in a task of a job array, auto in one of Slurm's
    #[arg(long, value_name = "I/N")]
    shard: Option<String>,
    /// Leave out the short selftest, of a few seconds, with which a run begins
    #[arg(long)]
    no_selftest: bool,
    /// Another seed than the file's, for every cell; a file with several seeds keeps its own
    #[arg(long)]
    seed: Option<u64>,
    /// Print the cells and an estimate of the time, and run nothing
    #[arg(long)]
    dry_run: bool,
    /// How hard to try
    #[command(flatten)]
    effort: EffortArgs,
    /// What to print and write
    #[command(flatten)]
    output: OutputArgs,
    /// Write headline and table as Markdown, for a chat or the page of a CI job
    #[arg(long, value_name = "FILE")]
    summary: Option<PathBuf>,
    /// Write JUnit XML, one test for each cell
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
}

/// Runs it; the exit code is that of the result.
///
/// # Errors
/// As `powerfail run`.
pub fn matrix(args: &MatrixArgs) -> anyhow::Result<u8> {
    let config = read(args)?;
    let effort = args.effort.effort();
    if args.dry_run {
        show(&config, effort);
        return Ok(0);
    }
    some_cell_works(&config)?;
    let stop = Stop::listen()?;
    let folder = Folder::begin(&args.out, &config, args.resume)?;
    say(&format!("{} cells, seed {}", config.cells.len(), config.seed));
    if !args.no_selftest {
        selftest::of_run(&folder, effort, &stop)?;
    }
    let tally = run::run(&folder, effort, Until::Verified, &stop)?;
    let page = args.output.html.clone().unwrap_or_else(|| args.out.join("page.html"));
    run::write_page(&tally, &page)?;
    if let Some(path) = &args.summary {
        write_whole(path, powerfail_reports::markdown(&tally).as_bytes())?;
    }
    if let Some(path) = &args.junit {
        write_whole(path, powerfail_reports::junit(&tally).as_bytes())?;
    }
    verbs_results::print(&tally, args.output.json)?;
    say(&format!("seed {}; page {}", config.seed, page.display()));
    Ok(tally.exit_code())
}

fn read(args: &MatrixArgs) -> anyhow::Result<Config> {
    // What a dry run prints does not depend on what works on this machine.
    let dry = args.dry_run;
    let auto = |fs: &str, kernel: Option<&Kernel>| -> anyhow::Result<(String, Kernel)> {
        match kernel {
            Some(other @ (Kernel::Debian(_) | Kernel::Own { .. })) => Ok(("guest".into(), other.clone())),
            Some(Kernel::Host) | None if dry => Ok(("host-loop".into(), Kernel::Host)),
            asked => {
                let name = fs;
                let fs = filesystems::named(name).ok_or_else(|| Usage(format!("there is no file system `{name}`")))?;
                match asked {
                    None => doctor::choose(fs).map(|(rig, kernel, _)| (rig.into(), kernel)),
                    Some(_) => doctor::choose_host(fs).map(|rig| (rig.into(), Kernel::Host)),
                }
            }
        }
    };
    let config = matrix::read(&args.file, args.seed, &auto)?;
    match &args.shard {
        None => Ok(config),
        Some(text) => Ok(Shard::read(text, |name| std::env::var(name).ok())?.of(config)?),
    }
}

/// The cells, and about how long they take.
fn show(config: &Config, effort: Effort) {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_header(["cell", "rig", "workload", "states", "about"]);
    let mut total = Duration::ZERO;
    for cell in &config.cells {
        let about = estimate(cell, effort);
        total += about;
        let states = match cell.limit_s {
            Some(limit) => format!("{} in {} min at most", cell.states, limit.div_ceil(60)),
            None => cell.states.to_string(),
        };
        let rig = if cell.kernel == Kernel::Host { cell.rig.clone() } else { format!("{} {}", cell.rig, cell.kernel) };
        table.add_row([cell.name.clone(), rig, cell.workload.describe(), states, minutes(about)]);
    }
    println!("{table}");
    let total = total / u32::try_from(effort.cells).unwrap_or(1).max(1);
    println!("{} cells, about {}, {} at a time", config.cells.len(), minutes(total), effort.cells);
}

/// From figures of `powerfail bench verify` and `bench guest` on two processors: states a second of one job.
const HOST_RATE: f64 = 11.0;
const GUEST_RATE: f64 = 1.2;
/// From the start of a cell to its first state, without the workload's own seconds; a guest boots twice.
const HOST_START_S: f64 = 1.0;
const GUEST_START_S: f64 = 12.0;

fn estimate(cell: &CellConfig, effort: Effort) -> Duration {
    let guest = cell.rig == "guest";
    let (rate, start) = if guest { (GUEST_RATE, GUEST_START_S) } else { (HOST_RATE, HOST_START_S) };
    let judging = cell.states as f64 / (rate * effort.jobs.max(1) as f64);
    let judging = cell.limit_s.map_or(judging, |limit| judging.min(limit as f64));
    Duration::from_secs_f64(start + f64::from(cell.workload.limits().seconds) + judging)
}

fn minutes(time: Duration) -> String {
    let seconds = time.as_secs();
    if seconds < 120 { format!("{seconds} s") } else { format!("{} min", seconds.div_ceil(60)) }
}
