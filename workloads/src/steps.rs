//! A step: one operation of one worker, about as much as one system call, with a number.
//!
//! Step k of worker w is a pure function of the workload's options (its seed among them), w, k and of which errors the steps of
//! w before it returned; marks say those, so the harness makes the list again and needs no recording of it. Steps
//! are numbered from 1. Step 0 is the making of the directories, by the runner, before any worker begins.

use std::fmt;

/// One operation. Paths are relative to the root; sizes and offsets count blocks of 512 bytes. Files, symbolic links and
/// directories that steps make have ids, each unique in the run.
///
/// An operation on a file that its worker holds open ([`Op::Open`], [`Op::Tmpfile`]) goes to that descriptor; any other
/// opens the path and closes it again.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// `open(O_CREAT | O_EXCL)`: an empty file under a name that is free.
    Create {
        /// Id of the new file.
        file: u64,
        /// Its name.
        path: String,
    },
    /// `open(O_TMPFILE)`: an empty file without a name, held open.
    Tmpfile {
        /// Id of the new file.
        file: u64,
        /// The directory whose file system it is on.
        dir: String,
    },
    /// `open` of an existing file, which is then held open.
    Open {
        /// Id of the file.
        file: u64,
        /// Its name at that time.
        path: String,
    },
    /// `close` of a file that is held open.
    Close {
        /// Id of the file.
        file: u64,
    },
    /// A write of whole blocks.
    Write {
        /// Id of the file.
        file: u64,
        /// Its name at that time, or the last that it had.
        path: String,
        /// Number of this write of this file, from 1.
        generation: u32,
        /// First block.
        block: u64,
        /// Number of blocks.
        blocks: u64,
        /// By which call.
        how: How,
    },
    /// `truncate` to a smaller size, or to a larger one with a hole at the end.
    Truncate {
        /// Id of the file.
        file: u64,
        /// Its name at that time.
        path: String,
        /// The new size.
        blocks: u64,
    },
    /// `fallocate`.
    Allocate {
        /// Id of the file.
        file: u64,
        /// Its name at that time.
        path: String,
        /// Its mode.
        mode: Allocate,
        /// First block.
        block: u64,
        /// Number of blocks.
        blocks: u64,
    },
    /// `fsync` of a file.
    Fsync {
        /// Id of the file.
        file: u64,
        /// Its name at that time, or the last that it had.
        path: String,
    },
    /// `fdatasync` of a file.
    Fdatasync {
        /// Id of the file.
        file: u64,
        /// Its name at that time, or the last that it had.
        path: String,
    },
    /// `fsync` of a directory.
    SyncDir {
        /// The directory.
        dir: String,
    },
    /// `rename`, over an existing file of the same worker or to a free name.
    Rename {
        /// Id of what moves.
        file: u64,
        /// Its old name.
        from: String,
        /// Its new name.
        to: String,
        /// Id of what had the new name; never the same file under another name, since then nothing happens.
        replaced: Option<u64>,
    },
    /// `renameat2(RENAME_EXCHANGE)`.
    Exchange {
        /// Id of what has the one name.
        file: u64,
        /// That name.
        path: String,
        /// Id of what has the other.
        other: u64,
        /// The other name.
        other_path: String,
    },
    /// `link`: another name.
    Link {
        /// Id of the file.
        file: u64,
        /// A name that it has; none: it is held open and never had one ([`Op::Tmpfile`]).
        from: Option<String>,
        /// The new name, which is free.
        to: String,
    },
    /// `symlink`.
    Symlink {
        /// Id of the link.
        link: u64,
        /// Its name.
        path: String,
        /// What it holds.
        target: String,
    },
    /// `mkdir`.
    Mkdir {
        /// Id of the directory.
        dir: u64,
        /// Its name.
        path: String,
    },
    /// `rmdir` of an empty directory.
    Rmdir {
        /// Id of the directory.
        dir: u64,
        /// Its name.
        path: String,
    },
    /// `unlink`.
    Unlink {
        /// Id of the file or symbolic link.
        file: u64,
        /// Its name.
        path: String,
    },
    /// `syncfs` of the whole file system.
    SyncFs,
}

/// How a write is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum How {
    /// `pwrite`.
    #[default]
    Buffered,
    /// `pwrite` with `O_DIRECT`; block and number of blocks are multiples of 8.
    Direct,
    /// `pwrite` with `O_DSYNC`.
    Dsync,
    /// `pwrite` with `O_SYNC`.
    Sync,
    /// `pwrite` with `O_DIRECT` and `O_DSYNC`.
    DirectDsync,
    /// Stores to a shared mapping; inside the size.
    Mapped,
    /// Stores to a shared mapping and `msync(MS_SYNC)` of that range.
    Msync,
    /// A write of io_uring.
    Uring,
    /// A write of io_uring with `RWF_DSYNC`.
    UringDsync,
}

/// Modes of `fallocate`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Allocate {
    /// The size grows with it.
    Extend,
    /// `FALLOC_FL_KEEP_SIZE`: nothing is seen of it.
    KeepSize,
    /// `FALLOC_FL_PUNCH_HOLE`, with `KEEP_SIZE` as it must.
    Punch,
    /// `FALLOC_FL_ZERO_RANGE`; the size grows with it.
    Zero,
    /// `FALLOC_FL_ZERO_RANGE` with `KEEP_SIZE`.
    ZeroKeepSize,
}

impl How {
    /// All of them.
    pub const ALL: [How; 9] = [
        How::Buffered,
        How::Direct,
        How::Dsync,
        How::Sync,
        How::DirectDsync,
        How::Mapped,
        How::Msync,
        How::Uring,
        How::UringDsync,
    ];

    /// Whether the return promises what this very write has written, and nothing else.
    pub fn promises_itself(self) -> bool {
        matches!(self, How::Dsync | How::Sync | How::DirectDsync | How::Msync | How::UringDsync)
    }

    /// Whether it goes past the page cache.
    pub fn is_direct(self) -> bool {
        matches!(self, How::Direct | How::DirectDsync)
    }

    /// Whether io_uring is asked.
    pub fn is_uring(self) -> bool {
        matches!(self, How::Uring | How::UringDsync)
    }
}

impl Op {
    /// The name of the kind, for counts and sentences.
    pub fn kind(&self) -> &'static str {
        match self {
            Op::Create { .. } => "create",
            Op::Tmpfile { .. } => "tmpfile",
            Op::Open { .. } => "open",
            Op::Close { .. } => "close",
            Op::Write { how, .. } => match how {
                How::Buffered => "write",
                How::Direct => "write-direct",
                How::Dsync => "write-dsync",
                How::Sync => "write-sync",
                How::DirectDsync => "write-direct-dsync",
                How::Mapped => "write-mapped",
                How::Msync => "write-msync",
                How::Uring => "write-uring",
                How::UringDsync => "write-uring-dsync",
            },
            Op::Truncate { .. } => "truncate",
            Op::Allocate { mode, .. } => match mode {
                Allocate::Extend => "fallocate",
                Allocate::KeepSize => "fallocate-keep-size",
                Allocate::Punch => "punch-hole",
                Allocate::Zero => "zero-range",
                Allocate::ZeroKeepSize => "zero-range-keep-size",
            },
            Op::Fsync { .. } => "fsync",
            Op::Fdatasync { .. } => "fdatasync",
            Op::SyncDir { .. } => "fsync-dir",
            Op::Rename { replaced: None, .. } => "rename",
            Op::Rename { replaced: Some(_), .. } => "rename-over",
            Op::Exchange { .. } => "exchange",
            Op::Link { from: Some(_), .. } => "link",
            Op::Link { from: None, .. } => "link-tmpfile",
            Op::Symlink { .. } => "symlink",
            Op::Mkdir { .. } => "mkdir",
            Op::Rmdir { .. } => "rmdir",
            Op::Unlink { .. } => "unlink",
            Op::SyncFs => "syncfs",
        }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.kind();
        match self {
            Op::Create { path, .. }
            | Op::Open { path, .. }
            | Op::Fsync { path, .. }
            | Op::Fdatasync { path, .. }
            | Op::Mkdir { path, .. }
            | Op::Rmdir { path, .. }
            | Op::Unlink { path, .. } => write!(f, "{kind} {path}"),
            Op::Tmpfile { file, dir } => write!(f, "{kind} {} in {dir}", file_name(*file)),
            Op::Close { file } => write!(f, "{kind} {}", file_name(*file)),
            Op::Write { path, generation, block, blocks, .. } => {
                write!(f, "{kind} {path} blocks {block}+{blocks} generation {generation}")
            }
            Op::Truncate { path, blocks, .. } => write!(f, "{kind} {path} to {blocks} blocks"),
            Op::Allocate { path, block, blocks, .. } => write!(f, "{kind} {path} blocks {block}+{blocks}"),
            Op::SyncDir { dir } => write!(f, "{kind} {dir}"),
            Op::Rename { from, to, .. } => write!(f, "{kind} {from} -> {to}"),
            Op::Exchange { path, other_path, .. } => write!(f, "{kind} {path} <-> {other_path}"),
            Op::Link { file, from: None, to } => write!(f, "{kind} {} -> {to}", file_name(*file)),
            Op::Link { from: Some(from), to, .. } => write!(f, "{kind} {from} -> {to}"),
            Op::Symlink { path, target, .. } => write!(f, "{kind} {path} holding {target}"),
            Op::SyncFs => f.write_str(kind),
        }
    }
}

/// The steps of one worker, one after the other.
pub trait Steps: Send + Sync {
    /// The next step; none: the worker is done.
    fn next(&mut self) -> Option<Op>;

    /// The step that was given out last has returned this error. Whether the worker goes on with the next one; if not, it ends.
    fn failed(&mut self, errno: i32) -> bool {
        let _ = errno;
        false
    }

    /// A copy at the same place; makes an `Oracle` cloneable.
    fn fork(&self) -> Box<dyn Steps>;
}

/// Id of the `count`th file, symbolic link or directory that `worker` makes, counted from 1: unique in the run.
pub fn file_id(worker: u32, count: u64) -> u64 {
    u64::from(worker) << 40 | count
}

/// The id of a file as people read it: worker and number.
pub(crate) fn file_name(file: u64) -> String {
    format!("{}:{}", file >> 40, file & ((1 << 40) - 1))
}

/// The directory part of a path; empty for a name in the root.
pub(crate) fn dir_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(dir, _)| dir)
}
