//! The hog: what memory pressure does to a file system under test, without waiting for real scarcity.
//!
//! It holds memory and touches it, as the hog of the barrier test did. What that was for is that committed metadata
//! goes home early, long before the checkpoint of the journal needs it. On a machine with much memory that would take
//! gigabytes, so a pass also asks for it directly: `sync_file_range(SYNC_FILE_RANGE_WRITE)` on the block device under
//! the tree starts the writing of the dirty pages of its cache, as reclaim or the flusher threads would. That call sends no
//! flush to the drive and waits for nothing ("does not flush disk write caches", sync_file_range(2)); `sync`, `syncfs`
//! and `drop_caches` were left out because the first two flush and the last drops only what is clean. jbd2 keeps metadata
//! of an uncommitted transaction out of that cache's dirty pages, so the order that the journal demands is kept.
//! File systems with a metadata cache of their own (XFS, btrfs) feel only the held memory.
//!
//! A pass is due every so many steps of the workers; no clock decides it.

use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};
use std::sync::mpsc::Receiver;

/// Options of the hog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hog {
    /// Memory to hold, MiB.
    pub mib: u32,
    /// Steps of all workers between two passes; 0: no hog.
    pub every: u32,
}

/// What the hog did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hogged {
    /// Memory that it held, MiB.
    pub mib: u32,
    /// Passes it made.
    pub passes: u64,
    /// The device whose metadata it sent home; empty: none was found, so only memory was held.
    pub device: String,
}

/// Makes one pass per message, until the last sender is gone.
pub(crate) fn serve(root: &OwnedFd, hog: Hog, passes: Receiver<()>) -> Hogged {
    let mib = hog.mib.min(available_mib() / 4);
    let mut memory = vec![0u8; (mib as usize) << 20];
    let device = device_under(root);
    let mut done = Hogged { mib, passes: 0, device: device.as_ref().map(|d| d.0.clone()).unwrap_or_default() };
    for () in passes {
        done.passes += 1;
        for page in memory.chunks_mut(4096) {
            page[0] = std::hint::black_box(done.passes as u8);
        }
        if let Some((_, fd)) = &device {
            send_home(fd);
        }
    }
    done
}

/// `MemAvailable`, or 0 where the kernel does not say it: then nothing is held.
fn available_mib() -> u32 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = text.lines().find_map(|line| line.strip_prefix("MemAvailable:")?.trim().strip_suffix("kB"));
    kib.and_then(|kib| kib.trim().parse::<u64>().ok()).map_or(0, |kib| u32::try_from(kib >> 10).unwrap_or(u32::MAX))
}

/// The block device that the root lies on, opened for reading.
fn device_under(root: &OwnedFd) -> Option<(String, OwnedFd)> {
    let dev = rustix::fs::fstat(root).ok()?.st_dev;
    let (major, minor) = (rustix::fs::major(dev), rustix::fs::minor(dev));
    let uevent = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/uevent")).ok()?;
    let name = uevent.lines().find_map(|line| line.strip_prefix("DEVNAME="))?;
    let path = format!("/dev/{name}");
    let fd = rustix::fs::open(&path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    (rustix::fs::fstat(&fd).ok()?.st_rdev == dev).then_some((path, fd))
}

fn send_home(device: &OwnedFd) {
    // An error means only that nothing was sent home in this pass; a dying device shows itself to the workers.
    // SAFETY: the call takes a descriptor that is open and touches no memory of ours.
    unsafe { libc::sync_file_range(device.as_raw_fd(), 0, 0, libc::SYNC_FILE_RANGE_WRITE) };
}
