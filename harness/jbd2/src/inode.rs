//! Inodes and the blocks they lead to: extent trees (ext4) and block maps (ext2, ext3).
//!
//! An extent node begins with the magic 0xF30A, its number of entries and its depth; entries of 12 bytes follow
//! (`struct ext4_extent_header` of `fs/ext4/ext4_extents.h`). A block map has twelve blocks, then one each of single, double
//! and triple indirection.

use serde::Serialize;

use crate::blocks::{Blocks, block};
use crate::bytes::{le16, le32, wide};
use crate::super_block::SuperBlock;
use crate::units::{Bytes, HomeBlock, Ino};

const EXTENTS_FLAG: u32 = 0x8_0000;
const INLINE_DATA_FLAG: u32 = 0x1000_0000;
const EXTENT_MAGIC: u16 = 0xF30A;
const DEEPEST_EXTENTS: u16 = 5;
const DIRECT: u64 = 12;
/// Blocks of an inode's own tree that are read before it is taken for garbage: enough for a million extents.
const MOST_NODES: usize = 1 << 14;
/// Runs that are gathered before an inode is taken for garbage.
const MOST_RUNS: usize = 1 << 20;

/// An inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inode {
    /// Its mode: type and permissions.
    pub mode: u16,
    /// Links to it.
    pub links: u16,
    /// Its size.
    pub size: Bytes,
    /// Its flags.
    pub flags: u32,
    map: [u8; 60],
}

/// Neighbouring blocks of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Run {
    /// The first one's place in the file, in blocks.
    pub logical: u64,
    /// The first one's place on the device.
    pub first: HomeBlock,
    /// How many.
    pub blocks: u64,
}

/// Where an inode's contents are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Runs {
    /// The contents, in order of their place in the file.
    pub data: Vec<Run>,
    /// Blocks of the tree or map itself.
    pub nodes: Vec<HomeBlock>,
}

impl Inode {
    /// Decodes the first 128 bytes of an inode.
    pub(crate) fn decode(bytes: &[u8]) -> Inode {
        Inode {
            mode: le16(bytes, 0),
            links: le16(bytes, 0x1A),
            size: Bytes(wide(le32(bytes, 0x4), le32(bytes, 0x6C))),
            flags: le32(bytes, 0x20),
            map: bytes[0x28..0x64].try_into().expect("60 bytes"),
        }
    }

    /// Reads an inode; the table of its group begins at `table`.
    pub(crate) fn read(blocks: &dyn Blocks, sb: &SuperBlock, table: HomeBlock, ino: Ino) -> Option<Inode> {
        let index = u64::from((ino.0.checked_sub(1)?) % sb.inodes_per_group);
        let at = table.0.checked_mul(u64::from(sb.block_size))?.checked_add(index * u64::from(sb.inode_size))?;
        let mut bytes = [0; 128];
        blocks.read(Bytes(at), &mut bytes).then(|| Inode::decode(&bytes))
    }

    /// Whether it is a directory.
    pub fn is_directory(&self) -> bool {
        self.mode & 0xF000 == 0x4000
    }

    /// Whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.mode & 0xF000 == 0x8000
    }

    /// Whether its contents are in blocks at all: not in the inode itself, and no device, socket or short symbolic link.
    pub fn has_blocks(&self) -> bool {
        let short_link = self.mode & 0xF000 == 0xA000 && self.size.0 < 60;
        let kind = matches!(self.mode & 0xF000, 0x4000 | 0x8000 | 0xA000);
        kind && !short_link && self.flags & INLINE_DATA_FLAG == 0
    }

    /// Where its contents are.
    ///
    /// # Errors
    /// In words, if its tree is garbage.
    pub fn runs(&self, blocks: &dyn Blocks, sb: &SuperBlock) -> Result<Runs, String> {
        self.runs_within(blocks, sb, &mut { MOST_NODES })
    }

    /// The same, reading at most `budget` blocks of trees; what was read is taken off it.
    pub(crate) fn runs_within(&self, blocks: &dyn Blocks, sb: &SuperBlock, budget: &mut usize) -> Result<Runs, String> {
        let mut tree = Tree { blocks, sb, runs: Runs::default(), end: 0, budget };
        if self.flags & EXTENTS_FLAG != 0 {
            tree.extents(&self.map, DEEPEST_EXTENTS + 1)?;
        } else {
            tree.map(&self.map)?;
        }
        Ok(tree.runs)
    }
}

struct Tree<'a> {
    blocks: &'a dyn Blocks,
    sb: &'a SuperBlock,
    runs: Runs,
    /// The block of the file behind the last one that was found.
    end: u64,
    budget: &'a mut usize,
}

impl Tree<'_> {
    fn extents(&mut self, node: &[u8], above: u16) -> Result<(), String> {
        let (entries, depth) = (usize::from(le16(node, 2)), le16(node, 6));
        if le16(node, 0) != EXTENT_MAGIC || depth >= above || (entries + 1) * 12 > node.len() {
            return Err("a node of its extent tree is garbage".into());
        }
        for entry in node[12..].chunks_exact(12).take(entries) {
            if depth > 0 {
                let child = HomeBlock(wide(le32(entry, 4), u32::from(le16(entry, 8))));
                let bytes = self.node(child)?;
                self.extents(&bytes, depth)?;
                continue;
            }
            let logical = u64::from(le32(entry, 0));
            // More than 2^15 means that it is allocated and not written yet.
            let length = u64::from(le16(entry, 4));
            let length = if length > 1 << 15 { length - (1 << 15) } else { length };
            let first = wide(le32(entry, 8), u32::from(le16(entry, 6)));
            self.found(logical, first, length)?;
        }
        Ok(())
    }

    fn map(&mut self, map: &[u8]) -> Result<(), String> {
        for index in 0..DIRECT {
            self.direct(index, le32(map, index as usize * 4))?;
        }
        let mut logical = DIRECT;
        for level in 1..=3 {
            self.indirect(le32(map, (DIRECT as usize + level - 1) * 4), level, logical)?;
            logical += self.reach(level);
        }
        Ok(())
    }

    fn indirect(&mut self, pointer: u32, level: usize, logical: u64) -> Result<(), String> {
        if pointer == 0 {
            return Ok(());
        }
        let bytes = self.node(HomeBlock(u64::from(pointer)))?;
        for (index, pointer) in bytes.chunks_exact(4).map(|four| le32(four, 0)).enumerate() {
            if level == 1 {
                self.direct(logical + index as u64, pointer)?;
            } else {
                self.indirect(pointer, level - 1, logical + index as u64 * self.reach(level - 1))?;
            }
        }
        Ok(())
    }

    /// Blocks of the file behind a pointer of that level.
    fn reach(&self, level: usize) -> u64 {
        u64::from(self.sb.block_size / 4).pow(level as u32)
    }

    fn direct(&mut self, logical: u64, pointer: u32) -> Result<(), String> {
        if pointer == 0 { Ok(()) } else { self.found(logical, u64::from(pointer), 1) }
    }

    fn found(&mut self, logical: u64, first: u64, blocks: u64) -> Result<(), String> {
        if blocks == 0 || logical < self.end || first.checked_add(blocks).is_none_or(|end| end > self.sb.blocks) {
            return Err("its blocks overlap or are outside of the device".into());
        }
        self.end = logical + blocks;
        if let Some(last) = self.runs.data.last_mut()
            && last.logical + last.blocks == logical
            && last.first.0 + last.blocks == first
        {
            last.blocks += blocks;
            return Ok(());
        }
        if self.runs.data.len() == MOST_RUNS {
            return Err("it has more pieces than can be real".into());
        }
        self.runs.data.push(Run { logical, first: HomeBlock(first), blocks });
        Ok(())
    }

    fn node(&mut self, number: HomeBlock) -> Result<Vec<u8>, String> {
        let Some(left) = self.budget.checked_sub(1) else {
            return Err("its tree of blocks is larger than can be real".into());
        };
        *self.budget = left;
        let bytes = block(self.blocks, self.sb.block_size, number);
        self.runs.nodes.push(number);
        bytes.ok_or_else(|| format!("its tree of blocks leads to block {number}, which is outside of the image"))
    }
}
