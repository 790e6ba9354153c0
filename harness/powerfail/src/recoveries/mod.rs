//! `powerfail recoveries`: three recoveries, one answer.
//!
//! The kernel's replay (what its mount wrote up to the first flush), e2fsck's (`-E journal_only`) and our own
//! (`powerfail-jbd2`) are compared block by block. Three programs that share no code path but the format can hardly be wrong
//! in the same way, so who stands alone is where to look. Orphan cleanup and the bookkeeping of a mount come behind the flush
//! and are not part of it; what is masked is listed in [`replay_mask`].

mod compare;
pub mod replay_mask;
mod watched;
mod worker;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;

use powerfail_drive::crash::Recipe;
use powerfail_ledger::{Finding, FindingKind};

pub use compare::Difference;

use crate::cell::Cell;
use crate::doctor;
use crate::folder::{CellFolder, Folder, Usage};
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
    /// The folder of a run that was planned, the folder of a casebook, or a recipe (`pf1 rec=…`)
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
    let mut all = Vec::new();
    if Path::new(&args.what).join("run.json").is_file() {
        let folder = Folder::open(Path::new(&args.what))?;
        for cell in Cell::all(&folder.config) {
            doctor::require(&cell)?;
            let files = folder.cell(&cell.name)?;
            let recipes = planned(&files, args.states)?;
            let recording = Mapped::open(&files.recording())?;
            let tally = compare_all(&cell, &recording, &*rigs.get(&cell)?, &recipes, jobs, &stop)?;
            all.push((cell, tally));
        }
    } else {
        let target = replay::target(&args.what, args.dir.as_deref())?;
        doctor::require(target.cell())?;
        let recording = target.recording()?;
        let recipes = [target.recipe().clone()];
        let rig = rigs.get(target.cell())?;
        let tally = compare_all(target.cell(), &recording, &*rig, &recipes, 1, &stop)?;
        all.push((target.cell().clone(), tally));
    }
    if args.json {
        println!("{}", serde_json::Value::Array(all.iter().map(|(cell, tally)| json(cell, tally)).collect()));
    } else {
        print(&all);
    }
    Ok(exit_code(&all))
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
            Ok(Outcome::Agree { blocks, transactions, refused }) => {
                self.agree += 1;
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

fn exit_code(all: &[(Cell, Tally)]) -> u8 {
    match all {
        _ if all.iter().any(|(_, tally)| !tally.differ.is_empty()) => 1,
        _ if all.iter().any(|(_, tally)| !tally.broken.is_empty()) => 3,
        _ if all.iter().all(|(_, tally)| tally.compared() == 0) => 4,
        _ => 0,
    }
}

fn json(cell: &Cell, tally: &Tally) -> serde_json::Value {
    let differ: Vec<_> = tally
        .differ
        .iter()
        .map(|(state, finding, blocks)| serde_json::json!({ "state": state, "finding": finding, "blocks": blocks }))
        .collect();
    let broken: Vec<_> =
        tally.broken.iter().map(|(state, why)| serde_json::json!({ "state": state, "reason": why })).collect();
    serde_json::json!({
        "cell": cell.name, "compared": tally.compared(), "agree": tally.agree,
        "refused_alike": tally.refused_alike, "blocks": tally.blocks, "transactions": tally.transactions,
        "differ": differ, "not_compared": tally.not_compared, "broken": broken,
        "masked": replay_mask::reasons().collect::<Vec<_>>(),
    })
}

fn print(all: &[(Cell, Tally)]) {
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
    for (cell, tally) in all {
        table.add_row([
            cell.name.clone(),
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
    for (cell, tally) in all {
        for (reason, states) in &tally.not_compared {
            println!("{}: {states} not compared: {reason}", cell.name);
        }
        for (state, finding, _) in &tally.differ {
            println!("{}: {}: {}\n  {state}", cell.name, finding.kind.name(), finding.detail);
        }
        for (state, reason) in &tally.broken {
            println!("{}: broken: {reason}\n  {state}", cell.name);
        }
    }
    println!("not compared in any state:");
    replay_mask::reasons().for_each(|reason| println!("  {reason}"));
}
