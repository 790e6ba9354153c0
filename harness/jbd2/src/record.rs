//! The control blocks of a log. Each begins with the magic number, a type and the number of its transaction.
//!
//! | type | block | then |
//! | --- | --- | --- |
//! | 1 | descriptor | tags, one for each data block that follows it in the log |
//! | 2 | commit | checksum and time |
//! | 5 | revoke | bytes in use, and block numbers of 4 or 8 bytes |
//!
//! A data block that happens to begin with the magic number is written with zeroes there, and its tag says so (*escaped*).
//! Tags have 8 or 12 bytes, 10 or 14 with checksum v2 (whose writers count two bytes too many), 16 with v3; the first has
//! the journal's UUID behind it.

use crate::bytes::{be16, be32, be64, wide};
use crate::checksum::{crc32c, crc32c_around};
use crate::journal_super::{Checksums, JournalSuper};
use crate::units::{HomeBlock, Tid};

pub(crate) const MAGIC: u32 = 0xC03B_3998;
pub(crate) const DESCRIPTOR: u32 = 1;
pub(crate) const COMMIT: u32 = 2;
pub(crate) const SUPER_V1: u32 = 3;
pub(crate) const SUPER_V2: u32 = 4;
pub(crate) const REVOKE: u32 = 5;

const HEADER: usize = 12;
const REVOKE_HEADER: usize = 16;
/// Bytes of the checksum at the end of a descriptor or revoke block.
const TAIL: usize = 4;
const UUID: usize = 16;
/// Where a commit block's (first) checksum is.
const COMMIT_CHECKSUM: usize = 16;
/// Bytes of a commit block that are not zero, as the kernel counts them.
const COMMIT_LENGTH: usize = 64;

const ESCAPED: u16 = 1;
const SAME_UUID: u16 = 2;
const LAST: u16 = 8;

/// What a control block begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) kind: u32,
    pub(crate) sequence: Tid,
}

impl Head {
    /// None if it is no control block.
    pub(crate) fn of(block: &[u8]) -> Option<Head> {
        (be32(block, 0) == MAGIC).then(|| Head { kind: be32(block, 4), sequence: Tid(be32(block, 8)) })
    }
}

/// A tag of a descriptor block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag {
    pub(crate) home: HomeBlock,
    pub(crate) escaped: bool,
    checksum: u32,
}

impl JournalSuper {
    /// The tags of a descriptor block; as many as fit, if none says that it is the last.
    pub(crate) fn tags(&self, block: &[u8]) -> Vec<Tag> {
        let length = self.tag_length();
        let end = block.len() - self.tail();
        let mut tags = Vec::new();
        let mut at = HEADER;
        while at + length <= end {
            let flags = be16(block, at + 6);
            let high = match self.has_64bit() {
                true => be32(block, at + 8),
                false => 0,
            };
            tags.push(Tag {
                home: HomeBlock(wide(be32(block, at), high)),
                escaped: flags & ESCAPED != 0,
                checksum: match self.checksums() {
                    Checksums::V3 => be32(block, at + 12),
                    _ => u32::from(be16(block, at + 4)),
                },
            });
            at += length + if flags & SAME_UUID == 0 { UUID } else { 0 };
            if flags & LAST != 0 {
                break;
            }
        }
        tags
    }

    fn tag_length(&self) -> usize {
        let number = if self.has_64bit() { 12 } else { 8 };
        match self.checksums() {
            Checksums::V3 => 16,
            Checksums::V2 => number + 2,
            Checksums::V1 | Checksums::None => number,
        }
    }

    fn tail(&self) -> usize {
        if self.each_block_has_checksum() { TAIL } else { 0 }
    }

    /// Whether the checksum at the end of a descriptor or revoke block is right; always without v2 or v3.
    pub(crate) fn tail_is_right(&self, block: &[u8]) -> bool {
        let at = block.len() - TAIL;
        !self.each_block_has_checksum() || crc32c_around(self.seed(), block, at) == be32(block, at)
    }

    /// Whether a data block is the one that its tag is about; always without v2 or v3.
    pub(crate) fn tag_is_right(&self, tag: &Tag, sequence: Tid, data: &[u8]) -> bool {
        let found = crc32c(crc32c(self.seed(), &sequence.0.to_be_bytes()), data);
        match self.checksums() {
            Checksums::V3 => tag.checksum == found,
            Checksums::V2 => tag.checksum == found & 0xFFFF,
            Checksums::V1 | Checksums::None => true,
        }
    }

    /// Whether a commit block's own checksum is right; always without v2 or v3.
    pub(crate) fn commit_is_right(&self, block: &[u8]) -> bool {
        !self.each_block_has_checksum()
            || crc32c_around(self.seed(), block, COMMIT_CHECKSUM) == be32(block, COMMIT_CHECKSUM)
    }

    /// Whether it is right as far as its first 64 bytes, with zeroes behind them: what else is in the block is then from
    /// a write that the commit block tore off.
    pub(crate) fn commit_is_right_in_part(&self, block: &[u8]) -> bool {
        let mut whole = vec![0; block.len()];
        whole[..COMMIT_LENGTH].copy_from_slice(&block[..COMMIT_LENGTH]);
        self.commit_is_right(&whole)
    }

    /// The block numbers of a revoke block; none if it says that it is longer than a block.
    pub(crate) fn revoked(&self, block: &[u8]) -> Option<Vec<HomeBlock>> {
        let used = be32(block, HEADER) as usize;
        if used > block.len() - self.tail() {
            return None;
        }
        let records = block.get(REVOKE_HEADER..used).unwrap_or_default();
        let numbers = match self.has_64bit() {
            true => records.chunks_exact(8).map(|eight| HomeBlock(be64(eight, 0))).collect(),
            false => records.chunks_exact(4).map(|four| HomeBlock(u64::from(be32(four, 0)))).collect(),
        };
        Some(numbers)
    }
}

/// What a commit block says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Commit {
    /// Seconds since 1970.
    pub(crate) seconds: u64,
    kind: u8,
    size: u8,
    checksum: u32,
}

impl Commit {
    pub(crate) fn of(block: &[u8]) -> Commit {
        Commit { seconds: be64(block, 48), kind: block[12], size: block[13], checksum: be32(block, COMMIT_CHECKSUM) }
    }

    /// Whether checksum v1 is the one of the transaction's blocks.
    pub(crate) fn covers(&self, transaction: u32) -> bool {
        const CRC32: (u8, u8) = (1, 4);
        (self.kind, self.size) == CRC32 && self.checksum == transaction
    }

    /// Whether it has no checksum v1, as a transaction may.
    pub(crate) fn has_none(&self) -> bool {
        (self.kind, self.size, self.checksum) == (0, 0, 0)
    }
}

/// Undoes the escape of the magic number.
pub(crate) fn unescape(block: &mut [u8]) {
    block[..4].copy_from_slice(&MAGIC.to_be_bytes());
}
