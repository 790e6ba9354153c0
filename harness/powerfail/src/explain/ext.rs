//! What a block of ext2, ext3 or ext4 is, from the image in which everything that was received survives: its journal as a
//! table, its layout, and the names that recovery would give.

use powerfail_jbd2::{Blocks, HomeBlock, HomeRole, Kind, Layout, Names, Overlay, Row, Table, replay};

use super::{Part, Place};

/// Inodes that are looked at for names.
const INODES: usize = 200_000;

/// A file system, ready to say what its blocks are.
pub(super) struct Ext {
    layout: Layout,
    names: Names,
    table: Option<Table>,
    pub(super) block_size: u64,
}

impl Ext {
    /// Reads an image; none if it holds no such file system.
    pub(super) fn of(whole: &[u8]) -> Option<Ext> {
        let layout = Layout::read(&whole).ok()?;
        let names = match replay(&whole) {
            Ok(replay) => {
                let overlay = Overlay::new(&whole, &replay);
                // The newest directory may be in the log only.
                Names::walk(&overlay, &Layout::read(&overlay).unwrap_or_else(|_| layout.clone()), INODES)
            }
            Err(_) => Names::walk(&whole, &layout, INODES),
        };
        let table = layout.journal().map(|journal| journal.table(&whole));
        let block_size = u64::from(layout.superblock.block_size);
        Some(Ext { layout, names, table, block_size })
    }

    /// The journal of this file system as it stands in another image of it.
    pub(super) fn table_in(&self, image: &[u8]) -> Option<Table> {
        self.layout.journal().map(|journal| journal.table(&image))
    }

    /// What the block at a byte of the device is.
    pub(super) fn part(&self, at: u64) -> Part {
        let home = HomeBlock(at / self.block_size);
        match self.layout.role(home) {
            HomeRole::Journal { log } => match self.table.as_ref().and_then(|table| table.at(log)) {
                Some(row) => self.logged(row),
                None => Part::of(Place::Log, "journal", format!("log block {log}, of which nothing is known")),
            },
            _ => {
                let (role, text) = self.home(home);
                Part { block: Some(home.0), ..Part::of(Place::Home, &role, format!("{text}, in place")) }
            }
        }
    }

    fn logged(&self, row: &Row) -> Part {
        let transaction = row.transaction.map(|tid| tid.0);
        let of =
            transaction.map_or_else(|| "of no known transaction".to_owned(), |tid| format!("of transaction {tid}"));
        let part = match &row.kind {
            Kind::Superblock => {
                Part::of(Place::JournalSuperblock, "journal superblock", "the journal's superblock".into())
            }
            Kind::Descriptor { tags } => {
                Part::of(Place::Descriptor, "descriptor block", format!("the descriptor block {of}, with {tags} tags"))
            }
            Kind::Data { home, .. } => {
                let (role, text) = self.home(*home);
                let text = format!("log block {} {of}, which held {text}", row.log);
                Part { block: Some(home.0), ..Part::of(Place::LogData, &format!("log block ({role})"), text) }
            }
            Kind::Commit { .. } => Part::of(Place::Commit, "commit block", format!("the commit block {of}")),
            Kind::Revoke { homes } => {
                Part::of(Place::Revoke, "revoke block", format!("a revoke block {of}, of {} blocks", homes.len()))
            }
            Kind::FastCommit { tags } => {
                let text = format!("a block of the fast-commit area ({})", tags.join(", "));
                Part::of(Place::Log, "fast commit", text)
            }
            Kind::Unknown => Part::of(Place::Log, "journal", format!("log block {}, left from before", row.log)),
        };
        Part { transaction, ..part }
    }

    /// The role in a word or two, and in full.
    fn home(&self, home: HomeBlock) -> (String, String) {
        let role = self.layout.role(home);
        let word = match role {
            HomeRole::Superblock { .. } => "superblock",
            HomeRole::GroupDescriptors { .. } => "group descriptors",
            HomeRole::BlockBitmap { .. } => "block bitmap",
            HomeRole::InodeBitmap { .. } => "inode bitmap",
            HomeRole::InodeTable { .. } => "inode table",
            HomeRole::Journal { .. } => "journal",
            HomeRole::Outside => "outside",
            HomeRole::Contents => {
                return match self.names.owner(home) {
                    Some(owner) if owner.offset.is_none() => ("block map".into(), format!("block {home}, {owner}")),
                    Some(owner) if owner.directory => ("directory".into(), format!("block {home}, {owner}")),
                    Some(owner) => ("file data".into(), format!("block {home}, {owner}")),
                    None => ("free block".into(), format!("block {home}, which nobody owns any more")),
                };
            }
        };
        (word.into(), format!("block {home}, {role}"))
    }
}

/// Whether an image's journal has the commit block of a transaction.
pub(super) fn is_committed(table: &Table, transaction: u32) -> bool {
    table
        .rows
        .iter()
        .any(|row| matches!(row.kind, Kind::Commit { .. }) && row.transaction.is_some_and(|t| t.0 == transaction))
}

/// Whether recovery would write a block home, and from which transaction last.
pub(super) fn is_replayed(image: &[u8], home: u64) -> Option<u32> {
    let replay = replay(&image).ok()?;
    replay.writes.get(&HomeBlock(home)).map(|write| write.transaction.0)
}

/// The length of an image, to check that a place is inside.
pub(super) fn length(image: &[u8]) -> u64 {
    image.length().0
}
