//! A step: one operation of one worker, about as much as one system call, with a number.
//!
//! Step k of worker w is a pure function of the workload's options (its seed among them), w and k; so the harness makes
//! the list again and needs no recording of it. Steps are numbered from 1. Step 0 is the making of the directories,
//! by the runner, before any worker begins.

use std::fmt;

/// One operation. Paths are relative to the root; sizes and offsets count blocks of 512 bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// `open(O_CREAT | O_EXCL)`: an empty file under a name that is free.
    Create {
        /// Id of the new file, unique in the run.
        file: u64,
        /// Its name.
        path: String,
    },
    /// `pwrite` of whole blocks, buffered.
    Write {
        /// Id of the file.
        file: u64,
        /// Its name at that time.
        path: String,
        /// Number of this write of this file, from 1.
        generation: u32,
        /// First block.
        block: u64,
        /// Number of blocks.
        blocks: u64,
    },
    /// `truncate` to a smaller size.
    Truncate {
        /// Id of the file.
        file: u64,
        /// Its name at that time.
        path: String,
        /// The new size.
        blocks: u64,
    },
    /// `fsync` of a file.
    Fsync {
        /// Id of the file.
        file: u64,
        /// Its name at that time.
        path: String,
    },
    /// `fdatasync` of a file.
    Fdatasync {
        /// Id of the file.
        file: u64,
        /// Its name at that time.
        path: String,
    },
    /// `fsync` of a directory.
    SyncDir {
        /// The directory.
        dir: String,
    },
    /// `rename`, over an existing file of the same worker or to a free name.
    Rename {
        /// Id of the file that moves.
        file: u64,
        /// Its old name.
        from: String,
        /// Its new name.
        to: String,
        /// Id of the file that had the new name.
        replaced: Option<u64>,
    },
    /// `unlink`.
    Unlink {
        /// Id of the file.
        file: u64,
        /// Its name.
        path: String,
    },
    /// `syncfs` of the whole file system.
    SyncFs,
}

impl Op {
    /// The name of the kind, for counts and sentences.
    pub fn kind(&self) -> &'static str {
        match self {
            Op::Create { .. } => "create",
            Op::Write { .. } => "write",
            Op::Truncate { .. } => "truncate",
            Op::Fsync { .. } => "fsync",
            Op::Fdatasync { .. } => "fdatasync",
            Op::SyncDir { .. } => "fsync-dir",
            Op::Rename { replaced: None, .. } => "rename",
            Op::Rename { replaced: Some(_), .. } => "rename-over",
            Op::Unlink { .. } => "unlink",
            Op::SyncFs => "syncfs",
        }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.kind();
        match self {
            Op::Create { path, .. } | Op::Fsync { path, .. } | Op::Fdatasync { path, .. } | Op::Unlink { path, .. } => {
                write!(f, "{kind} {path}")
            }
            Op::Write { path, generation, block, blocks, .. } => {
                write!(f, "{kind} {path} blocks {block}+{blocks} generation {generation}")
            }
            Op::Truncate { path, blocks, .. } => write!(f, "{kind} {path} to {blocks} blocks"),
            Op::SyncDir { dir } => write!(f, "{kind} {dir}"),
            Op::Rename { from, to, .. } => write!(f, "{kind} {from} -> {to}"),
            Op::SyncFs => f.write_str(kind),
        }
    }
}

/// The steps of one worker, one after the other and without end.
pub trait Steps: Send + Sync {
    /// The next step.
    fn next(&mut self) -> Op;
    /// A copy at the same place; makes an `Oracle` cloneable.
    fn fork(&self) -> Box<dyn Steps>;
}

/// Id of the `count`th file that `worker` creates, counted from 1: unique in the run.
pub fn file_id(worker: u32, count: u64) -> u64 {
    u64::from(worker) << 40 | count
}

/// The directory part of a path; empty for a name in the root.
pub(crate) fn dir_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(dir, _)| dir)
}
