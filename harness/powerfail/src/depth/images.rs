//! From the image of a state to that of a crash in its recovery; and where the recordings of recoveries lie.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use anyhow::{Context, bail};
use powerfail_drive::crash::Recipe;
use powerfail_drive::explore::Walk;

use crate::folder::{CellFolder, Usage, write_whole};
use crate::image::Image;
use crate::recording_file::Mapped;

/// Digits of a digest in a file's name.
const DIGITS: usize = 16;

/// Recordings whose digest was checked: XFS's are large, and many states are made from each. None is changed once it is there.
static WHOLE: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

fn known_whole(path: &Path) -> bool {
    WHOLE.lock().expect("nobody panics with it").contains(path)
}

/// Puts over an image what each of `deeper` left of the recovery from it.
///
/// # Errors
/// [`Usage`] if the recording of a recovery is not there or not the recipe's.
pub fn overlay(image: &mut Image, folder: &CellFolder, deeper: &[Recipe]) -> anyhow::Result<()> {
    for recipe in deeper {
        let recording = find(folder, recipe)?;
        let mut walk = Walk::new(recording.bytes(), recipe.drive)?;
        walk.advance(recipe.cut)?;
        let (at, loose) = (walk.history.next_event(), walk.history.loose().len());
        if loose != recipe.kept.len() || at != recipe.cut {
            let (says, cut) = (recipe.kept.len(), recipe.cut);
            bail!(Usage(format!(
                "{}: at event {at} {loose} fragments are loose, and the recipe says {says} at {cut}",
                recording.path().display()
            )));
        }
        image.overlay(&walk.history, recording.bytes(), &recipe.kept, recipe.order);
    }
    Ok(())
}

/// The recording that a recipe names.
fn find(folder: &CellFolder, recipe: &Recipe) -> anyhow::Result<Mapped> {
    let name = format!("-{}.rec", recipe.recording);
    let usage = |why: String| Usage(format!("{}: {why}", recoveries(folder).display()));
    let path = files(folder).into_iter().find(|path| file_name(path).ends_with(&name));
    let path = path.ok_or_else(|| usage(format!("no recording of a recovery is called …{name}")))?;
    let recording = Mapped::open(&path).map_err(|error| usage(error.to_string()))?;
    if !known_whole(&path) {
        if !recording.digest().starts_with(&recipe.recording) {
            bail!(usage(format!("{} was altered: its BLAKE3 is not the one of its name", file_name(&path))));
        }
        WHOLE.lock().expect("nobody panics with it").insert(path);
    }
    Ok(recording)
}

/// The recording of the recovery from an image, if there is one.
pub(super) fn of_image(folder: &CellFolder, image: &str) -> anyhow::Result<Option<Mapped>> {
    let name = format!("{}-", &image[..DIGITS.min(image.len())]);
    let path = files(folder).into_iter().find(|path| file_name(path).starts_with(&name));
    path.map(|path| Mapped::open(&path).with_context(|| path.display().to_string())).transpose()
}

/// Keeps the recording of the recovery from an image.
pub(super) fn keep(folder: &CellFolder, image: &str, recording: &[u8]) -> anyhow::Result<Mapped> {
    let name = &blake3::hash(recording).to_hex()[..DIGITS];
    let path = recoveries(folder).join(format!("{}-{name}.rec", &image[..DIGITS.min(image.len())]));
    fs::create_dir_all(recoveries(folder)).with_context(|| recoveries(folder).display().to_string())?;
    write_whole(&path, recording)?;
    Mapped::open(&path).with_context(|| path.display().to_string())
}

/// Removes the recordings of all recoveries of a cell.
///
/// # Errors
/// If one can't be removed.
pub fn forget(folder: &CellFolder) -> anyhow::Result<()> {
    for path in files(folder) {
        fs::remove_file(&path).with_context(|| format!("can't remove {}", path.display()))?;
    }
    Ok(())
}

fn recoveries(folder: &CellFolder) -> PathBuf {
    folder.path.join("recoveries")
}

/// All of them, in the order of their names.
fn files(folder: &CellFolder) -> Vec<PathBuf> {
    let entries = fs::read_dir(recoveries(folder)).into_iter().flatten().flatten();
    let mut paths: Vec<_> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    paths.retain(|path| file_name(path).ends_with(".rec"));
    paths
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
