//! The journal's own superblock: log block 0, big-endian, 1024 bytes (`struct journal_superblock_s` of
//! `include/linux/jbd2.h`).

use std::fmt;

use serde::Serialize;

use crate::bytes::be32;
use crate::checksum::{crc32c, crc32c_around};
use crate::error::Error;
use crate::record::{MAGIC, SUPER_V1, SUPER_V2};
use crate::units::{LogBlock, Tid};

pub(crate) const LENGTH: usize = 1024;
const CHECKSUM_AT: usize = 0xFC;
/// The only kind of checksum that v2 and v3 have.
const CRC32C: u8 = 4;
/// A log with fewer blocks is refused, not counting those of fast commit.
const FEWEST_BLOCKS: u32 = 1024;
const USUAL_FAST_COMMIT_BLOCKS: u32 = 256;

const COMPAT_CHECKSUM: u32 = 0x1;
const INCOMPAT_REVOKE: u32 = 0x1;
const INCOMPAT_64BIT: u32 = 0x2;
const INCOMPAT_ASYNC_COMMIT: u32 = 0x4;
const INCOMPAT_CSUM_V2: u32 = 0x8;
const INCOMPAT_CSUM_V3: u32 = 0x10;
const INCOMPAT_FAST_COMMIT: u32 = 0x20;
const INCOMPAT_KNOWN: u32 = INCOMPAT_REVOKE
    | INCOMPAT_64BIT
    | INCOMPAT_ASYNC_COMMIT
    | INCOMPAT_CSUM_V2
    | INCOMPAT_CSUM_V3
    | INCOMPAT_FAST_COMMIT;

/// Which checksums a journal has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Checksums {
    /// None.
    None,
    /// v1: the commit block covers all log blocks of its transaction.
    V1,
    /// v2: each block has its own, a data block's has 16 bits.
    V2,
    /// v3: each block has its own, a data block's has 32 bits.
    V3,
}

/// What a journal's superblock says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct JournalSuper {
    /// 1 or 2; only 2 has features.
    pub version: u8,
    /// Bytes of a log block.
    pub block_size: u32,
    /// Blocks of the journal, this one included.
    pub length: u32,
    /// The first block of the log.
    pub first: LogBlock,
    /// The transaction that the log begins with.
    pub sequence: Tid,
    /// Where the log begins; 0: there is nothing to recover.
    pub start: LogBlock,
    /// The error that a kernel left in it; 0 for none.
    pub errno: u32,
    /// Compatible features.
    pub compat: u32,
    /// Incompatible features.
    pub incompat: u32,
    /// Its UUID, of which checksums v2 and v3 are seeded.
    pub uuid: [u8; 16],
    /// Blocks of the fast-commit area at the journal's end; 0 without the feature.
    pub fast_commit_blocks: u32,
    /// Whether its own checksum is right; none without v2 or v3.
    pub checksum_ok: Option<bool>,
    #[serde(skip)]
    seed: u32,
}

impl JournalSuper {
    /// Decodes it, and refuses what a kernel refuses. `available` is how many blocks the journal's inode or device has.
    pub(crate) fn decode(bytes: &[u8], block_size: u32, available: u64) -> Result<JournalSuper, Error> {
        let bad = |why: String| Error::BadSuper(why);
        if be32(bytes, 0) != MAGIC {
            return Err(bad("it has no journal's magic number".into()));
        }
        let version = match be32(bytes, 4) {
            SUPER_V1 => 1,
            SUPER_V2 => 2,
            other => return Err(bad(format!("its block type is {other}"))),
        };
        let features = |at: usize| if version == 2 { be32(bytes, at) } else { 0 };
        let (compat, incompat, ro_compat) = (features(0x24), features(0x28), features(0x2C));
        let mut read = JournalSuper {
            version,
            block_size: be32(bytes, 0xC),
            length: be32(bytes, 0x10),
            first: LogBlock(be32(bytes, 0x14)),
            sequence: Tid(be32(bytes, 0x18)),
            start: LogBlock(be32(bytes, 0x1C)),
            errno: be32(bytes, 0x20),
            compat,
            incompat,
            uuid: bytes[0x30..0x40].try_into().expect("16 bytes"),
            fast_commit_blocks: 0,
            checksum_ok: None,
            seed: crc32c(!0, &bytes[0x30..0x40]),
        };
        if read.block_size != block_size {
            return Err(bad(format!("its blocks have {} bytes and the file system's {block_size}", read.block_size)));
        }
        if u64::from(read.length) > available {
            return Err(bad(format!("it says {} blocks and there are {available}", read.length)));
        }
        if incompat & !INCOMPAT_KNOWN != 0 || compat & !COMPAT_CHECKSUM != 0 || ro_compat != 0 {
            let text = format!("compat {compat:#x}, incompat {incompat:#x}, ro_compat {ro_compat:#x}");
            return Err(Error::Unknown(text));
        }
        let (v2, v3) = (incompat & INCOMPAT_CSUM_V2 != 0, incompat & INCOMPAT_CSUM_V3 != 0);
        if (v2 && v3) || ((v2 || v3) && compat & COMPAT_CHECKSUM != 0) {
            return Err(bad("it has two kinds of checksums at once".into()));
        }
        if read.each_block_has_checksum() {
            let kind = bytes[0x50];
            if kind != CRC32C {
                return Err(bad(format!("its checksums are of kind {kind}, and only {CRC32C} is known")));
            }
            let found = crc32c_around(!0, &bytes[..LENGTH], CHECKSUM_AT);
            read.checksum_ok = Some(found == be32(bytes, CHECKSUM_AT));
        }
        if read.has_fast_commit() {
            read.fast_commit_blocks = match be32(bytes, 0x54) {
                0 => USUAL_FAST_COMMIT_BLOCKS,
                said => said,
            };
        }
        let log = read.length.saturating_sub(read.fast_commit_blocks);
        if log < FEWEST_BLOCKS {
            return Err(bad(format!("its log has {log} blocks, fewer than {FEWEST_BLOCKS}")));
        }
        // Also `first < last`: a log that wraps to nothing has no next block.
        if read.first.0 == 0 || read.first.0 >= log {
            return Err(bad(format!("its log begins at block {}", read.first)));
        }
        if read.checksum_ok == Some(false) {
            return Err(bad("its checksum is wrong".into()));
        }
        Ok(read)
    }

    /// Which checksums its blocks have.
    pub fn checksums(&self) -> Checksums {
        match self {
            _ if self.incompat & INCOMPAT_CSUM_V3 != 0 => Checksums::V3,
            _ if self.incompat & INCOMPAT_CSUM_V2 != 0 => Checksums::V2,
            _ if self.compat & COMPAT_CHECKSUM != 0 => Checksums::V1,
            _ => Checksums::None,
        }
    }

    /// Whether commit blocks may land before their log blocks (feature `async_commit`).
    pub fn has_async_commit(&self) -> bool {
        self.incompat & INCOMPAT_ASYNC_COMMIT != 0
    }

    /// Whether block numbers have 64 bits.
    pub fn has_64bit(&self) -> bool {
        self.incompat & INCOMPAT_64BIT != 0
    }

    /// Whether there is a fast-commit area.
    pub fn has_fast_commit(&self) -> bool {
        self.incompat & INCOMPAT_FAST_COMMIT != 0
    }

    /// The block behind the last one of the log; what follows, if anything, is the fast-commit area.
    pub fn last(&self) -> LogBlock {
        LogBlock(self.length - self.fast_commit_blocks)
    }

    /// Whether descriptor, revoke and commit blocks and tags have checksums of their own (v2, v3).
    pub(crate) fn each_block_has_checksum(&self) -> bool {
        self.incompat & (INCOMPAT_CSUM_V2 | INCOMPAT_CSUM_V3) != 0
    }

    /// What checksums v2 and v3 begin with.
    pub(crate) fn seed(&self) -> u32 {
        self.seed
    }

    /// The superblock's bytes once the log was replayed: it begins with `sequence` and holds nothing. That is what e2fsck
    /// leaves; a kernel goes on at once and puts the place where it goes on into `s_start`.
    pub(crate) fn emptied(&self, bytes: &[u8], sequence: Tid) -> Vec<u8> {
        let mut bytes = bytes[..LENGTH].to_vec();
        bytes[0x18..0x1C].copy_from_slice(&sequence.0.to_be_bytes());
        bytes[0x1C..0x20].fill(0);
        if self.each_block_has_checksum() {
            let checksum = crc32c_around(!0, &bytes, CHECKSUM_AT);
            bytes[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&checksum.to_be_bytes());
        }
        bytes
    }
}

impl fmt::Display for JournalSuper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let checksums = match self.checksums() {
            Checksums::None => "no checksums",
            Checksums::V1 => "checksum v1",
            Checksums::V2 => "checksum v2",
            Checksums::V3 => "checksum v3",
        };
        let JournalSuper { version, block_size, length, first, .. } = self;
        write!(f, "version {version}, {length} blocks of {block_size} bytes, log from block {first}, {checksums}")?;
        for (has, name) in [
            (self.has_64bit(), "64bit"),
            (self.has_async_commit(), "async_commit"),
            (self.incompat & INCOMPAT_REVOKE != 0, "revoke"),
        ] {
            if has {
                write!(f, ", {name}")?;
            }
        }
        match self.fast_commit_blocks {
            0 => {}
            blocks => write!(f, ", fast commit with {blocks} blocks")?,
        }
        match self.start.0 {
            0 => write!(f, "; nothing to recover, next transaction {}", self.sequence),
            start => write!(f, "; begins at block {start} with transaction {}", self.sequence),
        }
    }
}
