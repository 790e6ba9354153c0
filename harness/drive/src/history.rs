//! Walks a recording and keeps, per unit, the versions that a cut at this point could show.
//!
//! This file is rules 2 to 8 of the crate's page. It goes forward only, one event at a time, and what it holds follows
//! what was written, never the size of the drive.

mod at_cut;

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::FxHashMap;

use crate::cache::{Description, Dirty};
use crate::digest::Digest;
use crate::event::{Header, What};
use crate::recording::Entry;
use crate::request::Command;
use crate::units::{Lba, SECTOR, Sectors};
use crate::versions::{Composition, Data, MAX_SECTORS, Order, Version, Versions};

pub use at_cut::AtCut;

/// The label of the mark before which everything is settled.
pub const MOUNTED: &str = "mounted";
/// The label of the mark after which no cut lies.
pub const WORKLOAD_END: &str = "workload-end";

/// A part of a write that may or may not be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Loose {
    /// The event of the write's receipt.
    pub write: u64,
    /// The unit.
    pub unit: u64,
    /// The write was not replied to.
    pub in_flight: bool,
}

/// A request that was received and not replied to.
#[derive(Clone, Copy, Debug)]
struct Open {
    command: Command,
    units: Units,
    fua: bool,
}

/// The units that a write touches, inclusive.
#[derive(Clone, Copy, Debug)]
struct Units {
    first: u64,
    last: u64,
}

/// A write of which some fragments are loose.
#[derive(Clone, Copy, Debug)]
struct LooseWrite {
    units: Units,
    replied: Option<u64>,
    /// How many of its fragments are still loose.
    fragments: u64,
}

/// Zeroes in flight over units of which nothing is known yet: a later write there is unordered with them.
#[derive(Clone, Copy, Debug)]
struct OpenZeroes {
    write: u64,
    lba: Lba,
    sectors: Sectors,
}

/// The state of a drive after some events of a recording.
#[derive(Debug)]
pub struct History {
    description: Description,
    write_cache: bool,
    units: BTreeMap<u64, Versions>,
    open: FxHashMap<u64, Open>,
    open_zeroes: Vec<OpenZeroes>,
    loose: BTreeMap<u64, LooseWrite>,
    /// Loose fragments of all of them.
    loose_fragments: u64,
    /// Loose writes in the cache, by the event of their reply.
    cached: BTreeMap<u64, u64>,
    dirty: Dirty,
    next_event: u64,
    /// Units of which two versions are unordered.
    contested: BTreeSet<u64>,
    base: Base,
}

/// The digest of the image in which nothing loose survives, kept as it changes.
#[derive(Debug, Default)]
struct Base {
    total: Digest,
    units: FxHashMap<u64, Composition>,
    touched: BTreeSet<u64>,
    sectors: FxHashMap<u64, Digest>,
}

impl History {
    /// A drive before the first event.
    pub fn new(header: Header, description: Description) -> History {
        History {
            description,
            write_cache: header.write_cache,
            units: BTreeMap::new(),
            open: FxHashMap::default(),
            open_zeroes: Vec::new(),
            loose: BTreeMap::new(),
            loose_fragments: 0,
            cached: BTreeMap::new(),
            dirty: Dirty::new(&description),
            next_event: 0,
            contested: BTreeSet::new(),
            base: Base::default(),
        }
    }

    /// What the drive is.
    pub fn description(&self) -> Description {
        self.description
    }

    /// The event that comes next; a cut now is a cut at that number.
    pub fn next_event(&self) -> u64 {
        self.next_event
    }

    /// Goes on by one event.
    pub fn apply(&mut self, entry: &Entry, label: Option<&str>) {
        let event = entry.head.event;
        debug_assert_eq!(event, self.next_event, "events come in turn");
        self.next_event = event + 1;
        match entry.head.what {
            What::Received { command, lba, sectors, fua } => {
                self.received(event, command, lba, sectors, fua, entry.data_at);
            }
            What::Replied { receipt } => self.replied(event, receipt),
            What::Mark if label == Some(MOUNTED) => self.settle_all(),
            What::Mark | What::End => {}
        }
    }

    /// The loose fragments, in the order of their writes' receipt and then of units: the order of a recipe's bits.
    pub fn loose(&self) -> Vec<Loose> {
        let mut fragments = Vec::new();
        for (&write, loose) in &self.loose {
            for (&unit, versions) in self.units.range(loose.units.first..=loose.units.last) {
                if versions.of(write).is_some_and(|version| !version.settled) {
                    fragments.push(Loose { write, unit, in_flight: loose.replied.is_none() });
                }
            }
        }
        fragments
    }

    /// How many fragments are loose; what [`History::loose`] would list, without the cost of a list.
    pub fn loose_fragments(&self) -> u64 {
        self.loose_fragments
    }

    /// How many writes (with trims and zeroes) were received and not replied to.
    pub fn in_flight(&self) -> u64 {
        self.open.values().filter(|open| open.command.writes()).count() as u64
    }

    /// Whether the order of landing can make a difference now: somewhere two versions that can still show are
    /// unordered.
    pub fn contested(&self) -> bool {
        !self.contested.is_empty()
    }

    /// The image in which, of the loose fragments (in the order of [`History::loose`]), those of `kept` survive: every
    /// unit that was ever written, with what it holds.
    pub fn image(&self, kept: &[bool], order: Order) -> impl Iterator<Item = (u64, Composition)> {
        let survivors = self.survivors(kept);
        self.units.iter().map(move |(&unit, versions)| {
            let composition = versions.compose(unit, order, |version| survivors.contains(&(unit, version.write)));
            (unit, composition)
        })
    }

    /// The digest of that image. `recording` is the whole recording as bytes. The cost follows the loose fragments and
    /// what settled since the last call.
    pub fn digest(&mut self, recording: &[u8], kept: &[bool], order: Order) -> Digest {
        self.refresh_base(recording);
        let survivors = self.survivors(kept);
        let mut units: BTreeSet<u64> = survivors.iter().map(|(unit, _)| *unit).collect();
        if order != Order::Receipt {
            // Settled versions may be unordered too, also where nothing loose survives.
            units.extend(&self.contested);
        }
        let mut digest = self.base.total;
        for unit in units {
            let versions = &self.units[&unit];
            let composition = versions.compose(unit, order, |version| survivors.contains(&(unit, version.write)));
            let before = self.base.units.get(&unit).copied().unwrap_or_default();
            digest = digest.minus(self.unit_digest(recording, unit, before));
            digest = digest.plus(self.unit_digest(recording, unit, composition));
        }
        digest
    }

    fn survivors(&self, kept: &[bool]) -> rustc_hash::FxHashSet<(u64, u64)> {
        let loose = self.loose();
        assert_eq!(loose.len(), kept.len(), "one bit a loose fragment");
        let kept = loose.iter().zip(kept).filter(|(_, kept)| **kept);
        kept.map(|(fragment, _)| (fragment.unit, fragment.write)).collect()
    }

    fn refresh_base(&mut self, recording: &[u8]) {
        for unit in std::mem::take(&mut self.base.touched) {
            let composition = self.units[&unit].compose(unit, Order::Receipt, |_| false);
            let before = self.base.units.insert(unit, composition).unwrap_or_default();
            if before != composition {
                let without = self.base.total.minus(self.unit_digest(recording, unit, before));
                self.base.total = without.plus(self.unit_digest(recording, unit, composition));
            }
        }
    }

    fn unit_digest(&mut self, recording: &[u8], unit: u64, composition: Composition) -> Digest {
        let first = self.description.unit.first(unit);
        let mut digest = Digest::default();
        for (sector, &at) in composition.0.iter().enumerate().filter(|(_, at)| **at != 0) {
            let lba = Lba(first.0 + sector as u64);
            // A place in the recording holds one sector's data for ever, so its digest is computed once.
            let part = self.base.sectors.entry(at).or_insert_with(|| {
                let at = at as usize;
                Digest::of_sector(lba, &recording[at..at + SECTOR as usize])
            });
            digest = digest.plus(*part);
        }
        digest
    }

    fn received(&mut self, event: u64, command: Command, lba: Lba, sectors: Sectors, fua: bool, data_at: u64) {
        let unit = self.description.unit;
        let units = Units { first: unit.of(lba), last: unit.of(Lba((lba.0 + sectors.0).saturating_sub(1))) };
        self.open.insert(event, Open { command, units, fua });
        if !command.writes() || sectors.0 == 0 {
            return;
        }
        let mut fragments = 0;
        if command == Command::Write {
            for touched in units.first..=units.last {
                let data = |first: Lba| Data::At(data_at + (first.0 - lba.0) * SECTOR);
                self.zeroes_in_flight(touched);
                self.push(touched, event, lba, sectors, data);
                fragments += 1;
            }
        } else {
            // Units of which nothing is known hold zeroes already; only writes that come while these zeroes are in
            // flight are unordered with them.
            let known: Vec<u64> = self.units.range(units.first..=units.last).map(|(unit, _)| *unit).collect();
            for touched in known {
                self.zeroes_in_flight(touched);
                self.push(touched, event, lba, sectors, |_| Data::Zeroes);
                fragments += 1;
            }
            self.open_zeroes.push(OpenZeroes { write: event, lba, sectors });
        }
        self.loose.insert(event, LooseWrite { units, replied: None, fragments });
        self.loose_fragments += fragments;
    }

    /// Adds the versions of zeroes in flight that a unit does not know yet.
    fn zeroes_in_flight(&mut self, touched: u64) {
        let unit = self.description.unit;
        for at in 0..self.open_zeroes.len() {
            let OpenZeroes { write, lba, sectors } = self.open_zeroes[at];
            let covers = unit.of(lba) <= touched && touched <= unit.of(Lba(lba.0 + sectors.0 - 1));
            let known = self.units.get(&touched).is_some_and(|versions| versions.of(write).is_some());
            // A write that is settled by the mark `mounted` may still be in flight.
            if covers && !known {
                let settled = !self.loose.contains_key(&write);
                self.push(touched, write, lba, sectors, |_| Data::Zeroes);
                if settled {
                    self.units.get_mut(&touched).and_then(|v| v.of_mut(write)).expect("just pushed").settled = true;
                } else {
                    self.loose.get_mut(&write).expect("looked up").fragments += 1;
                    self.loose_fragments += 1;
                }
            }
        }
    }

    fn push(&mut self, touched: u64, write: u64, lba: Lba, sectors: Sectors, data: impl Fn(Lba) -> Data) {
        let base = self.description.unit.first(touched).0;
        let first = lba.0.max(base);
        let end = (lba.0 + sectors.0).min(base + self.description.unit.sectors());
        debug_assert!(end - first <= MAX_SECTORS as u64);
        let versions = self.units.entry(touched).or_default();
        versions.insert(Version {
            write,
            replied: None,
            settled: false,
            first: (first - base) as u8,
            count: (end - first) as u8,
            data: data(Lba(first)),
        });
        if versions.contested() {
            self.contested.insert(touched);
        }
        self.base.touched.insert(touched);
    }

    fn replied(&mut self, event: u64, receipt: u64) {
        let Some(open) = self.open.remove(&receipt) else { return };
        if open.command == Command::Flush {
            let covered: Vec<u64> = self.cached.range(..receipt).map(|(_, write)| *write).collect();
            for write in covered {
                self.settle(write);
            }
            return;
        }
        if !open.command.writes() {
            return;
        }
        self.open_zeroes.retain(|zeroes| zeroes.write != receipt);
        for (_, versions) in self.units.range_mut(open.units.first..=open.units.last) {
            if let Some(version) = versions.of_mut(receipt) {
                version.replied = Some(event);
            }
        }
        let Some(loose) = self.loose.get_mut(&receipt) else { return };
        loose.replied = Some(event);
        if open.fua || !self.write_cache {
            self.settle(receipt);
            return;
        }
        self.cached.insert(event, receipt);
        for (&unit, versions) in self.units.range(open.units.first..=open.units.last) {
            if versions.of(receipt).is_some_and(|version| !version.settled) {
                self.dirty.insert(unit, event);
            }
        }
        while let Some(unit) = self.dirty.over(event) {
            self.destage(unit);
        }
        self.forget_if_empty(receipt);
    }

    /// Settles all fragments of one write.
    fn settle(&mut self, write: u64) {
        let Some(loose) = self.loose.remove(&write) else { return };
        self.loose_fragments -= loose.fragments;
        if let Some(reply) = loose.replied {
            self.cached.remove(&reply);
        }
        let units: Vec<u64> = self.units.range(loose.units.first..=loose.units.last).map(|(unit, _)| *unit).collect();
        for unit in units {
            let versions = self.units.get_mut(&unit).expect("listed");
            let Some(version) = versions.of_mut(write) else { continue };
            version.settled = true;
            self.settled(unit);
        }
    }

    /// Settles all of a unit that is in the cache.
    fn destage(&mut self, unit: u64) {
        let versions = self.units.get_mut(&unit).expect("a dirty unit has versions");
        let mut cached = Vec::new();
        for write in versions.list().iter().filter(|v| !v.settled && v.replied.is_some()).map(|v| v.write) {
            cached.push(write);
        }
        debug_assert!(!cached.is_empty(), "a dirty unit has something in the cache");
        for &write in &cached {
            versions.of_mut(write).expect("listed").settled = true;
        }
        for write in cached {
            self.lost_a_fragment(write);
        }
        self.settled(unit);
        self.dirty.remove(unit);
    }

    /// Something of a unit was settled: drops what can't show any more.
    fn settled(&mut self, unit: u64) {
        self.base.touched.insert(unit);
        let versions = self.units.get_mut(&unit).expect("a unit that settles has versions");
        let dropped = versions.prune();
        if !versions.contested() {
            self.contested.remove(&unit);
        }
        if !versions.list().iter().any(|version| !version.settled && version.replied.is_some()) {
            self.dirty.remove(unit);
        }
        for write in dropped {
            self.lost_a_fragment(write);
        }
    }

    fn lost_a_fragment(&mut self, write: u64) {
        if let Some(loose) = self.loose.get_mut(&write) {
            loose.fragments -= 1;
            self.loose_fragments -= 1;
            self.forget_if_empty(write);
        }
    }

    /// A replied write without loose fragments can't become loose again. (One in flight still can: zeroes.)
    fn forget_if_empty(&mut self, write: u64) {
        if let Some(&LooseWrite { replied: Some(reply), fragments: 0, .. }) = self.loose.get(&write) {
            self.loose.remove(&write);
            self.cached.remove(&reply);
        }
    }

    /// Rule 8: what came before `mounted` is settled, replied to or not.
    fn settle_all(&mut self) {
        for write in self.loose.keys().copied().collect::<Vec<_>>() {
            self.settle(write);
        }
    }
}
