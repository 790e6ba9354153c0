//! What writes are to the file system, told from outside: the drive knows sectors and no journals.

use rustc_hash::FxHashMap;

/// What a part of a write is. The numbers are transactions' sequence numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// A block that says where the log blocks behind it belong.
    Descriptor(u32),
    /// A copy of a block that belongs elsewhere.
    LogData(u32),
    /// The block that makes a transaction count.
    Commit(u32),
    /// A block that says which older log blocks no longer count.
    Revoke(u32),
    /// The block that says where the log begins.
    JournalSuperblock,
    /// In the journal, and nobody knows what.
    Unknown,
    /// Not in the journal.
    Home,
}

/// The roles of the writes of one recording, per aligned block of 4 KiB of a write.
#[derive(Clone, Debug, Default)]
pub struct Roles {
    blocks: FxHashMap<(u64, u64), Role>,
}

impl Roles {
    /// Says what the part of a write in one aligned block of 4 KiB is. `write` is the event of its receipt.
    pub fn set(&mut self, write: u64, block: u64, role: Role) {
        self.blocks.insert((write, block), role);
    }

    /// What that part is; [`Role::Home`] where nothing was said.
    pub fn of(&self, write: u64, block: u64) -> Role {
        self.blocks.get(&(write, block)).copied().unwrap_or(Role::Home)
    }

    /// All that was said, by write and block.
    pub fn sorted(&self) -> Vec<(u64, u64, Role)> {
        let mut all: Vec<_> = self.blocks.iter().map(|(&(write, block), &role)| (write, block, role)).collect();
        all.sort_unstable();
        all
    }

    /// Whether anything is known of a journal.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }
}
