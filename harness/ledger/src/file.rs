//! The file: appending with a sync, reading with a torn tail, refusing what is newer.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::schema::{Header, Line, SCHEMA};

/// Why a ledger can't be read or written.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// The file can't be opened, read or written.
    #[error("{path}: {source}")]
    Io {
        /// The ledger.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A line in the middle is no ledger line; a torn *last* line is not an error.
    #[error("{path}:{line}: not a ledger line ({reason}); the file was altered, restore it or start a new folder")]
    Malformed {
        /// The ledger.
        path: PathBuf,
        /// Line number, from 1.
        line: usize,
        /// What the parser said.
        reason: String,
    },
    /// The first line is no header.
    #[error("{path}: does not begin with a ledger header; this is not a powerfail ledger")]
    NoHeader {
        /// The ledger.
        path: PathBuf,
    },
    /// Written by a newer version.
    #[error("{path}: has schema {found}, this powerfail reads up to {SCHEMA}; use the newer powerfail that wrote it")]
    Newer {
        /// The ledger.
        path: PathBuf,
        /// Its schema.
        found: u64,
    },
}

/// All of a ledger.
#[derive(Clone, Debug, PartialEq)]
pub struct Contents {
    /// The first line.
    pub header: Header,
    /// The others, in order.
    pub lines: Vec<Line>,
    /// Bytes at the end that are a torn line and were left out.
    pub torn_bytes: u64,
}

/// Reads a whole ledger.
///
/// # Errors
/// [`LedgerError`] names the file, the line and what to do.
pub fn read(path: &Path) -> Result<Contents, LedgerError> {
    let text = std::fs::read(path).map_err(|source| LedgerError::Io { path: path.into(), source })?;
    // Only what ends in a newline was synced whole.
    let whole = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
    let mut lines = Vec::new();
    for (index, line) in text[..whole].split(|&byte| byte == b'\n').enumerate() {
        if line.is_empty() {
            continue;
        }
        if index == 0 {
            refuse_newer(path, line)?;
        }
        let line = serde_json::from_slice::<Line>(line).map_err(|error| LedgerError::Malformed {
            path: path.into(),
            line: index + 1,
            reason: error.to_string(),
        })?;
        lines.push(line);
    }
    if lines.is_empty() || !matches!(lines[0], Line::Header(_)) {
        return Err(LedgerError::NoHeader { path: path.into() });
    }
    let Line::Header(header) = lines.remove(0) else { unreachable!("checked above") };
    Ok(Contents { header, lines, torn_bytes: (text.len() - whole) as u64 })
}

/// A newer header may not parse as ours, so its number is looked at before anything else.
fn refuse_newer(path: &Path, line: &[u8]) -> Result<(), LedgerError> {
    let found = serde_json::from_slice::<serde_json::Value>(line).ok().and_then(|value| value["schema"].as_u64());
    match found {
        Some(found) if found > u64::from(SCHEMA) => Err(LedgerError::Newer { path: path.into(), found }),
        _ => Ok(()),
    }
}

/// Appends lines; each is on the disk when `append` returns.
#[derive(Debug)]
pub struct Writer {
    path: PathBuf,
    file: File,
}

impl Writer {
    /// Begins a ledger; the file must not exist.
    ///
    /// # Errors
    /// If the file exists or can't be written.
    pub fn create(path: &Path, header: Header) -> Result<Writer, LedgerError> {
        let file = OpenOptions::new().create_new(true).append(true).open(path);
        let file = file.map_err(|source| LedgerError::Io { path: path.into(), source })?;
        let mut writer = Writer { path: path.into(), file };
        writer.append(&Line::Header(header))?;
        Ok(writer)
    }

    /// Goes on with a ledger, after cutting off a torn last line; gives what it holds.
    ///
    /// # Errors
    /// As [`read`], and if the file can't be written.
    pub fn resume(path: &Path) -> Result<(Writer, Contents), LedgerError> {
        let contents = read(path)?;
        let io = |source| LedgerError::Io { path: path.into(), source };
        let file = OpenOptions::new().read(true).append(true).open(path).map_err(io)?;
        let length = file.metadata().map_err(io)?.len();
        file.set_len(length - contents.torn_bytes).map_err(io)?;
        Ok((Writer { path: path.into(), file }, contents))
    }

    /// Appends one line and syncs it.
    ///
    /// # Errors
    /// If the file can't be written; a part of the line may then be there, as after a kill.
    pub fn append(&mut self, line: &Line) -> Result<(), LedgerError> {
        let mut text = serde_json::to_vec(line).expect("a ledger line is always JSON");
        text.push(b'\n');
        self.file
            .write_all(&text)
            .and_then(|()| self.file.sync_data())
            .map_err(|source| LedgerError::Io { path: self.path.clone(), source })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Measured;

    fn header() -> Header {
        Header {
            schema: SCHEMA,
            tool: "powerfail test".into(),
            seed: 1,
            command: "powerfail run".into(),
            started: "2026-01-01T00:00:00Z".into(),
            machine: "a test".into(),
            shard: None,
        }
    }

    fn figure(value: f64) -> Line {
        Line::Measured(Measured { what: "x".into(), value, unit: "1/s".into() })
    }

    #[test]
    fn a_torn_last_line_is_dropped_and_then_cut_off() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger.jsonl");
        let mut writer = Writer::create(&path, header()).unwrap();
        writer.append(&figure(1.0)).unwrap();
        let whole = std::fs::metadata(&path).unwrap().len();
        writer.append(&figure(2.0)).unwrap();
        let full = std::fs::read(&path).unwrap();
        for torn in whole as usize..full.len() {
            std::fs::write(&path, &full[..torn]).unwrap();
            let contents = read(&path).unwrap();
            assert_eq!(contents.lines, [figure(1.0)], "torn at byte {torn}");
            let (mut writer, _) = Writer::resume(&path).unwrap();
            writer.append(&figure(3.0)).unwrap();
            assert_eq!(read(&path).unwrap().lines, [figure(1.0), figure(3.0)]);
        }
    }

    #[test]
    fn a_newer_schema_and_a_foreign_file_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger.jsonl");
        std::fs::write(&path, "{\"line\":\"header\",\"schema\":99,\"more\":1}\n").unwrap();
        assert!(matches!(read(&path), Err(LedgerError::Newer { found: 99, .. })));
        std::fs::write(&path, "").unwrap();
        assert!(matches!(read(&path), Err(LedgerError::NoHeader { .. })));
        std::fs::write(&path, "hello\n").unwrap();
        assert!(matches!(read(&path), Err(LedgerError::Malformed { line: 1, .. })));
    }

    #[test]
    fn a_ledger_that_exists_is_never_begun_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger.jsonl");
        Writer::create(&path, header()).unwrap();
        assert!(matches!(Writer::create(&path, header()), Err(LedgerError::Io { .. })));
    }
}
