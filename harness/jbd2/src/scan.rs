//! The first pass of recovery: where does the log end?
//!
//! The scan follows the log from where the superblock says, control block by control block. It ends at the first block that
//! is no control block, or has another transaction's number than the one expected: that is the ordinary end, and the last
//! commit block before it is the last transaction. What else ends it depends on checksums:
//!
//! - **v1.** A commit block whose checksum is not that of its transaction's blocks ends the log *before* that
//!   transaction. With the feature `async_commit` the scan goes on looking, since the commit block may have landed
//!   before its blocks; if another commit block follows, what is wrong was not cut short and the journal is corrupt.
//! - **v2, v3.** The same for a commit block whose own checksum is wrong, but that no later commit block is held against it
//!   under `async_commit`. Without `async_commit` a wrong checksum is corruption at once, in either version.
//! - A commit block that is older than the one before it is left over from an earlier life of the journal: the log
//!   ends there, without a complaint.
//! - A descriptor or revoke block with a wrong checksum (v2, v3) is remembered; the next commit block decides, by its age,
//!   whether it was left over or the journal is corrupt.
//!
//! The rules are those of `fs/jbd2/recovery.c`, including that "stop" in some places means "look at the next block, whose
//! number will not fit".

use std::collections::HashSet;

use crate::blocks::Blocks;
use crate::checksum::Transaction;
use crate::error::Why;
use crate::journal::Journal;
use crate::journal_super::Checksums;
use crate::record::{COMMIT, Commit, DESCRIPTOR, Head, REVOKE, Tag};
use crate::units::{HomeBlock, LogBlock, Tid};

/// Where kernels differ.
///
/// From 6.11 on, a commit block (v2, v3) whose checksum is right once everything behind its first 64 bytes counts as zero is
/// accepted: a drive may tear it, and nothing but zeroes belongs there. The kernel then says "Find incomplete commit
/// block". Before 6.11, and in e2fsprogs up to 1.47.0, it is a wrong checksum, so the mount is refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rules {
    /// Linux 6.11 and later.
    #[default]
    AcceptTornCommit,
    /// Before, for example 6.1; and e2fsck 1.47.0.
    RefuseTornCommit,
}

/// A control block that the scan saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) log: LogBlock,
    pub(crate) transaction: Tid,
    pub(crate) what: SeenKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SeenKind {
    Descriptor { tags: Vec<Tag>, right: bool },
    Commit { seconds: u64, right: Option<bool>, torn: bool },
    Revoke { homes: Option<Vec<HomeBlock>>, right: bool },
}

/// What the scan found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Scan {
    /// Transactions before this one are replayed.
    pub(crate) end: Tid,
    /// The transaction that was found to be corrupt.
    pub(crate) failed_commit: Option<Tid>,
    /// Control blocks in the order of the log, also behind the end.
    pub(crate) seen: Vec<Seen>,
    /// The block that ended the scan.
    pub(crate) stopped: LogBlock,
    /// The scan itself failed.
    pub(crate) error: Option<Why>,
}

/// Scans a log that begins somewhere (`start` is not 0).
pub(crate) fn scan(blocks: &dyn Blocks, journal: &Journal, rules: Rules) -> Scan {
    let sb = &journal.superblock;
    let mut scanner = Scanner {
        blocks,
        journal,
        rules,
        at: sb.start,
        next: sb.sequence,
        end: None,
        failed_commit: None,
        sum: Transaction::new(),
        doubtful: false,
        last_seconds: 0,
        seen: Vec::new(),
    };
    let mut visited = HashSet::new();
    let (stopped, error) = loop {
        let here = scanner.at;
        // A block has one number, so whoever comes to it twice met no commit block in between and never will.
        if !visited.insert(here) {
            break (here, Some(Why::Endless(here)));
        }
        match scanner.step() {
            Step::On => {}
            Step::Done => break (here, None),
            Step::Failed(why) => break (here, Some(why)),
        }
    };
    let end = scanner.end.unwrap_or(scanner.next);
    Scan { end, failed_commit: scanner.failed_commit, seen: scanner.seen, stopped, error }
}

enum Step {
    On,
    Done,
    Failed(Why),
}

struct Scanner<'a> {
    blocks: &'a dyn Blocks,
    journal: &'a Journal,
    rules: Rules,
    at: LogBlock,
    /// The transaction that is expected.
    next: Tid,
    /// The first transaction that is not to be replayed, once a checksum decided it.
    end: Option<Tid>,
    failed_commit: Option<Tid>,
    /// Checksum v1 of the transaction so far.
    sum: Transaction,
    /// A descriptor or revoke block had a wrong checksum.
    doubtful: bool,
    last_seconds: u64,
    seen: Vec<Seen>,
}

impl Scanner<'_> {
    fn step(&mut self) -> Step {
        let here = self.at;
        let Some(block) = self.journal.read(self.blocks, here) else {
            return Step::Failed(Why::OutsideLog(here));
        };
        self.at = self.journal.further(here, 1);
        let head = Head::of(&block).filter(|head| head.sequence == self.next);
        match head.map(|head| head.kind) {
            Some(DESCRIPTOR) => self.descriptor(here, &block),
            Some(COMMIT) => self.commit(here, &block),
            Some(REVOKE) => self.revoke(here, &block),
            _ => Step::Done,
        }
    }

    fn saw(&mut self, log: LogBlock, what: SeenKind) {
        self.seen.push(Seen { log, transaction: self.next, what });
    }

    fn descriptor(&mut self, here: LogBlock, block: &[u8]) -> Step {
        let sb = &self.journal.superblock;
        let (tags, right) = (sb.tags(block), sb.tail_is_right(block));
        self.doubtful |= !right;
        let count = tags.len();
        self.saw(here, SeenKind::Descriptor { tags, right });
        if sb.checksums() != Checksums::V1 || self.end.is_some() {
            self.at = self.journal.further(self.at, count);
            return Step::On;
        }
        self.sum.add(block);
        for _ in 0..count {
            let Some(data) = self.journal.read(self.blocks, self.at) else {
                return Step::Failed(Why::OutsideLog(self.at));
            };
            self.sum.add(&data);
            self.at = self.journal.further(self.at, 1);
        }
        Step::On
    }

    fn revoke(&mut self, here: LogBlock, block: &[u8]) -> Step {
        let sb = &self.journal.superblock;
        let (homes, right) = (sb.revoked(block), sb.tail_is_right(block));
        self.doubtful |= !right;
        self.saw(here, SeenKind::Revoke { homes, right });
        Step::On
    }

    fn commit(&mut self, here: LogBlock, block: &[u8]) -> Step {
        let sb = &self.journal.superblock;
        let commit = Commit::of(block);
        let seconds = commit.seconds;
        let v1 = sb.checksums() == Checksums::V1;
        let (right, torn) = match sb.checksums() {
            Checksums::None => (None, false),
            Checksums::V1 if commit.has_none() || self.end.is_some() => (None, false),
            Checksums::V1 => (Some(commit.covers(self.sum.value())), false),
            Checksums::V2 | Checksums::V3 => {
                let right = sb.commit_is_right(block);
                (Some(right), !right && sb.commit_is_right_in_part(block))
            }
        };
        self.saw(here, SeenKind::Commit { seconds, right, torn });
        if self.doubtful {
            return match seconds >= self.last_seconds {
                true => Step::Failed(Why::Transaction(self.next)),
                false => Step::Done,
            };
        }
        if v1 && let Some(end) = self.end {
            self.failed_commit = Some(end);
            return Step::On;
        }
        if v1 {
            self.sum = Transaction::new();
        }
        let accepted = right != Some(false) || (torn && self.rules == Rules::AcceptTornCommit);
        if !accepted {
            if seconds < self.last_seconds {
                return Step::Done;
            }
            // Of several the kernel keeps the last one here, which only an asynchronous commit can have.
            self.end = Some(self.next);
            if !sb.has_async_commit() {
                self.failed_commit = Some(self.next);
                return Step::On;
            }
        }
        self.last_seconds = seconds;
        self.next = self.next.next();
        Step::On
    }
}
