//! The third phase: every planned state becomes an image, a kernel recovers it, and the checks judge it.
//!
//! Several workers at a time, each with an agent, an image file and a walk through the recording of its own. States are
//! in the order of their cuts and each worker takes the next one, so all walks go forward only.

mod crash;
mod examine;
mod stopped;
mod worker;

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::Instant;

use powerfail_ledger::{Line, Outcome, State};

pub use examine::{Examined, Extent, Limits, examine};
pub use worker::{Judged, Worker};

use crate::cell::Cell;
use crate::depth::depth_of;
use crate::folder::CellFolder;
use crate::plan_file::Entry;
use crate::progress::Progress;
use crate::record::About;
use crate::recording_file::Mapped;
use crate::rigs::Rig;
use crate::shrink::Signature;
use crate::stop::Stop;

/// What verification needs to know of a cell.
#[derive(Debug)]
pub struct Job<'a> {
    /// The cell.
    pub cell: &'a Cell,
    /// Its folder.
    pub folder: &'a CellFolder,
    /// Its recording.
    pub recording: &'a Mapped,
    /// What the rig said of it.
    pub about: &'a About,
    /// Where its images are recovered.
    pub rig: &'a dyn Rig,
    /// Workers at a time.
    pub jobs: usize,
    /// Stop after the first violation.
    pub until_found: bool,
    /// Begin no state after this.
    pub end: Option<Instant>,
}

/// Judges all of `entries`, in any order, and gives each result to `take` as it comes.
///
/// # Errors
/// If a result can't be taken, or the user stops it; what was taken before stays.
pub fn verify(
    job: &Job<'_>,
    entries: &[Entry],
    stop: &Stop,
    mut take: impl FnMut(&Line) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let next = AtomicUsize::new(0);
    let mut progress = Progress::new(&job.cell.name, entries.len() as u64);
    let mut violated = 0u64;
    let mut alike: HashMap<Signature, u64> = HashMap::new();
    std::thread::scope(|scope| -> anyhow::Result<()> {
        // Bounded: a slow ledger slows the workers instead of growing a queue.
        let (judged, results) = sync_channel::<anyhow::Result<(usize, Judged)>>(job.jobs);
        for _ in 0..job.jobs.min(entries.len()) {
            let judged = judged.clone();
            let next = &next;
            scope.spawn(move || {
                let mut worker = Worker::new(job);
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let late = job.end.is_some_and(|end| Instant::now() >= end);
                    let Some(entry) = entries.get(index).filter(|_| !late && !stop.asked()) else { break };
                    let result = worker.judge(entry).map(|judged| (index, judged));
                    let failed = result.is_err();
                    if judged.send(result).is_err() || failed {
                        break;
                    }
                }
            });
        }
        drop(judged);
        for result in results {
            // Leaving early drops the receiver, and the workers end at their next result.
            let (index, judged) = result?;
            let signature = match &judged.outcome {
                Outcome::Violated { findings } => Some(Signature::main(findings)),
                _ => None,
            };
            let seen = signature.map_or(0, |signature| {
                let seen = alike.entry(signature).or_default();
                *seen += 1;
                *seen
            });
            let line = line(job, &entries[index], judged, seen <= ALIKE)?;
            let Line::State(state) = &line else { unreachable!("`line` makes states") };
            violated += u64::from(matches!(state.outcome, Outcome::Violated { .. }));
            take(&line)?;
            progress.step(&format!("{violated} violated"));
            if job.until_found && violated > 0 {
                return Ok(());
            }
        }
        Ok(())
    })?;
    progress.finish();
    stop.check()?;
    Ok(())
}

/// Casebooks that are written of states that are wrong in the same way; the others are counted, and replayed by recipe.
const ALIKE: u64 = 3;

/// The ledger's line of a judged state; before it a violation's casebook is written, if it is to have one.
///
/// # Errors
/// If the casebook can't be written.
pub fn line(job: &Job<'_>, entry: &Entry, judged: Judged, casebook: bool) -> anyhow::Result<Line> {
    let case = job.cell.case(&job.about.kernel);
    let folder = job.folder.casebook(&entry.image);
    let mut state = State {
        case,
        state: entry.state.clone(),
        image: entry.image.clone(),
        explorer: entry.explorer.clone(),
        cut: judged.cut,
        loose: judged.loose,
        lost: judged.lost,
        in_flight: entry.in_flight,
        outcome: judged.outcome,
        replay: None,
        depth: Some(depth_of(&entry.state)).filter(|&depth| depth > 1),
        role: None,
        explanation: None,
        took_ms: judged.took_ms,
    };
    if matches!(state.outcome, Outcome::Violated { .. }) {
        if casebook {
            state.replay = Some(replay_command(&folder));
            crate::casebook::write(&folder, &state, &judged.evidence)?;
        } else {
            let run = job.folder.path.parent().unwrap_or(&job.folder.path);
            state.replay = Some(format!("powerfail replay '{}' --dir {}", state.state, run.display()));
        }
    }
    Ok(Line::State(Box::new(state)))
}

/// The command that replays a casebook, from where the program runs.
pub fn replay_command(casebook: &Path) -> String {
    format!("powerfail replay {}", casebook.display())
}
