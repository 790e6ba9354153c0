//! The transactions of a recording, put together from the roles of its writes.

use std::collections::BTreeMap;

use super::{Role, Roles};
use crate::history::Loose;

/// The part of a write in one aligned block of 4 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Block {
    /// The event of the write's receipt.
    pub write: u64,
    /// The block.
    pub block: u64,
}

impl Block {
    /// Whether a loose fragment lies in it, on a drive with units of so many sectors.
    pub fn holds(&self, loose: &Loose, unit_sectors: u64) -> bool {
        self.write == loose.write && self.block == block_of(loose.unit, unit_sectors)
    }
}

/// The aligned block of 4 KiB that a unit of so many sectors lies in.
pub(super) fn block_of(unit: u64, unit_sectors: u64) -> u64 {
    unit * unit_sectors / SECTORS_A_BLOCK
}

const SECTORS_A_BLOCK: u64 = 8;

/// One transaction in the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    /// Its number.
    pub sequence: u32,
    /// Its commit block.
    pub commit: Block,
    /// Descriptors and log blocks, as they were received.
    pub log: Vec<Block>,
    /// Blocks of revokes.
    pub revokes: Vec<Block>,
    /// It goes around the journal's end: its blocks with larger numbers than the commit block's lie before the wrap.
    pub wraps: bool,
}

/// All that is known of a journal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Journal {
    /// Transactions with a commit block, by when that was received.
    pub transactions: Vec<Transaction>,
    /// Writes of the journal's superblock.
    pub superblocks: Vec<Block>,
}

/// What is known of a transaction so far.
#[derive(Default)]
struct Parts {
    log: Vec<Block>,
    revokes: Vec<Block>,
    commit: Option<Block>,
}

impl Journal {
    /// Puts together what belongs together.
    pub fn of(roles: &Roles) -> Journal {
        let mut open: BTreeMap<u32, Parts> = BTreeMap::new();
        let mut journal = Journal::default();
        for (write, block, role) in roles.sorted() {
            let part = Block { write, block };
            match role {
                Role::Descriptor(of) | Role::LogData(of) => open.entry(of).or_default().log.push(part),
                Role::Revoke(of) => open.entry(of).or_default().revokes.push(part),
                Role::Commit(of) => open.entry(of).or_default().commit = Some(part),
                Role::JournalSuperblock => journal.superblocks.push(part),
                Role::Unknown | Role::Home => {}
            }
        }
        for (sequence, Parts { log, revokes, commit }) in open {
            if let Some(commit) = commit {
                // In a journal whose blocks are in order, a commit block stands behind all others of its transaction.
                let wraps = log.iter().chain(&revokes).any(|part| part.block > commit.block);
                journal.transactions.push(Transaction { sequence, commit, log, revokes, wraps });
            }
        }
        journal.transactions.sort_by_key(|transaction| transaction.commit);
        journal
    }
}
