//! What breaks without being a finding: the reason and the console of the guest, kept beside the casebooks.
//!
//! ```text
//! CELL/broken/IMAGE/reason-1.txt, console-1.log     the first try of that state; -2 the second
//! CELL/broken/recording/…                           the recording
//! ```

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use powerfail_rig::GuestError;

use crate::folder::write_whole;

/// A failure of the harness or of its guest.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{reason}")]
pub struct Broke {
    /// What failed, in words.
    pub reason: String,
    /// What the guest has printed; none on rigs that have no guest.
    pub console: Option<String>,
}

impl Broke {
    /// What an error says, with the console of the guest if it has one.
    pub fn of(error: &anyhow::Error) -> Broke {
        let kept = error.downcast_ref::<Broke>().and_then(|broke| broke.console.clone());
        let unstarted = match error.downcast_ref::<GuestError>() {
            Some(GuestError::Start { console, .. }) => Some(console.clone()),
            _ => None,
        };
        Broke { reason: format!("{error:#}"), console: kept.or(unstarted) }
    }

    /// Keeps it in `folder`, as one of several tries.
    ///
    /// # Errors
    /// If it can't be written.
    pub fn keep(&self, folder: &Path, attempt: u32) -> anyhow::Result<()> {
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        write_whole(&folder.join(format!("reason-{attempt}.txt")), format!("{}\n", self.reason).as_bytes())?;
        match &self.console {
            Some(console) => write_whole(&folder.join(format!("console-{attempt}.log")), console.as_bytes()),
            None => Ok(()),
        }
    }
}

/// The folder for what broke in a cell; `what` is an image's digest, or a word.
pub fn folder(cell: &Path, what: &str) -> PathBuf {
    cell.join("broken").join(&what[..16.min(what.len())])
}
