//! The fast-commit area at a journal's end: recognised and counted, not replayed.
//!
//! It holds tags: type and length, 16 bits each and little-endian, then the value (`fs/ext4/fast_commit.h`). The first is a
//! head with the number of the transaction that it would follow; a kernel replays the tags if that is the transaction
//! behind the last full commit.

use serde::Serialize;

use crate::blocks::Blocks;
use crate::bytes::{le16, le32};
use crate::journal::Journal;
use crate::units::{LogBlock, Tid};

const NAMES: [&str; 9] = ["add-range", "del-range", "create", "link", "unlink", "inode", "pad", "tail", "head"];
const HEAD: u16 = 9;
const TAIL: u16 = 8;

/// Fast commits that follow the last full one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FastCommit {
    /// The transaction that they belong to.
    pub transaction: Tid,
    /// Tails in the area, so commits.
    pub commits: usize,
    /// Blocks of the area that hold tags of them.
    pub blocks: u32,
}

impl FastCommit {
    /// The fast commits that a kernel would replay behind the transactions before `end`.
    pub(crate) fn find(blocks: &dyn Blocks, journal: &Journal, end: Tid) -> Option<FastCommit> {
        let mut found = FastCommit { transaction: end, commits: 0, blocks: 0 };
        for log in area(journal) {
            let block = journal.read(blocks, log)?;
            let tags = tags(&block);
            let head = tags.first().filter(|(kind, at)| *kind == HEAD && at + 12 <= block.len());
            if found.blocks == 0 && head.is_none_or(|(_, at)| le32(&block, at + 8) != end.0) {
                return None;
            }
            if tags.is_empty() {
                break;
            }
            found.blocks += 1;
            found.commits += tags.iter().filter(|(kind, _)| *kind == TAIL).count();
        }
        (found.blocks > 0).then_some(found)
    }
}

/// The blocks of the area that a kernel writes: it leaves out the first one.
pub(crate) fn area(journal: &Journal) -> impl Iterator<Item = LogBlock> + use<> {
    let sb = &journal.superblock;
    let (last, length) = (sb.last().0, sb.length);
    (last.saturating_add(1)..length).map(LogBlock)
}

/// The names of the tags in a block of the area, up to the first that is none.
pub(crate) fn names(block: &[u8]) -> Vec<&'static str> {
    tags(block).into_iter().map(|(kind, _)| NAMES[usize::from(kind) - 1]).collect()
}

/// Types and places of the tags in a block.
fn tags(block: &[u8]) -> Vec<(u16, usize)> {
    let mut tags = Vec::new();
    let mut at = 0;
    while at + 4 <= block.len() {
        let (kind, length) = (le16(block, at), usize::from(le16(block, at + 2)));
        if kind == 0 || usize::from(kind) > NAMES.len() || at + 4 + length > block.len() {
            break;
        }
        tags.push((kind, at));
        at += 4 + length;
    }
    tags
}
