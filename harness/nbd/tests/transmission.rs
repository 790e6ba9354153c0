//! The transmission phase over a raw socket: the table of what must happen, row by row.

mod common;

use std::sync::Arc;

use common::memory::{Memory, Seen};
use common::raw::*;
use common::{MIB, Served, bounded};
use powerfail_drive::device::Offers;
use powerfail_drive::request::Command;
use powerfail_nbd::{Config, Export, Exports};
use tokio::io::AsyncWriteExt;

#[test]
fn what_is_written_is_read() {
    bounded(async {
        let served = Served::new(MIB);
        let mut raw = Raw::attached(&served.path).await;
        // Unaligned, over sector borders.
        raw.request(WRITE, 0, 1, 509, 7, b"seven b").await;
        assert_eq!(raw.reply(0).await.errno, 0);
        assert_eq!(raw.expect(READ, 0, 508, 9, 0).await, b"\0seven b\0");
        raw.expect(WRITE, 0, 4096, 8192, 0).await;
        raw.expect(WRITE_ZEROES, 0, 4096, 4096, 0).await;
        raw.expect(TRIM, 0, 8192, 512, 0).await;
        raw.expect(CACHE, 0, 0, MIB as u32, 0).await;
        raw.expect(FLUSH, 0, 0, 0, 0).await;
        let bytes = raw.expect(READ, 0, 4096, 8192, 0).await;
        assert!(bytes[..4608].iter().all(|byte| *byte == 0) && bytes[4608..].iter().all(|byte| *byte == 0x5a));
        let counts = served.handle.counts();
        assert_eq!((counts.requests, counts.refused, counts.open), (8, 0, 1));
        served.end().await;
    });
}

#[test]
fn unknown_commands_and_flags_are_invalid_and_the_connection_lives() {
    bounded(async {
        let served = Served::new(MIB);
        let mut raw = Raw::attached(&served.path).await;
        for command in [8, 9, 255, u16::MAX] {
            raw.expect(command, 0, 0, 512, EINVAL).await;
        }
        for command in [READ, WRITE, TRIM, CACHE, WRITE_ZEROES] {
            for flag in [8, 16, 32, 0x8000] {
                raw.expect(command, flag, 0, 512, EINVAL).await;
            }
        }
        // Flags of other commands, and DF without structured replies.
        raw.expect(WRITE, NO_HOLE, 0, 512, EINVAL).await;
        raw.expect(READ, DF, 0, 512, EINVAL).await;
        raw.expect(FLUSH, 0x4000, 0, 0, EINVAL).await;
        raw.expect_alive().await;
        assert!(served.drive.log().len() == 2, "only the last read reached the drive");
        served.end().await;
    });
}

#[test]
fn a_refused_writes_data_is_drained() {
    bounded(async {
        let served = Served::new(MIB);
        let mut raw = Raw::attached(&served.path).await;
        // Data that would be requests if they were taken for such, up to far more than any buffer holds.
        for length in [28 * 100, 28 * 100_000] {
            let nested = request(WRITE_ZEROES, 0, 666, 0, 4096, &[]).repeat(length / 28);
            for (flags, offset, errno) in [(0x80, 0, EINVAL), (0, MIB, ENOSPC)] {
                raw.request(WRITE, flags, 5, offset, length as u32, &nested).await;
                assert_eq!(raw.reply(0).await, Reply { cookie: 5, errno, data: vec![] });
            }
        }
        raw.expect_alive().await;
        assert!(served.drive.log().len() == 2);
        served.end().await;
    });
}

#[test]
fn fua_is_accepted_on_all_and_reaches_the_drive_on_writes() {
    bounded(async {
        let served = Served::new(MIB);
        let mut raw = Raw::attached(&served.path).await;
        for command in [READ, WRITE, TRIM, CACHE] {
            raw.expect(command, FUA, 0, 512, 0).await;
        }
        raw.expect(FLUSH, FUA, 0, 0, 0).await;
        raw.expect(WRITE_ZEROES, FUA | NO_HOLE, 0, 512, 0).await;
        let with: Vec<Command> = served
            .drive
            .log()
            .iter()
            .filter_map(|seen| match seen {
                Seen::Received { command, fua: true, .. } => Some(*command),
                _ => None,
            })
            .collect();
        assert_eq!(with, [Command::Write, Command::Trim, Command::WriteZeroes]);
        served.end().await;

        let served = Served::with(Memory::with(MIB, Offers { fua: false, ..Offers::ALL }), Config::default());
        let mut raw = Raw::attached(&served.path).await;
        raw.expect(WRITE, FUA, 0, 512, EINVAL).await;
        raw.expect(WRITE, 0, 0, 512, 0).await;
        served.end().await;
    });
}

#[test]
fn past_the_end() {
    bounded(async {
        let served = Served::new(MIB);
        let mut raw = Raw::attached(&served.path).await;
        // The last but one offset plus its length wraps around to 510.
        for offset in [MIB, MIB - 511, u64::MAX - 1, u64::MAX] {
            raw.expect(WRITE, 0, offset, 512, ENOSPC).await;
            raw.expect(WRITE_ZEROES, 0, offset, 512, ENOSPC).await;
            raw.expect(READ, 0, offset, 512, EINVAL).await;
            raw.expect(TRIM, 0, offset, 512, EINVAL).await;
            raw.expect(CACHE, 0, offset, 512, EINVAL).await;
        }
        raw.expect(WRITE, 0, MIB - 512, 512, 0).await;
        raw.expect(WRITE_ZEROES, 0, 0, u32::MAX, ENOSPC).await;
        assert_eq!(served.handle.counts().refused, 21);
        served.end().await;
    });
}

#[test]
fn no_bytes_are_no_error_and_no_event() {
    bounded(async {
        let served = Served::new(MIB);
        let mut raw = Raw::attached(&served.path).await;
        for command in [READ, WRITE, TRIM, CACHE, WRITE_ZEROES] {
            raw.expect(command, 0, 512, 0, 0).await;
        }
        assert_eq!(served.drive.log(), []);
        let mut raw = Raw::structured(&served.path).await;
        raw.request(READ, 0, 77, 512, 0, &[]).await;
        assert_eq!(raw.chunk().await, (0, 77, vec![]));
        served.end().await;
    });
}

#[test]
fn flush_has_no_range() {
    bounded(async {
        let served = Served::new(MIB);
        let mut raw = Raw::attached(&served.path).await;
        raw.expect(FLUSH, 0, 512, 0, EINVAL).await;
        raw.expect(FLUSH, 0, 0, 512, EINVAL).await;
        assert_eq!(served.drive.log(), []);
        raw.expect(FLUSH, 0, 0, 0, 0).await;
        served.end().await;
    });
}

#[test]
fn block_status_was_not_agreed_on() {
    bounded(async {
        let served = Served::new(MIB);
        Raw::attached(&served.path).await.expect(BLOCK_STATUS, 0, 0, 512, EINVAL).await;
        served.end().await;
    });
}

#[test]
fn long_reads_are_refused_and_long_writes_taken() {
    bounded(async {
        let served = Served::new(128 * MIB);
        let mut raw = Raw::attached(&served.path).await;
        raw.expect(READ, 0, 0, (32 << 20) + 1, EINVAL).await;
        raw.expect(WRITE, 0, 512, 64 << 20, 0).await;
        let bytes = raw.expect(READ, 0, 0, 32 << 20, 0).await;
        assert!(bytes[..512].iter().all(|byte| *byte == 0) && bytes[512..].iter().all(|byte| *byte == 0x5a));
        raw.expect(TRIM, 0, 0, 128 << 20, 0).await;
        raw.expect(WRITE_ZEROES, 0, 0, 128 << 20, 0).await;
        raw.expect_alive().await;

        raw.request(WRITE, 0, 1, 0, (64 << 20) + 1, &[]).await;
        raw.expect_end().await;
        served.end().await;
    });
}

#[test]
fn a_read_only_export_is_not_permitted_to_change() {
    bounded(async {
        let drive = Arc::new(Memory::new(MIB));
        let exports = Exports::new(vec![Export::new("", drive.clone()).read_only(true)]).expect("an export");
        let served = Served::exports(exports, drive, Config::default());
        let mut raw = Raw::attached(&served.path).await;
        for command in [WRITE, TRIM, WRITE_ZEROES] {
            raw.expect(command, 0, 0, 512, EPERM).await;
        }
        raw.expect(FLUSH, 0, 0, 0, 0).await;
        raw.expect(READ, 0, 0, 512, 0).await;
        served.end().await;
    });
}

#[test]
fn a_drive_of_large_blocks_refuses_parts_of_them() {
    bounded(async {
        let drive = Arc::new(Memory::new(MIB));
        let exports = Exports::new(vec![Export::new("", drive.clone()).min_block(4096)]).expect("an export");
        let served = Served::exports(exports, drive, Config::default());
        let mut raw = Raw::attached(&served.path).await;
        for command in [READ, WRITE, TRIM, CACHE, WRITE_ZEROES] {
            raw.expect(command, 0, 512, 4096, EINVAL).await;
            raw.expect(command, 0, 4096, 512, EINVAL).await;
            raw.expect(command, 0, 4096, 8192, 0).await;
        }
        served.end().await;
    });
}

#[test]
fn a_wrong_request_magic_ends_the_connection() {
    bounded(async {
        let served = Served::new(MIB);
        let mut raw = Raw::attached(&served.path).await;
        let mut bytes = request(READ, 0, 1, 0, 512, &[]);
        bytes[0] ^= 1;
        raw.send(&bytes).await;
        raw.expect_end().await;
        assert_eq!(served.handle.counts().severed, 1);
        Raw::attached(&served.path).await.expect_alive().await;
        served.end().await;
    });
}

#[test]
fn half_a_write_is_not_applied() {
    bounded(async {
        let served = Served::new(MIB);
        for cut in [10, 28, 29, 28 + 4095] {
            let mut raw = Raw::attached(&served.path).await;
            raw.send(&request(WRITE, 0, 1, 0, 4096, &[7; 4096])[..cut]).await;
            raw.stream.shutdown().await.expect("the end of what is sent");
            raw.expect_end().await;
        }
        assert_eq!(served.drive.log(), []);
        assert_eq!(Raw::attached(&served.path).await.expect(READ, 0, 0, 4096, 0).await, [0; 4096]);
        served.end().await;
    });
}

#[test]
fn disc_is_answered_by_what_was_outstanding_and_is_no_flush() {
    bounded(async {
        let served = Served::new(MIB);
        let mut raw = Raw::attached(&served.path).await;
        let mut bytes = request(WRITE, 0, 1, 0, 512, &[1; 512]);
        bytes.extend(request(READ, 0, 2, 0, 512, &[]));
        bytes.extend(request(DISC, 0, 3, 0, 0, &[]));
        // What follows a DISC is not looked at.
        bytes.extend(request(WRITE, 0, 4, 0, 512, &[2; 512]));
        raw.send(&bytes).await;
        assert_eq!(raw.reply(0).await, Reply { cookie: 1, errno: 0, data: vec![] });
        assert_eq!(raw.reply(512).await, Reply { cookie: 2, errno: 0, data: vec![1; 512] });
        raw.expect_end().await;
        assert_eq!(served.drive.log().len(), 4, "a write, a read, and their replies: {:?}", served.drive.log());
        served.end().await;
    });
}

#[test]
fn a_client_that_sends_no_more_gets_all_its_answers() {
    bounded(async {
        let served = Served::new(MIB);
        let mut raw = Raw::attached(&served.path).await;
        for cookie in 0..100 {
            raw.request(READ, 0, cookie, 0, 65536, &[]).await;
        }
        raw.stream.shutdown().await.expect("the end of what is sent");
        for cookie in 0..100 {
            assert_eq!(raw.reply(65536).await.cookie, cookie);
        }
        raw.expect_end().await;
        served.end().await;
    });
}

#[test]
fn two_hundred_reads_before_the_first_reply_is_read() {
    bounded(async {
        let served = Served::new(MIB);
        let mut raw = Raw::attached(&served.path).await;
        let all: Vec<u8> = (0..200).flat_map(|cookie| request(READ, 0, cookie, 0, 256 << 10, &[])).collect();
        raw.send(&all).await;
        // The server has taken them all although nothing was read: this must be answered on another connection after
        // it has been, and on this one at the end.
        while served.handle.counts().requests < 200 {
            tokio::task::yield_now().await;
        }
        for cookie in 0..200 {
            let reply = raw.reply(256 << 10).await;
            assert_eq!((reply.cookie, reply.errno), (cookie, 0));
        }
        raw.expect_alive().await;
        served.end().await;
    });
}

#[test]
fn a_slow_reader_bounds_what_is_queued_and_loses_nothing() {
    bounded(async {
        let served = Served::with(Memory::new(MIB), Config { queue: 1 << 20, ..Config::default() });
        let mut slow = Raw::attached(&served.path).await;
        let all: Vec<u8> = (0..2000).flat_map(|cookie| request(READ, 0, cookie, 0, 64 << 10, &[])).collect();
        slow.send(&all).await;
        // Others are served meanwhile. 1 MiB is queued here and less than 1 MiB in the socket: 32 replies of 64 KiB.
        let mut other = Raw::attached(&served.path).await;
        for _ in 0..1000 {
            other.expect_alive().await;
        }
        let taken = served.handle.counts().requests - 1000;
        assert!(taken < 64, "{taken} requests were taken from a client that reads no replies");
        for cookie in 0..2000 {
            assert_eq!(slow.reply(64 << 10).await.cookie, cookie);
        }
        served.end().await;
    });
}

#[test]
fn a_client_that_never_reads_ends_without_harm() {
    bounded(async {
        let served = Served::with(Memory::new(MIB), Config { queue: 1 << 20, ..Config::default() });
        let mut dead = Raw::attached(&served.path).await;
        let reads: Vec<u8> = (0..100).flat_map(|cookie| request(READ, 0, cookie, 0, 256 << 10, &[])).collect();
        dead.send(&reads).await;
        drop(dead);
        while served.handle.counts().open > 0 {
            tokio::task::yield_now().await;
        }
        Raw::attached(&served.path).await.expect_alive().await;
        served.end().await;
    });
}

#[test]
fn structured_reads_and_errors() {
    bounded(async {
        let served = Served::new(MIB);
        let mut raw = Raw::structured(&served.path).await;
        // Only reads have to be structured.
        raw.expect(WRITE, 0, 1024, 512, 0).await;
        for flags in [0, DF, FUA | DF] {
            raw.request(READ, flags, 5, 1024, 600, &[]).await;
            let (kind, cookie, payload) = raw.chunk().await;
            assert_eq!((kind, cookie, payload.len()), (1, 5, 608));
            assert_eq!(payload[..8], 1024u64.to_be_bytes());
            assert!(payload[8..520].iter().all(|byte| *byte == 0x5a) && payload[520..].iter().all(|byte| *byte == 0));
        }
        for (command, offset, errno) in
            [(READ, MIB, EINVAL), (WRITE, MIB, ENOSPC), (TRIM, MIB, EINVAL), (99, 0, EINVAL)]
        {
            let data = if command == WRITE { vec![0; 512] } else { vec![] };
            raw.request(command, 0, 6, offset, 512, &data).await;
            let (kind, cookie, payload) = raw.chunk().await;
            assert_eq!((kind, cookie), (0x8001, 6));
            assert_eq!(payload[..4], errno.to_be_bytes());
            let text = std::str::from_utf8(&payload[6..]).expect("text");
            assert!(text.len() > 10 && payload[4..6] == (text.len() as u16).to_be_bytes(), "{text:?}");
        }
        served.end().await;
    });
}

#[test]
fn the_cache_is_the_exports_and_not_the_connections() {
    bounded(async {
        let served = Served::new(MIB);
        let mut one = Raw::attached(&served.path).await;
        let mut two = Raw::attached(&served.path).await;
        one.expect(WRITE, 0, 0, 512, 0).await;
        assert_eq!(two.expect(READ, 0, 0, 512, 0).await, [0x5a; 512]);
        two.expect(FLUSH, 0, 0, 0, 0).await;
        // The write's reply comes before the flush's receipt for the drive, whichever connection they are on.
        let log = served.drive.log();
        let replied = log.iter().position(|seen| *seen == Seen::Replied { event: 0 });
        let flushed = log.iter().position(|seen| matches!(seen, Seen::Received { command: Command::Flush, .. }));
        assert!(replied.expect("replied") < flushed.expect("flushed"));
        served.end().await;
    });
}

#[test]
fn the_drive_hears_of_each_reply_before_the_client_does() {
    bounded(async {
        let served = Served::new(MIB);
        let mut raw = Raw::attached(&served.path).await;
        for cookie in 0..50u64 {
            raw.request(WRITE, 0, cookie, 0, 512, &[1; 512]).await;
            raw.reply(0).await;
            assert_eq!(served.drive.log().last(), Some(&Seen::Replied { event: cookie }));
        }
        served.end().await;
    });
}

#[test]
fn requests_that_arrive_together_are_in_flight_together() {
    bounded(async {
        let served = Served::new(MIB);
        let mut raw = Raw::attached(&served.path).await;
        let all: Vec<u8> = (0..5000).flat_map(|cookie| request(FLUSH, 0, cookie, 0, 0, &[])).collect();
        raw.send(&all).await;
        for _ in 0..5000 {
            assert_eq!(raw.reply(0).await.errno, 0);
        }
        let most = served.drive.most_in_flight();
        assert!((2..=1024).contains(&most), "{most} were in flight");
        served.end().await;
    });
}

#[test]
fn without_power_all_is_an_error_and_the_connection_lives() {
    bounded(async {
        let served = Served::new(MIB);
        let mut raw = Raw::attached(&served.path).await;
        raw.expect(WRITE, 0, 0, 512, 0).await;
        served.drive.set_power(false);
        for (command, length) in [(READ, 512), (WRITE, 512), (TRIM, 512), (WRITE_ZEROES, 512), (CACHE, 512), (FLUSH, 0)]
        {
            raw.expect(command, 0, 0, length, EIO).await;
        }
        served.drive.set_power(true);
        assert_eq!(raw.expect(READ, 0, 0, 512, 0).await, [0x5a; 512]);
        served.end().await;
    });
}

#[test]
fn a_reply_that_the_drive_refuses_becomes_an_error_without_data() {
    bounded(async {
        let served = Served::new(MIB);
        served.drive.refuse_replies_from(2);
        let all: Vec<u8> = (0..4).flat_map(|cookie| request(READ, 0, cookie, 0, 512, &[])).collect();
        let mut raw = Raw::attached(&served.path).await;
        raw.send(&all).await;
        for (cookie, errno) in [(0, 0), (1, 0), (2, EIO), (3, EIO)] {
            let reply = raw.reply(512).await;
            assert_eq!((reply.cookie, reply.errno), (cookie, errno));
        }
        let mut raw = Raw::structured(&served.path).await;
        raw.request(READ, 0, 9, 0, 512, &[]).await;
        let (kind, cookie, payload) = raw.chunk().await;
        assert_eq!((kind, cookie, &payload[..4]), (0x8001, 9, &EIO.to_be_bytes()[..]));
        raw.request(WRITE, 0, 10, 0, 512, &[0; 512]).await;
        assert_eq!(raw.chunk().await.1, 10);
        served.end().await;
    });
}
