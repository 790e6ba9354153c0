//! Finding a journal, and reading its blocks.

use serde::Serialize;

use crate::blocks::{Blocks, block};
use crate::error::Error;
use crate::inode::{Inode, Run};
use crate::journal_super::JournalSuper;
use crate::layout;
use crate::super_block::SuperBlock;
use crate::units::{HomeBlock, LogBlock};

/// What a journal lies on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Medium {
    /// An inode of the file system that it is for.
    Inode,
    /// A device of its own, which is this image.
    Device,
}

/// A journal, found and readable; its log may be anything.
#[derive(Clone, Debug)]
pub struct Journal {
    /// The superblock of what holds it.
    pub file_system: SuperBlock,
    /// Its own superblock.
    pub superblock: JournalSuper,
    /// What it lies on.
    pub medium: Medium,
    /// The block of the journal that holds its superblock: 0, but on a device of its own.
    pub superblock_at: LogBlock,
    /// Where its blocks are.
    runs: Vec<Run>,
}

impl Journal {
    /// Finds the journal in an image: of a file system by the inode in its superblock, or on a journal device.
    ///
    /// # Errors
    /// [`Error`].
    pub fn open(blocks: &dyn Blocks) -> Result<Journal, Error> {
        let file_system = SuperBlock::read(blocks)?;
        let (medium, superblock_at, runs, available) = match file_system.is_journal_device() {
            true => device(&file_system),
            false => inode(blocks, &file_system)?,
        };
        let first = place(&runs, superblock_at).ok_or_else(|| Error::Unreachable("it has no first block".into()))?;
        let bytes = block(blocks, file_system.block_size, first)
            .ok_or_else(|| Error::Unreachable(format!("its superblock, block {first}, is outside of the image")))?;
        let superblock = JournalSuper::decode(&bytes, file_system.block_size, available)?;
        Ok(Journal { file_system, superblock, medium, superblock_at, runs })
    }

    /// Where a block of the journal is on the device.
    pub fn place(&self, log: LogBlock) -> Option<HomeBlock> {
        if log.0 >= self.superblock.length { None } else { place(&self.runs, log) }
    }

    /// Which block of the journal a block of the device is.
    pub fn log_block(&self, home: HomeBlock) -> Option<LogBlock> {
        let run = self.runs.iter().find(|run| (run.first.0..run.first.0 + run.blocks).contains(&home.0))?;
        let log = u32::try_from(run.logical + (home.0 - run.first.0)).ok()?;
        (log < self.superblock.length).then_some(LogBlock(log))
    }

    /// The bytes of a block of the journal, as they stand there (escaped).
    pub fn read(&self, blocks: &dyn Blocks, log: LogBlock) -> Option<Vec<u8>> {
        block(blocks, self.superblock.block_size, self.place(log)?)
    }

    /// The block that follows `count` further on; the log is a ring.
    pub(crate) fn further(&self, log: LogBlock, count: usize) -> LogBlock {
        let (first, last) = (self.superblock.first.0, self.superblock.last().0);
        let at = u64::from(log.0) + count as u64;
        let at = if at >= u64::from(last) { at - u64::from(last - first) } else { at };
        LogBlock(u32::try_from(at).unwrap_or(u32::MAX))
    }
}

/// A journal, as it was found: medium, block of its superblock, places, length.
type Found = (Medium, LogBlock, Vec<Run>, u64);

/// A journal device holds an ext4 superblock, the journal's, and the log up to its end. Its log blocks are numbered from the
/// beginning of the device.
fn device(sb: &SuperBlock) -> Found {
    let superblock = LogBlock(if sb.block_size == 1024 { 2 } else { 1 });
    (Medium::Device, superblock, vec![Run { logical: 0, first: HomeBlock(0), blocks: sb.blocks }], sb.blocks)
}

fn inode(blocks: &dyn Blocks, sb: &SuperBlock) -> Result<Found, Error> {
    if !sb.has_journal() {
        return Err(Error::NoJournal);
    }
    let ino = sb.journal_inode;
    if ino.0 == 0 {
        return Err(if sb.journal_uuid == [0; 16] { Error::NoJournal } else { Error::External });
    }
    let unreachable = |why: &str| Error::Unreachable(why.into());
    let table = layout::inode_table(blocks, sb, ino).ok_or_else(|| unreachable("its inode does not exist"))?;
    let inode = Inode::read(blocks, sb, table, ino).ok_or_else(|| unreachable("its inode is outside of the image"))?;
    if !inode.is_file() || inode.links == 0 {
        return Err(unreachable(&format!("inode {ino} is no regular file")));
    }
    let runs = inode.runs(blocks, sb).map_err(|why| Error::Unreachable(format!("of inode {ino}, {why}")))?;
    Ok((Medium::Inode, LogBlock(0), runs.data, inode.size.0 / u64::from(sb.block_size)))
}

fn place(runs: &[Run], log: LogBlock) -> Option<HomeBlock> {
    let log = u64::from(log.0);
    let index = runs.partition_point(|run| run.logical + run.blocks <= log);
    let run = runs.get(index)?;
    (run.logical <= log).then(|| HomeBlock(run.first.0 + (log - run.logical)))
}
