//! The durability model against brute force, on disks so small that everything allowed can be enumerated.
//!
//! The model here is written from the rules alone and shares no code with `history`: it keeps every request, works out
//! by the definitions which fragments are settled, and enumerates, unit by unit, all subsets of the loose ones and all orders that
//! the intervals allow. `History` must make exactly these contents: none that is not allowed, and each that is.

mod common;

use std::collections::BTreeSet;

use common::{Memory, drive, receive};
use powerfail_drive::cache::{Cache, Description, Policy};
use powerfail_drive::digest::Digest;
use powerfail_drive::explore::Walk;
use powerfail_drive::live::Drive;
use powerfail_drive::request::Command;
use powerfail_drive::units::{AtomicUnit, Lba};
use powerfail_drive::versions::Order;
use powerfail_seed::Seed;
use proptest::prelude::*;

/// One move of a host or a server.
#[derive(Clone, Debug)]
enum Move {
    Send {
        command: Command,
        lba: u64,
        sectors: u64,
        fua: bool,
    },
    /// Reply to the open request of this number, modulo how many are open.
    Reply(usize),
    /// The mark `mounted`.
    Mounted,
}

/// A request as the brute force sees it.
#[derive(Clone, Debug)]
struct Req {
    command: Command,
    lba: u64,
    sectors: u64,
    fua: bool,
    fill: u8,
    received: u64,
    replied: Option<u64>,
    settled_by_mark: bool,
}

/// Contents of one unit, a byte a sector.
type Contents = BTreeSet<Vec<u8>>;

struct Script {
    requests: Vec<Req>,
    recording: Vec<u8>,
    cut: u64,
}

fn play(moves: &[Move], disk_sectors: u64, write_cache: bool) -> Script {
    let mut drive: Drive<Memory> = drive(disk_sectors * 512, write_cache);
    let mut requests: Vec<Req> = Vec::new();
    let mut cut = 0;
    for (index, one) in moves.iter().enumerate() {
        match *one {
            Move::Send { command, lba, sectors, fua } => {
                let (lba, sectors) =
                    if command == Command::Flush { (0, 0) } else { (lba, sectors.min(disk_sectors - lba)) };
                let fill = if command == Command::Write { index as u8 + 1 } else { 0 };
                let received = receive(&mut drive, command, lba * 512, sectors * 512, fua, fill);
                requests.push(Req {
                    command,
                    lba,
                    sectors,
                    fua,
                    fill,
                    received,
                    replied: None,
                    settled_by_mark: false,
                });
            }
            Move::Reply(which) => {
                let mut open: Vec<&mut Req> = requests.iter_mut().filter(|request| request.replied.is_none()).collect();
                if open.is_empty() {
                    continue;
                }
                let which = which % open.len();
                open[which].replied = Some(drive.reply(open[which].received).expect("a reply"));
            }
            Move::Mounted => {
                drive.mark("mounted").expect("a mark");
                requests.iter_mut().for_each(|request| request.settled_by_mark = true);
            }
        }
        cut += 1;
    }
    let recording = drive.close().expect("a close").0;
    Script { requests, recording, cut }
}

/// (request, unit) pairs that are settled, from the definitions.
fn settled(script: &Script, drive: &Description, write_cache: bool) -> BTreeSet<(usize, u64)> {
    let unit_sectors = drive.unit.sectors();
    let mut settled = BTreeSet::new();
    // Destaging needs time, so events are gone through in order; everything else follows from the numbers.
    let mut fifo: Vec<u64> = Vec::new();
    for now in 0..script.cut {
        for (index, request) in script.requests.iter().enumerate() {
            let units = units_of(request, unit_sectors);
            let flushed = script.requests.iter().any(|flush| {
                flush.command == Command::Flush
                    && flush.replied.is_some_and(|reply| reply <= now)
                    && request.replied.is_some_and(|reply| reply < flush.received)
            });
            let itself = request.replied.is_some_and(|reply| reply <= now) && (request.fua || !write_cache);
            let marked = request.settled_by_mark && script.requests.iter().all(|_| mark_event(script) <= now);
            if flushed || itself || marked {
                settled.extend(units.map(|unit| (index, unit)));
            }
        }
        let dirty = |settled: &BTreeSet<(usize, u64)>, unit: u64| {
            script.requests.iter().enumerate().any(|(index, request)| {
                request.replied.is_some_and(|reply| reply <= now)
                    && units_of(request, unit_sectors).any(|other| other == unit)
                    && !settled.contains(&(index, unit))
                    && !dominated(script, settled, index, unit, unit_sectors)
                    && known(script, index, unit, unit_sectors)
            })
        };
        fifo.retain(|unit| dirty(&settled, *unit));
        if let Some(replied) = script.requests.iter().find(|request| request.replied == Some(now)) {
            for unit in units_of(replied, unit_sectors) {
                if dirty(&settled, unit) && !fifo.contains(&unit) {
                    fifo.push(unit);
                }
            }
        }
        let capacity = (drive.cache.bytes / drive.unit.bytes()) as usize;
        while fifo.len() > capacity {
            let unit = fifo.remove(0);
            for (index, request) in script.requests.iter().enumerate() {
                let here = units_of(request, unit_sectors).any(|other| other == unit);
                if here && request.replied.is_some_and(|reply| reply <= now) {
                    settled.insert((index, unit));
                }
            }
            fifo.retain(|unit| dirty(&settled, *unit));
        }
    }
    settled
}

fn mark_event(script: &Script) -> u64 {
    script.requests.iter().filter(|r| r.settled_by_mark).map(|r| r.received + 1).max().unwrap_or(u64::MAX)
}

fn units_of(request: &Req, unit_sectors: u64) -> impl Iterator<Item = u64> + use<> {
    let end = request.lba + request.sectors;
    let writes =
        matches!(request.command, Command::Write | Command::Trim | Command::WriteZeroes) && request.sectors > 0;
    if writes { request.lba / unit_sectors..end.div_ceil(unit_sectors) } else { 0..0 }
}

fn covers(request: &Req, sector: u64) -> bool {
    request.lba <= sector && sector < request.lba + request.sectors
}

fn precedes(a: &Req, b: &Req) -> bool {
    a.replied.is_some_and(|reply| reply < b.received)
}

/// Whether settled requests that follow hide all that this one did to the unit.
fn dominated(script: &Script, settled: &BTreeSet<(usize, u64)>, index: usize, unit: u64, unit_sectors: u64) -> bool {
    let request = &script.requests[index];
    (unit * unit_sectors..(unit + 1) * unit_sectors).filter(|sector| covers(request, *sector)).all(|sector| {
        script
            .requests
            .iter()
            .enumerate()
            .any(|(other, later)| settled.contains(&(other, unit)) && precedes(request, later) && covers(later, sector))
    })
}

/// Zeroes over a unit that nobody wrote before take no room in a cache: they change nothing there.
fn known(script: &Script, index: usize, unit: u64, unit_sectors: u64) -> bool {
    let request = &script.requests[index];
    request.command == Command::Write
        || script.requests.iter().any(|other| {
            other.command == Command::Write
                && !precedes(request, other)
                && units_of(other, unit_sectors).any(|touched| touched == unit)
                && (other.received < request.received || request.replied.is_none_or(|reply| reply > other.received))
        })
}

/// For each unit every content that is allowed, a byte a sector. Fragments of different units are independent of each
/// other, so the images are all combinations.
fn allowed(script: &Script, drive: &Description, disk_sectors: u64, write_cache: bool) -> Option<Vec<Contents>> {
    let unit_sectors = drive.unit.sectors();
    let settled = settled(script, drive, write_cache);
    let mut units = Vec::new();
    for unit in 0..disk_sectors.div_ceil(unit_sectors) {
        let here: Vec<usize> = (0..script.requests.len())
            .filter(|index| units_of(&script.requests[*index], unit_sectors).any(|other| other == unit))
            .collect();
        let loose: Vec<usize> = here.iter().copied().filter(|index| !settled.contains(&(*index, unit))).collect();
        if here.len() > 6 {
            return None;
        }
        let mut contents = Contents::new();
        for subset in 0..1u32 << loose.len() {
            let landing: Vec<usize> = here
                .iter()
                .copied()
                .filter(|index| loose.iter().position(|l| l == index).is_none_or(|bit| subset >> bit & 1 == 1))
                .collect();
            orders(script, &landing, &mut Vec::new(), &mut |order| {
                let mut sectors = vec![0u8; unit_sectors as usize];
                for index in order {
                    let request = &script.requests[*index];
                    for sector in 0..unit_sectors {
                        if covers(request, unit * unit_sectors + sector) {
                            sectors[sector as usize] = request.fill;
                        }
                    }
                }
                contents.insert(sectors);
            });
        }
        units.push(contents);
    }
    Some(units)
}

/// Every order in which no request stands behind one that it precedes.
fn orders(script: &Script, left: &[usize], done: &mut Vec<usize>, found: &mut impl FnMut(&[usize])) {
    if left.is_empty() {
        found(done);
    }
    for (at, &index) in left.iter().enumerate() {
        let first = left.iter().all(|&other| !precedes(&script.requests[other], &script.requests[index]));
        if first {
            let mut rest = left.to_vec();
            rest.remove(at);
            done.push(index);
            orders(script, &rest, done, found);
            done.pop();
        }
    }
}

/// For each unit every content that `History` makes, over all subsets of its loose fragments and `draws` orders.
fn made(script: &Script, drive: Description, disk_sectors: u64, draws: u64) -> Vec<Contents> {
    let unit_sectors = drive.unit.sectors();
    let mut walk = Walk::new(&script.recording, drive).expect("a recording");
    walk.advance(script.cut).expect("a whole recording");
    let loose = walk.history.loose();
    let mut units = Vec::new();
    for unit in 0..disk_sectors.div_ceil(unit_sectors) {
        let here: Vec<usize> = (0..loose.len()).filter(|index| loose[*index].unit == unit).collect();
        assert!(here.len() <= 6, "no more than the brute force knows");
        let mut contents = Contents::new();
        for subset in 0..1u32 << here.len() {
            let mut kept = vec![false; loose.len()];
            here.iter().enumerate().for_each(|(bit, index)| kept[*index] = subset >> bit & 1 == 1);
            let draws = if walk.history.contested() { draws } else { 0 };
            for order in std::iter::once(Order::Receipt).chain((0..draws).map(Order::Keyed)) {
                let composition = walk.history.image(&kept, order).find(|(other, _)| *other == unit);
                let composition = composition.map(|(_, composition)| composition).unwrap_or_default();
                let byte = |at: u64| if at == 0 { 0 } else { script.recording[at as usize] };
                contents.insert(composition.0[..unit_sectors as usize].iter().map(|at| byte(*at)).collect());
            }
            checked_digest(&mut walk, script, &kept, Order::Receipt);
            checked_digest(&mut walk, script, &kept, Order::Keyed(u64::from(subset)));
        }
        units.push(contents);
    }
    units
}

/// The digest as `History` keeps it, checked against the digest of the image that it composes.
fn checked_digest(walk: &mut Walk<'_>, script: &Script, kept: &[bool], order: Order) -> Digest {
    let quick = walk.history.digest(&script.recording, kept, order);
    let unit_sectors = walk.history.description().unit.sectors();
    let mut slow = Digest::default();
    for (unit, composition) in walk.history.image(kept, order) {
        for (sector, &at) in composition.0.iter().enumerate().filter(|(_, at)| **at != 0) {
            let bytes = &script.recording[at as usize..at as usize + 512];
            slow = slow.plus(Digest::of_sector(Lba(unit * unit_sectors + sector as u64), bytes));
        }
    }
    assert_eq!(quick, slow, "the digest that is kept is the image's");
    quick
}

fn moves(disk_sectors: u64) -> impl Strategy<Value = Vec<Move>> {
    let command = prop_oneof![
        6 => Just(Command::Write),
        2 => Just(Command::Flush),
        1 => Just(Command::Trim),
        1 => Just(Command::WriteZeroes),
    ];
    let send = (command, 0..disk_sectors, 1..=disk_sectors, prop::bool::weighted(0.2))
        .prop_map(|(command, lba, sectors, fua)| Move::Send { command, lba, sectors, fua });
    let one = prop_oneof![10 => send, 9 => any::<usize>().prop_map(Move::Reply), 1 => Just(Move::Mounted)];
    prop::collection::vec(one, 1..14)
}

fn description(unit: AtomicUnit, units: u64) -> Description {
    Description { unit, cache: Cache { bytes: units * unit.bytes(), policy: Policy::Fifo } }
}

fn agree(
    moves: &[Move],
    unit: AtomicUnit,
    disk_sectors: u64,
    write_cache: bool,
    cache_units: u64,
) -> Result<(), TestCaseError> {
    // The brute force has one `mounted` at most.
    let mut mounted = false;
    let moves: Vec<Move> = moves
        .iter()
        .filter(|one| !matches!(one, Move::Mounted) || !std::mem::replace(&mut mounted, true))
        .cloned()
        .collect();
    let script = play(&moves, disk_sectors, write_cache);
    let drive = description(unit, cache_units);
    let Some(allowed) = allowed(&script, &drive, disk_sectors, write_cache) else { return Ok(()) };
    // Orders are drawn, so a rare one may take many draws; what is never made fails at the last.
    let mut contents = Vec::new();
    for draws in [8, 128, 2048] {
        contents = made(&script, drive, disk_sectors, draws);
        if contents == allowed {
            return Ok(());
        }
    }
    for (unit, (made, allowed)) in contents.iter().zip(&allowed).enumerate() {
        prop_assert!(
            made.is_subset(allowed),
            "unit {} is made as {:?}, of which {:?} are allowed",
            unit,
            made,
            allowed
        );
        prop_assert_eq!(made, allowed, "unit {} is never made as it may be", unit);
    }
    Ok(())
}

proptest! {
    #[test]
    fn sectors_with_a_cache(moves in moves(3), cache in 1u64..4) {
        agree(&moves, AtomicUnit::B512, 3, true, cache)?;
    }

    #[test]
    fn sectors_without_a_cache(moves in moves(3)) {
        agree(&moves, AtomicUnit::B512, 3, false, 100)?;
    }

    /// Writes that cover parts of units, in two units of eight sectors.
    #[test]
    fn parts_of_units(moves in moves(16), cache in 1u64..3) {
        agree(&moves, AtomicUnit::B4096, 16, true, cache)?;
    }

    /// What the other policies destage is settled, so they may only take images away, never add one.
    #[test]
    fn other_policies_stay_within_an_endless_cache(moves in moves(3), cache in 1u64..3) {
        let moves: Vec<Move> = moves.into_iter().filter(|one| !matches!(one, Move::Mounted)).collect();
        let script = play(&moves, 3, true);
        let endless = description(AtomicUnit::B512, 100);
        let Some(_) = allowed(&script, &endless, 3, true) else { return Ok(()) };
        let all = made(&script, endless, 3, 512);
        for policy in [Policy::Elevator, Policy::Random(Seed(5))] {
            let drive = Description { unit: AtomicUnit::B512, cache: Cache { bytes: cache * 512, policy } };
            for (some, all) in made(&script, drive, 3, 64).iter().zip(&all) {
                prop_assert!(!some.is_empty() && some.is_subset(all));
            }
        }
    }
}
