//! Each lie makes an image that the honest model forbids (or, where the drive does more than it says, makes none that it must
//! be able to make), and the honest model never does. Once with the raw witness, once against brute force on a tiny disk.

mod common;

use std::collections::BTreeSet;

use common::{done, drive, events};
use powerfail_drive::cache::{Cache, Description, Policy};
use powerfail_drive::explore::{Walk, span};
use powerfail_drive::history::{MOUNTED, WORKLOAD_END};
use powerfail_drive::lies::{self, CantTell, Liar, witness};
use powerfail_drive::recording::Reader;
use powerfail_drive::request::{Command, Request};
use powerfail_drive::units::{AtomicUnit, SECTOR};
use powerfail_drive::versions::Order;
use powerfail_seed::{Seed, below};
use proptest::prelude::*;
use rand::Rng;

/// The witness's script on a drive of ours.
fn witnessed() -> Vec<u8> {
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

fn each(seed: u64) -> impl Iterator<Item = Liar> {
    lies::ALL.iter().map(move |lie| Liar::new(*lie, Seed(seed)))
}

#[test]
fn an_honest_drive_is_never_accused() {
    let recording = witnessed();
    for seed in 0..12 {
        assert_eq!(witness::look(&recording, Seed(seed), 200).unwrap(), []);
    }
}

#[test]
fn every_liar_is_caught_by_the_promise_that_it_breaks() {
    let recording = witnessed();
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
    for seed in 0..3 {
        for (liar, (name, promise)) in each(seed).zip(breaks) {
            let told = lies::tell(&recording, liar).unwrap();
            let caught = witness::look(&told, Seed(seed), 200).unwrap();
            assert!(caught.iter().any(|caught| caught.promise == promise), "{name}: {caught:?}");
        }
    }
}

#[test]
fn a_lie_is_told_alike_each_time_and_its_recording_says_so() {
    let recording = witnessed();
    assert_eq!(Reader::new(&recording[..], true).unwrap().header().lie, None);
    for liar in each(7).chain([Liar::new(lies::PLANTED, Seed(7))]) {
        let told = lies::tell(&recording, liar).unwrap();
        assert!(told == lies::tell(&recording, liar).unwrap(), "{liar}");
        assert_eq!(Reader::new(&told[..], true).unwrap().header().lie, Some(liar));
        // A program that knows no lies refuses it by its format.
        assert_eq!(told[8..12], 2u32.to_le_bytes());
        assert_eq!(events(&told) == events(&recording), liar.name() == "tears-below-unit", "{liar}");
        assert!(matches!(lies::tell(&told, liar), Err(CantTell::Lied(other)) if other == liar));
    }
}

#[test]
fn a_lie_in_a_header_that_nobody_tells_is_damage() {
    let mut told = lies::tell(&witnessed(), each(1).next().unwrap()).unwrap();
    told[32] = b'x';
    let crc = crc32c::crc32c(&told[..60]);
    told[60..64].copy_from_slice(&crc.to_le_bytes());
    assert!(Reader::new(&told[..], true).is_err());
}

const UNITS: u64 = 6;
const UNIT: u64 = 4096;

/// One request of a host that waits for each reply.
#[derive(Clone, Copy, Debug)]
enum Step {
    Write { unit: u64, units: u64, fua: bool },
    Flush,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let write = (0..UNITS, 1..=2u64, prop::bool::weighted(0.2)).prop_map(|(unit, units, fua)| Step::Write {
        unit,
        units: units.min(UNITS - unit),
        fua,
    });
    prop::collection::vec(prop_oneof![8 => write, 1 => Just(Step::Flush)], 20..120)
}

/// The drive's record of these steps; write number n fills its sectors with n.
fn play(steps: &[Step]) -> Vec<u8> {
    let mut drive = drive(UNITS * UNIT, true);
    drive.mark(MOUNTED).unwrap();
    for (index, step) in steps.iter().enumerate() {
        match *step {
            Step::Write { unit, units, fua } => {
                done(&mut drive, Command::Write, unit * UNIT, units * UNIT, fua, index as u8 + 1);
            }
            Step::Flush => done(&mut drive, Command::Flush, 0, 0, false, 0),
        }
    }
    drive.mark(WORKLOAD_END).unwrap();
    drive.close().unwrap().0
}

/// What each unit may hold at the end, a byte a sector: what settled last, or anything that was written there since. From the
/// rules alone, for a host that waits and a cache that is never full.
fn allowed(steps: &[Step]) -> Vec<BTreeSet<Vec<u8>>> {
    let of = |unit: u64| {
        let mut may = vec![0];
        for (index, step) in steps.iter().enumerate() {
            match *step {
                Step::Write { unit: first, units, fua } if (first..first + units).contains(&unit) => {
                    if fua {
                        may.clear();
                    }
                    may.push(index as u8 + 1);
                }
                Step::Write { .. } => {}
                Step::Flush => drop(may.drain(..may.len() - 1)),
            }
        }
        may.into_iter().map(|fill| vec![fill; (UNIT / SECTOR) as usize]).collect()
    };
    (0..UNITS).map(of).collect()
}

/// What each unit holds in some state that the drive of the recording can be left in.
fn made(recording: &[u8], draws: u64) -> Vec<BTreeSet<Vec<u8>>> {
    let lie = Reader::new(recording, false).unwrap().header().lie;
    let unit = lie.map_or(AtomicUnit::B4096, |liar| liar.lie().unit(AtomicUnit::B4096));
    let cache = Cache { bytes: 1 << 20, policy: Policy::Fifo };
    let mut walk = Walk::new(recording, Description { unit, cache, lie }).unwrap();
    walk.advance(span(recording).unwrap().last).unwrap();
    let loose = walk.history.loose().len();
    let mut contents = vec![BTreeSet::new(); UNITS as usize];
    for draw in 0..draws {
        let mut rng = Seed(draw).rng("draw", &[]);
        let share = below(&mut rng, 9);
        let kept: Vec<bool> = (0..loose).map(|_| below(&mut rng, 8) < share).collect();
        let mut disk = vec![0; (UNITS * UNIT / SECTOR) as usize];
        for (number, composition) in walk.history.image(&kept, Order::Keyed(rng.next_u64())) {
            let first = unit.first(number).0 as usize;
            for (sector, &at) in composition.0.iter().take(unit.sectors() as usize).enumerate() {
                disk[first + sector] = if at == 0 { 0 } else { recording[at as usize] };
            }
        }
        for (unit, content) in disk.chunks((UNIT / SECTOR) as usize).enumerate() {
            contents[unit].insert(content.to_vec());
        }
    }
    contents
}

fn within(made: &[BTreeSet<Vec<u8>>], allowed: &[BTreeSet<Vec<u8>>]) -> bool {
    made.iter().zip(allowed).all(|(made, allowed)| made.is_subset(allowed))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn an_honest_drive_makes_only_what_is_allowed(steps in steps()) {
        prop_assert!(within(&made(&play(&steps), 200), &allowed(&steps)));
    }

    #[test]
    fn a_drive_that_does_more_than_it_says_makes_only_what_is_allowed(steps in steps()) {
        let liar = Liar::named("fua-is-flush", Seed(1)).unwrap();
        prop_assert!(within(&made(&lies::tell(&play(&steps), liar).unwrap(), 200), &allowed(&steps)));
    }
}

/// Sixty writes to the units in turn, every eighth with FUA, and a flush after every tenth; then all units once more.
fn telling() -> Vec<Step> {
    let mut steps = Vec::new();
    for write in 0..60 {
        steps.push(Step::Write { unit: write % UNITS, units: 1, fua: write % 8 == 7 });
        if write % 10 == 9 {
            steps.push(Step::Flush);
        }
    }
    steps.extend((0..UNITS).map(|unit| Step::Write { unit, units: 1, fua: false }));
    steps.push(Step::Write { unit: 2, units: 1, fua: true });
    steps
}

#[test]
fn each_liar_makes_what_the_honest_model_forbids() {
    let steps = telling();
    let (honest, allowed) = (play(&steps), allowed(&steps));
    assert_eq!(made(&honest, 2000), allowed, "what is allowed is made, and nothing else");
    for name in lies::ALL.iter().map(|lie| lie.name()) {
        // Those that lie about some writes do so about others with another seed.
        let tries = (0..8).filter(|&seed| {
            let liar = Liar::named(name, Seed(seed)).unwrap();
            let made = made(&lies::tell(&honest, liar).unwrap(), 500);
            if name == "fua-is-flush" { made != allowed && within(&made, &allowed) } else { !within(&made, &allowed) }
        });
        let caught = tries.count();
        let always = !["comes-back-stale", "lands-elsewhere"].contains(&name);
        assert!(caught == 8 || (!always && caught >= 2), "{name}: {caught} of 8");
    }
}
