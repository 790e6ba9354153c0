//! The second phase: the plan of a recording, as a file of JSON lines.

use std::io::BufRead;

use anyhow::Context;
use powerfail_drive::explore::{Span, plan};
use powerfail_seed::Seed;
use serde::{Deserialize, Serialize};

use crate::cell::Cell;
use crate::folder::{CellFolder, Usage, write_whole};
use crate::recording_file::Mapped;

/// The first line of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// Digest of the recording, hexadecimal.
    pub recording: String,
    /// States in the plan.
    pub states: u64,
    /// States that were asked for.
    pub asked: u64,
    /// States that gave an image that was there already.
    pub duplicates: u64,
    /// First and last event at which a cut may lie.
    pub cuts: (u64, u64),
}

/// One state of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The recipe.
    pub state: String,
    /// Digest of the image.
    pub image: String,
    /// Who made it.
    pub explorer: String,
    /// Writes in flight at the cut.
    pub in_flight: u64,
}

/// A plan as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanFile {
    /// Its first line.
    pub head: Head,
    /// Its states, in the order of their cuts.
    pub entries: Vec<Entry>,
}

/// Plans a cell's recording and writes the plan down; a plan of the same recording and size that is there is taken.
///
/// # Errors
/// [`Usage`] if the recording is damaged or truncated.
pub fn plan_cell(cell: &Cell, folder: &CellFolder, recording: &Mapped, states: u64) -> anyhow::Result<PlanFile> {
    let digest = recording.digest();
    if folder.plan().exists() {
        let plan = read(folder)?;
        if plan.head.recording == digest && plan.head.asked == states {
            return Ok(plan);
        }
    }
    let seed = Seed(cell.seed.0).at("plan", &[]);
    let made = plan(recording.bytes(), &digest[..16], cell.drive, seed, states)
        .map_err(|error| Usage(format!("{}: {error}", recording.path().display())))?;
    let Span { first, last } = made.span;
    let head = Head {
        recording: digest,
        states: made.states.len() as u64,
        asked: states,
        duplicates: made.duplicates,
        cuts: (first, last),
    };
    let entries: Vec<Entry> = made
        .states
        .into_iter()
        .map(|state| Entry {
            state: state.recipe.to_string(),
            image: state.digest.to_string(),
            explorer: state.explorer.into(),
            in_flight: state.in_flight,
        })
        .collect();
    let mut text = serde_json::to_vec(&head)?;
    for entry in &entries {
        text.push(b'\n');
        serde_json::to_writer(&mut text, entry)?;
    }
    text.push(b'\n');
    write_whole(&folder.plan(), &text)?;
    Ok(PlanFile { head, entries })
}

/// Reads the plan of a cell.
///
/// # Errors
/// [`Usage`] if it is missing or damaged.
pub fn read(folder: &CellFolder) -> anyhow::Result<PlanFile> {
    let path = folder.plan();
    let usage = |why: String| Usage(format!("{}: {why}; run `powerfail plan` again", path.display()));
    let text = std::fs::read(&path).map_err(|error| usage(error.to_string()))?;
    let mut lines = text.lines();
    let head = lines.next().context("an empty plan").and_then(|line| Ok(serde_json::from_str::<Head>(&line?)?));
    let head = head.map_err(|error| usage(error.to_string()))?;
    let entries: Result<Vec<Entry>, _> = lines
        .map(|line| serde_json::from_str(&line.unwrap_or_default()).map_err(|error| usage(error.to_string())))
        .collect();
    let entries = entries?;
    if entries.len() as u64 != head.states {
        return Err(usage(format!("it has {} states and says {}", entries.len(), head.states)).into());
    }
    Ok(PlanFile { head, entries })
}
