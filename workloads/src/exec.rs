//! Executes one step on a real tree.
//!
//! Every step opens what it needs and closes it again; opening and closing change nothing that a crash could show.

use crate::content;
use crate::steps::Op;
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;

/// Does what `op` says below `root`.
pub(crate) fn execute(root: &OwnedFd, op: &Op) -> Result<(), Errno> {
    match op {
        Op::Create { path, .. } => {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
            openat(root, path.as_str(), flags, Mode::from_raw_mode(0o644)).map(drop)
        }
        Op::Write { file, path, generation, block, blocks } => {
            let bytes = content::extent(*file, *generation, *block, *blocks);
            write_all(&open(root, path)?, &bytes, block * content::BLOCK as u64)
        }
        Op::Truncate { path, blocks, .. } => rustix::fs::ftruncate(open(root, path)?, blocks * content::BLOCK as u64),
        Op::Fsync { path, .. } => rustix::fs::fsync(open(root, path)?),
        Op::Fdatasync { path, .. } => rustix::fs::fdatasync(open(root, path)?),
        Op::SyncDir { dir } => sync_dir(root, dir),
        Op::Rename { from, to, .. } => rustix::fs::renameat(root, from.as_str(), root, to.as_str()),
        Op::Unlink { path, .. } => rustix::fs::unlinkat(root, path.as_str(), rustix::fs::AtFlags::empty()),
        Op::SyncFs => rustix::fs::syncfs(root),
    }
}

/// Makes the directories and syncs each of them and the root: step 0.
pub(crate) fn make_directories(root: &OwnedFd, directories: &[String]) -> Result<(), Errno> {
    for dir in directories {
        rustix::fs::mkdirat(root, dir.as_str(), Mode::from_raw_mode(0o755))?;
    }
    directories.iter().try_for_each(|dir| sync_dir(root, dir))?;
    sync_dir(root, ".")
}

fn open(root: &OwnedFd, path: &str) -> Result<OwnedFd, Errno> {
    openat(root, path, OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

fn sync_dir(root: &OwnedFd, dir: &str) -> Result<(), Errno> {
    rustix::fs::fsync(openat(root, dir, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}

/// A write that the kernel cuts short goes on where it stopped: it is still the same step.
fn write_all(fd: &OwnedFd, mut bytes: &[u8], mut at: u64) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::io::pwrite(fd, bytes, at) {
            Ok(0) => return Err(Errno::IO),
            Ok(written) => {
                bytes = &bytes[written..];
                at += written as u64;
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}
