//! The versions of one atomic unit that a cut could still show, and the order in which survivors land.
//!
//! Requests are intervals of event numbers, from receipt to reply. An order of landing is legal if it never puts a
//! write behind one that it precedes. A keyed order draws, again and again, one of those writes that no other remaining
//! one precedes: each legal order can come, and no other.

use powerfail_seed::{Seed, below};

/// Sectors in the largest unit.
pub const MAX_SECTORS: usize = 8;

/// Where the bytes of a version come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data {
    /// Zeroes: a trim or a write of zeroes.
    Zeroes,
    /// The recording, from this byte on, for the first sector that the version covers.
    At(u64),
}

/// What one write did, or may do, to one unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    /// The event of the write's receipt.
    pub write: u64,
    /// The event of its reply, once there is one.
    pub replied: Option<u64>,
    /// It must be on the platter.
    pub settled: bool,
    /// First sector covered, within the unit.
    pub first: u8,
    /// Sectors covered; at least 1.
    pub count: u8,
    /// The bytes.
    pub data: Data,
}

impl Version {
    /// Whether this one's reply came before the other's receipt.
    pub fn precedes(&self, other: &Version) -> bool {
        self.replied.is_some_and(|replied| replied < other.write)
    }

    fn mask(&self) -> u8 {
        (((1u16 << self.count) - 1) << self.first) as u8
    }
}

/// In which of the legal orders survivors land.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// In the order of their receipt.
    Receipt,
    /// In an order drawn from a seed, for each unit by itself.
    Keyed(u64),
}

/// The contents of a unit: per sector the byte of the recording where its data stands, or 0 for zeroes.
/// (No data stands at byte 0: the header does.)
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Composition(pub [u64; MAX_SECTORS]);

/// The versions of one unit, in the order of their receipt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Versions {
    list: Vec<Version>,
}

impl Versions {
    /// All of them, in the order of their receipt.
    pub fn list(&self) -> &[Version] {
        &self.list
    }

    /// Adds a version at its place.
    pub fn insert(&mut self, version: Version) {
        let at = self.list.partition_point(|other| other.write < version.write);
        debug_assert!(self.list.get(at).is_none_or(|other| other.write != version.write), "one version a write");
        self.list.insert(at, version);
    }

    /// The version of one write.
    pub fn of(&self, write: u64) -> Option<&Version> {
        self.list.binary_search_by_key(&write, |version| version.write).ok().map(|at| &self.list[at])
    }

    /// The same, to change it.
    pub fn of_mut(&mut self, write: u64) -> Option<&mut Version> {
        self.list.binary_search_by_key(&write, |version| version.write).ok().map(|at| &mut self.list[at])
    }

    /// Drops versions that no cut can show any more: settled ones that follow cover each of their sectors. Gives the
    /// writes of the loose ones that it dropped.
    pub fn prune(&mut self) -> Vec<u64> {
        if self.list.len() < 2 {
            return Vec::new();
        }
        let mut dropped = Vec::new();
        let settled: Vec<Version> = self.list.iter().filter(|version| version.settled).copied().collect();
        self.list.retain(|version| {
            let covered =
                settled.iter().filter(|later| version.precedes(later)).fold(0, |mask, later| mask | later.mask());
            let dead = version.mask() & !covered == 0;
            if dead && !version.settled {
                dropped.push(version.write);
            }
            !dead
        });
        dropped
    }

    /// Whether the order of landing matters: two of them are unordered.
    pub fn contested(&self) -> bool {
        let mut latest_reply = None;
        for version in &self.list {
            // In the order of receipts an earlier version is unordered with this one if its reply came later.
            if latest_reply.is_some_and(|reply: u64| reply > version.write) {
                return true;
            }
            latest_reply = latest_reply.max(Some(version.replied.unwrap_or(u64::MAX)));
        }
        false
    }

    /// What the unit holds if all settled versions and the loose ones that `survives` names land in `order`.
    pub fn compose(&self, unit: u64, order: Order, mut survives: impl FnMut(&Version) -> bool) -> Composition {
        let mut composition = Composition::default();
        let mut land = |version: &Version| {
            for sector in 0..u64::from(version.count) {
                composition.0[usize::from(version.first) + sector as usize] = match version.data {
                    Data::Zeroes => 0,
                    Data::At(byte) => byte + sector * crate::units::SECTOR,
                };
            }
        };
        let survivors = self.list.iter().filter(|version| version.settled || survives(version));
        match order {
            Order::Receipt => survivors.for_each(&mut land),
            Order::Keyed(seed) => in_drawn_order(survivors.collect(), unit, seed, land),
        }
        composition
    }
}

/// Lands `left` (in the order of receipts) in a drawn legal order.
fn in_drawn_order(mut left: Vec<&Version>, unit: u64, seed: u64, mut land: impl FnMut(&Version)) {
    let mut rng = Seed(seed).rng("landing", &[unit]);
    while !left.is_empty() {
        // Those received before the first of the remaining replies are preceded by none. Who was received later than
        // a reply that was seen was also replied to later, so the search ends there.
        let mut first_reply = u64::MAX;
        let free = left
            .iter()
            .take_while(|version| {
                let free = version.write < first_reply;
                first_reply = first_reply.min(version.replied.unwrap_or(u64::MAX));
                free
            })
            .count();
        let next = if free == 1 { 0 } else { below(&mut rng, free as u64) as usize };
        land(left.remove(next));
    }
}
