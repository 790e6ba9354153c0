//! The second phase: the plan of a recording, as a file of JSON lines.
//!
//! A plan is sealed ([`crate::sealed`]). Verification takes the image's digest and the explorer
//! from here, so a line that was altered by hand would put something in the ledger that nobody has judged.

use powerfail_drive::explore::{Asked, DEFAULT, Outline, PlanError, Planned, Share, Span, Walk, plan};
use powerfail_drive::units::AtomicUnit;
use powerfail_seed::Seed;
use serde::{Deserialize, Serialize};

use crate::cell::Cell;
use crate::exploring::Subject;
use crate::folder::{CellFolder, Usage};
use crate::record::About;
use crate::recording_file::Mapped;
use crate::sealed;

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
    /// On a drive that tears below 4 KiB: states that hold one of the superblock's two sectors from a write that lost
    /// the other.
    pub torn_superblocks: Option<u64>,
    /// The explorers that were asked for. Plans of an earlier version name none; theirs are the default ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub explorers: Vec<String>,
    /// Who made how many.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shares: Vec<Shared>,
    /// Digest of the recipes that `replay` was given, hexadecimal; empty if there were none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub recipes: String,
    /// BLAKE3, hexadecimal, of this line with an empty seal and of all lines that follow.
    pub seal: String,
}

/// What one explorer had of the budget.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shared {
    /// Its name; `edges`, where `journal-aware` was asked for and no journal could be read.
    pub explorer: String,
    /// Its even share of the states.
    pub share: u64,
    /// States that it made.
    pub made: u64,
    /// It had no more.
    pub exhausted: bool,
}

impl From<Share> for Shared {
    fn from(Share { explorer, share, made, exhausted, .. }: Share) -> Shared {
        Shared { explorer: explorer.into(), share, made, exhausted }
    }
}

impl sealed::Head for Head {
    fn seal(&mut self) -> &mut String {
        &mut self.seal
    }
}

impl Head {
    /// Whether it is the plan that a cell asks for.
    fn is_of(&self, cell: &Cell) -> bool {
        let explorers: Vec<&str> = match &self.explorers[..] {
            [] => DEFAULT.to_vec(),
            explorers => explorers.iter().map(String::as_str).collect(),
        };
        let exploring = &cell.exploring;
        self.asked == cell.states && explorers == exploring.names() && self.recipes == exploring.recipes_digest()
    }

    /// Who made how many, in words.
    pub fn shares_text(&self) -> String {
        let share = |one: &Shared| {
            let of = if one.made == one.share { String::new() } else { format!(" (its share is {})", one.share) };
            let exhausted = if one.exhausted { ", and has no more" } else { "" };
            format!("{} made {}{of}{exhausted}", one.explorer, one.made)
        };
        self.shares.iter().map(share).collect::<Vec<_>>().join("; ")
    }
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
pub fn plan_cell(cell: &Cell, folder: &CellFolder, recording: &Mapped, about: &About) -> anyhow::Result<PlanFile> {
    let digest = recording.digest().to_owned();
    if folder.plan().exists() {
        let plan = read(folder)?;
        if plan.head.recording == digest && plan.head.is_of(cell) {
            return Ok(plan);
        }
    }
    let seed = Seed(cell.seed.0).at("plan", &[]);
    let usage = |error: PlanError| Usage(format!("{}: {error}", recording.path().display()));
    let outline = Outline::of(recording.bytes(), cell.drive).map_err(usage)?;
    let (bytes, name) = (recording.bytes(), &digest[..16]);
    let subject = Subject { recording: bytes, name, outline: &outline, drive: cell.drive, journal: &about.journal };
    let explorers = cell.exploring.explorers(&subject)?;
    let asked = Asked { recording: bytes, name, drive: cell.drive, seed, states: cell.states };
    let made = plan(&asked, &outline, &explorers).map_err(usage)?;
    let Span { first, last } = made.span;
    let mut head = Head {
        recording: digest,
        states: made.states.len() as u64,
        asked: cell.states,
        duplicates: made.duplicates(),
        cuts: (first, last),
        torn_superblocks: torn_superblocks(recording.bytes(), cell, &made.states)?,
        explorers: cell.exploring.names().into_iter().map(String::from).collect(),
        shares: made.shares.into_iter().map(Shared::from).collect(),
        recipes: cell.exploring.recipes_digest(),
        seal: String::new(),
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
    sealed::write(&folder.plan(), &mut head, &entries)?;
    Ok(PlanFile { head, entries })
}

/// Counts the states in which the superblock (bytes 1024 to 2047, so sectors 2 and 3) is torn.
fn torn_superblocks(recording: &[u8], cell: &Cell, states: &[Planned]) -> anyhow::Result<Option<u64>> {
    if cell.drive.unit != AtomicUnit::B512 || !cell.fs.superblock_in_two_sectors() {
        return Ok(None);
    }
    let mut walk = Walk::new(recording, cell.drive)?;
    let mut torn = 0;
    for state in states {
        walk.advance(state.recipe.cut)?;
        let loose = walk.history.loose();
        let kept_of = |write: u64, unit: u64| {
            let at = loose.iter().position(|fragment| fragment.write == write && fragment.unit == unit)?;
            Some(state.recipe.kept[at])
        };
        let tears = |write: u64| matches!((kept_of(write, 2), kept_of(write, 3)), (Some(a), Some(b)) if a != b);
        torn += u64::from(loose.iter().filter(|fragment| fragment.unit == 2).any(|fragment| tears(fragment.write)));
    }
    Ok(Some(torn))
}

/// Reads the plan of a cell.
///
/// # Errors
/// [`Usage`] if it is missing or damaged.
pub fn read(folder: &CellFolder) -> anyhow::Result<PlanFile> {
    let (head, entries) = sealed::read(&folder.plan(), "remove it and run `powerfail plan` again")?;
    Ok(PlanFile { head, entries })
}
