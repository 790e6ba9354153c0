//! Every block of a journal, with what it is.
//!
//! First come the blocks of the log that a scan follows, then what lies behind its end from earlier laps, in the order of the
//! log, then the fast-commit area. Behind the end a control block says by itself what it is, and a descriptor what the blocks
//! behind it were; what it does not say is [`Kind::Unknown`], mostly data whose descriptor was overwritten. Blocks of zeroes
//! there have no row.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use crate::blocks::Blocks;
use crate::fast_commit;
use crate::journal::{Journal, Medium};
use crate::journal_super::Checksums;
use crate::record::{COMMIT, Commit, DESCRIPTOR, Head, REVOKE, Tag};
use crate::scan::{Rules, Scan, SeenKind, scan};
use crate::units::{HomeBlock, LogBlock, Tid};

/// What a block of a journal is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "type")]
pub enum Kind {
    /// The journal's superblock.
    Superblock,
    /// A descriptor block.
    Descriptor {
        /// Its tags, so the data blocks behind it.
        tags: usize,
    },
    /// A block that was logged.
    Data {
        /// Where it belongs.
        home: HomeBlock,
        /// It begins with the magic number, which stands in the log as zeroes.
        escaped: bool,
        /// It is not replayed, since a later transaction, or its own, revoked it.
        revoked: bool,
    },
    /// A commit block.
    Commit {
        /// When, in seconds since 1970.
        seconds: u64,
        /// Its checksum is right only if everything behind its first 64 bytes counts as zero.
        torn: bool,
    },
    /// A revoke block.
    Revoke {
        /// The blocks that it revokes.
        homes: Vec<HomeBlock>,
    },
    /// A block of the fast-commit area.
    FastCommit {
        /// Names of its tags.
        tags: Vec<&'static str>,
    },
    /// Nobody says what it is.
    Unknown,
}

/// What recovery makes of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    /// It is read whatever the log holds: the superblock.
    Always,
    /// It belongs to a transaction that is replayed.
    Replayed,
    /// It belongs to the log, behind the last transaction that is replayed: its transaction was not committed, or not
    /// whole.
    Beyond,
    /// It is left from before.
    Stale,
}

/// What is known of a block's checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Checksum {
    /// The block has none.
    None,
    /// It is right.
    Right,
    /// It is wrong.
    Wrong,
    /// v1: the commit block's checksum covers it.
    InCommit,
}

/// A block of a journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Row {
    /// Its number in the journal.
    pub log: LogBlock,
    /// Its number on the device.
    pub place: HomeBlock,
    /// What it is.
    #[serde(flatten)]
    pub kind: Kind,
    /// Its transaction.
    pub transaction: Option<Tid>,
    /// Its checksum.
    pub checksum: Checksum,
    /// What recovery makes of it.
    pub standing: Standing,
}

/// A journal, listed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Table {
    /// The blocks, in the order of the log.
    pub rows: Vec<Row>,
    /// Transactions before this one are replayed; none if the log is empty.
    pub end: Option<Tid>,
    /// Why recovery would stop in the log, in words.
    pub trouble: Option<String>,
    /// Where a row is.
    #[serde(skip)]
    by_log: BTreeMap<LogBlock, usize>,
}

impl Journal {
    /// Lists the journal.
    pub fn table(&self, blocks: &dyn Blocks) -> Table {
        let table = Table { rows: Vec::new(), end: None, trouble: None, by_log: BTreeMap::new() };
        let mut lister = Lister { blocks, journal: self, table };
        let own = match self.superblock.checksum_ok {
            None => Checksum::None,
            Some(ok) => right(ok),
        };
        lister.row(self.superblock_at, Kind::Superblock, None, own, Standing::Always);
        let sb = &self.superblock;
        // A journal device's own superblock can't say whether its file system asks for recovery.
        let asked = self.file_system.needs_recovery() || self.medium == Medium::Device;
        let behind = if sb.start.0 == 0 || !asked {
            sb.first
        } else {
            let scan = scan(blocks, self, Rules::default());
            lister.live(&scan);
            scan.stopped
        };
        lister.stale(behind);
        for log in fast_commit::area(self) {
            lister.fast_commit(log);
        }
        lister.table
    }
}

impl Table {
    /// The row of a block of the journal; none if it is zeroes, or no block of the log.
    pub fn at(&self, log: LogBlock) -> Option<&Row> {
        self.by_log.get(&log).map(|index| &self.rows[*index])
    }

    /// The newest row behind `standing` that holds a block's contents.
    pub fn data_for(&self, home: HomeBlock, standing: Standing) -> Option<&Row> {
        let holds = |row: &&Row| matches!(row.kind, Kind::Data { home: of, .. } if of == home);
        self.rows.iter().rev().filter(|row| row.standing == standing).find(holds)
    }
}

impl fmt::Display for Row {
    /// The role of the block, as `descriptor of transaction 12` or `data of transaction 12 for block 345`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.standing == Standing::Stale {
            write!(f, "stale ")?;
        }
        match &self.kind {
            Kind::Superblock => return write!(f, "journal superblock"),
            Kind::Descriptor { .. } => write!(f, "journal descriptor")?,
            Kind::Data { .. } => write!(f, "journal data")?,
            Kind::Commit { .. } => write!(f, "journal commit")?,
            Kind::Revoke { .. } => write!(f, "journal revoke")?,
            Kind::FastCommit { .. } => return write!(f, "fast commit"),
            Kind::Unknown => write!(f, "journal block")?,
        }
        if let Some(transaction) = self.transaction {
            write!(f, " of transaction {transaction}")?;
        }
        match &self.kind {
            Kind::Data { home, .. } => write!(f, " for block {home}"),
            _ => Ok(()),
        }
    }
}

struct Lister<'a> {
    blocks: &'a dyn Blocks,
    journal: &'a Journal,
    table: Table,
}

impl Lister<'_> {
    fn row(&mut self, log: LogBlock, kind: Kind, transaction: Option<Tid>, checksum: Checksum, standing: Standing) {
        let (Some(place), false) = (self.journal.place(log), self.table.by_log.contains_key(&log)) else { return };
        self.table.by_log.insert(log, self.table.rows.len());
        self.table.rows.push(Row { log, place, kind, transaction, checksum, standing });
    }

    /// What the scan followed.
    fn live(&mut self, scan: &Scan) {
        self.table.end = Some(scan.end);
        let failed = scan.failed_commit.map(|tid| format!("journal transaction {tid} is corrupt"));
        self.table.trouble = scan.error.as_ref().map(ToString::to_string).or(failed);
        let mut revokes: BTreeMap<HomeBlock, Tid> = BTreeMap::new();
        let replayed = |transaction: Tid| !transaction.reaches(scan.end) && scan.error.is_none();
        for seen in &scan.seen {
            if let SeenKind::Revoke { homes: Some(homes), .. } = &seen.what
                && replayed(seen.transaction)
            {
                // In the order of the log, so the last one is the newest.
                revokes.extend(homes.iter().map(|home| (*home, seen.transaction)));
            }
        }
        for seen in &scan.seen {
            let (log, tid) = (seen.log, seen.transaction);
            let standing = if replayed(tid) { Standing::Replayed } else { Standing::Beyond };
            match &seen.what {
                SeenKind::Descriptor { tags, right: ok } => {
                    self.row(log, Kind::Descriptor { tags: tags.len() }, Some(tid), self.own(*ok), standing);
                    for (index, tag) in tags.iter().enumerate() {
                        let revoked = revokes.get(&tag.home).is_some_and(|revoke| !tid.after(*revoke));
                        self.data(self.journal.further(log, index + 1), tag, tid, revoked, standing);
                    }
                }
                SeenKind::Commit { seconds, right: ok, torn } => {
                    let kind = Kind::Commit { seconds: *seconds, torn: *torn };
                    self.row(log, kind, Some(tid), ok.map_or(Checksum::None, right), standing);
                }
                SeenKind::Revoke { homes, right: ok } => {
                    let kind = Kind::Revoke { homes: homes.clone().unwrap_or_default() };
                    self.row(log, kind, Some(tid), self.own(*ok), standing);
                }
            }
        }
    }

    /// What lies from `at` on, once round, and has no row yet.
    fn stale(&mut self, mut at: LogBlock) {
        let sb = &self.journal.superblock;
        // A log may be said to begin, and so to end, outside of the ring.
        if at.0 < sb.first.0 || at.0 >= sb.last().0 {
            at = sb.first;
        }
        let mut described: BTreeMap<LogBlock, (Tag, Tid)> = BTreeMap::new();
        for _ in sb.first.0..sb.last().0 {
            let here = at;
            at = self.journal.further(here, 1);
            if self.table.by_log.contains_key(&here) {
                continue;
            }
            let Some(block) = self.journal.read(self.blocks, here) else { continue };
            let Some(head) = Head::of(&block) else {
                match described.remove(&here) {
                    Some((tag, tid)) => self.data(here, &tag, tid, false, Standing::Stale),
                    None if block.iter().all(|&byte| byte == 0) => {}
                    None => self.row(here, Kind::Unknown, None, Checksum::None, Standing::Stale),
                }
                continue;
            };
            let tid = head.sequence;
            let own = self.own(sb.tail_is_right(&block));
            let (kind, checksum) = match head.kind {
                DESCRIPTOR => {
                    let tags = sb.tags(&block);
                    let count = tags.len();
                    // Logged blocks follow one another, so a newer descriptor knows better.
                    described.clear();
                    let places = (1..).map(|further| self.journal.further(here, further));
                    described.extend(places.zip(tags.into_iter().map(|tag| (tag, tid))));
                    (Kind::Descriptor { tags: count }, own)
                }
                COMMIT => {
                    let (ok, whole) = (sb.commit_is_right(&block), sb.commit_is_right_in_part(&block));
                    let checksum = if sb.each_block_has_checksum() { right(ok) } else { Checksum::None };
                    (Kind::Commit { seconds: Commit::of(&block).seconds, torn: !ok && whole }, checksum)
                }
                REVOKE => (Kind::Revoke { homes: sb.revoked(&block).unwrap_or_default() }, own),
                _ => (Kind::Unknown, Checksum::None),
            };
            self.row(here, kind, Some(tid), checksum, Standing::Stale);
        }
    }

    fn data(&mut self, log: LogBlock, tag: &Tag, tid: Tid, revoked: bool, standing: Standing) {
        let Some(block) = self.journal.read(self.blocks, log) else { return };
        let sb = &self.journal.superblock;
        let checksum = match sb.checksums() {
            Checksums::None => Checksum::None,
            Checksums::V1 => Checksum::InCommit,
            Checksums::V2 | Checksums::V3 => right(sb.tag_is_right(tag, tid, &block)),
        };
        self.row(log, Kind::Data { home: tag.home, escaped: tag.escaped, revoked }, Some(tid), checksum, standing);
    }

    fn fast_commit(&mut self, log: LogBlock) {
        let Some(block) = self.journal.read(self.blocks, log) else { return };
        let tags = fast_commit::names(&block);
        if !tags.is_empty() {
            self.row(log, Kind::FastCommit { tags }, None, Checksum::None, Standing::Stale);
        }
    }

    /// The state of a descriptor or revoke block's own checksum.
    fn own(&self, ok: bool) -> Checksum {
        match self.journal.superblock.checksums() {
            Checksums::None => Checksum::None,
            Checksums::V1 => Checksum::InCommit,
            Checksums::V2 | Checksums::V3 => right(ok),
        }
    }
}

fn right(ok: bool) -> Checksum {
    if ok { Checksum::Right } else { Checksum::Wrong }
}
