//! The negotiation over a raw socket: what clients do, and what they do wrong.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::memory::Memory;
use common::raw::*;
use common::{MIB, Served, bounded};
use powerfail_drive::device::Offers;
use powerfail_nbd::{Config, Export, ExportError, Exports};

/// HAS_FLAGS, FLUSH, FUA, TRIM, WRITE_ZEROES, CAN_MULTI_CONN, CACHE.
const FLAGS: u16 = 1 | 4 | 8 | 32 | 64 | 256 | 1024;
const FLAG_READ_ONLY: u16 = 2;
const FLAG_ROTATIONAL: u16 = 16;
const FLAG_DF: u16 = 128;

/// Two exports: "left" (1 MiB, described, the default) and "right" (2 MiB, read-only, rotational, one connection).
fn two() -> Served {
    let left = Arc::new(Memory::new(MIB));
    let right = Arc::new(Memory::with(2 * MIB, Offers { rotational: true, ..Offers::ALL }));
    let exports = Exports::new(vec![
        Export::new("left", left.clone()).description("the left one"),
        Export::new("right", right).read_only(true).multi_conn(false),
    ]);
    Served::exports(exports.expect("two good exports"), left, Config::default())
}

#[test]
fn export_name_with_and_without_zeroes() {
    bounded(async {
        let served = two();
        for (flags, zeroes) in [(0u32, 124), (1, 124), (2, 0), (3, 0)] {
            let mut raw = Raw::connect(&served.path).await;
            raw.send(&flags.to_be_bytes()).await;
            raw.option(EXPORT_NAME, b"left").await;
            let answer = raw.take(10 + zeroes).await;
            assert_eq!(answer[..8], MIB.to_be_bytes());
            assert_eq!(answer[8..10], FLAGS.to_be_bytes());
            assert!(answer[10..].iter().all(|byte| *byte == 0));
            raw.expect_alive().await;
        }
        served.end().await;
    });
}

#[test]
fn export_name_of_an_unknown_export_ends_the_connection() {
    bounded(async {
        let served = two();
        let mut raw = Raw::fixed(&served.path).await;
        raw.option(EXPORT_NAME, b"nope").await;
        raw.expect_end().await;
        let counts = served.handle.counts();
        assert_eq!((counts.severed, counts.last_severed.is_some()), (1, true));
        served.end().await;
    });
}

#[test]
fn go_tells_size_and_flags_of_each_export() {
    bounded(async {
        let served = two();
        assert_eq!(Raw::fixed(&served.path).await.go("").await, (MIB, FLAGS));
        assert_eq!(Raw::fixed(&served.path).await.go("left").await, (MIB, FLAGS));
        let right = FLAGS & !256 | FLAG_READ_ONLY | FLAG_ROTATIONAL;
        assert_eq!(Raw::fixed(&served.path).await.go("right").await, (2 * MIB, right));

        let mut raw = Raw::fixed(&served.path).await;
        raw.expect_option(STRUCTURED_REPLY, &[], ACK).await;
        assert_eq!(raw.go("").await, (MIB, FLAGS | FLAG_DF));
        served.end().await;
    });
}

#[test]
fn the_flags_are_what_the_drive_offers() {
    bounded(async {
        let none = Offers { flush: false, fua: false, trim: false, write_zeroes: false, rotational: false };
        for (offers, flags) in [
            (none, 1 | 256 | 1024),
            (Offers { flush: true, ..none }, 1 | 4 | 256 | 1024),
            (Offers { fua: true, ..none }, 1 | 8 | 256 | 1024),
            (Offers { trim: true, ..none }, 1 | 32 | 256 | 1024),
            (Offers { write_zeroes: true, ..none }, 1 | 64 | 256 | 1024),
        ] {
            let served = Served::with(Memory::with(MIB, offers), Config::default());
            assert_eq!(Raw::fixed(&served.path).await.go("").await, (MIB, flags));
            served.end().await;
        }
    });
}

#[test]
fn info_gives_what_is_asked_for_and_does_not_begin() {
    bounded(async {
        let served = two();
        let mut raw = Raw::fixed(&served.path).await;
        // Infos 1 to 3, and one that doesn't exist, which is no error.
        raw.option(INFO, &go_data("", &[3, 1, 77, 2])).await;
        let mut infos = Vec::new();
        loop {
            let (option, kind, data) = raw.option_reply().await;
            assert_eq!(option, INFO);
            if kind == ACK {
                break;
            }
            assert_eq!(kind, REP_INFO);
            infos.push(data);
        }
        let sizes: Vec<u8> = [1u32, 4096, 33_554_432].iter().flat_map(|size| size.to_be_bytes()).collect();
        assert_eq!(infos[0][..2], [0, 0]);
        assert_eq!(infos[1], b"\0\x01left");
        assert_eq!(infos[2], b"\0\x02the left one");
        assert_eq!(infos[3], [&[0, 3], &sizes[..]].concat());
        assert_eq!(infos.len(), 4);

        // Without being asked it tells only size and flags, and options go on.
        raw.option(INFO, &go_data("right", &[])).await;
        assert_eq!(raw.option_reply().await.2.len(), 12);
        assert_eq!(raw.option_reply().await, (INFO, ACK, vec![]));
        raw.go("left").await;
        raw.expect_alive().await;
        served.end().await;
    });
}

#[test]
fn list_names_all_and_abort_is_acknowledged() {
    bounded(async {
        let served = two();
        let mut raw = Raw::fixed(&served.path).await;
        raw.option(LIST, &[]).await;
        assert_eq!(raw.option_reply().await, (LIST, SERVER, b"\0\0\0\x04leftthe left one".to_vec()));
        assert_eq!(raw.option_reply().await, (LIST, SERVER, b"\0\0\0\x05right".to_vec()));
        assert_eq!(raw.option_reply().await, (LIST, ACK, vec![]));
        raw.expect_option(ABORT, &[], ACK).await;
        raw.expect_end().await;
        assert_eq!(served.handle.counts().severed, 0);

        // `nbd-client -l` doesn't wait for the answer.
        let mut raw = Raw::fixed(&served.path).await;
        raw.option(ABORT, &[]).await;
        drop(raw);
        Raw::attached(&served.path).await.expect_alive().await;
        served.end().await;
    });
}

#[test]
fn unknown_options_are_unsupported_and_in_step() {
    bounded(async {
        let served = two();
        let mut raw = Raw::fixed(&served.path).await;
        // PEEK_EXPORT (withdrawn), EXTENDED_HEADERS (not here), and ones that don't exist, with data and without.
        for (option, data) in
            [(4, vec![]), (11, vec![]), (0, vec![1; 9]), (12, vec![0xff; 60_000]), (u32::MAX, vec![7])]
        {
            raw.expect_option(option, &data, ERR_UNSUP).await;
        }
        raw.go("").await;
        raw.expect_alive().await;
        served.end().await;
    });
}

#[test]
fn what_has_no_data_refuses_data() {
    bounded(async {
        let served = two();
        let mut raw = Raw::fixed(&served.path).await;
        raw.expect_option(LIST, b"x", ERR_INVALID).await;
        raw.expect_option(STRUCTURED_REPLY, b"x", ERR_INVALID).await;
        raw.expect_option(STARTTLS, b"x", ERR_INVALID).await;
        raw.expect_option(STARTTLS, &[], ERR_POLICY).await;
        // The refused STRUCTURED_REPLY agreed on nothing.
        assert_eq!(raw.go("").await, (MIB, FLAGS));
        served.end().await;
    });
}

#[test]
fn metadata_contexts_need_structured_replies_and_there_are_none() {
    bounded(async {
        let served = two();
        let mut raw = Raw::fixed(&served.path).await;
        let good = meta_data("left", &["base:allocation", "qemu:"]);
        raw.expect_option(SET_META, &good, ERR_INVALID).await;
        raw.expect_option(LIST_META, &good, ERR_INVALID).await;
        raw.expect_option(STRUCTURED_REPLY, &[], ACK).await;
        for option in [LIST_META, SET_META] {
            raw.expect_option(option, &good, ACK).await;
            raw.expect_option(option, &meta_data("left", &[]), ACK).await;
            raw.expect_option(option, &meta_data("nope", &[]), ERR_UNKNOWN).await;
            raw.expect_option(option, &good[..good.len() - 1], ERR_INVALID).await;
            raw.expect_option(option, &[&good[..], b"x"].concat(), ERR_INVALID).await;
            raw.expect_option(option, &[], ERR_INVALID).await;
            // A count of queries that no data could hold.
            raw.expect_option(option, b"\0\0\0\x04left\xff\xff\xff\xff", ERR_INVALID).await;
        }
        raw.go("").await;
        served.end().await;
    });
}

#[test]
fn a_malformed_go_is_invalid_and_a_good_one_still_works() {
    bounded(async {
        let served = two();
        let mut raw = Raw::fixed(&served.path).await;
        let good = go_data("left", &[3]);
        for option in [GO, INFO] {
            raw.expect_option(option, &[], ERR_INVALID).await;
            raw.expect_option(option, &good[..good.len() - 1], ERR_INVALID).await;
            raw.expect_option(option, &[&good[..], b"x"].concat(), ERR_INVALID).await;
            raw.expect_option(option, b"\xff\xff\xff\xffleft\0\0", ERR_INVALID).await;
            raw.expect_option(option, b"\0\0\0\x04left\xff\xff", ERR_INVALID).await;
            raw.expect_option(option, &go_data(&"n".repeat(4097), &[]), ERR_TOO_BIG).await;
        }
        raw.go("left").await;
        raw.expect_alive().await;
        served.end().await;
    });
}

#[test]
fn go_of_an_unknown_export_says_its_name_and_the_connection_lives() {
    bounded(async {
        let served = two();
        let mut raw = Raw::fixed(&served.path).await;
        for option in [INFO, GO] {
            raw.option(option, &go_data("nope", &[])).await;
            let (_, kind, text) = raw.option_reply().await;
            assert_eq!(kind, ERR_UNKNOWN);
            assert!(String::from_utf8(text).expect("text").contains("\"nope\""));
        }
        raw.go("right").await;
        served.end().await;
    });
}

#[test]
fn unknown_client_flags_end_the_connection() {
    bounded(async {
        let served = two();
        for flags in [4u32, 0x8000_0000, 0xffff_ffff] {
            let mut raw = Raw::connect(&served.path).await;
            raw.send(&flags.to_be_bytes()).await;
            raw.expect_end().await;
        }
        served.end().await;
    });
}

#[test]
fn a_wrong_magic_and_an_endless_option_end_the_connection() {
    bounded(async {
        let served = two();
        let mut raw = Raw::fixed(&served.path).await;
        raw.send(b"IHAVEOPX\0\0\0\x07\0\0\0\x06\0\0\0\0\0\0").await;
        raw.expect_end().await;

        for length in [1u32 << 31, u32::MAX, (64 << 10) + 1] {
            let mut raw = Raw::fixed(&served.path).await;
            raw.send(b"IHAVEOPT\0\0\0\x0c").await;
            raw.send(&length.to_be_bytes()).await;
            raw.expect_end().await;
        }
        // 64 KiB are still read.
        let mut raw = Raw::fixed(&served.path).await;
        raw.expect_option(12, &vec![0; 64 << 10], ERR_UNSUP).await;
        raw.go("").await;
        served.end().await;
    });
}

#[test]
fn options_that_come_in_pieces_or_all_at_once_are_the_same() {
    bounded(async {
        let served = two();
        let mut bytes = 3u32.to_be_bytes().to_vec();
        for (option, data) in [(STRUCTURED_REPLY, vec![]), (GO, go_data("", &[]))] {
            bytes.extend(b"IHAVEOPT");
            bytes.extend(option.to_be_bytes());
            bytes.extend((data.len() as u32).to_be_bytes());
            bytes.extend(data);
        }
        bytes.extend(request(WRITE, 0, 1, 512, 3, b"abc"));
        bytes.extend(request(READ, 0, 2, 512, 3, &[]));

        for piece in [1, 7, bytes.len()] {
            let mut raw = Raw::connect(&served.path).await;
            for part in bytes.chunks(piece) {
                raw.send(part).await;
                tokio::task::yield_now().await;
            }
            assert_eq!(raw.option_reply().await, (STRUCTURED_REPLY, ACK, vec![]));
            assert_eq!(raw.option_reply().await.1, REP_INFO);
            assert_eq!(raw.option_reply().await, (GO, ACK, vec![]));
            assert_eq!(raw.reply(0).await, Reply { cookie: 1, errno: 0, data: vec![] });
            assert_eq!(raw.chunk().await, (1, 2, [&512u64.to_be_bytes()[..], b"abc"].concat()));
        }
        served.end().await;
    });
}

#[test]
fn idle_connections_do_not_keep_others_out_and_end_at_the_deadline() {
    bounded(async {
        let config = Config { handshake: Duration::from_millis(300), ..Config::default() };
        let served = Served::with(Memory::new(MIB), config);
        let mut idle = Vec::new();
        for at in 0..50 {
            // Half of them say nothing, half stop in the middle of an option.
            let mut raw = Raw::connect(&served.path).await;
            if at % 2 == 0 {
                raw.send(b"\0\0\0\x03IHAVEOPT\0\0").await;
            }
            idle.push(raw);
        }
        let mut working = Raw::attached(&served.path).await;
        working.expect_alive().await;
        for raw in idle {
            raw.expect_end().await;
        }
        // The deadline is for the negotiation only.
        working.expect_alive().await;
        served.end().await;
    });
}

#[test]
fn exports_that_cannot_be_served_are_refused() {
    let drive = || Arc::new(Memory::new(MIB));
    let check = |list: Vec<Export>| Exports::new(list).expect_err("it can't be served");
    assert_eq!(check(vec![]), ExportError::Nothing);
    let twice = vec![Export::new("a", drive()), Export::new("a", drive())];
    assert_eq!(check(twice), ExportError::Twice("a".into()));
    assert_eq!(check(vec![Export::new("n".repeat(256), drive())]), ExportError::LongName(256));
    let wordy = Export::new("a", drive()).description("d".repeat(701));
    assert!(matches!(check(vec![wordy]), ExportError::LongDescription { bytes: 701, .. }));
    for bytes in [0, 3, 128 << 10] {
        let odd = Export::new("a", drive()).min_block(bytes);
        assert!(matches!(check(vec![odd]), ExportError::MinBlock { .. }), "{bytes}");
    }
}
