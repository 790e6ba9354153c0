//! Why an image is not read, and why a journal is not replayed.

use crate::recover::Replay;
use crate::units::{HomeBlock, LogBlock, Tid};

/// Why there is no journal to be had from these bytes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Neither a superblock of ext2, ext3 or ext4, nor a journal device.
    #[error("this is no image of ext2, ext3 or ext4: {0}")]
    NotExt(String),
    /// The file system has none.
    #[error("this file system has no journal")]
    NoJournal,
    /// The journal is on a device of its own, which is not this image.
    #[error("the journal of this file system is on another device; list that device instead")]
    External,
    /// The journal's inode leads nowhere.
    #[error("the journal can't be reached: {0}")]
    Unreachable(String),
    /// The journal's superblock is none that a kernel takes.
    #[error("the journal's superblock is invalid: {0}")]
    BadSuper(String),
    /// The journal has features that nobody here knows.
    #[error("the journal has unknown features: {0}")]
    Unknown(String),
}

/// Why recovery ends in an error, so that a kernel does not mount. The words are close to the kernel's own.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    /// There is no journal to be had.
    #[error(transparent)]
    Journal(#[from] Error),
    /// The log leads to a block that it does not have.
    #[error("the log leads to block {0}, which is outside of the journal")]
    OutsideLog(LogBlock),
    /// The log goes round and never comes to an end. A kernel never returns from it.
    #[error("the log goes round for ever: block {0} is reached twice in one transaction")]
    Endless(LogBlock),
    /// A descriptor or revoke block's checksum is wrong, and the transaction's commit block says that it is none of an
    /// earlier life of the journal.
    #[error("invalid checksum found in transaction {0}")]
    Transaction(Tid),
    /// A descriptor block's checksum is wrong where the scan had accepted it.
    #[error("invalid checksum recovering block {0} in log")]
    Descriptor(LogBlock),
    /// A revoke block says that it is longer than a block.
    #[error("the revoke block {0} is longer than a block")]
    Revoke(LogBlock),
    /// A data block's checksum is not the one in its tag.
    #[error("invalid checksum recovering data block {0} in log")]
    Data(HomeBlock),
    /// A tag names a block that the device does not have.
    #[error("a tag names block {0}, which is outside of the device")]
    OutsideDevice(HomeBlock),
    /// The checksum of a commit block is wrong, and this can't be a commit that was cut short.
    #[error("journal transaction {0} is corrupt")]
    Commit(Tid),
    /// A pass came to another end than the scan.
    #[error("the log ends at transaction {found} in one pass and at {expected} in another")]
    Passes {
        /// Where the scan ended.
        expected: Tid,
        /// Where a later pass did.
        found: Tid,
    },
}

/// A replay that ends in an error.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{why}")]
pub struct Refused {
    /// The first error.
    pub why: Why,
    /// What was written home all the same: recovery goes on where it can and reports the failure at the end. None if it
    /// stopped before it could write.
    pub partial: Option<Box<Replay>>,
}

impl From<Why> for Refused {
    fn from(why: Why) -> Refused {
        Refused { why, partial: None }
    }
}
