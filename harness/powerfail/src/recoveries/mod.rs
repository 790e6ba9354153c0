//! `powerfail recoveries`: three recoveries, one answer.
//!
//! The kernel's replay (what its mount wrote up to the first flush), that of `e2fsck -E journal_only`, and our own
//! (`powerfail-jbd2`) are compared block by block. e2fsck's recovery descends from the kernel's, ours from neither; who stands
//! alone is where to look. Orphan cleanup and the bookkeeping of a mount come behind the flush and are not part of it. e2fsck
//! cleans up orphans even with `journal_only`; where it does, only what it wrote before it emptied the log counts. What is
//! masked is listed in [`replay_mask`].

mod compare;
pub mod replay_mask;
mod watched;
mod worker;

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;

use powerfail_drive::crash::Recipe;
use powerfail_ledger::{Finding, FindingKind};

pub use compare::Difference;

use crate::cell::Cell;
use crate::doctor;
use crate::folder::{CellFolder, Folder, Usage};
use crate::kernels::Kernel;
use crate::plan_file;
use crate::progress::Progress;
use crate::recording_file::Mapped;
use crate::replay;
use crate::rigs;
use crate::stop::Stop;
use worker::{Outcome, Worker};

/// What was asked for.
#[derive(Debug, clap::Args)]
pub struct RecoveriesArgs {
    /// The folder of a run that was planned, the folder of a casebook, a recipe (`pf1 rec=…`), or an image in a file
    pub what: String,
    /// The folder of the run whose recording a recipe needs
    #[arg(long)]
    pub dir: Option<std::path::PathBuf>,
    /// Planned states to compare, for each cell of a run; spread over its plan
    #[arg(long, default_value_t = 1000)]
    pub states: usize,
    /// States compared at a time; 0: twice the processors
    #[arg(long, default_value_t = 0)]
    pub jobs: usize,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// What came of one cell.
#[derive(Debug, Default)]
struct Tally {
    agree: u64,
    e2fsck_watched: u64,
    refused_alike: u64,
    blocks: u64,
    transactions: u64,
    differ: Vec<(String, Finding, Vec<Difference>)>,
    not_compared: BTreeMap<String, u64>,
    broken: Vec<(String, String)>,
}

/// Compares, and prints what was compared, and what was not and why.
///
/// # Errors
/// If there is nothing of that name, nothing can be tested, or the user stops it.
pub fn recoveries(args: &RecoveriesArgs) -> anyhow::Result<u8> {
    if args.states == 0 {
        return Err(Usage("--states 0 compares nothing; say at least 1".into()).into());
    }
    let stop = Stop::listen()?;
    let rigs = rigs::Pool::default();
    let processors = std::thread::available_parallelism().map_or(2, usize::from);
    let jobs = if args.jobs == 0 { processors * 2 } else { args.jobs };
    let what = Path::new(&args.what);
    let mut all = Vec::new();
    if what.is_file() {
        all.push((what.display().to_string(), of_image(what)?));
    } else if what.join("run.json").is_file() {
        let folder = Folder::open(what)?;
        for cell in Cell::all(&folder.config) {
            doctor::require(&cell)?;
            let files = folder.cell(&cell.name)?;
            let recipes = planned(&files, args.states)?;
            let recording = Mapped::open(&files.recording())?;
            let tally = compare_all(&cell, &recording, &*rigs.get(&cell)?, &recipes, jobs, &stop)?;
            all.push((cell.name, tally));
        }
    } else {
        let target = replay::target(&args.what, args.dir.as_deref())?;
        doctor::require(target.cell())?;
        let recording = target.recording()?;
        let recipes = [target.recipe()?.clone()];
        let rig = rigs.get(target.cell())?;
        let tally = compare_all(target.cell(), &recording, &*rig, &recipes, 1, &stop)?;
        all.push((target.cell().name.clone(), tally));
    }
    if args.json {
        println!("{}", serde_json::Value::Array(all.iter().map(|(name, tally)| json(name, tally)).collect()));
    } else {
        print(&all);
    }
    Ok(exit_code(&all))
}

/// An image in a file, by the machine's own kernel.
fn of_image(path: &Path) -> anyhow::Result<Tally> {
    let ext4 = crate::filesystems::named("ext4").expect("it is there");
    doctor::require_rig("host-loop", &Kernel::Host, ext4)?;
    let usage = |why: String| Usage(format!("{}: {why}", path.display()));
    let file = File::open(path).map_err(|error| usage(error.to_string()))?;
    let size = file.metadata().map_err(|error| usage(error.to_string()))?.len();
    if powerfail_drive::request::Geometry::new(size).is_none() {
        return Err(usage(format!("an image of {size} bytes is no whole number of sectors")).into());
    }
    let rig = rigs::set_up("host-loop", &Kernel::Host, ext4)?;
    let mut tally = Tally::default();
    tally.add(path.display().to_string(), worker::look_at_image(&file, size, &*rig));
    Ok(tally)
}

/// So many states of a plan, spread evenly over it.
fn planned(files: &CellFolder, states: usize) -> anyhow::Result<Vec<Recipe>> {
    if !files.plan().is_file() {
        let text = format!("{} has no plan; `powerfail plan` makes it", files.path.display());
        return Err(Usage(text).into());
    }
    let entries = plan_file::read(files)?.entries;
    let count = states.min(entries.len());
    let chosen = (0..count).map(|nth| &entries[nth * entries.len() / count]);
    let altered = |error| Usage(format!("{}: {error}", files.plan().display()));
    Ok(chosen.map(|entry| entry.state.parse().map_err(altered)).collect::<Result<_, _>>()?)
}

fn compare_all(
    cell: &Cell,
    recording: &Mapped,
    rig: &dyn rigs::Rig,
    recipes: &[Recipe],
    jobs: usize,
    stop: &Stop,
) -> anyhow::Result<Tally> {
    cell.check_drive(recording)?;
    let (next, gone) = (AtomicUsize::new(0), AtomicBool::new(false));
    let mut progress = Progress::new(&cell.name, recipes.len() as u64);
    let mut tally = Tally::default();
    std::thread::scope(|scope| -> anyhow::Result<()> {
        let (sender, results) = sync_channel::<(usize, anyhow::Result<Outcome>)>(jobs);
        for number in 0..jobs.min(recipes.len()) {
            let (sender, next, gone) = (sender.clone(), &next, &gone);
            scope.spawn(move || {
                let mut worker = Worker::new(cell, recording, rig, format!("{}-recoveries-{number}", cell.name));
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let go_on = !stop.asked() && !gone.load(Ordering::Relaxed);
                    let Some(recipe) = recipes.get(index).filter(|_| go_on) else { break };
                    if sender.send((index, worker.look(recipe))).is_err() {
                        break;
                    }
                }
            });
        }
        drop(sender);
        for (index, outcome) in results {
            match outcome {
                Err(error) if error.is::<Usage>() => {
                    gone.store(true, Ordering::Relaxed);
                    return Err(error);
                }
                outcome => tally.add(recipes[index].to_string(), outcome),
            }
            progress.step(&format!("{} differ", tally.differ.len()));
        }
        Ok(())
    })?;
    progress.finish();
    stop.check()?;
    Ok(tally)
}

impl Tally {
    fn add(&mut self, recipe: String, outcome: anyhow::Result<Outcome>) {
        match outcome {
            Ok(Outcome::Agree { blocks, transactions, refused, e2fsck_watched }) => {
                self.agree += 1;
                self.e2fsck_watched += u64::from(e2fsck_watched);
                self.refused_alike += u64::from(refused);
                self.blocks += blocks as u64;
                self.transactions += transactions as u64;
            }
            Ok(Outcome::Differ { detail, blocks }) => {
                let finding = Finding { kind: FindingKind::ReplayDiffers, detail };
                self.differ.push((recipe, finding, blocks));
            }
            Ok(Outcome::NotCompared { reason }) => *self.not_compared.entry(reason).or_default() += 1,
            Err(error) => self.broken.push((recipe, format!("{error:#}"))),
        }
    }

    fn compared(&self) -> u64 {
        self.agree + self.differ.len() as u64
    }
}

fn exit_code(all: &[(String, Tally)]) -> u8 {
    match all {
        _ if all.iter().any(|(_, tally)| !tally.differ.is_empty()) => 1,
        _ if all.iter().any(|(_, tally)| !tally.broken.is_empty()) => 3,
        _ if all.iter().all(|(_, tally)| tally.compared() == 0) => 4,
        _ => 0,
    }
}

fn json(name: &str, tally: &Tally) -> serde_json::Value {
    let differ: Vec<_> = tally
        .differ
        .iter()
        .map(|(state, finding, blocks)| serde_json::json!({ "state": state, "finding": finding, "blocks": blocks }))
        .collect();
    let broken: Vec<_> =
        tally.broken.iter().map(|(state, why)| serde_json::json!({ "state": state, "reason": why })).collect();
    serde_json::json!({
        "cell": name, "compared": tally.compared(), "agree": tally.agree,
        "e2fsck_watched": tally.e2fsck_watched, "refused_alike": tally.refused_alike, "blocks": tally.blocks, "transactions": tally.transactions,
        "differ": differ, "not_compared": tally.not_compared, "broken": broken,
        "masked": replay_mask::reasons().collect::<Vec<_>>(),
    })
}

fn print(all: &[(String, Tally)]) {
    let mut table = comfy_table::Table::new();
    table
        .load_style(comfy_table::presets::NOTHING)
        .set_content_arrangement(comfy_table::ContentArrangement::Dynamic)
        .set_header([
            "cell",
            "compared",
            "agree",
            "of them refused",
            "differ",
            "not compared",
            "broken",
            "blocks",
            "transactions",
        ]);
    for (name, tally) in all {
        table.add_row([
            name.clone(),
            tally.compared().to_string(),
            tally.agree.to_string(),
            tally.refused_alike.to_string(),
            tally.differ.len().to_string(),
            tally.not_compared.values().sum::<u64>().to_string(),
            tally.broken.len().to_string(),
            tally.blocks.to_string(),
            tally.transactions.to_string(),
        ]);
    }
    println!("{table}");
    for (name, tally) in all {
        if tally.e2fsck_watched > 0 {
            let states = tally.e2fsck_watched;
            println!(
                "{name}: of {states} only what e2fsck wrote before it emptied the log: it cleans up orphans too, whatever it is told"
            );
        }
        for (reason, states) in &tally.not_compared {
            println!("{name}: {states} not compared: {reason}");
        }
        for (state, finding, _) in &tally.differ {
            println!("{name}: {}: {}\n  {state}", finding.kind.name(), finding.detail);
        }
        for (state, reason) in &tally.broken {
            println!("{name}: broken: {reason}\n  {state}");
        }
    }
    println!("not compared in any state:");
    replay_mask::reasons().for_each(|reason| println!("  {reason}"));
}
