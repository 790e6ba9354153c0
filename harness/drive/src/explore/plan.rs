//! The plan: a budget of distinct images, shared evenly among the explorers, over cuts spread through the recording.

use std::collections::{BTreeMap, HashSet};

use powerfail_seed::{Seed, below};

use super::{Explorer, View, explorers};
use crate::cache::Description;
use crate::crash::Recipe;
use crate::digest::Digest;
use crate::event::What;
use crate::history::{History, MOUNTED, WORKLOAD_END};
use crate::recording::{ReadError, Reader, Tail};

/// Where cuts may lie, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Just after the mark `mounted`.
    pub first: u64,
    /// At the mark `workload-end`.
    pub last: u64,
}

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

/// All planned states, in the order of their cuts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The states; no two have the same image.
    pub states: Vec<Planned>,
    /// States that gave an image that was there already.
    pub duplicates: u64,
    /// Where cuts lie.
    pub span: Span,
}

/// Finds the marks between which cuts lie, and checks every checksum on the way.
///
/// # Errors
/// If the recording is damaged, was not closed, or lacks a mark.
pub fn span(recording: &[u8]) -> Result<Span, PlanError> {
    let mut reader = Reader::new(recording, true)?;
    let (mut first, mut last) = (None, None);
    while let Some(entry) = reader.next()? {
        if entry.head.what == What::Mark {
            match std::str::from_utf8(reader.data()) {
                Ok(MOUNTED) => first = Some(entry.head.event + 1),
                Ok(WORKLOAD_END) => last = Some(entry.head.event),
                _ => {}
            }
        }
    }
    if reader.tail() != Some(Tail::Closed) {
        return Err(PlanError::Torn);
    }
    let first = first.ok_or(PlanError::NoMark(MOUNTED))?;
    let last = last.ok_or(PlanError::NoMark(WORKLOAD_END))?;
    if first > last { Err(PlanError::NoMark(WORKLOAD_END)) } else { Ok(Span { first, last }) }
}

/// Rounds after which a plan is content with fewer states than asked for: the recording has no more, or hardly.
const ROUNDS: u64 = 64;

/// Plans `states` distinct images. `name` is the recording's, as recipes give it.
///
/// # Errors
/// If the recording can't be planned.
pub fn plan(recording: &[u8], name: &str, drive: Description, seed: Seed, states: u64) -> Result<Plan, PlanError> {
    let span = span(recording)?;
    let explorers = explorers();
    let mut images = HashSet::new();
    let mut plan = Plan { states: Vec::new(), duplicates: 0, span };
    for round in 0..ROUNDS {
        let missing = states.saturating_sub(plan.states.len() as u64);
        if missing == 0 {
            break;
        }
        let asked = ask(&explorers, seed, span, missing, round);
        let before = plan.states.len();
        one_pass(recording, name, drive, seed, round, &asked, &explorers, states, &mut images, &mut plan)?;
        // Every cut was asked and nothing came: a further round has only more of the same.
        let cuts = asked.len() as u64;
        if plan.states.len() == before && cuts > span.last - span.first {
            break;
        }
    }
    plan.states.sort_by(|a, b| (a.recipe.cut, a.explorer).cmp(&(b.recipe.cut, b.explorer)));
    Ok(plan)
}

/// Which explorers are asked at which cuts: one keyed cut in each of as many strata as the share needs.
fn ask(explorers: &[Box<dyn Explorer>], seed: Seed, span: Span, missing: u64, round: u64) -> BTreeMap<u64, Vec<usize>> {
    let mut asked: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    let events = span.last - span.first + 1;
    for (index, explorer) in explorers.iter().enumerate() {
        let share = missing.div_ceil(explorers.len() as u64);
        let cuts = share.div_ceil(explorer.per_cut()).min(events);
        let mut rng = seed.rng("cuts", &[index as u64, round]);
        for stratum in 0..cuts {
            let at = |stratum: u64| (u128::from(events) * u128::from(stratum) / u128::from(cuts)) as u64;
            let (from, to) = (at(stratum), at(stratum + 1));
            asked.entry(span.first + from + below(&mut rng, to - from)).or_default().push(index);
        }
    }
    asked
}

#[allow(clippy::too_many_arguments, reason = "one pass of `plan`, cut out so that it can be read")]
fn one_pass(
    recording: &[u8],
    name: &str,
    drive: Description,
    seed: Seed,
    round: u64,
    asked: &BTreeMap<u64, Vec<usize>>,
    explorers: &[Box<dyn Explorer>],
    states: u64,
    images: &mut HashSet<Digest>,
    plan: &mut Plan,
) -> Result<(), PlanError> {
    let mut walk = Walk::new(recording, drive)?;
    for (&cut, who) in asked {
        walk.advance(cut)?;
        let loose = walk.history.loose();
        let contested = walk.history.contested();
        let view = View { cut, loose: &loose, contested, unit_sectors: drive.unit.sectors() };
        for &index in who {
            let explorer = &explorers[index];
            for choice in explorer.choices(seed, &view, round) {
                if plan.states.len() as u64 == states {
                    return Ok(());
                }
                let digest = walk.history.digest(recording, &choice.kept, choice.order);
                if !images.insert(digest) {
                    plan.duplicates += 1;
                    continue;
                }
                let recipe = Recipe { recording: name.into(), cut, drive, kept: choice.kept, order: choice.order };
                let in_flight = walk.history.in_flight();
                plan.states.push(Planned { recipe, digest, explorer: explorer.name(), in_flight });
            }
        }
    }
    Ok(())
}

/// A walk through a recording in memory (or mapped), up to one cut after the other.
#[derive(Debug)]
pub struct Walk<'a> {
    reader: Reader<&'a [u8]>,
    /// The drive at the cut.
    pub history: History,
}

impl<'a> Walk<'a> {
    /// A walk before the first event; data is not checked again.
    ///
    /// # Errors
    /// If the bytes are no recording.
    pub fn new(recording: &'a [u8], drive: Description) -> Result<Walk<'a>, ReadError> {
        let reader = Reader::new(recording, false)?;
        let history = History::new(reader.header(), drive);
        Ok(Walk { reader, history })
    }

    /// Goes on until `cut` is the next event, or the recording ends.
    ///
    /// # Errors
    /// If the recording is damaged.
    pub fn advance(&mut self, cut: u64) -> Result<(), ReadError> {
        self.advance_with(cut, |_| ())
    }

    /// The same, and shows every mark on the way.
    ///
    /// # Errors
    /// If the recording is damaged.
    pub fn advance_with(&mut self, cut: u64, mut on_mark: impl FnMut(&str)) -> Result<(), ReadError> {
        while self.history.next_event() < cut {
            let Some(entry) = self.reader.next()? else { break };
            let label = (entry.head.what == What::Mark).then(|| String::from_utf8_lossy(self.reader.data()));
            if let Some(label) = &label {
                on_mark(label);
            }
            self.history.apply(&entry, label.as_deref());
        }
        Ok(())
    }
}
