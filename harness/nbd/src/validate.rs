//! The door of the transmission phase: each request is judged here once, each refusal is made here with its error
//! number and its reason, and what is let through needs no second look.
//!
//! The numbers are those of proto.md, section "Error values". Two choices are ours where it leaves one: a request of no
//! bytes succeeds and has no effect, and a WRITE may be longer than what is advertised (see [`MAX_WRITE`]).

use powerfail_drive::device::Offers;
use powerfail_drive::request::{Command, Refusal};

use crate::export::{MAX_PAYLOAD, MAX_WRITE};
use crate::wire::{self, Errno, RequestHeader};

/// What was agreed with the host; requests are judged by it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) size: u64,
    pub(crate) offers: Offers,
    pub(crate) read_only: bool,
    pub(crate) min_block: u32,
    pub(crate) structured: bool,
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Judged {
    /// The drive is asked.
    Ask {
        /// What of it.
        command: Command,
        /// Whether the write must be durable when it is replied to; never set on what doesn't write.
        fua: bool,
    },
    /// It asks for nothing, and gets it.
    Nothing,
    /// The host gets an error; the connection lives on.
    Refuse(Errno, &'static str),
    /// The host is leaving.
    Disconnect,
    /// The two sides are out of step, or would be: the connection ends without a reply.
    Sever(&'static str),
}

impl Rules {
    /// Judges a request by its header; a WRITE's data need not have arrived.
    pub(crate) fn judge(&self, header: &RequestHeader) -> Judged {
        if header.magic != wire::REQUEST_MAGIC {
            return Judged::Sever("a request has the wrong magic number");
        }
        if header.command == wire::CMD_WRITE && header.length > MAX_WRITE {
            return Judged::Sever("a WRITE is longer than 64 MiB");
        }
        let command = match header.command {
            wire::CMD_READ => Command::Read,
            wire::CMD_WRITE => Command::Write,
            wire::CMD_DISC => return Judged::Disconnect,
            wire::CMD_FLUSH => Command::Flush,
            wire::CMD_TRIM => Command::Trim,
            wire::CMD_CACHE => Command::Cache,
            wire::CMD_WRITE_ZEROES => Command::WriteZeroes,
            wire::CMD_BLOCK_STATUS => return refuse("BLOCK_STATUS needs a metadata context, and none was agreed on"),
            _ => return refuse("there is no such command"),
        };
        match self.objection(header, command) {
            Some((errno, reason)) => Judged::Refuse(errno, reason),
            None if header.length == 0 && command != Command::Flush => Judged::Nothing,
            None => Judged::Ask { command, fua: command.writes() && header.flags & wire::CMD_FLAG_FUA != 0 },
        }
    }

    fn objection(&self, header: &RequestHeader, command: Command) -> Option<(Errno, &'static str)> {
        let inval = |reason| Some((Errno::Inval, reason));
        let offered = match command {
            Command::Flush => self.offers.flush,
            Command::Trim => self.offers.trim,
            Command::WriteZeroes => self.offers.write_zeroes,
            Command::Read | Command::Write | Command::Cache => true,
        };
        if !offered {
            return inval("the drive doesn't offer this command");
        }
        if header.flags & !self.flags_of(command) != 0 {
            return inval("a flag is set that this command doesn't have here");
        }
        if self.read_only && command.writes() {
            return Some((Errno::Perm, "the export is read-only"));
        }
        if command == Command::Flush {
            let reserved = header.offset == 0 && header.length == 0;
            return if reserved { None } else { inval("a FLUSH has an offset or a length, which are reserved") };
        }
        let length = u64::from(header.length);
        // The sum may not fit: an offset near the end of u64 is past the end, not before the beginning.
        let inside = header.offset.checked_add(length).is_some_and(|end| end <= self.size);
        if !inside {
            return match command {
                Command::Write | Command::WriteZeroes => {
                    Some((Errno::NoSpace, "the write ends past the end of the drive"))
                }
                _ => inval("the range ends past the end of the drive"),
            };
        }
        let block = u64::from(self.min_block);
        if !header.offset.is_multiple_of(block) || !length.is_multiple_of(block) {
            return inval("offset or length is no multiple of the smallest block");
        }
        if command == Command::Read && header.length > MAX_PAYLOAD {
            return inval("a READ is longer than 32 MiB");
        }
        None
    }

    /// FUA may come with any command, and means something on those that write (section "Command flags").
    fn flags_of(&self, command: Command) -> u16 {
        let fua = if self.offers.fua { wire::CMD_FLAG_FUA } else { 0 };
        match command {
            Command::WriteZeroes => fua | wire::CMD_FLAG_NO_HOLE,
            Command::Read if self.structured => fua | wire::CMD_FLAG_DF,
            _ => fua,
        }
    }
}

/// The error number of the drive's own refusals.
pub(crate) fn errno_of(refusal: Refusal, command: u16) -> Errno {
    match refusal {
        Refusal::OutOfRange { .. } if matches!(command, wire::CMD_WRITE | wire::CMD_WRITE_ZEROES) => Errno::NoSpace,
        Refusal::OutOfRange { .. } | Refusal::DataLength { .. } | Refusal::Unaligned { .. } => Errno::Inval,
        Refusal::PowerOff | Refusal::RecordingFailed => Errno::Io,
    }
}

fn refuse(reason: &'static str) -> Judged {
    Judged::Refuse(Errno::Inval, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules() -> Rules {
        Rules { size: 1 << 20, offers: Offers::ALL, read_only: false, min_block: 1, structured: false }
    }

    fn header(command: u16, flags: u16, offset: u64, length: u32) -> RequestHeader {
        RequestHeader { magic: wire::REQUEST_MAGIC, flags, command, cookie: 9, offset, length }
    }

    #[test]
    fn fua_reaches_the_drive_only_with_what_writes() {
        let fua = |command, length| rules().judge(&header(command, wire::CMD_FLAG_FUA, 0, length));
        assert_eq!(fua(wire::CMD_WRITE, 1), Judged::Ask { command: Command::Write, fua: true });
        assert_eq!(fua(wire::CMD_TRIM, 1), Judged::Ask { command: Command::Trim, fua: true });
        assert_eq!(fua(wire::CMD_READ, 1), Judged::Ask { command: Command::Read, fua: false });
        assert_eq!(fua(wire::CMD_FLUSH, 0), Judged::Ask { command: Command::Flush, fua: false });
    }

    #[test]
    fn what_the_drive_does_not_offer_is_refused() {
        let none = Offers { flush: false, fua: false, trim: false, write_zeroes: false, rotational: false };
        let rules = Rules { offers: none, ..rules() };
        for command in [wire::CMD_FLUSH, wire::CMD_TRIM, wire::CMD_WRITE_ZEROES] {
            assert!(matches!(rules.judge(&header(command, 0, 0, 0)), Judged::Refuse(Errno::Inval, _)), "{command}");
        }
        let fua = rules.judge(&header(wire::CMD_WRITE, wire::CMD_FLAG_FUA, 0, 1));
        assert!(matches!(fua, Judged::Refuse(Errno::Inval, _)));
    }

    #[test]
    fn the_last_byte_is_inside_and_the_next_is_not() {
        let end = 1 << 20;
        let write = |offset, length| rules().judge(&header(wire::CMD_WRITE, 0, offset, length));
        assert!(matches!(write(end - 1, 1), Judged::Ask { .. }));
        assert!(matches!(write(end, 1), Judged::Refuse(Errno::NoSpace, _)));
        assert!(matches!(write(u64::MAX, 2), Judged::Refuse(Errno::NoSpace, _)));
        assert_eq!(write(end, 0), Judged::Nothing);
    }
}
