//! The journal of ext3 and ext4, read from the bytes of an image: listed as a table, and replayed without a kernel.
//!
//! What goes in is [`Blocks`]: anything that gives bytes at a place. What comes out are values; nothing here opens a file,
//! starts a thread or asks for the time.
//!
//! - [`Journal::open`] finds the journal through the ext4 superblock and inode 8, or on a journal device.
//! - [`Journal::table`] names every block of the log: what recovery would do with it, and what lies there from before.
//! - [`replay`] does what recovery does, and gives the blocks that it would write home; or a [`Refused`] that says why a
//!   kernel would not mount. Its rules are those of `fs/jbd2/recovery.c`; [`Rules`] says where kernels differ.
//! - [`Layout`] says what a block is at home (block bitmap of group 3, inode table of group 0 with inodes 17 to 32), and
//!   [`Names`] to which directory or file it belongs.
//!
//! Every length, pointer and count in an image may be garbage: none is trusted, none decides how much memory is taken or how
//! long a loop runs. Memory follows the size of the journal and, for names, the limit that the caller sets.

mod blocks;
mod bytes;
mod checksum;
mod error;
mod fast_commit;
mod inode;
mod journal;
mod journal_super;
pub mod layout;
mod names;
mod record;
mod recover;
mod scan;
mod super_block;
mod table;
mod units;

pub use blocks::{Blocks, Overlay};
pub use error::{Error, Refused, Why};
pub use fast_commit::FastCommit;
pub use inode::{Inode, Run, Runs};
pub use journal::{Journal, Medium};
pub use journal_super::{Checksums, JournalSuper};
pub use layout::{HomeRole, Layout};
pub use names::{Names, Owner};
pub use recover::{NoRecovery, Replay, Revoked, Write, replay, replay_by};
pub use scan::Rules;
pub use super_block::SuperBlock;
pub use table::{Checksum, Kind, Row, Standing, Table};
pub use units::{Bytes, Group, HomeBlock, Ino, LogBlock, Tid};
