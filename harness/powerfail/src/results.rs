//! Results as they lie on the disk: a run's folder, a folder of such folders, nights.
//!
//! ```text
//! RUN/ledger.jsonl                    a run
//! FOLDER/{1,2,…}/ledger.jsonl         parts of one result: shards, several runs
//! NIGHTS/2026-01-05/ledger.jsonl      nights, each a run …
//! NIGHTS/2026-01-06/1/ledger.jsonl    … or parts of one
//! ```

use std::path::{Path, PathBuf};

use powerfail_ledger::Contents;
use powerfail_reports::Tally;
use powerfail_reports::history::Night;

use crate::folder::Usage;

/// The ledgers of a folder: its own, or those of the folders in it.
///
/// # Errors
/// [`Usage`] if there is none, or one can't be read.
pub fn ledgers(folder: &Path) -> Result<Vec<Contents>, Usage> {
    let mut paths = runs(folder)?;
    if paths.is_empty() {
        paths.push(folder.join("ledger.jsonl"));
    }
    paths.iter().map(|path| powerfail_ledger::read(path).map_err(|error| Usage(error.to_string()))).collect()
}

/// The result of folders, merged.
///
/// # Errors
/// As [`ledgers`].
pub fn tally(folders: &[PathBuf]) -> Result<Tally, Usage> {
    let ledgers: Vec<_> = folders.iter().map(|folder| ledgers(folder)).collect::<Result<_, _>>()?;
    Ok(Tally::from_ledgers(&ledgers.concat()))
}

/// The nights of folders, in order; each folder is a night or holds nights. Only the newest keeps its details.
///
/// # Errors
/// [`Usage`] if there is none, or one can't be read.
pub fn nights(folders: &[PathBuf]) -> Result<Vec<Night>, Usage> {
    let mut nights: Vec<Night> = Vec::new();
    for folder in folders {
        let before = nights.len();
        let inside = if folder.join("ledger.jsonl").is_file() { vec![folder.clone()] } else { subfolders(folder)? };
        for night in inside {
            if !runs(&night)?.is_empty() {
                let next = Night::new(name(&night), Tally::from_ledgers(&ledgers(&night)?));
                let newest = nights.iter().all(|other| other.order(&next).is_lt());
                if newest {
                    nights
                        .iter_mut()
                        .for_each(|other| other.tally = std::mem::take(&mut other.tally).without_details());
                    nights.push(next);
                } else {
                    nights.push(Night { tally: next.tally.without_details(), ..next });
                }
            }
        }
        if nights.len() == before {
            return Err(Usage(format!(
                "{} holds no night; name folders of runs, or a folder that holds one for each night",
                folder.display()
            )));
        }
    }
    nights.sort_by(Night::order);
    Ok(nights)
}

/// The ledgers that lie in a folder, or right below it; perhaps none.
fn runs(folder: &Path) -> Result<Vec<PathBuf>, Usage> {
    let own = folder.join("ledger.jsonl");
    if own.is_file() {
        return Ok(vec![own]);
    }
    let below = subfolders(folder)?.into_iter().map(|folder| folder.join("ledger.jsonl"));
    Ok(below.filter(|path| path.is_file()).collect())
}

/// By name; none of what is no folder.
fn subfolders(folder: &Path) -> Result<Vec<PathBuf>, Usage> {
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let usage = |error: std::io::Error| Usage(format!("can't read {}: {error}", folder.display()));
    let entries = std::fs::read_dir(folder).map_err(usage)?;
    let paths: Vec<PathBuf> = entries.map(|entry| Ok(entry?.path())).collect::<Result<_, _>>().map_err(usage)?;
    let mut folders: Vec<PathBuf> = paths.into_iter().filter(|path| path.is_dir()).collect();
    folders.sort();
    Ok(folders)
}

fn name(folder: &Path) -> String {
    let whole = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    whole.file_name().unwrap_or(whole.as_os_str()).to_string_lossy().into_owned()
}
