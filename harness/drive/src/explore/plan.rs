//! The plan: a budget of distinct images, shared evenly among the explorers.
//!
//! Each explorer has the same share; what does not divide goes to the first ones. A plan goes through the recording in
//! rounds: in each, every explorer that has not used up its share aims again. One that has nothing more to give leaves the rest
//! of its share to the others, evenly again.

use std::collections::{BTreeMap, HashSet};

use powerfail_seed::Seed;

use super::{Aim, Explorer, Outline, Span, View, Walk};
use crate::cache::Description;
use crate::crash::Recipe;
use crate::digest::Digest;
use crate::history::AtCut;
use crate::recording::ReadError;

/// Why a recording can't be planned.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// It can't be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// It was not closed.
    #[error("it ends in the middle: whoever wrote it was killed, or it was truncated; record again")]
    Torn,
    /// A mark is missing.
    #[error("it has no mark `{0}`, so nothing says where cuts may lie; record again")]
    NoMark(&'static str),
    /// A state that was given is none of this recording's.
    #[error("a recipe is of another recording: at event {cut} {loose} fragments are loose, and it has {kept}")]
    Foreign {
        /// Its cut.
        cut: u64,
        /// Loose fragments there.
        loose: usize,
        /// Fragments of the recipe.
        kept: usize,
    },
}

/// What is planned.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// The whole recording as bytes.
    pub recording: &'a [u8],
    /// Its name, as recipes give it.
    pub name: &'a str,
    /// The drive.
    pub drive: Description,
    /// The seed of the plan's decisions.
    pub seed: Seed,
    /// How many distinct images.
    pub states: u64,
}

/// One planned state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    /// How to make it.
    pub recipe: Recipe,
    /// The image's digest.
    pub digest: Digest,
    /// Who made it.
    pub explorer: &'static str,
    /// Writes in flight at the cut.
    pub in_flight: u64,
}

/// What one explorer had of the budget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// Its name.
    pub explorer: &'static str,
    /// Its even share.
    pub share: u64,
    /// States it made: fewer if it has no more, more if it took what others left.
    pub made: u64,
    /// States it would have made, but the image was there already.
    pub duplicates: u64,
    /// It had no more to give.
    pub exhausted: bool,
}

/// All planned states, in the order of their cuts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The states; no two have the same image.
    pub states: Vec<Planned>,
    /// Who made how many.
    pub shares: Vec<Share>,
    /// Where cuts of the workload lie.
    pub span: Span,
}

impl Plan {
    /// States that gave an image that was there already.
    pub fn duplicates(&self) -> u64 {
        self.shares.iter().map(|share| share.duplicates).sum()
    }
}

/// Rounds after which a plan is content with fewer states than asked for: the recording has no more, or hardly.
const ROUNDS: u64 = 64;
/// Rounds without a new image after which an explorer counts as exhausted.
const STALE: u64 = 4;

/// What a round after the first asks for at least.
const TOP_UP: u64 = 16;

/// An explorer at work.
struct Worker<'a> {
    explorer: &'a dyn Explorer,
    share: Share,
    /// What it may make in all.
    quota: u64,
    /// Rounds since its last new image.
    stale: u64,
}

impl Worker<'_> {
    fn open(&self) -> u64 {
        if self.share.exhausted { 0 } else { self.quota - self.share.made }
    }
}

/// Plans distinct images.
///
/// # Errors
/// If the recording can't be read, or a given recipe is none of its.
pub fn plan(asked: &Asked<'_>, outline: &Outline, explorers: &[Box<dyn Explorer>]) -> Result<Plan, PlanError> {
    let mut workers: Vec<Worker<'_>> = explorers
        .iter()
        .zip(even(asked.states, explorers.len()))
        .map(|(explorer, quota)| {
            let share = Share { explorer: explorer.name(), share: quota, made: 0, duplicates: 0, exhausted: false };
            Worker { explorer: &**explorer, share, quota, stale: 0 }
        })
        .collect();
    let mut images = HashSet::new();
    let mut states = Vec::new();
    for round in 0..ROUNDS {
        let mut aims: BTreeMap<u64, Vec<(usize, Aim)>> = BTreeMap::new();
        let before: Vec<u64> = workers.iter().map(|worker| worker.share.made).collect();
        let mut aimed = vec![false; workers.len()];
        for (index, worker) in workers.iter().enumerate().filter(|(_, worker)| worker.open() > 0) {
            // Where many states are there already, one aim alone would mostly bring another of them.
            let want = if round == 0 { worker.open() } else { worker.open().max(TOP_UP) };
            for aim in worker.explorer.aims(asked.seed, outline, want, round) {
                aims.entry(aim.cut).or_default().push((index, aim));
                aimed[index] = true;
            }
        }
        if !aims.is_empty() {
            pass(asked, round, &aims, &mut workers, &mut images, &mut states)?;
        }
        for (index, worker) in workers.iter_mut().enumerate().filter(|(_, worker)| worker.open() > 0) {
            worker.stale = if worker.share.made > before[index] { 0 } else { worker.stale + 1 };
            worker.share.exhausted = !aimed[index] || worker.stale >= STALE;
        }
        hand_over(&mut workers);
        if workers.iter().all(|worker| worker.open() == 0) {
            break;
        }
    }
    states.sort_by(|a: &Planned, b: &Planned| (a.recipe.cut, a.explorer).cmp(&(b.recipe.cut, b.explorer)));
    Ok(Plan { states, shares: workers.into_iter().map(|worker| worker.share).collect(), span: outline.span() })
}

/// `whole` in `parts` parts that differ by one at most, the larger ones first.
fn even(whole: u64, parts: usize) -> Vec<u64> {
    let count = (parts as u64).max(1);
    (0..parts as u64).map(|part| whole / count + u64::from(part < whole % count)).collect()
}

/// What exhausted explorers did not use goes to those that are not.
fn hand_over(workers: &mut [Worker<'_>]) {
    let mut left = 0;
    for worker in workers.iter_mut().filter(|worker| worker.share.exhausted) {
        left += worker.quota - worker.share.made;
        worker.quota = worker.share.made;
    }
    let mut takers: Vec<&mut Worker<'_>> = workers.iter_mut().filter(|worker| !worker.share.exhausted).collect();
    let parts = even(left, takers.len());
    for (worker, part) in takers.iter_mut().zip(parts) {
        worker.quota += part;
    }
}

/// Goes once through the recording, from aim to aim.
fn pass(
    asked: &Asked<'_>,
    round: u64,
    aims: &BTreeMap<u64, Vec<(usize, Aim)>>,
    workers: &mut [Worker<'_>],
    images: &mut HashSet<Digest>,
    states: &mut Vec<Planned>,
) -> Result<(), PlanError> {
    let Asked { recording, drive, seed, .. } = *asked;
    let mut walk = Walk::new(recording, drive)?;
    for (&cut, aims) in aims {
        if aims.iter().all(|(index, _)| workers[*index].open() == 0) {
            continue;
        }
        walk.advance(cut)?;
        let (contested, in_flight) = (walk.history.contested(), walk.history.in_flight());
        let mut at_cut = AtCut::new(&mut walk.history, recording);
        for (index, aim) in aims {
            let worker = &mut workers[*index];
            if worker.open() == 0 {
                continue;
            }
            let view = View { cut, loose: at_cut.loose(), contested, unit_sectors: drive.unit.sectors() };
            for choice in worker.explorer.choices(seed, &view, aim.target, round) {
                if worker.open() == 0 {
                    break;
                }
                let (loose, kept) = (at_cut.loose().len(), choice.kept.len());
                if loose != kept || at_cut.history().next_event() != cut {
                    return Err(PlanError::Foreign { cut, loose, kept });
                }
                let digest = at_cut.digest(&choice.kept, choice.order);
                if !images.insert(digest) {
                    worker.share.duplicates += 1;
                    continue;
                }
                worker.share.made += 1;
                let recipe =
                    Recipe { recording: asked.name.into(), cut, drive, kept: choice.kept, order: choice.order };
                states.push(Planned { recipe, digest, explorer: worker.share.explorer, in_flight });
            }
        }
    }
    Ok(())
}
