//! `powerfail explain`: what was lost, by the role that it had, and how that led to what was found.
//!
//! Each lost fragment is named by what it was in the image in which *everything* that was received survives: a descriptor,
//! a commit, the log block for an inode table, a directory in place. Then the story, in sentences: which transaction was
//! committed, what was missing when it was replayed, what the kernel did, what that cost, which promise it broke. A sentence
//! says only what the two images, the kernel's log and the recording show.

mod ext;
mod foreign;
mod story;

use std::collections::BTreeMap;

use anyhow::bail;
use powerfail_drive::crash::Recipe;
use powerfail_drive::explore::Walk;
use powerfail_drive::history::Loose;
use powerfail_drive::versions::Order;
use powerfail_jbd2::Table;
use serde::Serialize;

use crate::cell::Cell;
use crate::folder::Usage;
use crate::image::Image;
use crate::record::About;
use crate::recording_file::Mapped;
use crate::shrink::lost_of;
use crate::verify::Judged;
use ext::Ext;

/// What a fragment was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Part {
    /// Where it lay.
    pub place: Place,
    /// Its role in a word or two: `commit block`, `log block (inode table)`, `directory`.
    pub role: String,
    /// Its role in full.
    pub text: String,
    /// The transaction that it belongs to, in the journal.
    pub transaction: Option<u32>,
    /// The block that it is, or in the log: the block that it held.
    pub block: Option<u64>,
    /// The event of the write's receipt.
    pub write: u64,
    /// First byte of it on the device, and how many.
    pub bytes: (u64, u64),
}

/// Where a fragment lay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// The journal's superblock.
    JournalSuperblock,
    /// A descriptor block.
    Descriptor,
    /// A block that was logged.
    LogData,
    /// A commit block.
    Commit,
    /// A revoke block.
    Revoke,
    /// The log, and more is not known.
    Log,
    /// In place.
    Home,
}

impl Part {
    fn of(place: Place, role: &str, text: String) -> Part {
        Part { place, role: role.into(), text, transaction: None, block: None, write: 0, bytes: (0, 0) }
    }
}

/// An explained state.
#[derive(Clone, Debug, Serialize)]
pub struct Explanation {
    /// The roles of what was lost, each once, joined.
    pub role: String,
    /// What was lost.
    pub lost: Vec<Part>,
    /// What was lost beyond those that are listed.
    pub more: u64,
    /// The story.
    pub story: Vec<String>,
    /// The journal after the cut, as text.
    #[serde(skip)]
    pub journal: Option<Table>,
}

/// Fragments that are named one by one.
const NAMED: usize = 200;

/// Explains a state that was judged.
///
/// # Errors
/// [`Usage`] if the recipe is none of the recording's.
pub fn explain(
    cell: &Cell,
    recording: &Mapped,
    about: &About,
    recipe: &Recipe,
    judged: &Judged,
) -> anyhow::Result<Explanation> {
    let lost = lost_of(recording, recipe)?;
    let mut walk = Walk::new(recording.bytes(), recipe.drive)?;
    walk.advance(recipe.cut)?;
    if walk.history.loose().len() != recipe.kept.len() {
        bail!(Usage("the recipe is of another recording or another drive".into()));
    }
    let size = cell.header.geometry.bytes();
    let mut whole = Image::new(size)?;
    whole.become_state(&walk.history, recording.bytes(), &vec![true; recipe.kept.len()], Order::Receipt)?;
    let mut after = Image::new(size)?;
    after.become_state(&walk.history, recording.bytes(), &recipe.kept, recipe.order)?;
    let namer = Namer::of(cell, about, whole.bytes());
    let mut parts = Vec::new();
    for loose in lost.iter().take(NAMED) {
        parts.extend(namer.name(loose, recipe.drive.unit.bytes()));
    }
    let journal = match &namer {
        Namer::Ext(ext) => ext.table_in(after.bytes()),
        Namer::Other { .. } => None,
    };
    let images = story::Images { after: after.bytes(), journal: journal.as_ref() };
    let story = story::tell(cell, recipe, lost.len(), &parts, &images, judged);
    let role = roles(&parts);
    Ok(Explanation { role, more: lost.len().saturating_sub(NAMED) as u64, lost: parts, story, journal })
}

/// Says what a fragment was.
enum Namer<'a> {
    Ext(Box<Ext>),
    Other { whole: &'a [u8], log: Vec<(u64, u64)>, btrfs: bool },
}

impl<'a> Namer<'a> {
    fn of(cell: &Cell, about: &About, whole: &'a [u8]) -> Namer<'a> {
        match cell.fs.driver() {
            "ext4" => match Ext::of(whole) {
                Some(ext) => Namer::Ext(Box::new(ext)),
                None => Namer::Other { whole, log: about.journal.clone(), btrfs: false },
            },
            driver => Namer::Other { whole, log: about.journal.clone(), btrfs: driver == "btrfs" },
        }
    }

    /// A fragment is one unit, which may hold several blocks of a file system; of neighbours that are alike one is named.
    fn name(&self, loose: &Loose, unit: u64) -> Vec<Part> {
        let at = loose.unit * unit;
        let placed = |part: Part, at, bytes| Part { write: loose.write, bytes: (at, bytes), ..part };
        match self {
            Namer::Ext(ext) => {
                let step = ext.block_size.min(unit);
                let mut parts: Vec<Part> =
                    (0..unit / step).map(|n| placed(ext.part(at + n * step), at + n * step, step)).collect();
                parts.dedup_by(|a, b| a.role == b.role && a.transaction == b.transaction && a.place == Place::Home);
                parts
            }
            Namer::Other { whole, log, btrfs } => {
                let page = at / 4096;
                if log.iter().any(|&(first, last)| (first..=last).contains(&page)) {
                    return vec![placed(Part::of(Place::Log, "log", "the log".into()), at, unit)];
                }
                let (from, end) = (at as usize, ((at + unit) as usize).min(whole.len()));
                let bytes = whole.get(from..end).unwrap_or_default();
                let part = if *btrfs { foreign::btrfs(bytes, at, whole) } else { foreign::xfs(bytes) };
                vec![placed(part, at, unit)]
            }
        }
    }
}

/// The most frequent roles first; a role says what the lost blocks that matter were.
fn roles(parts: &[Part]) -> String {
    const SHOWN: usize = 3;
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    parts.iter().for_each(|part| *counts.entry(&part.role).or_default() += 1);
    if counts.is_empty() {
        return "nothing".into();
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|(role, count)| (std::cmp::Reverse(*count), *role));
    let more = if counts.len() > SHOWN { " + …" } else { "" };
    format!("{}{more}", counts.iter().take(SHOWN).map(|(role, _)| *role).collect::<Vec<_>>().join(" + "))
}

impl Explanation {
    /// As Markdown.
    pub fn markdown(&self) -> String {
        let mut text = String::from("# What happened\n\n");
        for sentence in &self.story {
            text.push_str(sentence);
            text.push('\n');
        }
        text.push_str("\n## What was lost\n\n");
        if self.lost.is_empty() {
            text.push_str("Nothing: that the power failed there is enough.\n");
            return text;
        }
        text.push_str("| write | bytes of the device | what it was |\n| --- | --- | --- |\n");
        for part in &self.lost {
            let (at, count) = part.bytes;
            text.push_str(&format!(
                "| event {} | {at} to {} | {} |\n",
                part.write,
                at + count - 1,
                part.text.replace('|', "\\|")
            ));
        }
        if self.more > 0 {
            text.push_str(&format!(
                "\nand {} fragments more; `powerfail shrink` finds those that matter.\n",
                self.more
            ));
        }
        text
    }
}
