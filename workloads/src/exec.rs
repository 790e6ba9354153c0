//! Executes one step on a real tree.
//!
//! Every step opens what it needs and closes it again, except for files that their worker holds open by
//! [`Op::Open`] and [`Op::Tmpfile`]. Opening and closing change nothing that a crash could show.

mod write;

use crate::content::BLOCK;
use crate::steps::{Allocate, Op};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, FallocateFlags, Mode, OFlags, RenameFlags, openat};
use rustix::io::Errno;
use std::collections::HashMap;

/// The hands of one worker: what it holds open, and its ring.
#[derive(Default)]
pub(crate) struct Hands {
    open: HashMap<u64, OwnedFd>,
    ring: Option<io_uring::IoUring>,
}

impl Hands {
    /// Does what `op` says below `root`.
    pub(crate) fn execute(&mut self, root: &OwnedFd, op: &Op) -> Result<(), Errno> {
        match op {
            Op::Create { path, .. } => {
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
                openat(root, path.as_str(), flags, FILE_MODE).map(drop)
            }
            Op::Tmpfile { file, dir } => {
                let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
                self.hold(*file, openat(root, dir.as_str(), flags, FILE_MODE)?);
                Ok(())
            }
            Op::Open { file, path } => {
                self.hold(*file, open(root, path, OFlags::RDWR)?);
                Ok(())
            }
            Op::Close { file } => {
                drop(self.open.remove(file));
                Ok(())
            }
            Op::Write { .. } => self.write(root, op),
            Op::Truncate { file, path, blocks } => {
                self.on(root, *file, path, |fd| rustix::fs::ftruncate(fd, blocks * BLOCK as u64))
            }
            Op::Allocate { file, path, mode, block, blocks } => {
                let (at, length) = (block * BLOCK as u64, blocks * BLOCK as u64);
                self.on(root, *file, path, |fd| rustix::fs::fallocate(fd, flags_of(*mode), at, length))
            }
            Op::Fsync { file, path } => self.on(root, *file, path, |fd| rustix::fs::fsync(fd)),
            Op::Fdatasync { file, path } => self.on(root, *file, path, |fd| rustix::fs::fdatasync(fd)),
            Op::SyncDir { dir } => sync_dir(root, dir),
            Op::Rename { from, to, .. } => rustix::fs::renameat(root, from.as_str(), root, to.as_str()),
            Op::Exchange { path, other_path, .. } => {
                rustix::fs::renameat_with(root, path.as_str(), root, other_path.as_str(), RenameFlags::EXCHANGE)
            }
            Op::Link { from: Some(from), to, .. } => {
                rustix::fs::linkat(root, from.as_str(), root, to.as_str(), AtFlags::empty())
            }
            Op::Link { file, from: None, to } => {
                let held = self.open.get(file).ok_or(Errno::BADF)?;
                rustix::fs::linkat(held, "", root, to.as_str(), AtFlags::EMPTY_PATH)
            }
            Op::Symlink { path, target, .. } => rustix::fs::symlinkat(target.as_str(), root, path.as_str()),
            Op::Mkdir { path, .. } => rustix::fs::mkdirat(root, path.as_str(), DIR_MODE),
            Op::Rmdir { path, .. } => rustix::fs::unlinkat(root, path.as_str(), AtFlags::REMOVEDIR),
            Op::Unlink { path, .. } => rustix::fs::unlinkat(root, path.as_str(), AtFlags::empty()),
            Op::SyncFs => rustix::fs::syncfs(root),
        }
    }

    fn hold(&mut self, file: u64, fd: OwnedFd) {
        self.open.insert(file, fd);
    }

    /// Calls `act` with the descriptor that is held, or with a new one for this call.
    fn on(
        &self,
        root: &OwnedFd,
        file: u64,
        path: &str,
        act: impl FnOnce(BorrowedFd<'_>) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        match self.open.get(&file) {
            Some(fd) => act(fd.as_fd()),
            None => act(open(root, path, OFlags::RDWR)?.as_fd()),
        }
    }
}

const FILE_MODE: Mode = Mode::from_raw_mode(0o644);
const DIR_MODE: Mode = Mode::from_raw_mode(0o755);

fn flags_of(mode: Allocate) -> FallocateFlags {
    match mode {
        Allocate::Extend => FallocateFlags::empty(),
        Allocate::KeepSize => FallocateFlags::KEEP_SIZE,
        Allocate::Punch => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
        Allocate::Zero => FallocateFlags::ZERO_RANGE,
        Allocate::ZeroKeepSize => FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE,
    }
}

/// Makes the directories and syncs them all, with their entries in the root: step 0.
pub(crate) fn make_directories(root: &OwnedFd, directories: &[String]) -> Result<(), Errno> {
    for dir in directories {
        rustix::fs::mkdirat(root, dir.as_str(), DIR_MODE)?;
    }
    // Not one fsync each: `bounded` makes hundreds. The promise is the same (sync(2)).
    rustix::fs::syncfs(root)
}

fn open(root: &OwnedFd, path: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
    openat(root, path, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

fn sync_dir(root: &OwnedFd, dir: &str) -> Result<(), Errno> {
    rustix::fs::fsync(openat(root, dir, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?)
}
