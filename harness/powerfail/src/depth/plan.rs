//! Which crashes of which recoveries are judged, as a sealed file a depth: `plan-2.jsonl`, `plan-3.jsonl`.
//!
//! Recoveries are recorded as the plan needs them, and stay; a plan that is made again from the same ones is the same.

use std::collections::HashSet;
use std::fmt;
use std::path::PathBuf;

use anyhow::Context;
use powerfail_drive::digest::Digest;
use powerfail_drive::explore::{self, Material, Outline, PlanError, Walk, explorers};
use powerfail_drive::versions::Order;
use powerfail_seed::{Seed, below};
use serde::{Deserialize, Serialize};

use super::Chain;
use super::images::{keep, of_image, overlay};
use super::recovery::Recorder;
use crate::cell::Cell;
use crate::folder::{CellFolder, Usage};
use crate::image::Image;
use crate::plan_file::Entry;
use crate::recording_file::Mapped;
use crate::rigs::Rig;
use crate::sealed;
use crate::stop::Stop;

/// States of one recovery: enough for its few flushes, and a recording costs about as much as judging three states.
const EACH: u64 = 12;
/// Recoveries that are looked at for each that the plan needs: one that writes nothing has no states.
const TRIED: usize = 4;
/// Who chooses within a recovery.
const EXPLORERS: [&str; 3] = ["exhaustive", "every-cut", "sampled"];
/// The explorer's name in the ledger.
const NAME: &str = "recovery";

/// What is planned.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// The cell.
    pub cell: &'a Cell,
    /// Its folder.
    pub files: &'a CellFolder,
    /// Its recording.
    pub recording: &'a Mapped,
    /// Where recoveries run.
    pub rig: &'a dyn Rig,
    /// Crashes of each state, at least 2.
    pub depth: u32,
    /// Seal of the plan of the depth above.
    pub above: &'a str,
}

/// The states of one depth.
#[derive(Clone, Debug)]
pub struct Deeper {
    /// The plan's first line.
    pub head: Head,
    /// The states, in the order of their first cuts.
    pub entries: Vec<Entry>,
}

/// The first line of the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// Crashes of each state.
    pub depth: u32,
    /// Seal of the plan whose states are recovered.
    pub above: String,
    /// States that were asked for.
    pub asked: u64,
    /// States in the plan.
    pub states: u64,
    /// Recoveries that they cut.
    pub recoveries: u64,
    /// Recoveries whose mount was refused: they have no states.
    pub refused: u64,
    /// BLAKE3, hexadecimal, of this line with an empty seal and of all lines that follow.
    pub seal: String,
}

impl sealed::Head for Head {
    fn seal(&mut self) -> &mut String {
        &mut self.seal
    }
}

impl fmt::Display for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Head { depth, asked, states, recoveries, refused, .. } = self;
        write!(f, "depth {depth}: {states} states planned, crashes of {recoveries} recoveries")?;
        if states < asked {
            write!(f, "; {asked} were asked for, and those that held have no more")?;
        }
        if *refused > 0 {
            write!(f, "; {refused} recoveries were refused the mount that they had before")?;
        }
        Ok(())
    }
}

/// Plans crashes of the recoveries from states that held; a plan of the same states that is there is taken.
///
/// # Errors
/// [`Usage`] if a file was altered; else if the rig fails or the user stops it. Recordings that were made stay.
pub fn plan(asked: &Asked<'_>, held: &[Entry], stop: &Stop) -> anyhow::Result<Deeper> {
    let want = asked.cell.deeper_states;
    if let Some(deeper) = read(asked)?.filter(|there| there.head.above == asked.above && there.head.asked == want) {
        return Ok(deeper);
    }
    let mut head = Head {
        depth: asked.depth,
        above: asked.above.into(),
        asked: want,
        states: 0,
        recoveries: 0,
        refused: 0,
        seal: String::new(),
    };
    let bases = bases(asked, held, want.div_ceil(EACH) as usize);
    // A crash that changes nothing is a state that was judged already.
    let mut seen: HashSet<String> = held.iter().map(|entry| entry.image.clone()).collect();
    let mut entries: Vec<Entry> = Vec::new();
    let mut source = Source { asked, recorder: Recorder::new(asked.cell, asked.rig), walk: None, image: None };
    for base in bases {
        stop.check()?;
        let left = want - entries.len() as u64;
        if left == 0 {
            break;
        }
        let Some(recording) = source.recording(base)? else {
            head.refused += 1;
            continue;
        };
        let before = entries.len();
        let made = over(asked.cell, base, &recording, left.min(EACH))?;
        entries.extend(made.into_iter().filter(|entry| seen.insert(entry.image.clone())));
        head.recoveries += u64::from(entries.len() > before);
    }
    // Verification walks forward; within one base the order is the explorers'.
    let cuts: Result<Vec<u64>, _> = entries.iter().map(|e| e.state.parse::<Chain>().map(|c| c.first.cut)).collect();
    let mut sorted: Vec<(u64, Entry)> = cuts.expect("just made").into_iter().zip(entries).collect();
    sorted.sort_by_key(|(cut, _)| *cut);
    let entries: Vec<Entry> = sorted.into_iter().map(|(_, entry)| entry).collect();
    head.states = entries.len() as u64;
    sealed::write(&path(asked), &mut head, &entries)?;
    Ok(Deeper { head, entries })
}

/// Crashes of one recovery: `base` is the state that was recovered, `recording` the thin recording of that.
///
/// # Errors
/// [`Usage`] if the recording is damaged.
pub fn over(cell: &Cell, base: &Entry, recording: &Mapped, want: u64) -> anyhow::Result<Vec<Entry>> {
    let usage = |error: PlanError| Usage(format!("{}: {error}", recording.path().display()));
    let bytes = recording.bytes();
    let outline = Outline::of(bytes, cell.drive).map_err(usage)?;
    let explorers = explorers(&EXPLORERS.map(String::from), &outline, Material::default())?;
    let name = &recording.digest()[..16];
    let number = u64::from_str_radix(name, 16).expect("hexadecimal");
    let seed = Seed(cell.seed.0).at("recovery", &[number]);
    let asked = explore::Asked { recording: bytes, name, drive: cell.drive, seed, states: want };
    let made = explore::plan(&asked, &outline, &explorers).map_err(usage)?;
    let mut walk = Walk::new(bytes, cell.drive)?;
    walk.advance(outline.span().first)?;
    let beneath = walk.history.digest(bytes, &[], Order::Receipt);
    let whole: Digest = base.image.parse().with_context(|| format!("the image of `{}`", base.state))?;
    let entry = |state: explore::Planned| Entry {
        state: format!("{} >> {}", base.state, state.recipe),
        image: whole.minus(beneath).plus(state.digest).to_string(),
        explorer: NAME.into(),
        in_flight: state.in_flight,
    };
    Ok(made.states.into_iter().map(entry).filter(|entry| entry.image != base.image).collect())
}

/// States to recover, spread over those there are: one drawn from each of `wanted` equal parts, and then others.
fn bases<'a>(asked: &Asked<'_>, held: &'a [Entry], wanted: usize) -> Vec<&'a Entry> {
    let mut rng = asked.cell.seed.at("bases", &[]).rng("spread", &[u64::from(asked.depth)]);
    let parts = wanted.min(held.len());
    let mut places: Vec<usize> = Vec::new();
    for part in 0..parts {
        let (from, to) = (held.len() * part / parts, held.len() * (part + 1) / parts);
        places.push(from + below(&mut rng, (to - from) as u64) as usize);
    }
    let mut others: Vec<usize> = (0..held.len()).filter(|place| !places.contains(place)).collect();
    while places.len() < wanted * TRIED && !others.is_empty() {
        places.push(others.swap_remove(below(&mut rng, others.len() as u64) as usize));
    }
    places.into_iter().map(|place| &held[place]).collect()
}

/// Where recordings of recoveries come from.
struct Source<'a> {
    asked: &'a Asked<'a>,
    recorder: Recorder<'a>,
    walk: Option<Walk<'a>>,
    image: Option<Image>,
}

impl Source<'_> {
    /// The recording of the recovery from a state; made if it is not there.
    fn recording(&mut self, base: &Entry) -> anyhow::Result<Option<Mapped>> {
        if let Some(there) = of_image(self.asked.files, &base.image)? {
            return Ok(Some(there));
        }
        let chain: Chain = base.state.parse().map_err(|error| Usage(format!("`{}`: {error}", base.state)))?;
        let (cell, bytes, first) = (self.asked.cell, self.asked.recording.bytes(), &chain.first);
        if self.walk.as_ref().is_none_or(|walk| walk.history.next_event() > first.cut) {
            self.walk = Some(Walk::new(bytes, first.drive)?);
        }
        let walk = self.walk.as_mut().expect("just made");
        walk.advance(first.cut)?;
        let image = match &mut self.image {
            Some(image) => image,
            image => image.insert(Image::new(cell.header.geometry.bytes())?),
        };
        image.become_state(&walk.history, bytes, &first.kept, first.order)?;
        overlay(image, self.asked.files, &chain.deeper)?;
        let Some(recording) = self.recorder.record(image)? else { return Ok(None) };
        keep(self.asked.files, &base.image, &recording).map(Some)
    }
}

fn path(asked: &Asked<'_>) -> PathBuf {
    asked.files.path.join(format!("plan-{}.jsonl", asked.depth))
}

fn read(asked: &Asked<'_>) -> anyhow::Result<Option<Deeper>> {
    let path = path(asked);
    if !path.exists() {
        return Ok(None);
    }
    let (head, entries) = sealed::read(&path, "remove it and go on with --resume")?;
    Ok(Some(Deeper { head, entries }))
}
