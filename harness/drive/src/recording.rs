//! Reads a recording back, event by event, without holding more than one head of it.
//!
//! A recording that was closed ends with an `End` event. One whose writer was killed ends anywhere: an incomplete last
//! record is the torn tail, and what is before it can be used. Everything else that does not fit (a checksum, a number
//! out of turn, a range off the drive) is damage and is refused with the byte where it is.

use std::io::{self, Read};

use crate::event::{HEAD, HEADER, Head, Header, Malformed, What};
use crate::request::Command;
use crate::units::SECTOR;

/// Why a recording can't be read on.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The source could not be read.
    #[error("can't read it: {0}")]
    Io(#[from] io::Error),
    /// It is damaged.
    #[error("it is damaged at byte {at}: {what}")]
    Damaged {
        /// The byte where the record that does not fit begins.
        at: u64,
        /// What does not fit.
        what: Malformed,
    },
    /// An event does not follow the one before it.
    #[error("it is damaged at byte {at}: event {found} stands where event {expected} belongs")]
    OutOfTurn {
        /// The byte where the record begins.
        at: u64,
        /// The number that belongs there.
        expected: u64,
        /// The number that stands there.
        found: u64,
    },
    /// Shorter than a header.
    #[error("it is too short to be a recording")]
    TooShort,
}

/// How a recording ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tail {
    /// Closed in good order.
    Closed,
    /// Its writer was killed; so many bytes of an incomplete record were left out.
    Torn {
        /// Bytes of the incomplete record; 0 if the cut lies between two records.
        bytes: u64,
    },
}

/// One event with the place of its data in the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The event.
    pub head: Head,
    /// Byte of the recording at which its data begins.
    pub data_at: u64,
}

/// A forward reader over any byte source.
#[derive(Debug)]
pub struct Reader<R> {
    source: R,
    header: Header,
    at: u64,
    next_event: u64,
    tail: Option<Tail>,
    /// Reused for data and labels.
    data: Vec<u8>,
    check_data: bool,
}

impl<R: Read> Reader<R> {
    /// Reads the header. Data is checked against its CRC as it goes by if `check_data` says so.
    ///
    /// # Errors
    /// If the source is no recording.
    pub fn new(mut source: R, check_data: bool) -> Result<Reader<R>, ReadError> {
        let mut bytes = [0; HEADER];
        if read_full(&mut source, &mut bytes)? < HEADER {
            return Err(ReadError::TooShort);
        }
        let header = Header::decode(&bytes).map_err(|what| ReadError::Damaged { at: 0, what })?;
        Ok(Reader { source, header, at: HEADER as u64, next_event: 0, tail: None, data: Vec::new(), check_data })
    }

    /// What the recording is of.
    pub fn header(&self) -> Header {
        self.header
    }

    /// How the recording ends, once `next` has given `None`.
    pub fn tail(&self) -> Option<Tail> {
        self.tail
    }

    /// The data of the event that `next` gave last.
    pub fn data(&self) -> &[u8] {
        &self.data
    }

    /// The next event; `None` at the end, closed or torn.
    ///
    /// # Errors
    /// If the recording is damaged or can't be read.
    #[allow(clippy::should_implement_trait, reason = "data() lends from the reader, so this is no iterator")]
    pub fn next(&mut self) -> Result<Option<Entry>, ReadError> {
        if self.tail.is_some() {
            return Ok(None);
        }
        let mut bytes = [0; HEAD];
        let got = read_full(&mut self.source, &mut bytes)?;
        if got < HEAD {
            self.tail = Some(Tail::Torn { bytes: got as u64 });
            return Ok(None);
        }
        let at = self.at;
        let head = Head::decode(&bytes).map_err(|what| ReadError::Damaged { at, what })?;
        if head.event != self.next_event {
            return Err(ReadError::OutOfTurn { at, expected: self.next_event, found: head.event });
        }
        self.check(&head).map_err(|what| ReadError::Damaged { at, what })?;
        self.data.resize(head.data_len as usize, 0);
        let got = read_full(&mut self.source, &mut self.data)?;
        if got < self.data.len() {
            self.tail = Some(Tail::Torn { bytes: (HEAD + got) as u64 });
            return Ok(None);
        }
        if self.check_data && crc32c::crc32c(&self.data) != head.data_crc {
            return Err(ReadError::Damaged { at, what: Malformed::Checksum("an event's data") });
        }
        self.next_event += 1;
        self.at += (HEAD + self.data.len()) as u64;
        if head.what == What::End {
            self.tail = Some(Tail::Closed);
            // Nothing may follow: bytes after the end were put there by somebody else.
            if read_full(&mut self.source, &mut [0])? != 0 {
                return Err(ReadError::Damaged { at: self.at, what: Malformed::Field("end") });
            }
            return Ok(None);
        }
        Ok(Some(Entry { head, data_at: at + HEAD as u64 }))
    }

    fn check(&self, head: &Head) -> Result<(), Malformed> {
        match head.what {
            What::Received { lba, sectors, command, .. } => {
                let inside = lba.0 + sectors.0 <= self.header.geometry.bytes() / SECTOR;
                if command != Command::Flush && !inside {
                    return Err(Malformed::Field("range"));
                }
            }
            What::Replied { receipt } if receipt >= head.event => return Err(Malformed::Field("reply")),
            What::Replied { .. } | What::Mark | What::End => {}
        }
        Ok(())
    }
}

/// Reads until `buffer` is full or the source ends; gives how much it got.
fn read_full(source: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut got = 0;
    while got < buffer.len() {
        match source.read(&mut buffer[got..]) {
            Ok(0) => break,
            Ok(count) => got += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(got)
}
