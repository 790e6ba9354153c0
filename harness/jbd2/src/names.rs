//! To which directory or file a block belongs, by a walk from the root.
//!
//! A directory's blocks are read one after the other as lists of entries. That is right for hashed directories too: their
//! leaves are such lists, the root block begins with `.` and `..`, and inner nodes look like one empty entry. Nothing that is
//! read is trusted: a directory is entered once, an entry that can't be ends its block, and the caller says how many
//! inodes are looked at; blocks of directories and of trees are read in proportion.

use std::collections::{BTreeMap, HashSet};
use std::fmt;

use serde::Serialize;

use crate::blocks::{Blocks, block};
use crate::bytes::{le16, le32};
use crate::inode::{Inode, Run, Runs};
use crate::layout::Layout;
use crate::super_block::SuperBlock;
use crate::units::{Bytes, HomeBlock, Ino};

const ROOT: Ino = Ino(2);
/// Directories that lie deeper than that have no full path here.
const DEEPEST: usize = 256;

/// To whom a block belongs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Owner {
    /// The inode.
    pub ino: Ino,
    /// One of its paths; the walk found this one first.
    pub path: String,
    /// It is a directory.
    pub directory: bool,
    /// Where in it the block begins; none: the block is one of its extents or of its map.
    pub offset: Option<Bytes>,
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.directory { "directory" } else { "file" };
        match self.offset {
            Some(Bytes(0)) if self.directory => write!(f, "directory {}", self.path),
            Some(offset) => write!(f, "{what} {} at offset {offset}", self.path),
            None => write!(f, "block map of {what} {}", self.path),
        }
    }
}

/// Who owns which block.
#[derive(Clone, Debug, Default)]
pub struct Names {
    /// The inodes that were found, with the entry that led to them.
    found: Vec<Entry>,
    /// Runs of contents by their first block: their length, place in the file in blocks, and index in `found`.
    data: BTreeMap<HomeBlock, (u64, u64, usize)>,
    nodes: BTreeMap<HomeBlock, usize>,
    by_ino: BTreeMap<Ino, usize>,
    block_size: u64,
    /// The walk came to its end: nothing was left out because of the limit.
    pub complete: bool,
}

#[derive(Clone, Debug)]
struct Entry {
    ino: Ino,
    /// Index of the directory in `found`; the root's is its own.
    parent: usize,
    name: String,
    directory: bool,
}

impl Names {
    /// Walks the tree of an image, and stops after `most` inodes.
    pub fn walk(blocks: &dyn Blocks, layout: &Layout, most: usize) -> Names {
        let sb = &layout.superblock;
        let mut names = Names { block_size: u64::from(sb.block_size), complete: true, ..Names::default() };
        let mut seen = HashSet::from([ROOT]);
        names.found.push(Entry { ino: ROOT, parent: 0, name: String::new(), directory: true });
        let (mut nodes, mut lists) = (most.saturating_mul(4).saturating_add(1024), most.saturating_add(1024));
        let mut next = 0;
        while next < names.found.len() {
            let here = next;
            next += 1;
            let Some(inode) = layout.inode(blocks, names.found[here].ino).filter(Inode::has_blocks) else { continue };
            names.found[here].directory = inode.is_directory();
            let runs = inode.runs_within(blocks, sb, &mut nodes).unwrap_or_default();
            if inode.is_directory() {
                for (name, ino) in entries(blocks, sb, &runs, &mut lists) {
                    if names.found.len() >= most {
                        names.complete = false;
                        break;
                    }
                    if seen.insert(ino) {
                        names.found.push(Entry { ino, parent: here, name, directory: false });
                    }
                }
            }
            names.add(here, runs);
        }
        names.complete &= nodes > 0 && lists > 0;
        names.by_ino = names.found.iter().enumerate().map(|(index, entry)| (entry.ino, index)).collect();
        names
    }

    fn add(&mut self, index: usize, runs: Runs) {
        for Run { logical, first, blocks } in runs.data {
            self.data.entry(first).or_insert((blocks, logical, index));
        }
        for node in runs.nodes {
            self.nodes.entry(node).or_insert(index);
        }
    }

    /// Who owns a block.
    pub fn owner(&self, home: HomeBlock) -> Option<Owner> {
        if let Some(index) = self.nodes.get(&home) {
            return Some(self.describe(*index, None));
        }
        let (first, (blocks, logical, index)) = self.data.range(..=home).next_back()?;
        let within = home.0 - first.0;
        let offset = (logical + within).saturating_mul(self.block_size);
        (within < *blocks).then(|| self.describe(*index, Some(Bytes(offset))))
    }

    /// The path of an inode.
    pub fn path(&self, ino: Ino) -> Option<String> {
        self.by_ino.get(&ino).map(|index| self.path_of(*index))
    }

    fn describe(&self, index: usize, offset: Option<Bytes>) -> Owner {
        let Entry { ino, directory, .. } = self.found[index];
        Owner { ino, path: self.path_of(index), directory, offset }
    }

    fn path_of(&self, mut index: usize) -> String {
        let mut parts = Vec::new();
        while index != 0 && parts.len() < DEEPEST {
            parts.push(self.found[index].name.as_str());
            index = self.found[index].parent;
        }
        parts.reverse();
        format!("{}{}", if index == 0 { "/" } else { "…/" }, parts.join("/"))
    }
}

/// The entries of a directory, without `.` and `..`, from at most `budget` blocks; what was read is taken off it.
fn entries(blocks: &dyn Blocks, sb: &SuperBlock, runs: &Runs, budget: &mut usize) -> Vec<(String, Ino)> {
    let mut entries = Vec::new();
    let numbers = runs.data.iter().flat_map(|run| run.first.0..run.first.0 + run.blocks);
    for number in numbers {
        let Some(left) = budget.checked_sub(1) else { break };
        *budget = left;
        let Some(block) = block(blocks, sb.block_size, HomeBlock(number)) else { break };
        let mut at = 0;
        while at + 8 <= block.len() {
            let (ino, length, name) = (Ino(le32(&block, at)), le16(&block, at + 4), usize::from(block[at + 6]));
            // Lengths are multiples of four; in blocks of 64 KiB the whole block does not fit and is written as 65535.
            let length = if length == u16::MAX || length == 0 { block.len() } else { usize::from(length) };
            if length < 12 || !length.is_multiple_of(4) || at + length > block.len() || 8 + name > length {
                break;
            }
            let name = String::from_utf8_lossy(&block[at + 8..at + 8 + name]);
            if (1..=sb.inodes).contains(&ino.0) && !name.is_empty() && name != "." && name != ".." {
                entries.push((name.into_owned(), ino));
            }
            at += length;
        }
    }
    entries
}
