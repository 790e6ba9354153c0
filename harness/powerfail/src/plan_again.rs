//! `powerfail plan DIR`: other states of what was recorded.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use powerfail_ledger::Line;

use crate::cell::Cell;
use crate::config::Config;
use crate::exploring::ExploreArgs;
use crate::folder::{Folder, Usage, write_whole};

/// What to plan, if not what the run was begun with.
#[derive(Clone, Debug, Default, Args)]
pub struct PlanArgs {
    /// Which explorers
    #[command(flatten)]
    pub explore: ExploreArgs,
    /// Distinct images to judge, for each mode
    #[arg(long)]
    pub states: Option<u64>,
    /// Plan in a new folder, with a copy of the recordings, and leave this one as it is
    #[arg(long, value_name = "NEW")]
    pub into: Option<PathBuf>,
}

/// Opens the folder to plan in: the one that is named, changed if it has no verdict yet, or a new one.
///
/// # Errors
/// [`Usage`] if the options are wrong, or the plan would change under verdicts that are there.
pub fn folder(dir: &Path, args: &PlanArgs) -> anyhow::Result<Folder> {
    let folder = Folder::open(dir)?;
    let mut config = folder.config.clone();
    let exploring = args.explore.exploring()?;
    for cell in &mut config.cells {
        cell.exploring = exploring.clone().unwrap_or_else(|| cell.exploring.clone());
        cell.states = args.states.unwrap_or(cell.states);
    }
    config.check().map_err(|error| Usage(error.to_string()))?;
    match &args.into {
        Some(into) => copy(&folder, into, &config),
        None if config == folder.config => Ok(folder),
        None => change(folder, &config),
    }
}

/// The recordings of a run in a new folder.
fn copy(from: &Folder, to: &Path, config: &Config) -> anyhow::Result<Folder> {
    let folder = Folder::begin(to, config, false)?;
    for cell in Cell::all(config) {
        let (old, new) = (from.cell(&cell.name)?, folder.cell(&cell.name)?);
        if !old.recording().is_file() {
            continue;
        }
        fs::copy(old.about(), new.about()).with_context(|| format!("can't copy {}", old.about().display()))?;
        // Whole or not there, as record leaves it.
        fs::copy(old.recording(), new.recording_part())
            .and_then(|_| fs::rename(new.recording_part(), new.recording()))
            .with_context(|| format!("can't copy {}", old.recording().display()))?;
    }
    Ok(folder)
}

/// Another plan in the same folder: only if nobody has a verdict by the old one, which a table would mix with the new.
fn change(folder: Folder, config: &Config) -> anyhow::Result<Folder> {
    let path = folder.path().to_owned();
    if folder.ledger_path().exists() {
        let contents = powerfail_ledger::read(&folder.ledger_path()).map_err(|error| Usage(error.to_string()))?;
        if contents.lines.iter().any(|line| matches!(line, Line::State(_))) {
            let text =
                format!("{} has verdicts of another plan; say --into NEW to plan in a new folder", path.display());
            return Err(Usage(text).into());
        }
        // It only says what was recorded and planned, and will again.
        fs::remove_file(folder.ledger_path())?;
    }
    let text = serde_json::to_vec_pretty(config).expect("a configuration is JSON");
    write_whole(&path.join("run.json"), &text)?;
    // The lock was on the file that was just replaced.
    drop(folder);
    Folder::open(&path)
}
