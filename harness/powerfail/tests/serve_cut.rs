//! Cuts as raw clients see them. The drive holds replies back for a minute, so that requests are in flight for as long as
//! it takes to look.

mod serve_support;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::time::Duration;

use serve_support::{EIO, FLUSH, LIMIT, Next, READ, Raw, Served, run};

const BLOCK: usize = 4096;
const HELD: [&str; 6] = ["--size", "16M", "--hold", "64", "--hold-us", "60000000"];
/// A host that hears nothing for so long is being ignored.
const SILENCE: Duration = Duration::from_millis(300);

fn block(byte: u8) -> Vec<u8> {
    vec![byte; BLOCK]
}

/// Sends 20 writes of which some are answered and most are held back.
fn in_flight(raw: &mut Raw) {
    for number in 0..20u64 {
        raw.write(100 + number, (64 + number) * BLOCK as u64, &block(0x77));
    }
    // A read is never held, so its reply says that all before it were taken in.
    raw.send(READ, 99, 0, 0, &[]);
}

/// All replies until the end or silence, by cookie; and which of the two it was.
fn replies(raw: &mut Raw, limit: Duration) -> (BTreeMap<u64, u32>, Next) {
    let mut seen = BTreeMap::new();
    loop {
        match raw.next(limit) {
            Next::Reply(cookie, errno) => assert_eq!(seen.insert(cookie, errno), None, "one reply a request"),
            other => return (seen, other),
        }
    }
}

/// Waits for the reply to the read behind the writes in flight; gives the writes that were answered before.
fn taken_in(raw: &mut Raw) -> BTreeMap<u64, u32> {
    let mut seen = BTreeMap::new();
    loop {
        match raw.next(LIMIT) {
            Next::Reply(99, 0) => return seen,
            Next::Reply(cookie, 0) => assert_eq!(seen.insert(cookie, 0), None),
            other => panic!("{other:?}"),
        }
    }
}

/// Writes a block and has it flushed, though replies are held: later requests release them.
fn settle(raw: &mut Raw, offset: u64, byte: u8) {
    let wait_for = |raw: &mut Raw, cookie| {
        // A reply waits for at most 64 later requests.
        for read in 0..64 {
            raw.send(READ, 1000 + read, 0, 0, &[]);
        }
        let mut seen = Vec::new();
        while seen.len() < 65 {
            let Next::Reply(of, 0) = raw.next(LIMIT) else { panic!("a success") };
            seen.push(of);
        }
        assert!(seen.contains(&cookie));
    };
    raw.write(1, offset, &block(byte));
    wait_for(raw, 1);
    raw.send(FLUSH, 2, 0, 0, &[]);
    wait_for(raw, 2);
}

#[test]
fn error_answers_what_is_in_flight_and_restore_waits_for_the_host() {
    let served = Served::start(&HELD);
    let mut raw = Raw::attached(&served.socket());
    settle(&mut raw, 0, 0x11);
    in_flight(&mut raw);
    let before = taken_in(&mut raw);

    let cut = served.done(&["cut"]);
    let (after, end) = replies(&mut raw, LIMIT);
    assert_eq!(end, Next::End);
    assert!(after.values().all(|errno| *errno == EIO), "{after:?}");
    assert_eq!(before.len() + after.len(), 20);
    assert!(after.len() > 5, "{} requests were in flight", after.len());
    assert_eq!(cut["drives"][0]["in_flight"], after.len());
    assert_eq!(cut["drives"][0]["loose"], 20);

    assert!(served.is_closed());
    let status = served.done(&["status"]);
    assert_eq!(status["power"], "off");
    let own = format!("connection 1 of process {}", std::process::id());
    assert!(status["connections"][0].as_str().unwrap().starts_with(&own), "{status}");
    let why = served.refused(&["restore"]);
    assert!(why.contains("a connection of the time before the cut") && why.contains(&own), "{why}");
    let platter = served.snapshot();

    // What the host still says is thrown away.
    raw.write(7, 0, &block(0x99));
    drop(raw);
    let restored = served.restore();
    assert_eq!((&restored["power"], &restored["generation"]), (&"on".into(), &2.into()));
    let mut raw = Raw::attached(&served.socket());
    assert_eq!(raw.read(0, BLOCK as u32), block(0x11));
    assert!(served.snapshot() == platter);
    served.end();
}

#[test]
fn drop_answers_nothing() {
    let served = Served::start(&HELD);
    let mut raw = Raw::attached(&served.socket());
    in_flight(&mut raw);
    let before = taken_in(&mut raw);
    let cut = served.done(&["cut", "--style", "drop"]);
    assert_eq!(replies(&mut raw, LIMIT), (BTreeMap::new(), Next::End));
    assert_eq!(cut["drives"][0]["in_flight"], 20 - before.len());
    assert!(served.is_closed());
    // A host that does not let go can be let go of.
    served.refused(&["restore"]);
    assert!(served.refused(&["cut"]).contains("off already"));
    served.done(&["cut", "--style", "drop"]);
    served.done(&["restore"]);
    assert_eq!(replies(&mut raw, LIMIT), (BTreeMap::new(), Next::End));
    served.end();
}

#[test]
fn freeze_is_silence_until_the_power_is_back() {
    let served = Served::start(&HELD);
    let mut raw = Raw::attached(&served.socket());
    let mut idle = Raw::attached(&served.socket());
    let mut early = Raw::greeted(&served.socket());
    in_flight(&mut raw);
    taken_in(&mut raw);
    served.done(&["cut", "--style", "freeze"]);
    idle.send(READ, 5, 0, 512, &[]);
    // No such command: not even that is said.
    idle.send(77, 6, 0, 512, &[]);
    early.ask_for_export();
    for raw in [&mut raw, &mut idle, &mut early] {
        assert_eq!(replies(raw, SILENCE), (BTreeMap::new(), Next::Silence));
    }
    assert!(served.is_closed());
    let status = served.done(&["status"]);
    assert_eq!((&status["power"], status["connections"].as_array().unwrap().len()), (&"frozen".into(), 3));
    assert!(served.refused(&["cut"]).contains("hear nothing"));
    served.done(&["restore"]);
    for raw in [&mut raw, &mut idle, &mut early] {
        assert_eq!(replies(raw, LIMIT), (BTreeMap::new(), Next::End));
    }
    Raw::attached(&served.socket()).read(0, 512);

    // Or until it is dropped.
    let mut raw = Raw::attached(&served.socket());
    served.done(&["cut", "--style", "freeze"]);
    assert_eq!(replies(&mut raw, SILENCE), (BTreeMap::new(), Next::Silence));
    served.done(&["cut", "--style", "drop"]);
    assert_eq!(replies(&mut raw, LIMIT), (BTreeMap::new(), Next::End));
    assert_eq!(served.done(&["status"])["power"], "off");
    served.done(&["restore"]);
    served.end();
}

/// One host that writes blocks of its own, one after the other, until its connection ends. What `flush` makes of each
/// write decides when it counts as acknowledged. Gives the blocks, each with its last acknowledged version and the last
/// version that was sent.
fn hammer(mut raw: Raw, first: u64, flush: bool, began: &std::sync::Barrier) -> BTreeMap<u64, (u8, u8)> {
    let mut blocks: BTreeMap<u64, (u8, u8)> = BTreeMap::new();
    for turn in 0u64.. {
        if turn == 8 {
            began.wait();
        }
        let number = first + turn % 13;
        let version = (turn % 250 + 1) as u8;
        let entry = blocks.entry(number).or_default();
        entry.1 = version;
        let mut ask = |command, data: &[u8]| {
            let mut bytes = 0x2560_9513u32.to_be_bytes().to_vec();
            bytes.extend(0u16.to_be_bytes());
            bytes.extend(u16::to_be_bytes(command));
            bytes.extend(turn.to_be_bytes());
            let (offset, length) = if command == FLUSH { (0, 0) } else { (number * BLOCK as u64, BLOCK as u32) };
            bytes.extend(u64::to_be_bytes(offset));
            bytes.extend(u32::to_be_bytes(length));
            bytes.extend(data);
            // A host may find the connection closed while it sends.
            raw.0.write_all(&bytes).is_ok() && raw.next(LIMIT) == Next::Reply(turn, 0)
        };
        if !ask(1, &block(version)) || (flush && !ask(FLUSH, &[])) {
            return blocks;
        }
        blocks.get_mut(&number).unwrap().0 = version;
    }
    unreachable!("a host goes on until its connection ends")
}

/// Three hosts at work, cut after cut in the same drive: what was acknowledged before the cut is there after it, and
/// what is there was sent; with a write cache an acknowledged flush counts, without one each acknowledged write.
#[test]
fn what_was_acknowledged_is_there_after_each_cut() {
    for write_cache in ["on", "off"] {
        let words = ["--size", "16M", "--write-cache", write_cache, "--hold", "3", "--hold-us", "300", "--seed", "5"];
        let served = Served::start(&words);
        for round in 0..8 {
            let began = std::sync::Barrier::new(4);
            let flush = write_cache == "on";
            let blocks = std::thread::scope(|scope| {
                let hosts: Vec<_> = (0..3u64)
                    .map(|host| {
                        let raw = Raw::attached(&served.socket());
                        let began = &began;
                        scope.spawn(move || hammer(raw, host * 100, flush, began))
                    })
                    .collect();
                began.wait();
                served.done(&["cut", "--style", if round % 2 == 0 { "error" } else { "drop" }]);
                hosts.into_iter().map(|host| host.join().unwrap()).collect::<Vec<_>>()
            });
            let platter = served.snapshot();
            for (&number, &(acknowledged, sent)) in blocks.iter().flatten() {
                let there = &platter[number as usize * BLOCK..][..BLOCK];
                let version = there[0];
                assert!(there.iter().all(|byte| *byte == version), "block {number} is torn in round {round}");
                if acknowledged != 0 || version != 0 {
                    let allowed = version == acknowledged || version == sent;
                    // Of a block that this round never finished, the round before may have left something.
                    assert!(
                        allowed || acknowledged == 0,
                        "block {number}, round {round}, cache {write_cache}: {version} instead of {acknowledged} or {sent}"
                    );
                }
            }
            served.restore();
            assert!(served.snapshot() == platter, "the drive comes back with what survived");
        }
        served.end();
    }
}

/// The recipe of a cut makes the same image from the recording, later and elsewhere; another seed makes another.
#[test]
fn a_cut_can_be_made_again_from_its_recording() {
    let folder = tempfile::tempdir().unwrap();
    let record = folder.path().join("record");
    let record = record.to_str().unwrap();
    let served = Served::start(&["--size", "16M", "--record", record]);
    let mut images = Vec::new();
    for generation in 1..=3u64 {
        let mut raw = Raw::attached(&served.socket());
        for number in 0..200u64 {
            raw.write(number, number * BLOCK as u64, &block((number + generation) as u8 | 1));
            assert_eq!(raw.next(LIMIT), Next::Reply(number, 0));
        }
        served.done(&["mark", "all written"]);
        let now = served.snapshot();
        let log = served.file(&format!("{generation}.log"));
        let entries = served.done(&["export", &log])["entries"].as_u64().unwrap();
        assert!(entries >= 202, "{entries} entries: the writes and two marks at least");
        drop(raw);
        let cut = served.done(&["cut", "--seed", "7"]);
        assert_eq!(cut["seed"], 7);
        let drive = &cut["drives"][0];
        assert_eq!(drive["loose"], 200, "nothing was flushed");
        let kept: serde_json::Value =
            serde_json::from_slice(&std::fs::read(format!("{record}/{generation}/cut.json")).unwrap()).unwrap();
        assert_eq!(kept["drives"], cut["drives"]);
        let platter = served.snapshot();
        let changed = now.chunks(BLOCK).zip(platter.chunks(BLOCK)).filter(|(now, then)| now != then).count() as u64;
        assert!(changed <= drive["lost"].as_u64().unwrap());
        images.push((drive["recipe"].as_str().unwrap().to_owned(), platter));
        served.restore();
    }
    served.end();
    assert_ne!(images[0].1, images[1].1);
    for (number, (recipe, platter)) in images.iter().enumerate() {
        let image = folder.path().join(format!("{number}.img"));
        let image = image.to_str().unwrap();
        run(serve_support::program().args(["materialise", recipe, "--dir", record, "-o", image])).expect(0);
        assert!(std::fs::read(image).unwrap() == *platter);
        let generation = format!("{record}/{}", number + 1);
        run(serve_support::program().args(["recording", "show", &generation])).expect(0);
    }
}

/// A host that leaves, in good order or not, is no event for the drive.
#[test]
fn hosts_that_leave_change_nothing() {
    let served = Served::start(&["--size", "16M"]);
    for disconnect in [true, false] {
        let mut raw = Raw::attached(&served.socket());
        raw.write(1, 0, &block(0x42));
        assert_eq!(raw.next(LIMIT), Next::Reply(1, 0));
        if disconnect {
            raw.send(2, 2, 0, 0, &[]);
            assert_eq!(raw.0.read(&mut [0; 16]).unwrap(), 0);
        }
        drop(raw);
        assert_eq!(served.done(&["status"])["power"], "on");
    }
    let cut = served.done(&["cut"]);
    // Both writes are there to be lost: neither end was a flush.
    assert_eq!(cut["drives"][0]["loose"], 2);
    served.end();
}
