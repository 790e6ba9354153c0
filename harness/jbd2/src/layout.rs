//! What a block of the file system is at home, by the superblock and the group descriptors.
//!
//! Block N + 1 of the superblock's block and following hold the group descriptors; each names the block bitmap, the inode
//! bitmap and the first block of the inode table of its group, which with `flex_bg` may lie in another group
//! (`struct ext4_group_desc` of `fs/ext4/ext4.h`). What none of them names holds directories, files or nothing;
//! [`Names`](crate::Names) tells more.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use crate::blocks::{Blocks, block};
use crate::bytes::{le32, wide};
use crate::error::Error;
use crate::inode::Inode;
use crate::journal::{Journal, Medium};
use crate::super_block::SuperBlock;
use crate::units::{Group, HomeBlock, Ino, LogBlock};

/// What a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "role")]
pub enum HomeRole {
    /// The superblock, or its copy at the beginning of a group.
    Superblock {
        /// The group; 0: the superblock itself.
        group: Group,
    },
    /// Group descriptors, or their copy.
    GroupDescriptors {
        /// The group that they lie in; 0: those that count.
        group: Group,
    },
    /// The bitmap of a group's blocks.
    BlockBitmap {
        /// The group.
        group: Group,
    },
    /// The bitmap of a group's inodes.
    InodeBitmap {
        /// The group.
        group: Group,
    },
    /// Part of a group's inode table.
    InodeTable {
        /// The group.
        group: Group,
        /// The first inode in the block.
        first: Ino,
        /// The last inode in the block.
        last: Ino,
    },
    /// A block of the journal.
    Journal {
        /// Which.
        log: LogBlock,
    },
    /// A directory, a file, their extents or maps, or nothing.
    Contents,
    /// Behind the end of the file system.
    Outside,
}

impl fmt::Display for HomeRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HomeRole::Superblock { group: Group(0) } => write!(f, "superblock"),
            HomeRole::Superblock { group } => write!(f, "copy of the superblock in group {group}"),
            HomeRole::GroupDescriptors { group: Group(0) } => write!(f, "group descriptors"),
            HomeRole::GroupDescriptors { group } => write!(f, "copy of the group descriptors in group {group}"),
            HomeRole::BlockBitmap { group } => write!(f, "block bitmap of group {group}"),
            HomeRole::InodeBitmap { group } => write!(f, "inode bitmap of group {group}"),
            HomeRole::InodeTable { group, first, last } => {
                write!(f, "inode table of group {group} (inodes {first} to {last})")
            }
            HomeRole::Journal { log } => write!(f, "journal, log block {log}"),
            HomeRole::Contents => write!(f, "contents of a directory or file"),
            HomeRole::Outside => write!(f, "outside of the file system"),
        }
    }
}

/// Where the metadata of a file system is.
#[derive(Clone, Debug)]
pub struct Layout {
    /// The superblock.
    pub superblock: SuperBlock,
    /// Where bitmaps are, and superblocks and group descriptors with their copies.
    fixed: BTreeMap<HomeBlock, HomeRole>,
    /// The first block of each inode table, with its group.
    tables: BTreeMap<HomeBlock, Group>,
    table_blocks: u64,
    /// The same in the order of groups.
    table_of: Vec<HomeBlock>,
    journal: Option<Journal>,
}

impl Layout {
    /// Reads the group descriptors, and where the journal is.
    ///
    /// # Errors
    /// [`Error::NotExt`]. A journal that can't be found is none here.
    pub fn read(blocks: &dyn Blocks) -> Result<Layout, Error> {
        let sb = SuperBlock::read(blocks)?;
        if sb.is_journal_device() {
            return Err(Error::NotExt("this is a journal device".into()));
        }
        let per_block = u64::from(sb.descriptors_per_block());
        let groups = sb.group_count();
        let journal = Journal::open(blocks).ok().filter(|journal| journal.medium == Medium::Inode);
        let mut layout = Layout {
            fixed: BTreeMap::new(),
            tables: BTreeMap::new(),
            table_blocks: (u64::from(sb.inodes_per_group) * u64::from(sb.inode_size))
                .div_ceil(u64::from(sb.block_size)),
            table_of: Vec::new(),
            journal,
            superblock: sb,
        };
        let sb = layout.superblock.clone();
        for index in 0..groups.div_ceil(per_block) {
            let place = sb.descriptor_block(index);
            let Some(bytes) = block(blocks, sb.block_size, place) else {
                return Err(Error::NotExt(format!("its group descriptors, block {place}, are outside of the image")));
            };
            layout.fixed.insert(place, HomeRole::GroupDescriptors { group: Group(0) });
            let descriptors = bytes.chunks_exact(usize::from(sb.descriptor_size));
            for (nth, descriptor) in descriptors.take((groups - index * per_block).min(per_block) as usize).enumerate()
            {
                layout.add(Group((index * per_block) as u32 + nth as u32), descriptor);
            }
        }
        layout.add_copies(groups);
        Ok(layout)
    }

    fn add(&mut self, group: Group, descriptor: &[u8]) {
        let place = |low: usize, high: usize| match descriptor.len() >= 64 {
            true => HomeBlock(wide(le32(descriptor, low), le32(descriptor, high))),
            false => HomeBlock(u64::from(le32(descriptor, low))),
        };
        self.fixed.insert(place(0, 0x20), HomeRole::BlockBitmap { group });
        self.fixed.insert(place(4, 0x24), HomeRole::InodeBitmap { group });
        self.tables.insert(place(8, 0x28), group);
        self.table_of.push(place(8, 0x28));
    }

    fn add_copies(&mut self, groups: u64) {
        let sb = &self.superblock;
        for group in (0..groups as u32).map(Group).filter(|group| sb.has_super(*group)) {
            let first = sb.first_of(group);
            // With blocks of 1 KiB the superblock is the whole of block 1; with larger ones it is in block 0.
            self.fixed.insert(first, HomeRole::Superblock { group });
            for nth in 0..sb.plain_descriptor_blocks() {
                let role = HomeRole::GroupDescriptors { group };
                self.fixed.entry(HomeBlock(first.0 + 1 + nth)).or_insert(role);
            }
        }
        // With `meta_bg` the second and the last of the groups that a block is about have a copy of it.
        let per_block = u64::from(sb.descriptors_per_block());
        for index in sb.plain_descriptor_blocks()..groups.div_ceil(per_block) {
            for group in
                [1, per_block - 1].map(|nth| index * per_block + nth).into_iter().filter(|group| *group < groups)
            {
                let group = Group(group as u32);
                let place = HomeBlock(sb.first_of(group).0 + u64::from(sb.has_super(group)));
                self.fixed.entry(place).or_insert(HomeRole::GroupDescriptors { group });
            }
        }
    }

    /// What a block is.
    pub fn role(&self, home: HomeBlock) -> HomeRole {
        let sb = &self.superblock;
        if home.0 >= sb.blocks {
            return HomeRole::Outside;
        }
        if let Some(role) = self.fixed.get(&home) {
            return *role;
        }
        if let Some(log) = self.journal.as_ref().and_then(|journal| journal.log_block(home)) {
            return HomeRole::Journal { log };
        }
        if let Some((first, group)) = self.tables.range(..=home).next_back()
            && home.0 - first.0 < self.table_blocks
        {
            let per_block = sb.block_size / u32::from(sb.inode_size);
            let before = (home.0 - first.0) as u32 * per_block;
            let last = (before + per_block).min(sb.inodes_per_group);
            let base = u64::from(group.0) * u64::from(sb.inodes_per_group);
            let ino = |number: u32| Ino(u32::try_from(base + u64::from(number)).unwrap_or(u32::MAX));
            return HomeRole::InodeTable { group: *group, first: ino(before + 1), last: ino(last) };
        }
        HomeRole::Contents
    }

    /// The journal, if the file system has one that can be found.
    pub fn journal(&self) -> Option<&Journal> {
        self.journal.as_ref()
    }

    /// The first block of the inode table that holds an inode.
    pub fn inode_table_of(&self, ino: Ino) -> Option<HomeBlock> {
        let group = ino.0.checked_sub(1)? / self.superblock.inodes_per_group;
        self.table_of.get(group as usize).copied()
    }

    /// Reads an inode.
    pub fn inode(&self, blocks: &dyn Blocks, ino: Ino) -> Option<Inode> {
        Inode::read(blocks, &self.superblock, self.inode_table_of(ino)?, ino)
    }
}

/// Where the inode table of an inode's group begins, by that group's descriptor alone.
pub(crate) fn inode_table(blocks: &dyn Blocks, sb: &SuperBlock, ino: Ino) -> Option<HomeBlock> {
    let group = u64::from(ino.0.checked_sub(1)? / sb.inodes_per_group);
    if group >= sb.group_count() {
        return None;
    }
    let per_block = u64::from(sb.descriptors_per_block());
    let bytes = block(blocks, sb.block_size, sb.descriptor_block(group / per_block))?;
    let size = usize::from(sb.descriptor_size);
    let descriptor = &bytes[(group % per_block) as usize * size..][..size];
    let high = if size >= 64 { le32(descriptor, 0x28) } else { 0 };
    Some(HomeBlock(wide(le32(descriptor, 8), high)))
}
