//! Mounting under the machine's mount lock, and unmounting for certain.
//!
//! The lock exists because recovery speaks in lines that name no device ("JBD2: ..."); see `attribution`. It is held
//! for mount(2) alone.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use crate::kernel_log::KernelLog;
use crate::protocol::{Event, Failure, Log};
use crate::supervised::{self, Ended};
use crate::tool::micros;

/// The lock's file: one for the machine, whatever harness an agent belongs to.
pub const MOUNT_LOCK: &str = "/run/lock/powerfail-mount.lock";

/// A mounted file system; dropping it unmounts, by force of laziness if it must.
#[derive(Debug)]
pub(crate) struct Mounted {
    at: PathBuf,
    mounted: bool,
}

/// How a mount went.
#[derive(Debug)]
pub(crate) enum Tried {
    /// [`Event::Mounted`] with the guard, [`Event::Refused`] or [`Event::Killed`].
    Ended(Event, Option<Mounted>),
    /// It is still going on.
    Running {
        /// Where in the kernel it is.
        stack: String,
        /// The kernel's lines in that time.
        log: Log,
    },
}

impl Mounted {
    /// Mounts `device` at `at`, waiting for the lock and for mount(2) within their limits, and says what the kernel said.
    ///
    /// # Errors
    /// The lock was not to be had, or the log could not be read; both are no verdict on the file system.
    pub(crate) fn try_mount(
        device: &Path,
        at: &Path,
        (fstype, options): (&str, &str),
        (lock_wait, limit): (Duration, Duration),
        log: &mut KernelLog,
    ) -> Result<Tried, Failure> {
        fs::create_dir_all(at).map_err(|e| Failure::io("make the mount point", e))?;
        let (flags, data) = split_options(options);
        let data = CString::new(data).map_err(|_| Failure::new("mount", "a NUL byte in the mount options"))?;
        let lock = Arc::new(MachineLock::take(Path::new(MOUNT_LOCK), lock_wait)?);
        log.catch_up()?;
        let (device, place, fstype) = (device.to_path_buf(), at.to_path_buf(), fstype.to_string());
        // A mount that goes on keeps the lock, whoever has given it up: what it says would be taken for another's.
        let held = Arc::clone(&lock);
        let ended = supervised::call(supervised::MOUNTER, limit, move || {
            let started = Instant::now();
            let result = mount(&device, &place, fstype, flags, Some(data.as_c_str()));
            drop(held);
            (result, micros(started))
        })?;
        let log = log.of_our_mount()?;
        drop(lock);
        Ok(match ended {
            Ended::Returned((Ok(()), took_us)) => {
                Tried::Ended(Event::Mounted { took_us, log }, Some(Mounted { at: at.to_path_buf(), mounted: true }))
            }
            Ended::Returned((Err(e), took_us)) => {
                let (errno, message) = (e.raw_os_error(), io::Error::from(e).to_string());
                Tried::Ended(Event::Refused { errno, message, took_us, log }, None)
            }
            Ended::Killed => Tried::Ended(Event::Killed { log }, None),
            Ended::Running { stack } => Tried::Running { stack, log },
        })
    }

    /// Where it is mounted.
    pub(crate) fn at(&self) -> &Path {
        &self.at
    }

    /// Unmounts; returns the time in umount(2) in microseconds.
    ///
    /// # Errors
    /// What umount(2) said; it is then still mounted.
    pub(crate) fn unmount(&mut self) -> io::Result<u64> {
        let started = Instant::now();
        unmount(&self.at, UnmountFlags::NOFOLLOW)?;
        self.mounted = false;
        Ok(micros(started))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.mounted && unmount(&self.at, UnmountFlags::NOFOLLOW).is_err() {
            let _ = unmount(&self.at, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH);
        }
    }
}

/// A flock on a file that is never removed; the kernel lets go of it when its holder dies.
#[derive(Debug)]
struct MachineLock(#[expect(dead_code, reason = "held, not used")] File);

impl MachineLock {
    fn take(path: &Path, limit: Duration) -> Result<MachineLock, Failure> {
        let doing = format!("take the mount lock {}", path.display());
        let open = || -> io::Result<File> {
            fs::create_dir_all(path.parent().unwrap_or(Path::new("/")))?;
            OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)
        };
        let file = open().map_err(|e| Failure::io(&doing, e))?;
        let end = Instant::now() + limit;
        loop {
            // Not a blocking flock: that can't be given a limit, and a mount that hangs elsewhere must not make
            // this one look as if it hung.
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(MachineLock(file)),
                Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < end => {
                    std::thread::sleep(Duration::from_micros(200));
                }
                Err(e) => return Err(Failure::io(&doing, e)),
            }
        }
    }
}

/// Generic flags as mount(8) knows them, and what is left for the file system.
fn split_options(options: &str) -> (MountFlags, String) {
    let mut flags = MountFlags::empty();
    let mut data: Vec<&str> = Vec::new();
    for option in options.split(',').map(str::trim).filter(|option| !option.is_empty()) {
        match option {
            "defaults" => {}
            "ro" => flags |= MountFlags::RDONLY,
            "rw" => flags -= MountFlags::RDONLY,
            "sync" => flags |= MountFlags::SYNCHRONOUS,
            "async" => flags -= MountFlags::SYNCHRONOUS,
            "dirsync" => flags |= MountFlags::DIRSYNC,
            "noatime" => flags |= MountFlags::NOATIME,
            "nodiratime" => flags |= MountFlags::NODIRATIME,
            "relatime" => flags |= MountFlags::RELATIME,
            "strictatime" => flags |= MountFlags::STRICTATIME,
            "lazytime" => flags |= MountFlags::LAZYTIME,
            "nodev" => flags |= MountFlags::NODEV,
            "nosuid" => flags |= MountFlags::NOSUID,
            "noexec" => flags |= MountFlags::NOEXEC,
            other => data.push(other),
        }
    }
    (flags, data.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generic_flags_are_kept_from_the_file_system() {
        let (flags, data) = split_options("noatime,barrier=0, ro ,journal_async_commit,data=writeback,defaults");
        assert_eq!(flags, MountFlags::NOATIME | MountFlags::RDONLY);
        assert_eq!(data, "barrier=0,journal_async_commit,data=writeback");
        assert_eq!(split_options(""), (MountFlags::empty(), String::new()));
        assert_eq!(split_options("ro,rw").0, MountFlags::empty());
    }

    #[test]
    fn the_lock_excludes_and_gives_up_in_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let held = MachineLock::take(&path, Duration::ZERO).unwrap();
        let failure = MachineLock::take(&path, Duration::from_millis(5)).unwrap_err();
        assert_eq!(failure.errno, Some(libc::EWOULDBLOCK));
        drop(held);
        MachineLock::take(&path, Duration::ZERO).unwrap();
    }
}
