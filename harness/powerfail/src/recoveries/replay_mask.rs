//! What two recoveries may set differently though they replayed the same: every such field with its reason. Whatever is not
//! listed here is compared.

use std::ops::Range;

use powerfail_jbd2::{Group, HomeRole};

/// One of three recoveries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Who {
    /// The kernel.
    Kernel,
    /// e2fsck.
    E2fsck,
    /// The replay of powerfail's own.
    Ours,
}

impl Who {
    /// The name for people.
    pub fn name(self) -> &'static str {
        match self {
            Who::Kernel => "the kernel",
            Who::E2fsck => "e2fsck",
            Who::Ours => "powerfail",
        }
    }
}

/// A field of the file system's superblock that is not compared.
struct Field {
    /// Its bytes, from the superblock's first.
    bytes: Range<usize>,
    /// The bits of its first byte that are not compared; all: the whole field.
    bits: Option<u8>,
    /// Why.
    reason: &'static str,
}

const FIELDS: &[Field] = &[
    Field {
        bytes: 0x30..0x34,
        bits: None,
        reason: "s_wtime: e2fsck writes the superblock when it is done, and says when",
    },
    Field { bytes: 0x274..0x275, bits: None, reason: "s_wtime_hi: the same" },
    Field {
        bytes: 0x60..0x61,
        bits: Some(0x04),
        reason: "needs_recovery: e2fsck clears it with its replay, the kernel when the mount goes on behind its flush",
    },
    Field { bytes: 0x178..0x180, bits: None, reason: "s_kbytes_written: e2fsck adds what its replay wrote" },
    Field { bytes: 0x3FC..0x400, bits: None, reason: "s_checksum: it follows from the fields above" },
];

/// After a replay that fails, e2fsck notes that the file system has errors; a kernel that refuses to mount writes nothing.
const AFTER_REFUSAL: &[Field] = &[
    Field { bytes: 0x3A..0x3C, bits: None, reason: "s_state: e2fsck notes that there are errors" },
    Field { bytes: 0x194..0x200, bits: None, reason: "s_error_count and following: e2fsck notes its error" },
];

/// Whether a block of a recovery is compared at all; if not, why. `watched`: of e2fsck only what it wrote before it emptied the log
/// is known.
pub fn left_out(role: &HomeRole, who: Who, watched: bool, refused: bool) -> Option<&'static str> {
    match (role, who) {
        (HomeRole::Journal { log: powerfail_jbd2::LogBlock(0) }, Who::Kernel) => {
            Some("the kernel empties the log behind the flush that ends its replay")
        }
        (HomeRole::Journal { log: powerfail_jbd2::LogBlock(0) }, Who::E2fsck) if watched => {
            Some("e2fsck empties the log behind the flush that ends its replay")
        }
        (HomeRole::Journal { log: powerfail_jbd2::LogBlock(0) }, _) if refused => {
            Some("after a replay that failed e2fsck empties the log, and who refuses does not")
        }
        _ => None,
    }
}

/// Sets what is not compared to zero in a block. `first` is the superblock's first byte in the block, if it holds it.
pub fn mask(role: &HomeRole, first: usize, refused: bool, block: &mut [u8]) {
    if !matches!(role, HomeRole::Superblock { group: Group(0) }) {
        return;
    }
    let more = if refused { AFTER_REFUSAL } else { &[] };
    for field in FIELDS.iter().chain(more) {
        let place = &mut block[first + field.bytes.start..first + field.bytes.end];
        match field.bits {
            Some(bits) => place[0] &= !bits,
            None => place.fill(0),
        }
    }
}

/// Every reason, for people.
pub fn reasons() -> impl Iterator<Item = &'static str> {
    FIELDS.iter().chain(AFTER_REFUSAL).map(|field| field.reason)
}
