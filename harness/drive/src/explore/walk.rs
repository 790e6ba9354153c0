//! A walk through a recording in memory (or mapped), up to one cut after the other.

use crate::cache::Description;
use crate::event::What;
use crate::history::History;
use crate::recording::{ReadError, Reader};

/// How far a recording was walked.
#[derive(Debug)]
pub struct Walk<'a> {
    reader: Reader<&'a [u8]>,
    /// The drive at the cut.
    pub history: History,
}

impl<'a> Walk<'a> {
    /// A walk before the first event; data is not checked again.
    ///
    /// # Errors
    /// If the bytes are no recording.
    pub fn new(recording: &'a [u8], drive: Description) -> Result<Walk<'a>, ReadError> {
        let reader = Reader::new(recording, false)?;
        let history = History::new(reader.header(), drive);
        Ok(Walk { reader, history })
    }

    /// Goes on until `cut` is the next event, or the recording ends.
    ///
    /// # Errors
    /// If the recording is damaged.
    pub fn advance(&mut self, cut: u64) -> Result<(), ReadError> {
        self.advance_with(cut, |_| ())
    }

    /// The same, and shows every mark on the way.
    ///
    /// # Errors
    /// If the recording is damaged.
    pub fn advance_with(&mut self, cut: u64, mut on_mark: impl FnMut(&str)) -> Result<(), ReadError> {
        while self.history.next_event() < cut {
            let Some(entry) = self.reader.next()? else { break };
            let label = (entry.head.what == What::Mark).then(|| String::from_utf8_lossy(self.reader.data()));
            if let Some(label) = &label {
                on_mark(label);
            }
            self.history.apply(&entry, label.as_deref());
        }
        Ok(())
    }
}
