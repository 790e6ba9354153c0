//! Journals that debugfs wrote, in every layout of tags and with every checksum that it can make: our replay writes home what
//! e2fsck's does, and our table says what debugfs's `logdump` says.

mod common;

use common::{EXT3, EXT4, EXT4_1K, EXT4_32BIT, EXT4_NO_CSUM, Image, Made, differing};
use powerfail_jbd2::{
    Blocks, Bytes, Checksum, Checksums, HomeBlock, HomeRole, Kind, Layout, LogBlock, NoRecovery, Standing, Tid, Why,
    replay,
};

const MAGIC: u32 = 0xC03B_3998;

/// Four transactions, of which the last has no commit block: home blocks 7000 to 7002 (the first begins with the magic
/// number), a revoke of 7000 and 7002, and 7002 once more. With checksum v1 the second is of block 7003 instead: debugfs puts
/// revoke blocks under the checksum, which no recovery does.
fn journal(made: &Made<'_>, open: &str) -> Image {
    let image = Image::make(made);
    let three = image.data("three", &[MAGIC, 1, 2]);
    let one = image.data("one", &[MAGIC]);
    let second = if open == "jo -c" { format!("-b 7003 {one}") } else { "-r 7000,7002".into() };
    image
        .debugfs(&format!("{open}\njw -b 7000-7002 {three}\njw {second}\njw -b 7002 {one}\njw -b 7005 -c {one}\njc\n"));
    image
}

fn variants() -> Vec<(Image, Checksums)> {
    vec![
        (journal(&EXT3, "jo"), Checksums::None),
        (journal(&EXT4, "jo"), Checksums::None),
        (journal(&EXT4_NO_CSUM, "jo -c"), Checksums::V1),
        (journal(&EXT4, "jo -c -v 2"), Checksums::V2),
        (journal(&EXT4, "jo -c -v 3"), Checksums::V3),
        (journal(&EXT4_1K, "jo -c -v 2"), Checksums::V2),
        (journal(&EXT4_1K, "jo -c -v 3"), Checksums::V3),
        (journal(&EXT4_32BIT, "jo -c -v 2"), Checksums::V2),
        (journal(&EXT4_32BIT, "jo -c -v 3"), Checksums::V3),
    ]
}

#[test]
fn our_replay_writes_home_what_e2fsck_does() {
    for (image, checksums) in variants() {
        let bytes = image.bytes();
        let (journal, _) = image.journal();
        assert_eq!(journal.superblock.checksums(), checksums, "{}", journal.superblock);
        let replay = replay(&bytes).unwrap();
        assert_eq!(replay.transactions, [Tid(1), Tid(2), Tid(3)]);
        let writes: Vec<u64> = replay.writes.keys().map(|home| home.0).collect();
        let revoked: Vec<u64> = replay.revoked.iter().map(|skip| skip.home.0).collect();
        match checksums {
            Checksums::V1 => assert_eq!((writes, revoked), (vec![7000, 7001, 7002, 7003], vec![])),
            _ => assert_eq!((writes, revoked), (vec![7001, 7002], vec![7000, 7002])),
        }

        let mut ours = bytes.clone();
        for (home, write) in &replay.writes {
            let at = (home.0 * image.block_size) as usize;
            ours[at..at + image.block_size as usize].copy_from_slice(&replay.contents(&bytes, write).unwrap());
        }
        let place = journal.place(LogBlock(0)).unwrap().0 * image.block_size;
        ours[place as usize..place as usize + 1024].copy_from_slice(&replay.superblock);
        let (theirs, code) = image.after_e2fsck();
        assert!(code <= 1, "e2fsck ended with {code}");
        // The file system's superblock no longer asks for recovery, and has a new time.
        let superblock = 1024 / image.block_size;
        assert_eq!(differing(&ours, &theirs, image.block_size), [superblock], "{}", journal.superblock);
        // The magic number is back in its place.
        assert_eq!(&ours[7002 * image.block_size as usize..][..4], MAGIC.to_be_bytes());
    }
}

#[test]
fn our_table_says_what_logdump_does() {
    for (image, checksums) in variants() {
        let (_, table) = image.journal();
        let theirs = logdump(&image.ask("logdump -a"));
        let mut ours = Vec::new();
        for row in table.rows.iter().filter(|row| matches!(row.standing, Standing::Replayed | Standing::Beyond)) {
            let tid = row.transaction.unwrap().0;
            match &row.kind {
                Kind::Descriptor { .. } => ours.push((1, row.log.0, u64::from(tid))),
                Kind::Data { home, .. } => ours.push((0, row.log.0, home.0)),
                Kind::Commit { .. } => ours.push((2, row.log.0, u64::from(tid))),
                Kind::Revoke { homes } => {
                    ours.push((5, row.log.0, u64::from(tid)));
                    ours.extend(homes.iter().map(|home| (9, 0, home.0)));
                }
                other => panic!("{other:?} in the log"),
            }
            let wanted = match (checksums, &row.kind) {
                (Checksums::None, _) => Checksum::None,
                (Checksums::V1, Kind::Commit { .. }) | (Checksums::V2 | Checksums::V3, _) => Checksum::Right,
                (Checksums::V1, _) => Checksum::InCommit,
            };
            assert_eq!(row.checksum, wanted, "{row}");
        }
        assert_eq!(ours, theirs);
        assert_eq!(table.end, Some(Tid(4)));
        let last = table.rows.iter().rfind(|row| row.standing == Standing::Beyond).unwrap();
        assert_eq!(last.to_string(), format!("journal data of transaction 4 for block 7005"));
    }
}

/// Control blocks as (type, log block, transaction), data blocks as (0, log block, home block), revokes as (9, 0, home block).
fn logdump(text: &str) -> Vec<(u32, u32, u64)> {
    let number = |text: &str| text.trim_matches(|c: char| !c.is_ascii_digit()).parse::<u64>().unwrap();
    let mut found = Vec::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["Found", "expected", "sequence", tid, "type", kind, .., "block", at] => {
                let kind = number(kind) as u32;
                found.push((kind, number(at) as u32, number(tid)));
            }
            ["FS", "block", home, "logged", .., "block", at, "(flags", _] => {
                found.push((0, number(at) as u32, number(home)));
            }
            ["Revoke", "FS", "block", home] => found.push((9, 0, number(home))),
            _ => {}
        }
    }
    found
}

/// One bit of a data block flips: v1 leaves its transaction and what follows out, v2 and v3 say which block it is, and
/// without checksums nobody notices. In each case e2fsck does the same.
#[test]
fn a_flipped_bit_in_a_data_block() {
    for (image, checksums) in variants() {
        let (journal, _) = image.journal();
        let mut bytes = image.bytes();
        let place = journal.place(LogBlock(3)).unwrap().0 * image.block_size;
        bytes[place as usize + 100] ^= 4;
        image.set(&bytes);
        let (theirs, _) = image.after_e2fsck();
        let at = |home: u64| (home * image.block_size) as usize;
        let same = |home: u64, contents: &[u8]| theirs[at(home)..][..contents.len()] == *contents;
        match (checksums, replay(&bytes)) {
            (Checksums::None, Ok(replay)) => {
                let write = replay.writes[&HomeBlock(7001)];
                assert!(same(7001, &replay.contents(&bytes, &write).unwrap()));
            }
            (Checksums::V1, Err(refused)) => {
                assert_eq!(refused.why, Why::Commit(Tid(1)));
                assert!(refused.partial.unwrap().writes.is_empty());
                assert!(same(7001, &vec![0; image.block_size as usize]));
            }
            (Checksums::V2 | Checksums::V3, Err(refused)) => {
                assert_eq!(refused.why, Why::Data(HomeBlock(7001)));
                let partial = refused.partial.unwrap();
                assert_eq!(partial.writes.keys().map(|home| home.0).collect::<Vec<_>>(), [7002]);
                assert!(same(7001, &vec![0; image.block_size as usize]));
                let write = partial.writes[&HomeBlock(7002)];
                assert!(same(7002, &partial.contents(&bytes, &write).unwrap()));
            }
            (checksums, other) => panic!("{checksums:?}: {other:?}"),
        }
    }
}

/// The journal with a revoke under checksum v1 that debugfs makes is refused by e2fsck's recovery too, at the same place.
#[test]
fn revoke_blocks_are_not_under_checksum_v1() {
    let image = Image::make(&EXT4_NO_CSUM);
    let one = image.data("one", &[1]);
    image.debugfs(&format!("jo -c\njw -b 7000 {one}\njw -r 7001\njw -b 7002 {one}\njc\n"));
    let bytes = image.bytes();
    let refused = replay(&bytes).unwrap_err();
    assert_eq!(refused.why, Why::Commit(Tid(2)));
    assert_eq!(refused.partial.unwrap().writes.keys().map(|home| home.0).collect::<Vec<_>>(), [7000]);
    let (theirs, _) = image.after_e2fsck();
    assert_eq!(theirs[7000 * 4096..7001 * 4096], std::fs::read(one).unwrap());
    assert_eq!(theirs[7002 * 4096..7003 * 4096], [0; 4096]);
}

/// A commit block that tears: everything behind its first 512 bytes is from something else.
#[test]
fn a_torn_commit_block_is_accepted_by_newer_kernels_only() {
    use powerfail_jbd2::{Rules, replay_by};
    let image = journal(&EXT4, "jo -c -v 3");
    let (journal, _) = image.journal();
    let mut bytes = image.bytes();
    let place = (journal.place(LogBlock(5)).unwrap().0 * image.block_size) as usize;
    bytes[place + 512..place + 4096].fill(0x5a);
    assert_eq!(replay(&bytes).unwrap().transactions.len(), 3);
    let refused = replay_by(Rules::RefuseTornCommit, &bytes).unwrap_err();
    assert_eq!(refused.why, Why::Commit(Tid(1)));
    let table = journal.table(&bytes);
    assert!(matches!(table.at(LogBlock(5)).unwrap().kind, Kind::Commit { torn: true, .. }));
}

/// The log is a ring: a transaction that goes over its end continues at its first block.
#[test]
fn a_log_that_wraps() {
    let image = Image::make(&EXT4);
    let many = image.data("many", &vec![7; 600]);
    let two = image.data("two", &[MAGIC, 5]);
    // Two transactions of 600 blocks fill 1,023; the first is replayed before the second is written.
    image.debugfs(&format!("jo -c -v 3\njw -b 5000-5599 {many}\njc\n"));
    image.debugfs("jr\n");
    image.debugfs(&format!("jo\njw -b 6000-6599 {many}\njw -b 7000-7001 {two}\njc\n"));
    let bytes = image.bytes();
    let (journal, table) = image.journal();
    let replay = replay(&bytes).unwrap();
    assert_eq!(replay.writes.len(), 602);
    let (theirs, _) = image.after_e2fsck();
    for (home, write) in &replay.writes {
        let at = (home.0 * image.block_size) as usize;
        assert_eq!(theirs[at..at + 4096], replay.contents(&bytes, write).unwrap()[..]);
    }
    // Each block of the log is listed once.
    let mut logs: Vec<u32> = table.rows.iter().map(|row| row.log.0).collect();
    logs.sort_unstable();
    logs.dedup();
    assert_eq!(logs.len(), table.rows.len());
    assert!(logs.len() <= journal.superblock.length as usize);
}

#[test]
fn a_log_without_anything_to_do() {
    let image = Image::make(&EXT4);
    let done = replay(&image.bytes()).unwrap();
    assert_eq!((done.nothing, done.writes.len()), (Some(NoRecovery::NotAsked), 0));
    let (_, table) = image.journal();
    assert_eq!((table.rows.len(), table.end), (1, None));
    // After a replay the blocks are still there, and stale.
    let image = journal(&EXT4, "jo -c -v 3");
    image.debugfs("jr\n");
    let (journal, table) = image.journal();
    assert_eq!(journal.superblock.start, LogBlock(0));
    let stale: Vec<String> = table.rows.iter().skip(1).take(3).map(ToString::to_string).collect();
    assert_eq!(
        stale,
        [
            "stale journal descriptor of transaction 1",
            "stale journal data of transaction 1 for block 7000",
            "stale journal data of transaction 1 for block 7001"
        ]
    );
}

#[test]
fn what_lies_beneath_a_replay_is_seen_through_it() {
    let image = journal(&EXT4, "jo -c -v 3");
    let bytes = image.bytes();
    let replay = replay(&bytes).unwrap();
    let whole = &bytes;
    let over = powerfail_jbd2::Overlay::new(whole, &replay);
    let mut four = [0; 4];
    assert!(over.read(Bytes(7002 * 4096), &mut four));
    assert_eq!(four, MAGIC.to_be_bytes());
    let mut across = vec![0; 8192];
    assert!(over.read(Bytes(7001 * 4096 + 2048), &mut across));
    assert_eq!(across[2048..2052], MAGIC.to_be_bytes());
    assert_eq!(across[0], 0x41);
}

#[test]
fn other_devices_and_other_files() {
    let image = Image::make(&Made { program: "mkfs.ext4", block_size: 4096, options: &["-O", "^has_journal"] });
    let error = powerfail_jbd2::Journal::open(&image.bytes()).unwrap_err();
    assert_eq!(error.to_string(), "this file system has no journal");
    let device = tempfile::NamedTempFile::new().unwrap();
    device.as_file().set_len(32 << 20).unwrap();
    for size in ["1024", "4096"] {
        let mut command = std::process::Command::new("mke2fs");
        common::run(command.args(["-q", "-F", "-b", size, "-O", "journal_dev"]).arg(device.path()));
        let bytes = std::fs::read(device.path()).unwrap();
        let journal = powerfail_jbd2::Journal::open(&bytes).unwrap();
        assert_eq!(journal.medium, powerfail_jbd2::Medium::Device);
        assert_eq!(journal.table(&bytes).rows[0].to_string(), "journal superblock");
        assert!(replay(&bytes).is_err());
    }
    assert!(matches!(Layout::read(&image.bytes()).unwrap().role(HomeBlock(0)), HomeRole::Superblock { .. }));
}

/// The journal's superblock gets the feature by hand, as a kernel sets it at the first mount; the area gets a head, a
/// tag and a tail.
#[test]
fn fast_commits_are_named_and_not_replayed() {
    let made = Made { program: "mkfs.ext4", block_size: 4096, options: &["-J", "size=8"] };
    let image = journal(&made, "jo");
    let mut bytes = image.bytes();
    let (journal, _) = image.journal();
    let superblock = journal.place(LogBlock(0)).unwrap().0 as usize * 4096;
    bytes[superblock + 0x2B] |= 0x20;
    bytes[superblock + 0x54..superblock + 0x58].copy_from_slice(&200u32.to_be_bytes());
    // The first block of the area stays free.
    let first = LogBlock(2048 - 200 + 1);
    let area = journal.place(first).unwrap().0 as usize * 4096;
    let tags: [&[u8]; 3] =
        [&[9, 0, 8, 0, 0, 0, 0, 0, 4, 0, 0, 0], &[6, 0, 2, 0, 1, 1], &[8, 0, 8, 0, 4, 0, 0, 0, 1, 2, 3, 4]];
    bytes[area..area + 30].copy_from_slice(&tags.concat());
    let found = replay(&bytes).unwrap().fast_commit.unwrap();
    assert_eq!((found.transaction, found.commits, found.blocks), (Tid(4), 1, 1));
    let journal = powerfail_jbd2::Journal::open(&bytes).unwrap();
    let table = journal.table(&bytes);
    assert_eq!(table.at(first).unwrap().kind, Kind::FastCommit { tags: vec!["head", "inode", "tail"] });
    // They follow another transaction: a kernel leaves them alone.
    bytes[area + 8] = 3;
    assert_eq!(replay(&bytes).unwrap().fast_commit, None);
}
