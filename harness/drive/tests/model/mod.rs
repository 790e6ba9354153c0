//! The durability model as brute force sees it.
//!
//! It is written from the rules alone and shares no code with `history`: it keeps every request, works out by the
//! definitions which fragments are settled, and enumerates, unit by unit, all subsets of the loose ones and all orders that
//! the intervals allow.
#![allow(dead_code, reason = "not every test file needs all of it")]

use std::collections::BTreeSet;

use powerfail_drive::cache::{Cache, Description, Policy};
use powerfail_drive::live::Drive;
use powerfail_drive::request::Command;
use powerfail_drive::units::AtomicUnit;
use proptest::prelude::*;

use crate::common::{Memory, drive, receive};

/// One move of a host or a server.
#[derive(Clone, Debug)]
pub(crate) enum Move {
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
    /// The mark `workload-end`.
    WorkloadEnd,
}

/// A request as the brute force sees it.
#[derive(Clone, Debug)]
pub(crate) struct Req {
    pub(crate) command: Command,
    pub(crate) lba: u64,
    pub(crate) sectors: u64,
    pub(crate) fua: bool,
    pub(crate) fill: u8,
    pub(crate) received: u64,
    pub(crate) replied: Option<u64>,
    pub(crate) settled_by_mark: bool,
}

/// Contents of one unit, a byte a sector.
pub(crate) type Contents = BTreeSet<Vec<u8>>;

pub(crate) struct Script {
    pub(crate) requests: Vec<Req>,
    pub(crate) recording: Vec<u8>,
    pub(crate) cut: u64,
    /// The event of the mark `mounted`.
    pub(crate) mounted: Option<u64>,
}

impl Script {
    /// The same up to an earlier cut: what came later did not happen.
    pub(crate) fn until(&self, cut: u64) -> Script {
        let mounted = self.mounted.filter(|event| *event < cut);
        let mut requests: Vec<Req> = self.requests.iter().filter(|request| request.received < cut).cloned().collect();
        for request in &mut requests {
            request.replied = request.replied.filter(|replied| *replied < cut);
            request.settled_by_mark &= mounted.is_some();
        }
        Script { requests, recording: self.recording.clone(), cut, mounted }
    }
}

pub(crate) fn play(moves: &[Move], disk_sectors: u64, write_cache: bool) -> Script {
    let mut drive: Drive<Memory> = drive(disk_sectors * 512, write_cache);
    let mut requests: Vec<Req> = Vec::new();
    let (mut cut, mut mounted) = (0, None);
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
                mounted = Some(cut);
                requests.iter_mut().for_each(|request| request.settled_by_mark = true);
            }
            Move::WorkloadEnd => {
                drive.mark("workload-end").expect("a mark");
            }
        }
        cut += 1;
    }
    let recording = drive.close().expect("a close").0;
    Script { requests, recording, cut, mounted }
}

/// (request, unit) pairs that are settled, from the definitions.
pub(crate) fn settled(script: &Script, drive: &Description, write_cache: bool) -> BTreeSet<(usize, u64)> {
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

pub(crate) fn mark_event(script: &Script) -> u64 {
    script.requests.iter().filter(|r| r.settled_by_mark).map(|r| r.received + 1).max().unwrap_or(u64::MAX)
}

pub(crate) fn units_of(request: &Req, unit_sectors: u64) -> impl Iterator<Item = u64> + use<> {
    let end = request.lba + request.sectors;
    let writes =
        matches!(request.command, Command::Write | Command::Trim | Command::WriteZeroes) && request.sectors > 0;
    if writes { request.lba / unit_sectors..end.div_ceil(unit_sectors) } else { 0..0 }
}

pub(crate) fn covers(request: &Req, sector: u64) -> bool {
    request.lba <= sector && sector < request.lba + request.sectors
}

pub(crate) fn precedes(a: &Req, b: &Req) -> bool {
    a.replied.is_some_and(|reply| reply < b.received)
}

/// Whether settled requests that follow hide all that this one did to the unit.
pub(crate) fn dominated(
    script: &Script,
    settled: &BTreeSet<(usize, u64)>,
    index: usize,
    unit: u64,
    unit_sectors: u64,
) -> bool {
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
pub(crate) fn known(script: &Script, index: usize, unit: u64, unit_sectors: u64) -> bool {
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
pub(crate) fn allowed(
    script: &Script,
    drive: &Description,
    disk_sectors: u64,
    write_cache: bool,
) -> Option<Vec<Contents>> {
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
pub(crate) fn orders(script: &Script, left: &[usize], done: &mut Vec<usize>, found: &mut impl FnMut(&[usize])) {
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

pub(crate) fn moves(disk_sectors: u64) -> impl Strategy<Value = Vec<Move>> {
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

pub(crate) fn description(unit: AtomicUnit, units: u64) -> Description {
    Description::honest(unit, Cache { bytes: units * unit.bytes(), policy: Policy::Fifo })
}
