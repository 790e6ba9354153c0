//! A run's folder: what lies where, who may write to it, and what is refused.
//!
//! ```text
//! DIR/run.json          the configuration; its lock says that a run is at work here
//! DIR/ledger.jsonl      every result
//! DIR/page.html         the page, made at the end
//! DIR/CELL/recording    the recording of a cell, whole or not there
//! DIR/CELL/about.json   what the rig said of it
//! DIR/CELL/plan.jsonl   its crash states
//! DIR/CELL/plan-2.jsonl crashes during the recoveries from those that held (--depth)
//! DIR/CELL/recoveries/… the recordings of those recoveries, by image and BLAKE3
//! DIR/CELL/done         all its states were judged, or its time was over
//! DIR/CELL/casebooks/…  one folder a violation
//! ```
//!
//! Files are written under another name and renamed when they are whole, so a killed run leaves nothing half written
//! but the ledger's last line, which its reader drops.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use powerfail_ledger::{Contents, Header, SCHEMA, Writer};
use rustix::fs::{FlockOperation, flock};

use crate::config::{Config, FORMAT};

/// A bad request of the user's: exit code 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(pub String);

/// The folder of a run, locked.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// Holds the lock.
    _lock: File,
    /// What the run was asked for.
    pub config: Config,
}

/// Files of one cell.
#[derive(Clone, Debug)]
pub struct CellFolder {
    /// The folder.
    pub path: PathBuf,
}

impl Folder {
    /// Begins a run in a folder that is new or empty, or goes on with the run in it if `resume`.
    ///
    /// # Errors
    /// [`Usage`] if the folder holds something else.
    pub fn begin(path: &Path, config: &Config, resume: bool) -> anyhow::Result<Folder> {
        let run = path.join("run.json");
        if run.exists() {
            let folder = Folder::open(path)?;
            if !resume {
                let text = format!("{} holds a run already; go on with --resume, or name a new folder", path.display());
                bail!(Usage(text));
            }
            if folder.config != *config {
                let text = format!(
                    "{} holds another run (seed {}, cells {}); resume it with its own options, or name a new folder",
                    path.display(),
                    folder.config.seed,
                    folder.config.cells.iter().map(|cell| cell.name.as_str()).collect::<Vec<_>>().join(", ")
                );
                bail!(Usage(text));
            }
            return Ok(folder);
        }
        if resume {
            bail!(Usage(format!("{} holds no run to resume", path.display())));
        }
        if path.exists() && !is_empty(path)? {
            bail!(Usage(format!("{} is not empty and holds no run; name a new folder", path.display())));
        }
        fs::create_dir_all(path).map_err(|error| Usage(format!("can't make {}: {error}", path.display())))?;
        let text = serde_json::to_vec_pretty(config).expect("a configuration is JSON");
        write_whole(&run, &text)?;
        Folder::open(path)
    }

    /// Opens a run that is there, and locks it.
    ///
    /// # Errors
    /// [`Usage`] if there is none, or another program is at work in it.
    pub fn open(path: &Path) -> anyhow::Result<Folder> {
        let run = path.join("run.json");
        let lock = File::open(&run).map_err(|error| {
            Usage(format!("{} holds no run ({error}); name the folder of a `powerfail run`", path.display()))
        })?;
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            bail!(Usage(format!("another powerfail is at work in {}", path.display())));
        }
        let config = read_config(&run)?;
        Ok(Folder { path: path.into(), _lock: lock, config })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The folder of a cell; made if it is not there.
    ///
    /// # Errors
    /// If it can't be made.
    pub fn cell(&self, name: &str) -> anyhow::Result<CellFolder> {
        let path = self.path.join(name);
        fs::create_dir_all(&path).with_context(|| path.display().to_string())?;
        Ok(CellFolder { path })
    }

    /// Where the ledger is.
    pub fn ledger_path(&self) -> PathBuf {
        self.path.join("ledger.jsonl")
    }

    /// Begins the ledger, or goes on with it; gives what it holds.
    ///
    /// # Errors
    /// If it is damaged or of a newer schema.
    pub fn ledger(&self, header: impl FnOnce() -> Header) -> anyhow::Result<(Writer, Contents)> {
        let path = self.ledger_path();
        // A run that was killed while it wrote the very first line has nothing to lose.
        let headless = fs::read(&path).is_ok_and(|bytes| !bytes.contains(&b'\n'));
        if headless {
            fs::remove_file(&path)?;
        }
        if !path.exists() {
            let header = Header { schema: SCHEMA, ..header() };
            let writer = Writer::create(&path, header.clone())?;
            return Ok((writer, Contents { header, lines: Vec::new(), torn_bytes: 0 }));
        }
        Ok(Writer::resume(&path).map_err(|error| Usage(error.to_string()))?)
    }
}

impl CellFolder {
    /// The recording.
    pub fn recording(&self) -> PathBuf {
        self.path.join("recording")
    }

    /// The recording while it is written.
    pub fn recording_part(&self) -> PathBuf {
        temporary(&self.recording())
    }

    /// What the rig said.
    pub fn about(&self) -> PathBuf {
        self.path.join("about.json")
    }

    /// The plan.
    pub fn plan(&self) -> PathBuf {
        self.path.join("plan.jsonl")
    }

    /// Says that all was judged that was to be, so that the recording may be gone.
    pub fn done(&self) -> PathBuf {
        self.path.join("done")
    }

    /// The casebook of an image.
    pub fn casebook(&self, image: &str) -> PathBuf {
        self.path.join("casebooks").join(&image[..16.min(image.len())])
    }
}

/// Writes a file whole or not at all, and on the disk when it returns.
///
/// # Errors
/// If it can't be written.
pub fn write_whole(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let part = temporary(path);
    let write = || -> std::io::Result<()> {
        let mut file = File::create(&part)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&part, path)?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    };
    write().with_context(|| format!("can't write {}", path.display()))
}

/// Whether a folder holds nothing, or nothing but what a killed first start left: the configuration under its temporary
/// name.
fn is_empty(folder: &Path) -> anyhow::Result<bool> {
    if !folder.is_dir() {
        bail!(Usage(format!("{} is no folder; name a new one", folder.display())));
    }
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        if entry?.path() != temporary(&folder.join("run.json")) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn temporary(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".part");
    path.with_file_name(name)
}

fn read_config(path: &Path) -> anyhow::Result<Config> {
    let usage = |why: String| Usage(format!("{}: {why}", path.display()));
    let text = fs::read(path).map_err(|error| usage(error.to_string()))?;
    let value: serde_json::Value =
        serde_json::from_slice(&text).map_err(|error| usage(format!("not a run's configuration ({error})")))?;
    match value["format"].as_u64() {
        Some(format) if format > u64::from(FORMAT) => {
            bail!(usage(format!("has format {format}, this powerfail reads up to {FORMAT}; use the newer powerfail")));
        }
        _ => {}
    }
    let config: Config =
        serde_json::from_value(value).map_err(|error| usage(format!("not a run's configuration ({error})")))?;
    // It was checked before it was written; a file that was altered since must not get further than one that is new.
    config.check().map_err(|error| usage(error.to_string()))?;
    Ok(config)
}
