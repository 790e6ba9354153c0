//! Each lie makes an image that the honest model forbids, and the honest model never does.

mod common;

use common::drive;
use powerfail_drive::lies::{self, witness};
use powerfail_drive::request::{Command, Request};
use powerfail_seed::Seed;

/// The witness's script on a drive of ours.
fn honest() -> Vec<u8> {
    let mut drive = drive(witness::BLOCKS * witness::BLOCK, true);
    for act in witness::script() {
        let (command, offset, fua, data) = match act {
            witness::Act::Write { block, blocks, generation, fua } => {
                let data: Vec<u8> = (block..block + blocks).flat_map(|b| witness::content(b, generation)).collect();
                (Command::Write, block * witness::BLOCK, fua, data)
            }
            witness::Act::Flush => (Command::Flush, 0, false, Vec::new()),
            witness::Act::Mark(label) => {
                drive.mark(label).unwrap();
                continue;
            }
        };
        let request = Request { command, offset, length: data.len() as u64, fua, data: &data };
        let receipt = drive.receive(&request, crc32c::crc32c(&data)).unwrap();
        drive.reply(receipt).unwrap();
    }
    drive.close().unwrap().0
}

#[test]
fn an_honest_drive_is_never_accused() {
    let recording = honest();
    for seed in 0..10 {
        assert_eq!(witness::look(&recording, None, Seed(seed), 200).unwrap(), []);
    }
}

#[test]
fn every_liar_is_caught_by_the_promise_that_it_breaks() {
    let recording = honest();
    let breaks = [
        ("flush-ignored", "flush"),
        ("fua-ignored", "fua"),
        ("fua-is-flush", "fua-alone"),
        ("reorders-across-flush", "flush"),
        ("tears-below-unit", "unit"),
        ("comes-back-stale", "flush"),
        ("lands-elsewhere", "place"),
    ];
    assert_eq!(lies::ALL.iter().map(|lie| lie.name()).collect::<Vec<_>>(), breaks.map(|(name, _)| name));
    for (lie, (name, promise)) in lies::ALL.iter().zip(breaks) {
        for seed in 0..4 {
            let told = lies::recording(&recording, *lie, Seed(seed)).unwrap();
            let caught = witness::look(&told, Some(*lie), Seed(seed), 200).unwrap();
            assert!(caught.iter().any(|caught| caught.promise == promise), "{name}: {caught:?}");
        }
    }
}

#[test]
fn the_same_lie_twice_is_the_same_recording_and_an_honest_tale_is_the_honest_recording() {
    let recording = honest();
    for lie in lies::ALL {
        let once = lies::recording(&recording, *lie, Seed(7)).unwrap();
        assert!(once == lies::recording(&recording, *lie, Seed(7)).unwrap(), "{}", lie.name());
        let same = once == recording;
        assert_eq!(same, lie.name() == "tears-below-unit", "{}: only the unit is a lie there", lie.name());
    }
}
