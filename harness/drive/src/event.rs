//! What is in a recording: events, and how one is laid out in bytes.
//!
//! A recording is a header of [`HEADER`] bytes and then records, each a head of [`HEAD`] bytes followed by its data. Heads
//! are little-endian and checked by a CRC32C of their own; the data has another, so that it can be computed before the
//! lock that numbers events is taken.
//!
//! | head bytes | what |
//! | --- | --- |
//! | 0..4 | CRC32C of bytes 4..48 |
//! | 4 | kind: 1 received, 2 replied, 3 mark, 4 end |
//! | 5 | command of a receipt: 0 read, 1 write, 2 flush, 3 trim, 4 zeroes, 5 cache; bit 7: FUA |
//! | 6..8 | zero |
//! | 8..16 | event number; consecutive from 0 |
//! | 16..24 | of a reply: the event number of the receipt |
//! | 24..32 | first sector |
//! | 32..40 | sectors |
//! | 40..44 | bytes of data that follow |
//! | 44..48 | CRC32C of the data |

use powerfail_seed::Seed;

use crate::lies::Liar;
use crate::request::{Command, Geometry};
use crate::units::{Lba, Sectors};

/// Bytes of the header of a recording.
pub const HEADER: usize = 64;
/// Bytes of a record's head.
pub const HEAD: usize = 48;
/// The longest label of a mark, in bytes.
pub const MAX_LABEL: usize = 400;

const MAGIC: &[u8; 8] = b"PFRECORD";
const VERSION: u32 = 1;
/// The same with a lie in the header. Whoever knows none must refuse it.
const LYING: u32 = 2;
/// Where the header holds the lie's name, filled up with zeroes; its seed stands before it.
const LIE: std::ops::Range<usize> = 32..HEADER - 4;
const FUA: u8 = 0x80;

/// What a recording is of.
///
/// Its bytes are `PFRECORD`, the format as 4 bytes, whether there is a write cache in the next one, at 16 the drive's size
/// and at 60 a CRC32C of all before it. Format 2 is of a drive that lies: at 24 the lie's seed, at 32 its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The drive's size.
    pub geometry: Geometry,
    /// Whether replied writes are volatile until flushed.
    pub write_cache: bool,
    /// The lie that was told ([`crate::lies`]); none of what a drive in use records has one.
    pub lie: Option<Liar>,
}

/// Why bytes are no recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The first bytes are something else.
    #[error("it does not begin as a recording does")]
    NotARecording,
    /// Written by another version of the program.
    #[error("it has format {0}, this powerfail reads format {VERSION}, and {LYING} of drives that lie")]
    Version(u32),
    /// A checksum does not match.
    #[error("the checksum of {0} does not match")]
    Checksum(&'static str),
    /// A field holds what no writer writes.
    #[error("its {0} is impossible")]
    Field(&'static str),
}

/// The head of one event; its data, if any, follows in the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The event's number.
    pub event: u64,
    /// What happened.
    pub what: What,
    /// Bytes of data that follow: a write's sectors, or a mark's label.
    pub data_len: u32,
    /// CRC32C of that data.
    pub data_crc: u32,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// The drive received a request.
    Received {
        /// Its command.
        command: Command,
        /// First sector, after widening to whole sectors.
        lba: Lba,
        /// Length, after widening.
        sectors: Sectors,
        /// It carried FUA.
        fua: bool,
    },
    /// The drive replied with success to the request received as event `receipt`.
    Replied {
        /// The event of the receipt.
        receipt: u64,
    },
    /// The agent put a mark; the data is its label.
    Mark,
    /// The recording was closed in good order; nothing follows.
    End,
}

impl Header {
    /// The header's bytes.
    pub fn encode(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&self.lie.map_or(VERSION, |_| LYING).to_le_bytes());
        bytes[12] = u8::from(self.write_cache);
        bytes[16..24].copy_from_slice(&self.geometry.bytes().to_le_bytes());
        if let Some(lie) = self.lie {
            bytes[24..32].copy_from_slice(&lie.seed.0.to_le_bytes());
            bytes[LIE][..lie.name().len()].copy_from_slice(lie.name().as_bytes());
        }
        let crc = crc32c::crc32c(&bytes[..HEADER - 4]);
        bytes[HEADER - 4..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// An honest drive's.
    pub fn honest(geometry: Geometry, write_cache: bool) -> Header {
        Header { geometry, write_cache, lie: None }
    }

    /// Reads a header back.
    ///
    /// # Errors
    /// If the bytes are no header of this version.
    pub fn decode(bytes: &[u8; HEADER]) -> Result<Header, Malformed> {
        if &bytes[..8] != MAGIC {
            return Err(Malformed::NotARecording);
        }
        let version = u32_at(bytes, 8);
        if version != VERSION && version != LYING {
            return Err(Malformed::Version(version));
        }
        if u32_at(bytes, HEADER - 4) != crc32c::crc32c(&bytes[..HEADER - 4]) {
            return Err(Malformed::Checksum("the header"));
        }
        let geometry = Geometry::new(u64_at(bytes, 16)).ok_or(Malformed::Field("drive size"))?;
        let lie = if version == LYING {
            let name = bytes[LIE].split(|byte| *byte == 0).next().and_then(|name| std::str::from_utf8(name).ok());
            let liar = name.and_then(|name| Liar::named(name, Seed(u64_at(bytes, 24))).ok());
            Some(liar.ok_or(Malformed::Field("lie"))?)
        } else {
            None
        };
        Ok(Header { geometry, write_cache: bytes[12] != 0, lie })
    }
}

impl Head {
    /// The head's bytes.
    pub fn encode(&self) -> [u8; HEAD] {
        let (kind, code, of, lba, sectors) = match self.what {
            What::Received { command, lba, sectors, fua } => {
                (1, code_of(command) | if fua { FUA } else { 0 }, 0, lba.0, sectors.0)
            }
            What::Replied { receipt } => (2, 0, receipt, 0, 0),
            What::Mark => (3, 0, 0, 0, 0),
            What::End => (4, 0, 0, 0, 0),
        };
        let mut bytes = [0; HEAD];
        bytes[4] = kind;
        bytes[5] = code;
        bytes[8..16].copy_from_slice(&self.event.to_le_bytes());
        bytes[16..24].copy_from_slice(&of.to_le_bytes());
        bytes[24..32].copy_from_slice(&lba.to_le_bytes());
        bytes[32..40].copy_from_slice(&sectors.to_le_bytes());
        bytes[40..44].copy_from_slice(&self.data_len.to_le_bytes());
        bytes[44..48].copy_from_slice(&self.data_crc.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[4..]);
        bytes[..4].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads a head back, and checks what can be checked without the drive and the events before it.
    ///
    /// # Errors
    /// If the bytes are no head.
    pub fn decode(bytes: &[u8; HEAD]) -> Result<Head, Malformed> {
        if u32_at(bytes, 0) != crc32c::crc32c(&bytes[4..]) {
            return Err(Malformed::Checksum("an event's head"));
        }
        let data_len = u32_at(bytes, 40);
        let what = match bytes[4] {
            1 => {
                let command = command_of(bytes[5] & !FUA).ok_or(Malformed::Field("command"))?;
                let sectors = Sectors(u64_at(bytes, 32));
                let lba = Lba(u64_at(bytes, 24));
                if lba.0.checked_add(sectors.0).is_none_or(|end| end > u64::MAX / crate::units::SECTOR) {
                    return Err(Malformed::Field("range"));
                }
                let expected = if command == Command::Write { sectors.bytes() } else { 0 };
                if u64::from(data_len) != expected {
                    return Err(Malformed::Field("data length"));
                }
                What::Received { command, lba, sectors, fua: bytes[5] & FUA != 0 }
            }
            2 => What::Replied { receipt: u64_at(bytes, 16) },
            3 if data_len as usize <= MAX_LABEL => What::Mark,
            3 => return Err(Malformed::Field("label length")),
            4 => What::End,
            _ => return Err(Malformed::Field("kind")),
        };
        if matches!(what, What::Replied { .. } | What::End) && data_len != 0 {
            return Err(Malformed::Field("data length"));
        }
        Ok(Head { event: u64_at(bytes, 8), what, data_len, data_crc: u32_at(bytes, 44) })
    }
}

fn code_of(command: Command) -> u8 {
    match command {
        Command::Read => 0,
        Command::Write => 1,
        Command::Flush => 2,
        Command::Trim => 3,
        Command::WriteZeroes => 4,
        Command::Cache => 5,
    }
}

fn command_of(code: u8) -> Option<Command> {
    Some(match code {
        0 => Command::Read,
        1 => Command::Write,
        2 => Command::Flush,
        3 => Command::Trim,
        4 => Command::WriteZeroes,
        5 => Command::Cache,
        _ => return None,
    })
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
