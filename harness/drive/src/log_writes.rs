//! The format of dm-log-writes (the kernel's `drivers/md/dm-log-writes.c`), out and in.
//!
//! All numbers are little-endian `u64` unless said otherwise. Sector 0 is the super: magic, version, number of entries,
//! and the sector size as `u32`. Then entries, each a sector that begins with sector, sectors, flags and data length;
//! the label of a mark stands in the same sector behind them, the data of a write in the sectors that follow.
//!
//! The format has one place an entry, where our recording has two ends. On the way out a write stands at the place of
//! its reply (an unreplied one is left out), a flush at the place of its receipt. Zeroes are written as data wherever
//! something was written before; a trim stands as a discard too, so that a reader may use it or skip it and gets the
//! same image. The size of the drive is not in the format.

use std::collections::BTreeMap;
use std::io::{self, Read, Seek, SeekFrom, Write};

use crate::event::{MAX_LABEL, What};
use crate::live::{Drive, Sink};
use crate::recording::{ReadError, Reader};
use crate::request::{Command, Refusal, Request};
use crate::units::{Lba, SECTOR, Sectors};

/// The magic number at the start.
pub const MAGIC: u64 = 0x006a_7366_7773_6872;
const VERSION: u64 = 1;
const FLUSH: u64 = 1;
const FUA: u64 = 2;
const DISCARD: u64 = 4;
const MARK: u64 = 8;
/// Bytes of an entry before its label.
const ENTRY: usize = 32;
/// Zeroes are written in pieces of at most this many sectors (32 MiB).
const PIECE: u64 = 65_536;

/// Why a log can't be written or read.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The file can't be read or written.
    #[error("can't read or write it: {0}")]
    Io(#[from] io::Error),
    /// The recording can't be read.
    #[error(transparent)]
    Recording(#[from] ReadError),
    /// The log is not one, or of another kind.
    #[error("it is no dm-log-writes log that can be read: {0}")]
    Malformed(String),
    /// An entry does not fit on the drive.
    #[error("entry {entry}: {refusal}")]
    Refused {
        /// The entry's number, from 0.
        entry: u64,
        /// Why.
        refusal: Refusal,
    },
}

/// Writes `recording` as a log; gives the number of entries.
///
/// # Errors
/// If the recording is damaged or the log can't be written.
pub fn export(recording: &[u8], out: &mut (impl Write + Seek)) -> Result<u64, LogError> {
    let mut log = LogWriter { out, entries: 0, written: BTreeMap::new() };
    log.super_block()?;
    let mut reader = Reader::new(recording, true)?;
    let mut open = BTreeMap::new();
    while let Some(entry) = reader.next()? {
        match entry.head.what {
            What::Received { command: Command::Flush, .. } => log.entry(Lba(0), Sectors(0), FLUSH, &[])?,
            What::Received { command, lba, sectors, fua } if command.writes() && sectors.0 > 0 => {
                open.insert(entry.head.event, (command, lba, sectors, fua, entry.data_at as usize));
            }
            What::Replied { receipt } => {
                let Some((command, lba, sectors, fua, at)) = open.remove(&receipt) else { continue };
                let flags = if fua { FUA } else { 0 };
                match command {
                    Command::Write => log.write(lba, sectors, flags, &recording[at..at + sectors.bytes() as usize])?,
                    Command::Trim => {
                        log.entry(lba, sectors, DISCARD | flags, &[])?;
                        log.zeroes(lba, sectors, flags)?;
                    }
                    _ => log.zeroes(lba, sectors, flags)?,
                }
            }
            What::Mark => log.entry(Lba(0), Sectors(0), MARK, reader.data())?,
            What::Received { .. } | What::End => {}
        }
    }
    log.super_block()?;
    Ok(log.entries)
}

/// Reads a log into a drive: each entry is received and replied to at its place.
///
/// # Errors
/// If the log is malformed or names sectors that the drive does not have.
pub fn import<S: Sink>(log: &mut impl Read, drive: &mut Drive<S>) -> Result<u64, LogError> {
    let mut sector = [0; SECTOR as usize];
    log.read_exact(&mut sector).map_err(|_| LogError::Malformed("it is shorter than a sector".into()))?;
    if u64_at(&sector, 0) != MAGIC {
        return Err(LogError::Malformed("its magic number is another".into()));
    }
    if u64_at(&sector, 8) != VERSION {
        return Err(LogError::Malformed(format!("its version is {}, not {VERSION}", u64_at(&sector, 8))));
    }
    let sector_size = u32::from_le_bytes(sector[24..28].try_into().expect("four bytes"));
    if u64::from(sector_size) != SECTOR {
        return Err(LogError::Malformed(format!("its sectors are of {sector_size} bytes; only 512 can be read")));
    }
    let entries = u64_at(&sector, 16);
    let mut data = Vec::new();
    for entry in 0..entries {
        let cut_short = |_| LogError::Malformed(format!("it ends within entry {entry} of {entries}"));
        log.read_exact(&mut sector).map_err(cut_short)?;
        let (lba, sectors) = (Lba(u64_at(&sector, 0)), Sectors(u64_at(&sector, 8)));
        let (flags, data_len) = (u64_at(&sector, 16), u64_at(&sector, 24) as usize);
        let refused = |refusal| LogError::Refused { entry, refusal };
        if flags & MARK != 0 {
            let label = sector.get(ENTRY..ENTRY + data_len.min(MAX_LABEL)).unwrap_or(&[]);
            let label = String::from_utf8_lossy(label);
            drive.mark(label.trim_end_matches('\0')).map_err(refused)?;
            continue;
        }
        if flags & FLUSH != 0 {
            one(drive, Command::Flush, Lba(0), Sectors(0), false, &[]).map_err(refused)?;
        }
        if sectors.0 == 0 {
            continue;
        }
        let fua = flags & FUA != 0;
        if flags & DISCARD != 0 {
            one(drive, Command::Trim, lba, sectors, fua, &[]).map_err(refused)?;
            continue;
        }
        if sectors.0 > drive.geometry().bytes() / SECTOR {
            let refusal = Refusal::OutOfRange { offset: 0, length: u64::MAX, size: drive.geometry().bytes() };
            return Err(refused(refusal));
        }
        data.resize(sectors.bytes() as usize, 0);
        log.read_exact(&mut data).map_err(cut_short)?;
        one(drive, Command::Write, lba, sectors, fua, &data).map_err(refused)?;
    }
    Ok(entries)
}

fn one<S: Sink>(
    drive: &mut Drive<S>,
    command: Command,
    lba: Lba,
    sectors: Sectors,
    fua: bool,
    data: &[u8],
) -> Result<(), Refusal> {
    let out_of_range = Refusal::OutOfRange { offset: u64::MAX, length: 0, size: drive.geometry().bytes() };
    let offset = lba.0.checked_mul(SECTOR).ok_or(out_of_range)?;
    let length = sectors.0.checked_mul(SECTOR).ok_or(out_of_range)?;
    let request = Request { command, offset, length, fua, data };
    let receipt = drive.receive(&request, crc32c::crc32c(data))?;
    drive.reply(receipt).map(|_| ())
}

struct LogWriter<'a, W> {
    out: &'a mut W,
    entries: u64,
    /// Runs of sectors that were written: first sector to the sector behind the last.
    written: BTreeMap<u64, u64>,
}

impl<W: Write + Seek> LogWriter<'_, W> {
    fn super_block(&mut self) -> io::Result<()> {
        let mut sector = [0; SECTOR as usize];
        sector[..8].copy_from_slice(&MAGIC.to_le_bytes());
        sector[8..16].copy_from_slice(&VERSION.to_le_bytes());
        sector[16..24].copy_from_slice(&self.entries.to_le_bytes());
        sector[24..28].copy_from_slice(&(SECTOR as u32).to_le_bytes());
        self.out.seek(SeekFrom::Start(0))?;
        self.out.write_all(&sector)
    }

    fn entry(&mut self, lba: Lba, sectors: Sectors, flags: u64, label: &[u8]) -> io::Result<()> {
        let mut sector = [0; SECTOR as usize];
        let fields = [lba.0, sectors.0, flags, label.len() as u64];
        for (index, field) in fields.iter().enumerate() {
            sector[index * 8..index * 8 + 8].copy_from_slice(&field.to_le_bytes());
        }
        sector[ENTRY..ENTRY + label.len()].copy_from_slice(label);
        self.entries += 1;
        self.out.write_all(&sector)
    }

    fn write(&mut self, lba: Lba, sectors: Sectors, flags: u64, data: &[u8]) -> io::Result<()> {
        self.note(lba.0, lba.0 + sectors.0);
        self.entry(lba, sectors, flags, &[])?;
        self.out.write_all(data)
    }

    /// Zeroes as data, over what was written before.
    fn zeroes(&mut self, lba: Lba, sectors: Sectors, flags: u64) -> io::Result<()> {
        let (first, end) = (lba.0, lba.0 + sectors.0);
        let before = self.written.range(..first).next_back().map(|(from, _)| *from).unwrap_or(first);
        let runs: Vec<(u64, u64)> = self.written.range(before..end).map(|(from, to)| (*from, *to)).collect();
        for (from, to) in runs {
            let (mut at, to) = (from.max(first), to.min(end));
            while at < to {
                let piece = (to - at).min(PIECE);
                self.entry(Lba(at), Sectors(piece), flags, &[])?;
                self.out.write_all(&vec![0; (piece * SECTOR) as usize])?;
                at += piece;
            }
        }
        Ok(())
    }

    /// Notes that sectors `first..end` were written, merging the runs that it touches.
    fn note(&mut self, first: u64, end: u64) {
        let (mut from, mut to) = (first, end);
        while let Some((&other, &other_end)) = self.written.range(..=to).next_back() {
            if other_end < from {
                break;
            }
            self.written.remove(&other);
            from = from.min(other);
            to = to.max(other_end);
        }
        self.written.insert(from, to);
    }
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
