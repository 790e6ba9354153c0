//! What a file system promised, and whether it kept it.
//!
//! # The rules
//!
//! Each rule says no more than its source does; `docs/promises.md` has the sources at length and says what differs by file system.
//! Where two readings are possible the weaker one is taken: a violation must mean that a documented promise was
//! broken. What a worker learns late (a step in flight, a mark lost) only weakens. The same rules judge safe and unsafe modes.
//!
//! 1. **fsync and fdatasync: data and size.** When the call has returned, the file's data and size as of the call are
//!    there (fsync(2); fdatasync(2): metadata "needed in order to allow a subsequent data retrieval to be correctly
//!    handled", and that a change of size needs it). Each write, cut or hole since may be there or not, block by block of
//!    512 bytes; the size may be any between the smallest and the largest since, as write-back proceeds in steps.
//! 2. **fsync: the name of a new file.** fsync(2) does not promise it; ext4, XFS and btrfs do, and
//!    [`Promises::name_by_file_fsync`] says whether that is asked. Only the name that the file was created under, and
//!    only while it was never renamed or linked. Any other file must exist, under any name that it may have.
//!    Both are asked only if the directory is promised: step 0's are, one that a step made is when its own name is.
//!    fdatasync promises no name: its data are asked for where the file is found.
//! 3. **fsync of a directory: its entries** as of the call: what was created, linked, renamed or removed there (fsync(2),
//!    "Calling fsync() does not necessarily ensure that the entry in the directory containing the file has also reached
//!    disk. For that an explicit fsync() on a file descriptor for the directory is also needed"). Later changes may be
//!    there or not, each name for itself: no order between names is asked. The sync of one worker is held to promise only that
//!    worker's own names in a shared directory, although it promises all. A symbolic link holds its target wherever it is found.
//! 4. **rename.** Over an existing name: the old file or the new one, never neither ("there will be no point at which
//!    another process attempting to access newpath will find it missing", rename(2); journaling file systems keep that
//!    across a crash), and never a mixture of the two. The new file has the content that rules 1 and 5 give it: if it
//!    was not synced before, it may be empty. A file that must exist is not lost by a rename or an exchange: it is found under one
//!    of the names that it may have. It may be found under several, as rename(2) allows ("there will probably be a
//!    window in which both oldpath and newpath refer to the file"); the link count is a matter of fsck. A file that loses
//!    one of several names must exist only if another of them is promised by itself.
//! 5. **Nothing foreign inside the size.** With [`DataMode::Ordered`] and [`DataMode::Journal`] a block holds a version
//!    of this very block that rule 1 allows; zeroes are one where the file grew, was cut or had a hole
//!    (ext4's Documentation/admin-guide/ext4.rst, data=ordered: data are written before the metadata that refer to
//!    them are committed). With [`DataMode::Writeback`] anything may be in blocks that may have been given to the file since the
//!    promise ("data=writeback ... can show old data after a crash", same place); other promised blocks are asked for all the same.
//! 6. **A mixture of two versions of one block** of 512 bytes is allowed where both are allowed and the block was written or cut
//!    since the promise: write(2) may change a page that is on its way to the drive, unless the device asks
//!    for stable pages.
//! 7. **Nothing that never was.** A name that no step made, or whose removal was promised by rule 3, is not there;
//!    a name holds no file that it never had. `lost+found` in the root is not ours. No documentation spells this out; a file
//!    system that makes up names, or lets content appear under a name it was never given, keeps no promise at all.
//! 8. **syncfs** promises what fsync of every file and directory would (sync(2): "sync() or syncfs() provide the same
//!    guarantees as fsync() called on every file in the system or filesystem respectively").
//! 9. **O_DSYNC, O_SYNC, RWF_DSYNC, msync(MS_SYNC): this write alone.** When it has returned, its own blocks are there, and the size
//!    that they need (open(2): "the output data has been transferred to the underlying hardware, along with any file
//!    metadata that would be required to retrieve that data"). Of all else in the file nothing is said.
//! 10. **Errors weaken.** A step that returned an error may have been done, in part or not at all, and what it touched is in doubt
//!     even after later syncs, until it is written, cut or named again. After a sync that returned an error, later
//!     syncs say nothing of what was unsynced then, since Linux takes pages for clean whose writing has failed (fsync(2), NOTES of
//!     newer versions: the error is reported once).
//!
//! # What is not asked
//!
//! Order between steps of different names; atomicity of a write; times, modes, link counts; a file without a name that is still
//! open; bytes after the last whole block of a file whose size is no multiple of 512; a file without content is nobody's, so
//! it passes for any file that may be empty. What the walk could not list or read is not judged here: it is a finding of the walk.

mod judge;
#[cfg(test)]
mod tests;

use crate::catalog::{Spec, Workload};
use crate::marks::Mark;
use crate::model::Model;
use crate::observation::Observation;
use crate::steps::{Op, Steps};
use serde::{Deserialize, Serialize};

/// What the file system at hand promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Promises {
    /// How it treats data that no sync covers.
    pub data: DataMode,
    /// Whether fsync of a new file promises its name (ext4, XFS, btrfs: yes).
    pub name_by_file_fsync: bool,
}

/// What may be inside the size of a file where nothing is promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DataMode {
    /// Own versions and zeroes: ext4 `data=ordered`; XFS and btrfs too.
    Ordered,
    /// Anything: ext4 `data=writeback`.
    Writeback,
    /// As ordered: ext4 `data=journal`.
    Journal,
}

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Breach {
    /// Which.
    pub rule: Rule,
    /// What was seen and what was promised, in one sentence.
    pub detail: String,
}

/// The kinds of breaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// A promised block is not there.
    Data,
    /// The size is none that may be.
    Size,
    /// A block where nothing is promised holds what it never may.
    Exposed,
    /// A promised name is not there, or holds a file it may not hold, or no file at all.
    Name,
    /// A promised file is under none of the names that it may have.
    Lost,
    /// A name exists that must not.
    Unknown,
}

/// A mark that cannot come now: recording and options do not belong together, or the harness is broken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("mark \"{mark}\" cannot come now: {why}")]
pub struct OutOfOrder {
    /// The mark.
    pub mark: Mark,
    /// What was expected.
    pub why: String,
}

/// Knows what must and what may be there after the marks that it was fed with. A clone goes on from the same place.
#[derive(Clone)]
pub struct Oracle {
    promises: Promises,
    directories: Vec<String>,
    /// Whether step 0 has returned.
    made: bool,
    workers: Vec<Worker>,
}

struct Worker {
    steps: Box<dyn Steps>,
    model: Model,
    /// The step that may or may not have happened, issued in the model: none before step 0 and after the last.
    in_flight: Option<(u64, Op)>,
}

impl Oracle {
    /// An oracle at the moment before step 0: nothing is there, or some of the directories.
    pub fn new(spec: &Spec, promises: Promises) -> Oracle {
        let workers = (0..spec.workers())
            .map(|worker| Worker { steps: spec.steps(worker), model: Model::default(), in_flight: None })
            .collect();
        Oracle { promises, directories: spec.directories(), made: false, workers }
    }

    /// Takes in the next mark of the recording.
    pub fn returned(&mut self, mark: &Mark) -> Result<(), OutOfOrder> {
        let refused = |why: String| OutOfOrder { mark: *mark, why };
        if mark.step == 0 {
            if mark.worker != 0 || self.made {
                return Err(refused("step 0 is worker 0's and comes once".to_owned()));
            }
            if mark.errno == 0 {
                self.made = true;
                self.workers.iter_mut().for_each(|worker| worker.issue(1));
            }
            return Ok(());
        }
        let count = self.workers.len();
        let worker =
            self.workers.get_mut(mark.worker as usize).ok_or_else(|| refused(format!("there are {count} workers")))?;
        match &worker.in_flight {
            Some((step, op)) if *step == mark.step => {
                let goes_on = if mark.errno == 0 {
                    worker.model.complete(mark.step, op, &self.promises);
                    true
                } else {
                    // Nobody says how far a failed step came.
                    worker.model.fail(op);
                    worker.steps.failed(mark.errno)
                };
                worker.in_flight = None;
                if goes_on {
                    worker.issue(mark.step + 1);
                }
                Ok(())
            }
            Some((step, _)) => Err(refused(format!("step {step} of this worker is next"))),
            None => Err(refused("this worker has not begun, has failed or is done".to_owned())),
        }
    }

    /// The promises that the tree breaks, if the power failed after the last mark taken in and before the next.
    pub fn judge(&self, seen: &Observation) -> Vec<Breach> {
        judge::judge(self, seen)
    }

    /// What may be found under a path, each possibility with its reason; none if nothing may.
    pub fn possibilities(&self, path: &str) -> Option<String> {
        self.workers.iter().find_map(|worker| worker.model.names.get(path)).map(|name| name.in_words())
    }

    /// The steps that may or may not have happened: worker, step, operation.
    pub fn in_flight(&self) -> impl Iterator<Item = (u32, u64, &Op)> {
        (0u32..)
            .zip(&self.workers)
            .filter_map(|(number, worker)| worker.in_flight.as_ref().map(|(step, op)| (number, *step, op)))
    }
}

impl Worker {
    fn issue(&mut self, step: u64) {
        if let Some(op) = self.steps.next() {
            self.model.issue(step, &op);
            self.in_flight = Some((step, op));
        }
    }
}

impl Clone for Worker {
    fn clone(&self) -> Worker {
        Worker { steps: self.steps.fork(), model: self.model.clone(), in_flight: self.in_flight.clone() }
    }
}
