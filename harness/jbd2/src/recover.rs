//! The other two passes of recovery: what is revoked, and what goes home.
//!
//! A revoke record of transaction T says that what transactions up to T logged of a block must not be replayed: the block
//! was freed, and may hold a file's data by now. Data blocks go home in the order of the log, so the last one counts.
//!
//! Recovery goes on behind a data block with a wrong checksum and reports the failure at its end, so what a refused mount
//! wrote home is known too: [`Refused::partial`].

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use crate::blocks::{Blocks, block};
use crate::error::{Error, Refused, Why};
use crate::fast_commit::FastCommit;
use crate::journal::{Journal, Medium};
use crate::record::{COMMIT, DESCRIPTOR, Head, REVOKE, unescape};
use crate::scan::{Rules, Scan, scan};
use crate::units::{HomeBlock, LogBlock, Tid};

/// A block that goes home.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Write {
    /// The log block that holds its contents.
    pub log: LogBlock,
    /// Where that log block is in the image.
    pub place: HomeBlock,
    /// The transaction that logged it.
    pub transaction: Tid,
    /// Its first four bytes stand in the log as zeroes and are the journal's magic number.
    pub escaped: bool,
}

/// A logged block that does not go home because it was revoked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Revoked {
    /// The block.
    pub home: HomeBlock,
    /// The transaction that logged it.
    pub transaction: Tid,
    /// The log block that holds its contents.
    pub log: LogBlock,
}

/// Why there is nothing to replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum NoRecovery {
    /// The log is empty.
    Empty,
    /// The file system's superblock does not ask for recovery. A kernel drops the log then, whatever is in it; e2fsck asks
    /// whether to replay it.
    NotAsked,
}

/// What a replay does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replay {
    /// Bytes of a block.
    pub block_size: u32,
    /// Why nothing was done, if nothing had to be.
    pub nothing: Option<NoRecovery>,
    /// The blocks that go home.
    pub writes: BTreeMap<HomeBlock, Write>,
    /// The transactions that were replayed.
    pub transactions: Vec<Tid>,
    /// Logged blocks that were skipped.
    pub revoked: Vec<Revoked>,
    /// The first 1024 bytes of the journal's superblock once the log is empty.
    pub superblock: Vec<u8>,
    /// The fast commits that a kernel would replay next, which this does not: what they write is not known here.
    pub fast_commit: Option<FastCommit>,
}

impl Replay {
    /// A replay that writes nothing.
    pub fn nothing(block_size: u32) -> Replay {
        Replay {
            block_size,
            nothing: None,
            writes: BTreeMap::new(),
            transactions: Vec::new(),
            revoked: Vec::new(),
            superblock: Vec::new(),
            fast_commit: None,
        }
    }

    /// The contents of a block that goes home; `blocks` is the image that was replayed. None if it is another.
    pub fn contents(&self, blocks: &dyn Blocks, write: &Write) -> Option<Vec<u8>> {
        let mut bytes = block(blocks, self.block_size, write.place)?;
        if write.escaped {
            unescape(&mut bytes);
        }
        Some(bytes)
    }
}

/// What recovery does with an image, on the newest kernels.
///
/// # Errors
/// [`Refused`] where a kernel would not mount it.
pub fn replay(blocks: &dyn Blocks) -> Result<Replay, Refused> {
    replay_by(Rules::default(), blocks)
}

/// The same by the rules of some kernels.
///
/// # Errors
/// [`Refused`] where such a kernel would not mount it.
pub fn replay_by(rules: Rules, blocks: &dyn Blocks) -> Result<Replay, Refused> {
    let journal = Journal::open(blocks).map_err(Why::from)?;
    // A journal device says nothing of the file system that it belongs to.
    if journal.medium == Medium::Device {
        return Err(Why::from(Error::External).into());
    }
    let sb = &journal.superblock;
    let bytes = journal.read(blocks, journal.superblock_at).ok_or(Why::OutsideLog(journal.superblock_at))?;
    let nothing = match (sb.start.0, journal.file_system.needs_recovery()) {
        (_, false) => Some(NoRecovery::NotAsked),
        (0, true) => Some(NoRecovery::Empty),
        _ => None,
    };
    let mut replay = Replay { nothing, ..Replay::nothing(sb.block_size) };
    if replay.nothing.is_some() {
        replay.superblock = bytes[..crate::journal_super::LENGTH].to_vec();
        return Ok(replay);
    }
    let scan = scan(blocks, &journal, rules);
    if let Some(why) = scan.error {
        return Err(why.into());
    }
    replay.superblock = sb.emptied(&bytes, scan.end.next());
    replay.fast_commit = FastCommit::find(blocks, &journal, scan.end);
    let mut pass = Pass { blocks, journal: &journal, scan: &scan, revokes: HashMap::new(), replay, error: None };
    pass.walk(Doing::Revokes)?;
    pass.walk(Doing::Writes)?;
    let error = pass.error.or(scan.failed_commit.map(Why::Commit));
    match error {
        None => Ok(pass.replay),
        Some(why) => Err(Refused { why, partial: Some(Box::new(pass.replay)) }),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Doing {
    Revokes,
    Writes,
}

struct Pass<'a> {
    blocks: &'a dyn Blocks,
    journal: &'a Journal,
    scan: &'a Scan,
    /// The last transaction that revoked a block.
    revokes: HashMap<HomeBlock, Tid>,
    replay: Replay,
    /// The first thing that went wrong without stopping it.
    error: Option<Why>,
}

impl Pass<'_> {
    /// Follows the log up to the end that the scan found. The scan came through here, so it comes to an end.
    fn walk(&mut self, doing: Doing) -> Result<(), Refused> {
        let sb = &self.journal.superblock;
        let (mut at, mut next) = (sb.start, sb.sequence);
        while !next.reaches(self.scan.end) {
            let here = at;
            let Some(block) = self.journal.read(self.blocks, here) else {
                return Err(self.stopped(Why::OutsideLog(here)));
            };
            at = self.journal.further(here, 1);
            match Head::of(&block).filter(|head| head.sequence == next).map(|head| head.kind) {
                Some(DESCRIPTOR) => {
                    if !sb.tail_is_right(&block) {
                        return Err(self.stopped(Why::Descriptor(here)));
                    }
                    at = match doing {
                        Doing::Revokes => self.journal.further(at, sb.tags(&block).len()),
                        Doing::Writes => self.write_home(&block, at, next)?,
                    };
                }
                Some(COMMIT) => {
                    if doing == Doing::Writes {
                        self.replay.transactions.push(next);
                    }
                    next = next.next();
                }
                Some(REVOKE) if doing == Doing::Revokes => {
                    let Some(homes) = sb.revoked(&block) else { return Err(self.stopped(Why::Revoke(here))) };
                    for home in homes {
                        let last = self.revokes.entry(home).or_insert(next);
                        if next.after(*last) {
                            *last = next;
                        }
                    }
                }
                Some(REVOKE) => {}
                _ => break,
            }
        }
        if next != self.scan.end {
            self.error.get_or_insert(Why::Passes { expected: self.scan.end, found: next });
        }
        Ok(())
    }

    fn write_home(&mut self, descriptor: &[u8], first: LogBlock, transaction: Tid) -> Result<LogBlock, Refused> {
        let sb = &self.journal.superblock;
        let mut at = first;
        for tag in sb.tags(descriptor) {
            let log = at;
            at = self.journal.further(at, 1);
            let (Some(data), Some(place)) = (self.journal.read(self.blocks, log), self.journal.place(log)) else {
                self.error.get_or_insert(Why::OutsideLog(log));
                continue;
            };
            let home = tag.home;
            if self.revokes.get(&home).is_some_and(|revoke| !transaction.after(*revoke)) {
                self.replay.revoked.push(Revoked { home, transaction, log });
            } else if !sb.tag_is_right(&tag, transaction, &data) {
                self.error.get_or_insert(Why::Data(home));
            } else if home.0 >= self.journal.file_system.blocks {
                return Err(self.stopped(Why::OutsideDevice(home)));
            } else {
                self.replay.writes.insert(home, Write { log, place, transaction, escaped: tag.escaped });
            }
        }
        Ok(at)
    }

    /// An error that ends the pass at once; what was written so far is written.
    fn stopped(&mut self, why: Why) -> Refused {
        Refused { why: self.error.take().unwrap_or(why), partial: Some(Box::new(self.replay.clone())) }
    }
}
