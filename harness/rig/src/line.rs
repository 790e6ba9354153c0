//! Lines from a pipe, with a deadline. No thread reads ahead: a mark must not wait for a hand-over between threads.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Longest line; an observation of a hundred thousand files is far below.
const LONGEST: usize = 1 << 30;

/// The reading end of a pipe.
#[derive(Debug)]
pub(crate) struct Lines {
    pipe: File,
    /// What one read(2) brings; as large as a pipe.
    block: Box<[u8; 65536]>,
    buffer: Vec<u8>,
    /// Bytes at the front of the buffer that were given out.
    used: usize,
    /// Bytes that are known to hold no newline.
    searched: usize,
}

/// Why there is no line.
#[derive(Debug)]
pub(crate) enum NoLine {
    Ended,
    TooLate,
    TooLong,
    Failed(io::Error),
}

impl Lines {
    pub(crate) fn new(pipe: impl Into<OwnedFd>) -> Lines {
        Lines { pipe: File::from(pipe.into()), block: Box::new([0; 65536]), buffer: Vec::new(), used: 0, searched: 0 }
    }

    /// The next line, without its newline.
    pub(crate) fn next(&mut self, end: Instant) -> Result<&[u8], NoLine> {
        loop {
            if let Some(at) = self.buffer[self.searched..].iter().position(|b| *b == b'\n') {
                let (from, to) = (self.used, self.searched + at);
                self.used = to + 1;
                self.searched = self.used;
                return Ok(&self.buffer[from..to]);
            }
            self.buffer.drain(..self.used);
            self.used = 0;
            self.searched = self.buffer.len();
            if self.buffer.len() > LONGEST {
                return Err(NoLine::TooLong);
            }
            self.wait(end)?;
            self.fill()?;
        }
    }

    fn wait(&self, end: Instant) -> Result<(), NoLine> {
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let seconds = left.as_secs().try_into().unwrap_or(i64::MAX);
            let left = Timespec { tv_sec: seconds, tv_nsec: left.subsec_nanos().into() };
            match poll(&mut [PollFd::new(&self.pipe, PollFlags::IN)], Some(&left)) {
                Ok(0) => return Err(NoLine::TooLate),
                Ok(_) => return Ok(()),
                Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(NoLine::Failed(e.into())),
            }
        }
    }

    fn fill(&mut self) -> Result<(), NoLine> {
        // A block of its own: growing the buffer first would zero 64 KiB for each short line.
        match self.pipe.read(&mut self.block[..]) {
            Ok(0) => Err(NoLine::Ended),
            Ok(length) => {
                self.buffer.extend_from_slice(&self.block[..length]);
                Ok(())
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(e) => Err(NoLine::Failed(e)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::time::Duration;

    #[test]
    fn lines_in_pieces_a_deadline_and_an_end() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let mut lines = Lines::new(reader);
        let soon = || Instant::now() + Duration::from_secs(10);
        writer.write_all(b"one\ntw").unwrap();
        assert_eq!(lines.next(soon()).unwrap(), b"one");
        assert!(matches!(lines.next(Instant::now()), Err(NoLine::TooLate)));
        writer.write_all(b"o\n\nlast").unwrap();
        assert_eq!(lines.next(soon()).unwrap(), b"two");
        assert_eq!(lines.next(soon()).unwrap(), b"");
        drop(writer);
        assert!(matches!(lines.next(soon()), Err(NoLine::Ended)), "a line without its end is none");
    }
}
