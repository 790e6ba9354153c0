//! What the writes of a recording are to ext4's journal, as far as aiming crash states needs it.
//!
//! Only the twelve bytes that begin each block of the log are read (magic, block type, transaction; big-endian), the
//! features and the size of the log from its superblock, and the tags of descriptor blocks, as far as it takes to count
//! them. Layout: `include/linux/jbd2.h` and `Documentation/filesystems/ext4/journal.rst` of the kernel. A block that has no
//! magic is log data, and belongs to the descriptor in whose tags its place comes; log data that begins with the magic
//! is escaped, so it can't be mistaken. An error here only aims a state badly: what may survive is not decided by it.

use std::collections::BTreeMap;

use powerfail_drive::explore::{Op, Outline, Role, Roles};
use powerfail_drive::request::Command;

/// Bytes of a block; recordings say where the journal is in blocks of this size.
const BLOCK: u64 = 4096;
/// Sectors of a block.
const SECTORS: u64 = 8;

const MAGIC: u32 = 0xc03b_3998;
const DESCRIPTOR: u32 = 1;
const COMMIT: u32 = 2;
const SUPERBLOCK_V1: u32 = 3;
const SUPERBLOCK_V2: u32 = 4;
const REVOKE: u32 = 5;

const INCOMPAT_64BIT: u32 = 0x2;
const INCOMPAT_CSUM_V2: u32 = 0x8;
const INCOMPAT_CSUM_V3: u32 = 0x10;
const INCOMPAT_FAST_COMMIT: u32 = 0x20;
/// Blocks of the fast-commit area if the superblock names none.
const DEFAULT_FAST_COMMIT_BLOCKS: u64 = 256;

const TAG_SAME_UUID: u32 = 2;
const TAG_LAST: u32 = 8;

/// The roles of a recording's writes; `journal` is where the journal is: blocks of 4 KiB, first and last, in the journal's
/// own order. Empty if its blocks are no jbd2 journal of such blocks.
pub fn roles(recording: &[u8], outline: &Outline, journal: &[(u64, u64)]) -> Roles {
    let mut reader = Reader {
        recording,
        log: Log::new(journal),
        roles: Roles::default(),
        waiting: Vec::new(),
        data: BTreeMap::new(),
    };
    for op in outline.ops().iter().filter(|op| op.command == Command::Write) {
        reader.write(op);
    }
    reader.assign()
}

/// The journal's blocks, and how they follow each other.
struct Log {
    blocks: Vec<u64>,
    places: BTreeMap<u64, u64>,
    /// First place of the ring, and the first behind it; learnt from the superblock.
    ring: Option<(u64, u64)>,
    features: u32,
}

/// A descriptor whose log blocks are to be found.
struct Descriptor {
    write: u64,
    place: u64,
    sequence: u32,
    tags: u64,
    ring: (u64, u64),
}

struct Reader<'a> {
    recording: &'a [u8],
    log: Log,
    roles: Roles,
    waiting: Vec<Descriptor>,
    /// Writes without a header, by their place in the log, in the order of their receipt.
    data: BTreeMap<u64, Vec<u64>>,
}

impl Reader<'_> {
    fn write(&mut self, op: &Op) {
        // Blocks that are written in part are none that jbd2 writes.
        let (first, end) = (op.lba.0.div_ceil(SECTORS), (op.lba.0 + op.sectors.0) / SECTORS);
        for block in first..end {
            let Some(&place) = self.log.places.get(&block) else { continue };
            let at = op.data_at + (block * SECTORS - op.lba.0) * 512;
            let bytes = &self.recording[at as usize..(at + BLOCK) as usize];
            let role = self.role(op.receipt, place, bytes);
            self.roles.set(op.receipt, block, role);
        }
    }

    fn role(&mut self, write: u64, place: u64, bytes: &[u8]) -> Role {
        if word(bytes, 0) != MAGIC {
            self.data.entry(place).or_default().push(write);
            return Role::Unknown;
        }
        let sequence = word(bytes, 8);
        match word(bytes, 4) {
            SUPERBLOCK_V1 | SUPERBLOCK_V2 if place == 0 => {
                self.log.superblock(bytes);
                Role::JournalSuperblock
            }
            DESCRIPTOR => {
                if let Some(ring) = self.log.ring {
                    let tags = tags(bytes, self.log.features);
                    self.waiting.push(Descriptor { write, place, sequence, tags, ring });
                }
                Role::Descriptor(sequence)
            }
            COMMIT => Role::Commit(sequence),
            REVOKE => Role::Revoke(sequence),
            _ => Role::Unknown,
        }
    }

    /// Gives each descriptor's log blocks their role: of the writes to a place, the one nearest in time. A place is written
    /// once a lap, and a lap is far longer than a transaction.
    fn assign(mut self) -> Roles {
        if self.log.ring.is_none() {
            return Roles::default();
        }
        for descriptor in &self.waiting {
            let (first, end) = descriptor.ring;
            let length = end - first;
            for step in 1..=descriptor.tags.min(length - 1) {
                let place = first + (descriptor.place - first + step) % length;
                let writes = self.data.get(&place).map_or(&[][..], Vec::as_slice);
                let nearest = writes.iter().min_by_key(|write| write.abs_diff(descriptor.write));
                if let Some(&write) = nearest {
                    self.roles.set(write, self.log.blocks[place as usize], Role::LogData(descriptor.sequence));
                }
            }
        }
        self.roles
    }
}

impl Log {
    fn new(journal: &[(u64, u64)]) -> Log {
        let blocks: Vec<u64> = journal.iter().flat_map(|&(first, last)| first..=last).collect();
        let places = (0..).zip(&blocks).map(|(place, &block)| (block, place)).collect();
        Log { blocks, places, ring: None, features: 0 }
    }

    /// Learns the log's features and size. Fields: block size at 12, length at 16, first block of the log at 20, incompatible
    /// features at 40, blocks of the fast-commit area at 84.
    fn superblock(&mut self, bytes: &[u8]) {
        self.features = if word(bytes, 4) == SUPERBLOCK_V2 { word(bytes, 40) } else { 0 };
        let mut end = u64::from(word(bytes, 16));
        if self.features & INCOMPAT_FAST_COMMIT != 0 {
            let fast = u64::from(word(bytes, 84));
            end = end.saturating_sub(if fast == 0 { DEFAULT_FAST_COMMIT_BLOCKS } else { fast });
        }
        let first = u64::from(word(bytes, 20));
        let fits = u64::from(word(bytes, 12)) == BLOCK && 0 < first && first < end && end <= self.blocks.len() as u64;
        self.ring = fits.then_some((first, end));
    }
}

/// How many tags a descriptor block has.
fn tags(bytes: &[u8], features: u32) -> u64 {
    let v3 = features & INCOMPAT_CSUM_V3 != 0;
    let v2 = features & INCOMPAT_CSUM_V2 != 0;
    let high = if features & INCOMPAT_64BIT != 0 { 4 } else { 0 };
    let size = if v3 { 16 } else { 8 + high + if v2 { 2 } else { 0 } };
    // The checksum of the block is in its last four bytes.
    let end = bytes.len() - if v2 || v3 { 4 } else { 0 };
    let (mut at, mut count) = (12, 0);
    while at + size <= end {
        let flags = if v3 { word(bytes, at + 4) } else { word(bytes, at + 4) & 0xffff };
        count += 1;
        at += size + if flags & TAG_SAME_UUID == 0 { 16 } else { 0 };
        if flags & TAG_LAST != 0 {
            break;
        }
    }
    count
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A descriptor of `count` tags; the first has a UUID behind it, as the kernel writes it.
    fn descriptor(size: usize, flags_at: usize, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; BLOCK as usize];
        let mut at = 12;
        for tag in 0..count {
            let flags = if tag > 0 { 2 } else { 0 } | if tag + 1 == count { 8 } else { 0 };
            bytes[at + flags_at] = flags;
            at += size + if tag == 0 { 16 } else { 0 };
        }
        bytes
    }

    #[test]
    fn tags_are_counted_in_each_format() {
        for count in [1, 2, 57] {
            assert_eq!(tags(&descriptor(8, 7, count), 0), count as u64, "32 bits, no checksum");
            assert_eq!(tags(&descriptor(12, 7, count), INCOMPAT_64BIT), count as u64, "64 bits");
            assert_eq!(tags(&descriptor(10, 7, count), INCOMPAT_CSUM_V2), count as u64, "checksum v2");
            assert_eq!(tags(&descriptor(16, 7, count), INCOMPAT_CSUM_V3), count as u64, "checksum v3");
        }
        // Without a last tag the block's end is the end.
        assert_eq!(tags(&vec![0xff; BLOCK as usize][..], 0), 1, "a tag that says it is the last");
        let mut endless = vec![0; BLOCK as usize];
        endless.iter_mut().skip(7).step_by(8).for_each(|byte| *byte = 2);
        assert!(tags(&endless, 0) <= BLOCK / 8);
    }
}
