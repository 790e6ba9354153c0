//! Live cuts: the power of a whole machine fails in the middle of a workload, once for each state.
//!
//! ```text
//! for each cut: fresh drive, fresh guest -> attach, mkfs, mount, workload
//!               at the drawn point: the drive is cut, QEMU dies by SIGKILL    => CELL/cuts/NNNN/recording
//!               recording -> one keyed choice of what the drive loses         => recipe, image
//!               image -> a guest that was not there before -> the same checks => ledger, casebook
//! ```
//!
//! Constructed states are cuts of one recording at many places; a live cut has a recording of its own that ends where the
//! kernel died. What the drive then loses is drawn by the explorer `sampled`, so rates are to be compared with those of
//! the constructed states that it made. Recordings of states that held are removed; of a violated one it is kept, and its
//! recipe replays it as any other's.

mod cut_drive;
mod record;

use std::collections::HashSet;
use std::fs;
use std::time::Instant;

use anyhow::Context;
use powerfail_drive::crash::Recipe;
use powerfail_drive::explore::{Sampled, View, Walk, span};
use powerfail_ledger::{Line, Measured, Outcome, Recording};

use crate::broken::{self, Broke};
use crate::cell::Cell;
use crate::folder::{CellFolder, Usage};
use crate::image::Image;
use crate::plan_file::Entry;
use crate::progress::{Progress, say};
use crate::record::About;
use crate::recording_cmd;
use crate::recording_file::Mapped;
use crate::rigs::{Rig, Seat};
use crate::run;
use crate::stop::{Stop, Stopped};
use crate::timeline::timeline;
use crate::verify::{Job, Worker, line};

/// The name of the explorer in the ledger.
pub const EXPLORER: &str = "live";
/// How often a cut is tried when its guest breaks.
const TRIES: u32 = 2;

/// The cuts of a cell, and what is needed for each.
#[derive(Debug)]
pub struct Cuts<'a> {
    /// The cell.
    pub cell: &'a Cell,
    /// Its folder.
    pub files: &'a CellFolder,
    /// Its rig.
    pub rig: &'a dyn Rig,
    /// Stop at the first violation.
    pub until_found: bool,
}

/// Which cuts of a cell have a verdict. `recordings` and `judged` (recipes) are what the ledger holds.
pub fn done(cell: &Cell, recordings: &[Recording], judged: &HashSet<String>) -> HashSet<u64> {
    let of_judged: HashSet<String> =
        judged.iter().filter_map(|recipe| recipe.parse::<Recipe>().ok()).map(|recipe| recipe.recording).collect();
    let is_judged = |index: &u64| {
        let path = path(cell, *index);
        recordings.iter().any(|known| known.path == path && of_judged.contains(&known.digest[..16]))
    };
    (0..cell.states).filter(is_judged).collect()
}

/// The cell's folder, or that of one of its cuts: wherever the recording is that a recipe names.
///
/// # Errors
/// [`Usage`] if it is nowhere.
pub fn place_of(files: &CellFolder, recipe: &Recipe) -> anyhow::Result<CellFolder> {
    if files.recording().is_file() {
        return Ok(files.clone());
    }
    let cuts = fs::read_dir(files.path.join(FOLDER)).into_iter().flatten().flatten();
    for cut in cuts.map(|entry| CellFolder { path: entry.path() }) {
        if Mapped::open(&cut.recording()).is_ok_and(|file| file.digest().starts_with(&recipe.recording)) {
            return Ok(cut);
        }
    }
    let (rec, path) = (&recipe.recording, files.path.display());
    let why =
        format!("no recording in {path} has a BLAKE3 that begins with {rec}; of live cuts that held none is kept");
    Err(Usage(why).into())
}

impl Cuts<'_> {
    /// Makes and judges all cuts that are not `done`; gives each line for the ledger to `take`.
    ///
    /// # Errors
    /// If no guest can be cut, a result can't be kept, or the user stops it.
    pub fn run(
        &self,
        done: &HashSet<u64>,
        stop: &Stop,
        mut take: impl FnMut(&Line) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let left: Vec<u64> = (0..self.cell.states).filter(|index| !done.contains(index)).collect();
        if left.is_empty() {
            return Ok(());
        }
        say(&format!("{}: {} live cuts, each with a guest of its own", self.cell.name, left.len()));
        let mut progress = Progress::new(&self.cell.name, left.len() as u64);
        let started = Instant::now();
        let (mut seat, mut picture, mut judged, mut violated) = (None, Picture::default(), 0u32, 0u64);
        for index in left {
            stop.check()?;
            let folder = CellFolder { path: self.files.path.join(FOLDER).join(name(index)) };
            let about = self.recorded(index, &folder, stop)?;
            let recording = Mapped::open(&folder.recording()).context("can't open the recording")?;
            self.cell.check_drive(&recording)?;
            let lost = self.lost(index, &recording)?;
            take(&Line::Recording(Box::new(self.recording(index, &about, &recording, &lost)?)))?;
            let line = self.judged(&about, &recording, &lost, &mut seat)?;
            take(&line)?;
            judged += 1;
            let Line::State(state) = &line else { unreachable!("`line` makes states") };
            let found = matches!(state.outcome, Outcome::Violated { .. });
            violated += u64::from(found);
            picture.offer(found, || {
                timeline(recording.bytes(), state.case.clone(), &lost.recipe, lost.span, &about.journal)
            })?;
            if matches!(state.outcome, Outcome::Held) {
                drop(recording);
                fs::remove_dir_all(&folder.path).with_context(|| folder.path.display().to_string())?;
            }
            progress.step(&format!("{violated} violated"));
            let late = self.cell.limit.is_some_and(|limit| started.elapsed() >= limit);
            if late || (self.until_found && violated > 0) {
                break;
            }
        }
        progress.finish();
        let value = started.elapsed().as_secs_f64() / f64::from(judged);
        let what = format!("{}: a live cut, from the start of its guest to its verdict", self.cell.name);
        take(&Line::Measured(Measured { what, value, unit: "seconds".into() }))?;
        picture.line.map_or(Ok(()), |line| take(&line))
    }

    /// The recording of a cut, made if it is not there. A guest that breaks is tried once more.
    fn recorded(&self, index: u64, folder: &CellFolder, stop: &Stop) -> anyhow::Result<About> {
        if folder.recording().is_file() {
            return run::about(folder);
        }
        fs::create_dir_all(&folder.path).with_context(|| folder.path.display().to_string())?;
        let seed = self.cell.seed.at("live cut", &[index]);
        let mut attempt = 1;
        loop {
            let error = match record::record(self.cell, record::point(seed, &self.cell.spec), folder, self.rig, stop) {
                Ok(about) => return Ok(about),
                Err(error) if error.is::<Stopped>() => return Err(error),
                Err(error) => error,
            };
            let what = format!("cut-{}", name(index));
            Broke::of(&error).keep(&broken::folder(&self.files.path, &what), attempt)?;
            if attempt == TRIES {
                return Err(error.context(format!("live cut {index}")));
            }
            attempt += 1;
        }
    }

    /// What the drive loses at the end of the recording.
    fn lost(&self, index: u64, recording: &Mapped) -> anyhow::Result<Lost> {
        let usage = |error: &dyn std::fmt::Display| Usage(format!("{}: {error}", recording.path().display()));
        let span = span(recording.bytes()).map_err(|error| usage(&error))?;
        let mut walk = Walk::new(recording.bytes(), self.cell.drive).map_err(|error| usage(&error))?;
        walk.advance(span.last).map_err(|error| usage(&error))?;
        let loose = walk.history.loose();
        let contested = walk.history.contested();
        let view = View { cut: span.last, loose: &loose, contested, unit_sectors: self.cell.drive.unit.sectors() };
        let seed = self.cell.seed.at("live loss", &[index]);
        let choice = Sampled::subset(seed, &view, 0);
        let image = walk.history.digest(recording.bytes(), &choice.kept, choice.order).to_string();
        let recipe = Recipe {
            recording: recording.digest()[..16].into(),
            cut: span.last,
            drive: self.cell.drive,
            kept: choice.kept,
            order: choice.order,
        };
        Ok(Lost { recipe, image, in_flight: walk.history.in_flight(), span })
    }

    fn recording(&self, index: u64, about: &About, file: &Mapped, lost: &Lost) -> anyhow::Result<Recording> {
        let counts = recording_cmd::count(file.bytes())?;
        Ok(Recording {
            case: self.cell.case(&about.kernel),
            path: path(self.cell, index),
            digest: file.digest().into(),
            events: counts.events,
            writes: counts.writes,
            written_bytes: counts.written_bytes,
            flushes: counts.flushes,
            fua: counts.fua,
            trims: counts.trims,
            steps: about.steps,
            first_cut: lost.span.first,
            last_cut: lost.span.last,
            planned: 1,
            loose_permille: if lost.recipe.kept.is_empty() { 0 } else { 1000 },
            path_keeps: run::path_keeps(about, &counts, self.cell),
            took_ms: about.took_ms,
        })
    }

    /// The verdict. The agent that gives it stays for the next cut, as long as it is healthy.
    fn judged(
        &self,
        about: &About,
        recording: &Mapped,
        lost: &Lost,
        seat: &mut Option<(Seat, Image)>,
    ) -> anyhow::Result<Line> {
        let job = Job {
            cell: self.cell,
            folder: self.files,
            recording,
            about,
            rig: self.rig,
            jobs: 1,
            until_found: self.until_found,
            end: None,
        };
        let entry = Entry {
            state: lost.recipe.to_string(),
            image: lost.image.clone(),
            explorer: EXPLORER.into(),
            in_flight: lost.in_flight,
        };
        let mut worker = Worker::with_seat(&job, seat.take());
        let judged = worker.judge(&entry)?;
        *seat = worker.into_seat();
        line(&job, &entry, judged, true)
    }
}

/// What a cut loses.
struct Lost {
    recipe: Recipe,
    /// Digest of the image.
    image: String,
    in_flight: u64,
    span: powerfail_drive::explore::Span,
}

/// The picture of a cell: of the first violated state, or else of the last one.
#[derive(Default)]
struct Picture {
    line: Option<Line>,
    found: bool,
}

impl Picture {
    fn offer(
        &mut self,
        found: bool,
        draw: impl FnOnce() -> anyhow::Result<powerfail_ledger::Timeline>,
    ) -> anyhow::Result<()> {
        if !self.found {
            self.line = Some(Line::Timeline(Box::new(draw()?)));
            self.found = found;
        }
        Ok(())
    }
}

/// Below the cell's folder.
const FOLDER: &str = "cuts";

fn name(index: u64) -> String {
    format!("{index:04}")
}

/// The recording of a cut, as the ledger names it.
fn path(cell: &Cell, index: u64) -> String {
    format!("{}/{FOLDER}/{}/recording", cell.name, name(index))
}
