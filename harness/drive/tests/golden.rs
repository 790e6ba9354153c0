//! Golden digests: if one of these moves, stored recipes make other images, and that is a change of format.

mod common;

use std::collections::{BTreeMap, HashSet};

use common::{done, drive, receive};
use powerfail_drive::cache::{Cache, Description, Policy};
use powerfail_drive::crash::Recipe;
use powerfail_drive::digest::Digest;
use powerfail_drive::explore::{
    Asked, EveryCut, Material, NAMES, Outline, Plan, Sampled, View, Walk, explorers, plan, span,
};
use powerfail_drive::request::Command;
use powerfail_drive::units::AtomicUnit;
use powerfail_seed::{Seed, below};

/// A recording of 600 keyed requests over 64 blocks of 4 KiB, some in flight together.
fn recording(write_cache: bool) -> Vec<u8> {
    let mut drive = drive(64 * 4096, write_cache);
    let mut rng = Seed(42).rng("golden recording", &[]);
    let mut open = Vec::new();
    drive.mark("mounted").unwrap();
    for step in 0..600u64 {
        let command = match below(&mut rng, 12) {
            0 => Command::Flush,
            1 => Command::Trim,
            2 => Command::WriteZeroes,
            _ => Command::Write,
        };
        let lba = below(&mut rng, 500);
        let sectors = if command == Command::Flush { 0 } else { 1 + below(&mut rng, 12) };
        let fua = below(&mut rng, 8) == 0;
        open.push(receive(&mut drive, command, lba * 512, sectors * 512, fua, step as u8 | 1));
        while open.len() > 3 || (!open.is_empty() && below(&mut rng, 3) > 0) {
            let which = below(&mut rng, open.len() as u64) as usize;
            drive.reply(open.swap_remove(which)).unwrap();
        }
    }
    drive.mark("workload-end").unwrap();
    drive.close().unwrap().0
}

fn drives() -> Vec<Description> {
    let mut drives = Vec::new();
    for unit in [AtomicUnit::B512, AtomicUnit::B4096] {
        for policy in [Policy::Fifo, Policy::Elevator, Policy::Random(Seed(9))] {
            drives.push(Description::honest(unit, Cache { bytes: 64 << 10, policy }));
        }
    }
    drives
}

/// Sixty states and their images, folded into one: all lost and all kept at some cuts, keyed subsets at others. The
/// selection is this test's own, so that a plan may learn to choose better while recipes and images stay what they are.
fn fold(recording: &[u8], drive: Description) -> String {
    let mut states: Vec<(Recipe, &str, Digest)> = Vec::new();
    let mut images = HashSet::new();
    for round in 0..64 {
        let missing = 60 - states.len() as u64;
        let mut walk = Walk::new(recording, drive).unwrap();
        for (cut, who) in cuts(recording, missing, round) {
            walk.advance(cut).unwrap();
            let (loose, contested) = (walk.history.loose(), walk.history.contested());
            let view = View { cut, loose: &loose, contested, unit_sectors: drive.unit.sectors() };
            for name in who {
                let choices = if name == "sampled" {
                    vec![Sampled::subset(Seed(1), &view, round)]
                } else {
                    EveryCut::ends(&view).into()
                };
                for choice in choices {
                    let digest = walk.history.digest(recording, &choice.kept, choice.order);
                    if states.len() < 60 && images.insert(digest) {
                        let recording = "0123456789abcdef".into();
                        let recipe = Recipe { recording, cut, drive, kept: choice.kept, order: choice.order };
                        states.push((recipe, name, digest));
                    }
                }
            }
        }
    }
    states.sort_by(|a, b| (a.0.cut, a.1).cmp(&(b.0.cut, b.1)));
    let mut hasher = blake3::Hasher::new();
    for (recipe, _, digest) in &states {
        hasher.update(digest.to_string().as_bytes());
        hasher.update(recipe.to_string().as_bytes());
    }
    format!("{} {}", states.len(), &hasher.finalize().to_hex()[..16])
}

/// One keyed cut in each of as many parts of the recording as half of the missing states take.
fn cuts(recording: &[u8], missing: u64, round: u64) -> BTreeMap<u64, Vec<&'static str>> {
    let span = span(recording).unwrap();
    let events = span.last - span.first + 1;
    let mut asked: BTreeMap<u64, Vec<&str>> = BTreeMap::new();
    for (index, (name, per_cut)) in [("every-cut", 2), ("sampled", 1)].into_iter().enumerate() {
        let cuts = missing.div_ceil(2).div_ceil(per_cut).min(events);
        let mut rng = Seed(1).rng("cuts", &[index as u64, round]);
        for part in 0..cuts {
            let (from, to) = (events * part / cuts, events * (part + 1) / cuts);
            asked.entry(span.first + from + below(&mut rng, to - from)).or_default().push(name);
        }
    }
    asked
}

/// A plan with these explorers; without roles, so `journal-aware` is `edges`.
fn planned(recording: &[u8], drive: Description, seed: Seed, states: u64, names: &[&str]) -> Plan {
    let outline = Outline::of(recording, drive).unwrap();
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let explorers = explorers(&names, &outline, Material::default()).unwrap();
    let asked = Asked { recording, name: "0123456789abcdef", drive, seed, states };
    plan(&asked, &outline, &explorers).unwrap()
}

#[test]
fn recipes_and_images_are_what_they_always_were() {
    let mut found = Vec::new();
    for write_cache in [true, false] {
        let recording = recording(write_cache);
        for drive in drives() {
            found.push(fold(&recording, drive));
        }
    }
    assert_eq!(found, GOLDEN);
}

#[test]
fn a_recipe_read_back_from_its_text_makes_the_same_image() {
    let recording = recording(true);
    for drive in drives() {
        for state in planned(&recording, drive, Seed(3), 40, &["all", "mkfs", "unmount"]).states {
            let recipe: Recipe = state.recipe.to_string().parse().unwrap();
            let mut walk = Walk::new(&recording, recipe.drive).unwrap();
            walk.advance(recipe.cut).unwrap();
            assert_eq!(walk.history.digest(&recording, &recipe.kept, recipe.order), state.digest);
        }
    }
}

/// Cuts spread over the whole span, and half of the states of either explorer.
#[test]
fn a_plan_is_spread_and_shared() {
    let recording = recording(true);
    let plan = planned(&recording, drives()[3], Seed(1), 200, &["default"]);
    assert_eq!(plan.states.len(), 200);
    let sampled = plan.states.iter().filter(|state| state.explorer == "sampled").count();
    assert_eq!(sampled, 100, "half of the states are sampled");
    let events = plan.span.last - plan.span.first;
    for quarter in 0..4 {
        let from = plan.span.first + events * quarter / 4;
        let count = plan.states.iter().filter(|s| (from..from + events / 4).contains(&s.recipe.cut)).count();
        assert!(count > 25, "{count} cuts in quarter {quarter}");
    }
    let images: std::collections::HashSet<_> = plan.states.iter().map(|state| state.digest).collect();
    assert_eq!(images.len(), 200, "no two states are the same image");
}

/// Each explorer has its share to the state, and what one can't use is used by the others.
#[test]
fn shares_are_exact() {
    for (write_cache, states) in [(true, 61), (true, 300), (false, 200)] {
        let recording = recording(write_cache);
        let names = &NAMES[..8];
        let plan = planned(&recording, drives()[3], Seed(1), states, names);
        assert_eq!(plan.states.len() as u64, states, "the recording has more states than that");
        assert_eq!(plan.shares.iter().map(|share| share.share).sum::<u64>(), states);
        let most = plan.shares.iter().map(|share| share.share).max().unwrap();
        let mut left_over = 0;
        for share in &plan.shares {
            assert!(most - share.share <= 1, "{share:?}");
            assert!(share.made >= share.share || share.exhausted, "{share:?}");
            let made = plan.states.iter().filter(|state| state.explorer == share.explorer).count() as u64;
            assert_eq!(made, share.made);
            left_over += share.share.saturating_sub(share.made);
        }
        let taken: u64 = plan.shares.iter().map(|share| share.made.saturating_sub(share.share)).sum();
        assert_eq!(left_over, taken);
        assert_eq!(plan, planned(&recording, drives()[3], Seed(1), states, names), "twice the same");
    }
}

/// An export of 1 TiB is nothing special: what is held follows what was written.
#[test]
fn a_terabyte_costs_what_was_written() {
    let mut drive = drive(1 << 40, true);
    done(&mut drive, Command::Trim, 0, 1 << 40, false, 0);
    drive.mark("mounted").unwrap();
    for index in 0..1000u64 {
        done(
            &mut drive,
            Command::Write,
            (index * 0x3fff_f123_4567) % (1 << 40) / 4096 * 4096,
            4096,
            false,
            index as u8 | 1,
        );
    }
    done(&mut drive, Command::WriteZeroes, 0, 1 << 39, false, 0);
    drive.mark("workload-end").unwrap();
    let pages = drive.pages().iter().count();
    assert!(pages <= 1000, "{pages} pages for 1000 blocks");
    let recording = drive.close().unwrap().0;
    let mut walk = Walk::new(&recording, drives()[3]).unwrap();
    walk.advance(u64::MAX).unwrap();
    let loose = walk.history.loose().len();
    let units = walk.history.image(&vec![true; loose], powerfail_drive::versions::Order::Receipt).count();
    assert!(units <= 1000, "{units} units for 1000 blocks");
}

const GOLDEN: [&str; 12] = [
    "60 bdba6590c8ed9457",
    "60 c4811620715a48da",
    "60 419196bbea4bf764",
    "60 f7037c4b2a67b57f",
    "60 a6e5bbb42ae1945e",
    "60 eb722782397f4e6a",
    "60 f4c23d4756c44dbd",
    "60 1be8951325bfcfd1",
    "60 c3b1eeed96420c0a",
    "60 ab4d6494e80f39bb",
    "60 3202224d23362df7",
    "60 24d4d11a8fe54090",
];
