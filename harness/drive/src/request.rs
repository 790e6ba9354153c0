//! What a host asks of the drive, and the size of the drive that it asks.

use crate::units::SECTOR;

/// The longest request that carries data, in bytes; `TRIM` and `WRITE_ZEROES` may be longer.
/// (The kernel's nbd splits far below it; 32 MiB is what NBD servers advertise.)
pub const MAX_DATA: u64 = 64 << 20;

/// A command of the drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    /// Read sectors; recorded without its data.
    Read,
    /// Write the request's data.
    Write,
    /// Make durable every write that was replied to before this was received.
    Flush,
    /// The host no longer needs the range; it reads as zeroes afterwards.
    Trim,
    /// The range reads as zeroes afterwards.
    WriteZeroes,
    /// A hint to prefetch; changes nothing.
    Cache,
}

impl Command {
    /// Whether the command makes a new version of the sectors it names.
    pub fn writes(self) -> bool {
        matches!(self, Command::Write | Command::Trim | Command::WriteZeroes)
    }
}

/// One request. `offset` and `length` are bytes; they need not be aligned to sectors: the drive widens a partial
/// sector with what it holds, as a drive that emulates small sectors does.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// What to do.
    pub command: Command,
    /// First byte.
    pub offset: u64,
    /// Length in bytes; 0 for a flush.
    pub length: u64,
    /// Force unit access: this write is durable when it is replied to.
    pub fua: bool,
    /// The data of a `Write`, `length` bytes; empty otherwise.
    pub data: &'a [u8],
}

/// Why the drive has no such request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The range does not lie on the drive.
    #[error("bytes {offset}+{length} are past the end of the drive ({size} bytes)")]
    OutOfRange {
        /// First byte asked for.
        offset: u64,
        /// Length asked for.
        length: u64,
        /// The drive's size in bytes.
        size: u64,
    },
    /// A write's data is not as long as the request says.
    #[error("the request says {length} bytes and carries {carried}")]
    DataLength {
        /// Length of the request.
        length: u64,
        /// Bytes of data that came with it.
        carried: u64,
    },
    /// Zeroes that begin or end within a sector, over more than the drive can rewrite at once.
    #[error("zeroing {length} bytes needs whole sectors; only up to {MAX_DATA} bytes may begin or end within one")]
    Unaligned {
        /// Length asked for.
        length: u64,
    },
    /// The drive is off: its power was cut.
    #[error("the drive has no power")]
    PowerOff,
    /// The recording can't be written any more, so nothing that happens now could be reproduced.
    #[error("the recording can't be written")]
    RecordingFailed,
}

/// The drive's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    size: u64,
}

impl Geometry {
    /// A drive of `size` bytes, if that is a whole number of sectors and at least one.
    pub fn new(size: u64) -> Option<Geometry> {
        (size > 0 && size.is_multiple_of(SECTOR)).then_some(Geometry { size })
    }

    /// The size in bytes.
    pub fn bytes(self) -> u64 {
        self.size
    }

    /// The one place where a request is checked against the drive.
    pub fn check(self, request: &Request<'_>) -> Result<(), Refusal> {
        let Request { offset, length, .. } = *request;
        let inside = offset.checked_add(length).is_some_and(|end| end <= self.size);
        if request.command != Command::Flush && !inside {
            return Err(Refusal::OutOfRange { offset, length, size: self.size });
        }
        let carried = request.data.len() as u64;
        let expected = if request.command == Command::Write { length } else { 0 };
        if carried != expected {
            return Err(Refusal::DataLength { length, carried });
        }
        let unaligned = !offset.is_multiple_of(SECTOR) || !length.is_multiple_of(SECTOR);
        if request.command == Command::WriteZeroes && unaligned && length > MAX_DATA {
            return Err(Refusal::Unaligned { length });
        }
        Ok(())
    }
}
