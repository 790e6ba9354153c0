//! Reading the kernel's log by position: open, go to the end, and later read what was added. Never cleared.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;

use crate::attribution::{Attribution, Record, When};
use crate::protocol::{Failure, Log, LogLine};

/// One device's view of the log, from the moment of its making.
#[derive(Debug)]
pub(crate) struct KernelLog {
    kmsg: File,
    rules: Attribution,
    next_seq: Option<u64>,
    /// Taken, but not handed over yet.
    pending: Log,
}

/// Enough for a report; a device that fails each request would otherwise fill the memory.
const MOST_PENDING: usize = 20_000;

impl KernelLog {
    /// Starts at the log's present end.
    ///
    /// # Errors
    /// `/dev/kmsg` can't be read: without it "the kernel did not complain" can't be said.
    pub(crate) fn from_now(device: &str) -> Result<KernelLog, Failure> {
        let open = || -> io::Result<File> {
            let mut file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open("/dev/kmsg")?;
            file.seek(SeekFrom::End(0))?;
            Ok(file)
        };
        let kmsg = open().map_err(|e| Failure::io("open the kernel's log /dev/kmsg", e))?;
        Ok(KernelLog { kmsg, rules: Attribution::new(device), next_seq: None, pending: Log::default() })
    }

    /// Reads up to the end under the rules for ordinary times. What is taken waits for the next [`KernelLog::hand_over`].
    ///
    /// # Errors
    /// The log can't be read.
    pub(crate) fn catch_up(&mut self) -> Result<(), Failure> {
        let log = self.read_to_end(When::Elsewhen)?;
        self.pending.lost += log.lost;
        let room = MOST_PENDING.saturating_sub(self.pending.lines.len());
        self.pending.lost += log.lines.len().saturating_sub(room) as u64;
        self.pending.lines.extend(log.lines.into_iter().take(room));
        Ok(())
    }

    /// Everything that was taken since the last time.
    ///
    /// # Errors
    /// The log can't be read.
    pub(crate) fn hand_over(&mut self) -> Result<Log, Failure> {
        self.catch_up()?;
        Ok(std::mem::take(&mut self.pending))
    }

    /// What was added since the last read, by the rules for a mount of ours. To be called under the mount lock, after
    /// a [`KernelLog::catch_up`] under the same lock.
    ///
    /// # Errors
    /// The log can't be read.
    pub(crate) fn of_our_mount(&mut self) -> Result<Log, Failure> {
        self.read_to_end(When::OurMount)
    }

    fn read_to_end(&mut self, when: When) -> Result<Log, Failure> {
        let mut lines: Vec<LogLine> = Vec::new();
        let mut lost = 0;
        let mut buffer = [0_u8; 16384];
        loop {
            match self.kmsg.read(&mut buffer) {
                Ok(0) => break,
                Ok(length) => {
                    let raw = String::from_utf8_lossy(&buffer[..length]);
                    let Some(record) = Record::parse(&raw) else { continue };
                    lost += self.next_seq.map_or(0, |next| record.seq.saturating_sub(next));
                    self.next_seq = Some(record.seq + 1);
                    lines.extend(self.rules.take(record, when));
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                // Overwritten before we came; the next read goes on with the oldest that is left, whose number then
                // tells how many are missing. One at least, if we had not read any before.
                Err(e) if e.raw_os_error() == Some(libc::EPIPE) => lost += u64::from(self.next_seq.is_none()),
                Err(e) => return Err(Failure::io("read the kernel's log", e)),
            }
        }
        Ok(Log { lines, lost })
    }
}
