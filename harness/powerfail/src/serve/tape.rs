//! The recording while a drive writes it: shared between the drive, which appends under its own lock, and the station,
//! which wants to read what is there so far.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

use powerfail_drive::event::{Head, Header};
use powerfail_drive::live::Sink;

use crate::recording_file::FileSink;

/// A handle on a recording that is being written.
#[derive(Clone, Debug)]
pub(crate) struct Tape(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    /// None once it is finished.
    file: Option<FileSink>,
    events: u64,
}

impl Tape {
    pub(crate) fn create(path: &Path, header: Header) -> io::Result<Tape> {
        let file = Some(FileSink::create(path, header)?);
        Ok(Tape(Arc::new(Mutex::new(State { file, events: 0 }))))
    }

    /// Events so far.
    pub(crate) fn events(&self) -> u64 {
        self.lock().events
    }

    /// Brings all events so far to the file, and gives its length then.
    pub(crate) fn flushed_length(&self, path: &Path) -> io::Result<u64> {
        let mut state = self.lock();
        state.file.as_mut().ok_or_else(finished)?.flush()?;
        // Under the lock nothing is appended, so the file ends between two events.
        Ok(path.metadata()?.len())
    }

    /// Writes what is left and syncs the file.
    pub(crate) fn finish(&self) -> io::Result<()> {
        let file = self.lock().file.take();
        file.ok_or_else(finished)?.finish()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().expect("no caller panics while it holds the tape")
    }
}

fn finished() -> io::Error {
    io::Error::other("the recording is closed")
}

impl Sink for Tape {
    fn append(&mut self, head: &Head, data: &[u8]) -> io::Result<()> {
        let mut state = self.lock();
        state.file.as_mut().ok_or_else(finished)?.append(head, data)?;
        state.events += 1;
        Ok(())
    }
}
