//! `powerfail recording`: what a recording holds, and its way to and from dm-log-writes.

use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use powerfail_drive::event::{Header, What};
use powerfail_drive::live::Drive;
use powerfail_drive::log_writes;
use powerfail_drive::recording::Reader;
use powerfail_drive::request::{Command, Geometry};
use serde::Serialize;

use crate::folder::Usage;
use crate::recording_file::{FileSink, Mapped};

/// What a recording holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Events.
    pub events: u64,
    /// Writes, with trims and zeroes.
    pub writes: u64,
    /// Bytes of data that they carried.
    pub written_bytes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Writes with FUA.
    pub fua: u64,
    /// Trims.
    pub trims: u64,
}

/// Counts what a recording holds.
///
/// # Errors
/// If it is damaged.
pub fn count(recording: &[u8]) -> anyhow::Result<Counts> {
    let mut counts = Counts::default();
    let mut reader = Reader::new(recording, false)?;
    while let Some(entry) = reader.next()? {
        counts.events += 1;
        let What::Received { command, fua, .. } = entry.head.what else { continue };
        counts.flushes += u64::from(command == Command::Flush);
        counts.trims += u64::from(command == Command::Trim);
        counts.writes += u64::from(command.writes());
        counts.fua += u64::from(command.writes() && fua);
        counts.written_bytes += u64::from(entry.head.data_len);
    }
    Ok(counts)
}

/// The recording that a path names: a file, the folder of a cell, or the folder of a run with one cell.
///
/// # Errors
/// [`Usage`] if there is none or several.
pub fn find(path: &Path) -> anyhow::Result<PathBuf> {
    if path.is_file() {
        return Ok(path.into());
    }
    if path.join("recording").is_file() {
        return Ok(path.join("recording"));
    }
    let cells = std::fs::read_dir(path).map_err(|error| Usage(format!("{}: {error}", path.display())))?;
    let mut found: Vec<PathBuf> =
        cells.filter_map(|cell| Some(cell.ok()?.path().join("recording"))).filter(|path| path.is_file()).collect();
    found.sort();
    match found.len() {
        1 => Ok(found.remove(0)),
        0 => Err(Usage(format!("{} holds no recording", path.display())).into()),
        _ => {
            let names: Vec<_> =
                found.iter().filter_map(|path| path.parent()).map(|path| path.display().to_string()).collect();
            Err(Usage(format!("{} holds several recordings; name one of {}", path.display(), names.join(", "))).into())
        }
    }
}

/// Writes a recording as a dm-log-writes log; gives the number of entries.
///
/// # Errors
/// If the recording is damaged or the log can't be written; then nothing is left of it.
pub fn export(from: &Path, to: &Path) -> anyhow::Result<u64> {
    let path = find(from)?;
    let recording = Mapped::open(&path).map_err(|error| Usage(format!("{}: {error}", path.display())))?;
    // Damage is refused before a byte is written.
    powerfail_drive::explore::span(recording.bytes()).map_err(|error| Usage(format!("{}: {error}", path.display())))?;
    whole_file(to, |file| {
        let mut out = BufWriter::new(file);
        let entries = log_writes::export(recording.bytes(), &mut out)?;
        out.flush()?;
        Ok(entries)
    })
}

/// Reads a dm-log-writes log as the recording of a drive with a write cache of `size` bytes, into `to/recording`.
///
/// # Errors
/// [`Usage`] if the log is malformed or does not fit; then nothing is left.
pub fn import(from: &Path, to: &Path, size: u64) -> anyhow::Result<u64> {
    let usage = |why: String| Usage(format!("{}: {why}", from.display()));
    let log = File::open(from).map_err(|error| usage(error.to_string()))?;
    let Some(geometry) = Geometry::new(size) else {
        bail!(Usage(format!("a drive of {size} bytes is no whole number of sectors")));
    };
    let made = !to.exists();
    std::fs::create_dir_all(to).map_err(|error| Usage(format!("can't make {}: {error}", to.display())))?;
    let path = to.join("recording");
    if path.exists() {
        bail!(Usage(format!("{} is there already; name a new folder", path.display())));
    }
    let part = to.join("recording.part");
    let result = (|| {
        let sink = FileSink::create(&part, Header::honest(geometry, true))?;
        let mut drive = Drive::new(geometry, sink);
        let entries =
            log_writes::import(&mut BufReader::new(log), &mut drive).map_err(|error| usage(error.to_string()))?;
        drive.close()?.finish()?;
        std::fs::rename(&part, &path)?;
        anyhow::Ok(entries)
    })();
    if result.is_err() {
        let _ = std::fs::remove_file(&part);
        if made {
            let _ = std::fs::remove_dir(to);
        }
    }
    result
}

/// Writes a file by `write`, whole or not at all.
///
/// # Errors
/// If it can't be written, or exists.
pub fn whole_file<T>(path: &Path, write: impl FnOnce(&mut File) -> anyhow::Result<T>) -> anyhow::Result<T> {
    if path.exists() {
        bail!(Usage(format!("{} is there already; name another file", path.display())));
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut part = tempfile::NamedTempFile::new_in(folder)
        .map_err(|error| Usage(format!("can't write to {}: {error}", folder.display())))?;
    let value = write(part.as_file_mut())?;
    part.as_file().sync_all()?;
    part.persist(path).with_context(|| format!("can't write {}", path.display()))?;
    Ok(value)
}
