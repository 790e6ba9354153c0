//! Where a served drive keeps its sockets and recordings.
//!
//! ```text
//! DIR/serve.json      what is served; its lock says that a server is at work here
//! DIR/N/recording     the recording of generation N; `recording.part` while it is written
//! DIR/N/cut.json      the cut that ended it, with the recipe of what survived
//! ```
//!
//! Sockets, and recordings that nobody asked to keep, are in a folder of the server's own below `/run`, or below
//! `$XDG_RUNTIME_DIR` for who is not root. It goes away with the server; what a killed server left there, the next one
//! removes.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use powerfail_drive::crash::Recipe;
use powerfail_drive::explore::Walk;
use powerfail_rig::workdir::{self, Workdir};
use rustix::fs::{FlockOperation, flock};

use super::args::Setup;
use crate::folder::{Usage, write_whole};
use crate::recording_file::Mapped;

const ABOUT: &str = "serve.json";

/// The folders of a server.
#[derive(Debug)]
pub(crate) struct Place {
    own: Workdir,
    record: PathBuf,
    /// The recordings stay.
    pub(crate) kept: bool,
    _lock: File,
}

impl Place {
    /// Makes them.
    ///
    /// # Errors
    /// [`Usage`] if the folder for recordings holds something.
    pub(crate) fn make(record: Option<&Path>, setup: &Setup) -> anyhow::Result<Place> {
        let below = runtime_folder();
        workdir::clean_in(&below).with_context(|| format!("can't clean up in {}", below.display()))?;
        let own = Workdir::make_in(&below).with_context(|| format!("can't make a folder in {}", below.display()))?;
        let kept = record.is_some();
        let record = match record {
            Some(path) => std::path::absolute(path)?,
            None => own.path().join("record"),
        };
        let empty = !record.exists() || fs::read_dir(&record).is_ok_and(|mut entries| entries.next().is_none());
        if !empty {
            bail!(Usage(format!("{} is not empty; name a new folder", record.display())));
        }
        fs::create_dir_all(&record).map_err(|error| Usage(format!("can't make {}: {error}", record.display())))?;
        let about = serde_json::json!({
            "format": 1, "size": setup.header.geometry.bytes(), "write_cache": setup.header.write_cache,
            "cache_bytes": setup.drive.cache.bytes, "atomic": setup.drive.unit.bytes(), "seed": setup.seed,
            "export": setup.export,
        });
        write_whole(&record.join(ABOUT), &serde_json::to_vec_pretty(&about)?)?;
        let lock = File::open(record.join(ABOUT))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).context("another program locked the new folder")?;
        Ok(Place { own, record, kept, _lock: lock })
    }

    /// Where recordings are.
    pub(crate) fn record(&self) -> &Path {
        &self.record
    }

    /// The Unix socket of the drive, if none was asked for.
    pub(crate) fn socket(&self) -> PathBuf {
        self.own.path().join("drive.sock")
    }

    /// The control socket, if none was asked for.
    pub(crate) fn control(&self) -> PathBuf {
        self.own.path().join(CONTROL)
    }
}

const CONTROL: &str = "control";

/// Control sockets that servers of this user have without being told where.
pub(crate) fn controls() -> Vec<PathBuf> {
    let entries = fs::read_dir(runtime_folder()).into_iter().flatten().flatten();
    let ours = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("powerfail-"));
    let mut found: Vec<_> = ours.map(|entry| entry.path().join(CONTROL)).filter(|path| path.exists()).collect();
    found.sort();
    found
}

fn runtime_folder() -> PathBuf {
    if rustix::process::geteuid().is_root() {
        return workdir::PLACE.into();
    }
    let own = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_dir());
    own.unwrap_or_else(std::env::temp_dir)
}

/// Whether a folder holds the recordings of a served drive.
pub fn is_served(dir: &Path) -> bool {
    dir.join(ABOUT).is_file()
}

/// Writes the image of a cut of a served drive: `recipe` as the cut was answered with, `dir` the folder of `--record`.
///
/// # Errors
/// [`Usage`] if no recording there is the recipe's, or the file exists.
pub fn materialise(recipe: &str, dir: &Path, to: &Path) -> anyhow::Result<()> {
    let recipe: Recipe = recipe.parse().map_err(|error| Usage(format!("{error}")))?;
    for entry in fs::read_dir(dir).with_context(|| dir.display().to_string())?.flatten() {
        let path = entry.path().join("recording");
        if !path.is_file() {
            continue;
        }
        let recording = Mapped::open(&path)?;
        if !recording.digest().starts_with(&recipe.recording) {
            continue;
        }
        let mut walk = Walk::new(recording.bytes(), recipe.drive)?;
        walk.advance(recipe.cut)?;
        if walk.history.loose().len() != recipe.kept.len() || recipe.drive.lie.is_some() {
            bail!(Usage("the recipe is of another drive".into()));
        }
        let size = powerfail_drive::recording::Reader::new(recording.bytes(), false)?.header().geometry.bytes();
        let mut image = crate::image::Image::new(size)?;
        image.become_state(&walk.history, recording.bytes(), &recipe.kept, recipe.order)?;
        return crate::recording_cmd::whole_file(to, |file| {
            file.set_len(size)?;
            Ok(image.write_sparse(file)?)
        });
    }
    bail!(Usage(format!("no recording below {} has a BLAKE3 that begins with {}", dir.display(), recipe.recording)))
}
