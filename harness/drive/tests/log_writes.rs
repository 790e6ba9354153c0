//! dm-log-writes, out and in; with a reader of the format that is not ours but this test's, straight from its layout.

mod common;

use std::io::Cursor;

use common::{Memory, done, drive, receive};
use powerfail_drive::event::Header;
use powerfail_drive::live::Drive;
use powerfail_drive::log_writes::{LogError, export, import};
use powerfail_drive::request::{Command, Geometry};
use powerfail_seed::{Seed, below};

const SIZE: usize = 1 << 20;

fn session() -> (Drive<Memory>, Vec<u8>) {
    let mut drive = drive(SIZE as u64, true);
    let mut rng = Seed(11).rng("log-writes", &[]);
    done(&mut drive, Command::Trim, 0, SIZE as u64, false, 0);
    drive.mark("mounted").unwrap();
    for step in 0..500u64 {
        let command =
            [Command::Write, Command::Write, Command::Flush, Command::Trim, Command::WriteZeroes, Command::Read]
                [below(&mut rng, 6) as usize];
        let lba = below(&mut rng, 2000);
        let sectors = if command == Command::Flush { 0 } else { 1 + below(&mut rng, 40) };
        done(&mut drive, command, lba * 512, sectors * 512, below(&mut rng, 4) == 0, step as u8 | 1);
    }
    drive.mark("workload-end").unwrap();
    let mut image = vec![0; SIZE];
    drive.pages().read(0, &mut image);
    (drive, image)
}

/// Replays a log as `replay-log` does, taking discards as zeroes or skipping them; gives image and marks.
fn replay(log: &[u8], skip_discards: bool) -> (Vec<u8>, Vec<String>, u64) {
    let le = |at: usize| u64::from_le_bytes(log[at..at + 8].try_into().unwrap());
    assert_eq!((le(0), le(8)), (0x6a736677736872, 1));
    assert_eq!(log[24..28], 512u32.to_le_bytes());
    let (mut image, mut marks, mut flushes, mut at) = (vec![0; SIZE], Vec::new(), 0, 512);
    for _ in 0..le(16) {
        let (sector, sectors, flags, length) =
            (le(at) as usize, le(at + 8) as usize, le(at + 16), le(at + 24) as usize);
        at += 512;
        flushes += flags & 1;
        let range = sector * 512..(sector + sectors) * 512;
        if flags & 8 != 0 {
            marks.push(String::from_utf8(log[at - 480..at - 480 + length].to_vec()).unwrap());
        } else if flags & 4 != 0 {
            if !skip_discards {
                image[range].fill(0);
            }
        } else {
            image[range].copy_from_slice(&log[at..at + sectors * 512]);
            at += sectors * 512;
        }
    }
    assert_eq!(at, log.len(), "nothing follows the last entry");
    (image, marks, flushes)
}

#[test]
fn another_reader_gets_the_same_image_whatever_it_does_with_discards() {
    let (drive, image) = session();
    let recording = drive.close().unwrap().0;
    let mut log = Cursor::new(Vec::new());
    let entries = export(&recording, &mut log).unwrap();
    assert!(entries > 300);
    for skip_discards in [false, true] {
        let (replayed, marks, flushes) = replay(log.get_ref(), skip_discards);
        assert!(replayed == image, "the image differs (discards skipped: {skip_discards})");
        assert_eq!(marks, ["mounted", "workload-end"]);
        assert!(flushes > 30);
    }
}

#[test]
fn out_and_in_again_is_the_same_disk_and_the_same_log() {
    let (drive, image) = session();
    let mut log = Cursor::new(Vec::new());
    export(&drive.close().unwrap().0, &mut log).unwrap();
    let geometry = Geometry::new(SIZE as u64).unwrap();
    let header = Header::honest(geometry, true);
    let mut again = Drive::new(geometry, Memory(header.encode().to_vec()));
    import(&mut log.get_ref().as_slice(), &mut again).unwrap();
    let mut seen = vec![0; SIZE];
    again.pages().read(0, &mut seen);
    assert!(seen == image);
    let mut second = Cursor::new(Vec::new());
    export(&again.close().unwrap().0, &mut second).unwrap();
    assert_eq!(replay(second.get_ref(), true).0, image);
}

#[test]
fn a_write_that_was_not_replied_to_is_left_out() {
    let mut drive = drive(SIZE as u64, true);
    receive(&mut drive, Command::Write, 0, 512, false, 9);
    let mut log = Cursor::new(Vec::new());
    assert_eq!(export(&drive.close().unwrap().0, &mut log).unwrap(), 0);
}

#[test]
fn what_is_no_log_or_does_not_fit_is_refused() {
    let (drive, _) = session();
    let mut log = Cursor::new(Vec::new());
    export(&drive.close().unwrap().0, &mut log).unwrap();
    let log = log.into_inner();
    let small = Geometry::new(4096).unwrap();
    let header = Header::honest(small, true);
    let mut tiny = Drive::new(small, Memory(header.encode().to_vec()));
    assert!(matches!(import(&mut log.as_slice(), &mut tiny), Err(LogError::Refused { .. })));
    let mut big = common::drive(SIZE as u64, true);
    assert!(matches!(import(&mut &log[..log.len() - 1], &mut big), Err(LogError::Malformed(_))));
    let mut magic = log.clone();
    magic[0] ^= 1;
    assert!(matches!(import(&mut magic.as_slice(), &mut big), Err(LogError::Malformed(_))));
    // A length that no drive has must not become an allocation.
    let mut huge = log;
    huge[512 + 16..512 + 24].fill(0);
    huge[512 + 8..512 + 16].fill(0x7f);
    assert!(matches!(import(&mut huge.as_slice(), &mut big), Err(LogError::Refused { .. })));
}
