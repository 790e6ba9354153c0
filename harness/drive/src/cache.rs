//! The write cache: which units are dirty, and which goes to the platter when they are too many.

use std::collections::{BTreeMap, BTreeSet};

use powerfail_seed::{Seed, below};
use rustc_hash::FxHashMap;

use crate::lies::Liar;
use crate::units::AtomicUnit;

/// Which dirty unit is destaged first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Policy {
    /// The one that has been dirty for longest.
    Fifo,
    /// The next one upwards from the last, then from the bottom again.
    Elevator,
    /// A keyed random one.
    Random(Seed),
}

/// A write cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cache {
    /// Its size in bytes; at least one atomic unit.
    pub bytes: u64,
    /// What goes first.
    pub policy: Policy,
}

/// What the drive is, beyond what the recording says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Description {
    /// What it writes all or nothing.
    pub unit: AtomicUnit,
    /// Its write cache; of no effect on a recording without one (W0).
    pub cache: Cache,
    /// The lie that it tells, only to be caught; that of its recording's header. None: it is honest.
    pub lie: Option<Liar>,
}

impl Description {
    /// An honest drive.
    pub fn honest(unit: AtomicUnit, cache: Cache) -> Description {
        Description { unit, cache, lie: None }
    }
}

/// The dirty units of a cache.
#[derive(Debug)]
pub struct Dirty {
    capacity: usize,
    order: Ordering,
}

#[derive(Debug)]
enum Ordering {
    /// By the event that made a unit dirty, and the way back.
    Fifo {
        by_event: BTreeSet<(u64, u64)>,
        since: FxHashMap<u64, u64>,
    },
    Elevator {
        units: BTreeSet<u64>,
        head: u64,
    },
    /// A bag with the place of each unit in it.
    Random {
        seed: Seed,
        bag: Vec<u64>,
        place: BTreeMap<u64, usize>,
    },
}

impl Dirty {
    /// An empty cache.
    pub fn new(description: &Description) -> Dirty {
        let capacity = (description.cache.bytes / description.unit.bytes()).max(1) as usize;
        let order = match description.cache.policy {
            Policy::Fifo => Ordering::Fifo { by_event: BTreeSet::new(), since: FxHashMap::default() },
            Policy::Elevator => Ordering::Elevator { units: BTreeSet::new(), head: 0 },
            Policy::Random(seed) => Ordering::Random { seed, bag: Vec::new(), place: BTreeMap::new() },
        };
        Dirty { capacity, order }
    }

    /// A unit became dirty at `event`, unless it was already.
    pub fn insert(&mut self, unit: u64, event: u64) {
        match &mut self.order {
            Ordering::Fifo { by_event, since } => {
                since.entry(unit).or_insert_with(|| {
                    by_event.insert((event, unit));
                    event
                });
            }
            Ordering::Elevator { units, .. } => {
                units.insert(unit);
            }
            Ordering::Random { bag, place, .. } => {
                place.entry(unit).or_insert_with(|| {
                    bag.push(unit);
                    bag.len() - 1
                });
            }
        }
    }

    /// A unit is clean.
    pub fn remove(&mut self, unit: u64) {
        match &mut self.order {
            Ordering::Fifo { by_event, since } => {
                if let Some(event) = since.remove(&unit) {
                    by_event.remove(&(event, unit));
                }
            }
            Ordering::Elevator { units, .. } => {
                units.remove(&unit);
            }
            Ordering::Random { bag, place, .. } => {
                if let Some(at) = place.remove(&unit) {
                    bag.swap_remove(at);
                    if let Some(moved) = bag.get(at) {
                        place.insert(*moved, at);
                    }
                }
            }
        }
    }

    /// The unit that has to go at `event`, if there are too many; the caller destages it and calls [`Dirty::remove`].
    pub fn over(&mut self, event: u64) -> Option<u64> {
        if self.len() <= self.capacity {
            return None;
        }
        match &mut self.order {
            Ordering::Fifo { by_event, .. } => by_event.first().map(|(_, unit)| *unit),
            Ordering::Elevator { units, head } => {
                let unit = *units.range(*head..).next().or_else(|| units.first())?;
                *head = unit + 1;
                Some(unit)
            }
            Ordering::Random { seed, bag, .. } => {
                let at = below(&mut seed.rng("destage", &[event, bag.len() as u64]), bag.len() as u64);
                Some(bag[at as usize])
            }
        }
    }

    fn len(&self) -> usize {
        match &self.order {
            Ordering::Fifo { since, .. } => since.len(),
            Ordering::Elevator { units, .. } => units.len(),
            Ordering::Random { bag, .. } => bag.len(),
        }
    }
}
