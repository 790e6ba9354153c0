//! The drive while it is in use: it numbers events, shows the newest data to reads, and passes every event on.
//!
//! It knows nothing of loss. What a cut may lose is worked out afterwards, from the recording alone.

use crate::event::{Head, MAX_LABEL, What};
use crate::pages::Pages;
use crate::request::{Command, Geometry, Refusal, Request};
use crate::units::{Lba, SECTOR, Sectors};

/// Where events go. It must not block for long: it is called under the drive's lock.
pub trait Sink: Send {
    /// Takes the next event with its data.
    ///
    /// # Errors
    /// If it can't; the drive then refuses everything, since what happens now could not be reproduced.
    fn append(&mut self, head: &Head, data: &[u8]) -> std::io::Result<()>;
}

/// A sink for a drive that nobody records.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unrecorded;

impl Sink for Unrecorded {
    fn append(&mut self, _: &Head, _: &[u8]) -> std::io::Result<()> {
        Ok(())
    }
}

/// A drive that is in use. It serves one caller at a time; a server puts it behind a lock.
#[derive(Debug)]
pub struct Drive<S> {
    geometry: Geometry,
    pages: Pages,
    next_event: u64,
    sink: S,
    failed: bool,
}

impl<S: Sink> Drive<S> {
    /// A drive that reads as zeroes.
    pub fn new(geometry: Geometry, sink: S) -> Drive<S> {
        Drive { geometry, pages: Pages::default(), next_event: 0, sink, failed: false }
    }

    /// The drive's size.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// What a host reads now.
    pub fn pages(&self) -> &Pages {
        &self.pages
    }

    /// Takes a request in; gives the number of the event that is its receipt. `data_crc` is the CRC32C of the
    /// request's data, computed by the caller before it took the drive's lock.
    ///
    /// # Errors
    /// If the drive has no such range, or can't record any more.
    pub fn receive(&mut self, request: &Request<'_>, data_crc: u32) -> Result<u64, Refusal> {
        self.geometry.check(request)?;
        let Request { command, offset, length, fua, data } = *request;
        if command == Command::Flush {
            return self.append(What::Received { command, lba: Lba(0), sectors: Sectors(0), fua }, &[], 0);
        }
        let end = offset + length;
        if command == Command::Trim {
            // A trim is a hint: sectors that it names only in part keep their data.
            let first = offset.div_ceil(SECTOR);
            let sectors = Sectors((end / SECTOR).saturating_sub(first));
            return self.take(What::Received { command, lba: Lba(first), sectors, fua }, data, data_crc);
        }
        let lba = Lba(offset / SECTOR);
        let sectors = Sectors(end.div_ceil(SECTOR) - lba.0);
        let aligned = lba.bytes() == offset && sectors.bytes() == length;
        if !command.writes() || aligned {
            return self.take(What::Received { command, lba, sectors, fua }, data, data_crc);
        }
        // Part of a sector is written as the whole sector, as on a drive that emulates small sectors.
        let mut widened = vec![0; sectors.bytes() as usize];
        self.pages.read(lba.bytes(), &mut widened);
        let within = (offset - lba.bytes()) as usize;
        let part = &mut widened[within..within + length as usize];
        if command == Command::Write {
            part.copy_from_slice(data)
        } else {
            part.fill(0)
        }
        let crc = crc32c::crc32c(&widened);
        self.take(What::Received { command: Command::Write, lba, sectors, fua }, &widened, crc)
    }

    /// Records that the reply to the request received as `receipt` goes out.
    ///
    /// # Errors
    /// If it can't be recorded.
    pub fn reply(&mut self, receipt: u64) -> Result<u64, Refusal> {
        debug_assert!(receipt < self.next_event, "a reply to a request that was never received");
        self.append(What::Replied { receipt }, &[], 0)
    }

    /// Puts a mark; gives its event number. Labels are cut at [`MAX_LABEL`] bytes.
    ///
    /// # Errors
    /// If it can't be recorded.
    pub fn mark(&mut self, label: &str) -> Result<u64, Refusal> {
        let mut length = label.len().min(MAX_LABEL);
        while !label.is_char_boundary(length) {
            length -= 1;
        }
        let label = &label.as_bytes()[..length];
        self.append(What::Mark, label, crc32c::crc32c(label))
    }

    /// Closes the recording: gives the sink back after the event `End`.
    ///
    /// # Errors
    /// If the end can't be recorded.
    pub fn close(mut self) -> Result<S, Refusal> {
        self.append(What::End, &[], 0)?;
        Ok(self.sink)
    }

    fn take(&mut self, what: What, data: &[u8], data_crc: u32) -> Result<u64, Refusal> {
        let event = self.append(what, data, data_crc)?;
        let What::Received { command, lba, sectors, .. } = what else { unreachable!("only receipts are taken in") };
        match command {
            Command::Write => self.pages.write(lba.bytes(), data),
            Command::Trim | Command::WriteZeroes => self.pages.zero(lba.bytes(), sectors.bytes()),
            Command::Read | Command::Flush | Command::Cache => {}
        }
        Ok(event)
    }

    fn append(&mut self, what: What, data: &[u8], data_crc: u32) -> Result<u64, Refusal> {
        if self.failed {
            return Err(Refusal::RecordingFailed);
        }
        let event = self.next_event;
        let head = Head { event, what, data_len: data.len() as u32, data_crc };
        if self.sink.append(&head, data).is_err() {
            self.failed = true;
            return Err(Refusal::RecordingFailed);
        }
        self.next_event += 1;
        Ok(event)
    }
}
