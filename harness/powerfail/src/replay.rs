//! `powerfail replay` and `powerfail materialise`: one state again, from a casebook or from its recipe.

use std::path::Path;

use anyhow::bail;
use powerfail_drive::crash::Recipe;
use powerfail_drive::explore::span;
use powerfail_ledger::{Finding, Outcome};

use crate::casebook;
use crate::cell::Cell;
use crate::depth::{Chain, overlay};
use crate::folder::{CellFolder, Folder, Usage};
use crate::live;
use crate::plan_file::Entry;
use crate::recording_file::Mapped;
use crate::rigs;
use crate::run::about;
use crate::verify::{Job, Judged, Worker};

/// One state with everything that it takes to make it again.
#[derive(Debug)]
pub struct Target {
    folder: Folder,
    cell: Cell,
    state: Chain,
    /// What was found, where it came from a casebook.
    pub expected: Option<Vec<Finding>>,
    /// The image's digest, likewise.
    image: Option<String>,
}

impl Target {
    /// Its cell.
    pub fn cell(&self) -> &Cell {
        &self.cell
    }

    /// Its recipe: of a state of depth 1.
    ///
    /// # Errors
    /// [`Usage`] if it is a crash during recovery, which has several.
    pub fn recipe(&self) -> Result<&Recipe, Usage> {
        self.state.only()
    }

    /// The files of its cell.
    ///
    /// # Errors
    /// If the folder can't be made.
    pub fn files(&self) -> anyhow::Result<CellFolder> {
        self.folder.cell(&self.cell.name)
    }

    /// Its recording.
    ///
    /// # Errors
    /// [`Usage`] if it is not the recipe's.
    pub fn recording(&self) -> anyhow::Result<Mapped> {
        open_recording(self)
    }
}

/// What a replay found.
#[derive(Debug)]
pub struct Replayed {
    /// The verdict now.
    pub judged: Judged,
    /// What was found then, if that is known.
    pub expected: Option<Vec<Finding>>,
}

impl Replayed {
    /// Whether the verdict is the one of then; of a bare recipe, whether there is one.
    pub fn same(&self) -> bool {
        match (&self.judged.outcome, &self.expected) {
            (Outcome::Violated { findings }, Some(expected)) => findings == expected,
            (Outcome::Held, Some(expected)) => expected.is_empty(),
            (Outcome::Held | Outcome::Violated { .. }, None) => true,
            (Outcome::Broken { .. } | Outcome::Skipped { .. }, _) => false,
        }
    }
}

/// Finds what `what` names: the folder of a casebook, or a recipe whose recording lies below `dir`.
///
/// # Errors
/// [`Usage`] if it names nothing that is there.
pub fn target(what: &str, dir: Option<&Path>) -> anyhow::Result<Target> {
    if what.trim_start().starts_with("pf1") {
        let Some(dir) = dir else {
            bail!(Usage("say where the recipe's recording is: --dir DIR, the folder of its run".into()))
        };
        return of_recipe(what, dir);
    }
    let state = casebook::read(Path::new(what))?;
    let (run, cell) = casebook::place(Path::new(what))?;
    let chain = state.state.parse().map_err(|error| Usage(format!("{what}: {error}")))?;
    let expected = match state.outcome {
        Outcome::Violated { findings } => findings,
        _ => Vec::new(),
    };
    let folder = Folder::open(&run)?;
    let cell = cell_named(&folder, &cell)?;
    Ok(Target { folder, cell, state: chain, expected: Some(expected), image: Some(state.image) })
}

fn of_recipe(text: &str, dir: &Path) -> anyhow::Result<Target> {
    let state: Chain = text.parse().map_err(|error| Usage(format!("{error}")))?;
    let recipe = &state.first;
    let folder = Folder::open(dir)?;
    for cell in Cell::all(&folder.config) {
        let files = CellFolder { path: folder.path().join(&cell.name) };
        let Ok(place) = live::place_of(&files, recipe) else { continue };
        if Mapped::open(&place.recording())?.digest().starts_with(&recipe.recording) {
            return Ok(Target { folder, cell, state, expected: None, image: None });
        }
    }
    bail!(Usage(format!("no recording below {} has a BLAKE3 that begins with {}", dir.display(), recipe.recording)))
}

fn cell_named(folder: &Folder, name: &str) -> anyhow::Result<Cell> {
    let cell = Cell::all(&folder.config).into_iter().find(|cell| cell.name == name);
    Ok(cell.ok_or_else(|| Usage(format!("the run in {} has no cell `{name}`", folder.path().display())))?)
}

/// Judges the state again; `times` times, each with a new agent and a new image.
///
/// # Errors
/// If the recording is not the recipe's, or can't be read.
pub fn replay(target: Target, times: u32) -> anyhow::Result<Vec<Replayed>> {
    let rig = rigs::Pool::default().get(&target.cell)?;
    let files = target.folder.cell(&target.cell.name)?;
    let recording = open_recording(&target)?;
    let about = about(&live::place_of(&files, &target.state.first)?)?;
    let job = Job {
        cell: &target.cell,
        folder: &files,
        recording: &recording,
        about: &about,
        rig: &*rig,
        jobs: 1,
        until_found: false,
        end: None,
    };
    let entry =
        Entry { state: target.state.to_string(), image: String::new(), explorer: "replay".into(), in_flight: 0 };
    let mut all = Vec::new();
    for _ in 0..times.max(1) {
        let mut worker = Worker::new(&job);
        check_image(&mut worker, &target)?;
        let judged = worker.judge(&entry)?;
        all.push(Replayed { judged, expected: target.expected.clone() });
    }
    Ok(all)
}

/// Writes the image of a state to a file, sparse.
///
/// # Errors
/// If the file exists or can't be written, or the recording is not the recipe's.
pub fn materialise(target: &Target, to: &Path) -> anyhow::Result<()> {
    let recording = open_recording(target)?;
    let recipe = &target.state.first;
    let mut walk = powerfail_drive::explore::Walk::new(recording.bytes(), recipe.drive)?;
    walk.advance(recipe.cut)?;
    let (at, loose) = (walk.history.next_event(), walk.history.loose().len());
    if loose != recipe.kept.len() || at != recipe.cut {
        let text = format!(
            "the recipe is of another recording or another drive: at event {at} {loose} fragments are loose, and it says {} at {}",
            recipe.kept.len(),
            recipe.cut
        );
        bail!(Usage(text));
    }
    let mut image = crate::image::Image::new(target.cell.header.geometry.bytes())?;
    image.become_state(&walk.history, recording.bytes(), &recipe.kept, recipe.order)?;
    let files = CellFolder { path: target.folder.path().join(&target.cell.name) };
    overlay(&mut image, &files, &target.state.deeper)?;
    compare_image(&image, target)?;
    crate::recording_cmd::whole_file(to, |file| {
        file.set_len(image.bytes().len() as u64)?;
        image.write_sparse(file)?;
        Ok(())
    })
}

fn open_recording(target: &Target) -> anyhow::Result<Mapped> {
    let files = CellFolder { path: target.folder.path().join(&target.cell.name) };
    let path = live::place_of(&files, &target.state.first)?.recording();
    let usage = |why: String| Usage(format!("{}: {why}", path.display()));
    let recording = Mapped::open(&path).map_err(|error| usage(error.to_string()))?;
    if !recording.digest().starts_with(&target.state.first.recording) {
        bail!(usage("it is not the recording that the recipe was made from".into()));
    }
    target.cell.check_drive(&recording)?;
    if target.state.first.drive.lie != target.cell.drive.lie {
        let honest = || "none".to_owned();
        let told = target.state.first.drive.lie.map_or_else(honest, |liar| liar.to_string());
        let of_cell = target.cell.drive.lie.map_or_else(honest, |liar| liar.to_string());
        bail!(usage(format!("the recipe's lie is {told}, and that of {} is {of_cell}", target.cell.name)));
    }
    span(recording.bytes()).map_err(|error| usage(error.to_string()))?;
    Ok(recording)
}

fn check_image(worker: &mut Worker<'_>, target: &Target) -> anyhow::Result<()> {
    compare_image(worker.image_of(&target.state)?, target)
}

/// The image must be the one that was judged, bit for bit: anything else would be a verdict on something else.
fn compare_image(image: &crate::image::Image, target: &Target) -> anyhow::Result<()> {
    match &target.image {
        Some(expected) if image.digest()?.to_string() != *expected => {
            bail!("the image is not the one that was judged: this is a bug of powerfail's, please report it")
        }
        _ => Ok(()),
    }
}
