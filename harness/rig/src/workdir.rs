//! The folder of a run under `/run`, and what killed runs left there.
//!
//! A run's folder is named `/run/powerfail-…` and holds a file `lock` on which the run has a flock. The kernel lets go
//! of the lock when the run dies, however it dies. So a folder of this name whose lock is free is a dead run's, and
//! nothing else ever is: not by age, not by a process id that may have been reused.
//!
//! Agents leave nothing outside: their mounts and devices end with them.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{FlockOperation, flock};

/// Where run folders are.
pub const PLACE: &str = "/run";

const PREFIX: &str = "powerfail-";
const LOCK: &str = "lock";
/// The folder that agents cover with their tmpfs.
const AGENTS: &str = "agent";

/// A run's folder; removed when dropped.
#[derive(Debug)]
pub struct Workdir {
    path: PathBuf,
    _lock: File,
}

impl Workdir {
    /// Makes a new one.
    ///
    /// # Errors
    /// `/run` is not writable, which it is for root.
    pub fn make() -> io::Result<Workdir> {
        Workdir::make_in(Path::new(PLACE))
    }

    /// The folder, e.g. for sockets.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The folder for [`crate::AgentSetup::folder`]; one for all agents of the run.
    pub fn agents(&self) -> PathBuf {
        self.path.join(AGENTS)
    }

    /// Makes a new one elsewhere than in [`PLACE`], for who may not write there.
    ///
    /// # Errors
    /// The place is not writable.
    pub fn make_in(place: &Path) -> io::Result<Workdir> {
        // A cleaner may remove a folder between its making and its locking; then another one is made.
        for attempt in 0..100_u32 {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
            let path = place.join(format!("{PREFIX}{}-{now:x}-{attempt}", std::process::id()));
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => {}
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => continue,
                Err(e) => return Err(e),
            }
            match take_new_lock(&path) {
                Ok(Some(lock)) => {
                    fs::create_dir(path.join(AGENTS))?;
                    return Ok(Workdir { path, _lock: lock });
                }
                Ok(None) => {}
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => return Err(e),
            }
        }
        Err(io::Error::other(format!("100 folders in {} were taken away at once", place.display())))
    }
}

impl Drop for Workdir {
    fn drop(&mut self) {
        // Best effort; what stays is found by `clean_leftovers` of the next run.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Removes the folders of dead runs; returns them.
///
/// # Errors
/// `/run` can't be listed. A folder that can't be removed is left out of the answer, and found again next time.
pub fn clean_leftovers() -> io::Result<Vec<PathBuf>> {
    clean_in(Path::new(PLACE))
}

/// The same of another place than [`PLACE`].
///
/// # Errors
/// The place can't be listed.
pub fn clean_in(place: &Path) -> io::Result<Vec<PathBuf>> {
    let mut removed = Vec::new();
    for entry in fs::read_dir(place)? {
        let Ok(entry) = entry else { continue };
        let path = entry.path();
        let ours = entry.file_name().to_string_lossy().starts_with(PREFIX);
        if ours && is_own_folder(&path) && remove_if_dead(&path) {
            removed.push(path);
        }
    }
    removed.sort();
    Ok(removed)
}

/// A real folder (no link) of this user.
fn is_own_folder(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir() && meta.uid() == rustix::process::geteuid().as_raw())
}

fn remove_if_dead(path: &Path) -> bool {
    match OpenOptions::new().write(true).open(path.join(LOCK)) {
        Ok(lock) => {
            let dead = flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok();
            dead && has_no_mount(path) && fs::remove_dir_all(path).is_ok()
        }
        // Its maker was killed between making it and its lock, or lives and is about to: it then makes another one.
        Err(e) if e.kind() == io::ErrorKind::NotFound => fs::remove_dir(path).is_ok(),
        Err(_) => false,
    }
}

/// Removing a folder must never reach into a mounted file system, whoever mounted it there.
fn has_no_mount(path: &Path) -> bool {
    let Ok(mounts) = fs::read_to_string("/proc/self/mountinfo") else { return false };
    let mut points = mounts.lines().filter_map(|line| line.split(' ').nth(4));
    !points.any(|point| Path::new(point).starts_with(path))
}

/// The lock of a folder just made; none: a cleaner was faster.
fn take_new_lock(folder: &Path) -> io::Result<Option<File>> {
    let path = folder.join(LOCK);
    let lock = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
    if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
        return Ok(None);
    }
    let still_there = fs::metadata(&path).is_ok_and(|meta| lock.metadata().is_ok_and(|own| own.ino() == meta.ino()));
    Ok(still_there.then_some(lock))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_living_run_is_left_alone_and_a_dead_one_removed() {
        let place = tempfile::tempdir().unwrap();
        let living = Workdir::make_in(place.path()).unwrap();
        let dead = Workdir::make_in(place.path()).unwrap();
        let dead_path = dead.path().to_path_buf();
        fs::write(dead.path().join("socket"), "x").unwrap();
        // As a kill would: the lock is let go of, the folder stays.
        let lock = dead._lock.try_clone().unwrap();
        std::mem::forget(dead);
        flock(&lock, FlockOperation::Unlock).unwrap();

        assert_eq!(clean_in(place.path()).unwrap(), std::slice::from_ref(&dead_path));
        assert!(!dead_path.exists());
        assert!(living.path().join(LOCK).exists() && living.agents().is_dir());
        let path = living.path().to_path_buf();
        drop(living);
        assert!(!path.exists());
    }

    #[test]
    fn what_is_not_a_run_folder_is_never_touched() {
        let place = tempfile::tempdir().unwrap();
        let kept = ["powerfail-notes.txt", "other-1", "powerfail-link", "powerfail-full"];
        fs::write(place.path().join(kept[0]), "x").unwrap();
        fs::create_dir(place.path().join(kept[1])).unwrap();
        std::os::unix::fs::symlink(place.path().join(kept[1]), place.path().join(kept[2])).unwrap();
        // No lock file, and not empty: not made by us.
        fs::create_dir_all(place.path().join(kept[3]).join("sub")).unwrap();
        fs::create_dir(place.path().join("powerfail-empty")).unwrap();

        assert_eq!(clean_in(place.path()).unwrap(), [place.path().join("powerfail-empty")]);
        for name in kept {
            assert!(fs::symlink_metadata(place.path().join(name)).is_ok(), "{name}");
        }
    }
}
