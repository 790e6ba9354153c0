//! The digests of many states of one cut, each at the cost of what it changes.
//!
//! Two images are near every state of a cut: the one in which nothing loose survives, and the one in which all of it
//! does. A state starts from the nearer of the two, and only units in which it differs from that one are composed again.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

use super::{History, Loose};
use crate::digest::Digest;
use crate::versions::{Composition, Order};

/// A drive at a cut, with what its states have in common.
#[derive(Debug)]
pub struct AtCut<'a> {
    history: &'a mut History,
    recording: &'a [u8],
    loose: Vec<Loose>,
    /// The loose fragments of each unit, as places in `loose`.
    by_unit: FxHashMap<u64, Vec<usize>>,
    /// The image in which all of it survives, once a state wanted it.
    all: Option<Digest>,
}

impl<'a> AtCut<'a> {
    /// The drive as it is now. `recording` is the whole recording as bytes.
    pub fn new(history: &'a mut History, recording: &'a [u8]) -> AtCut<'a> {
        history.refresh_base(recording);
        let loose = history.loose();
        let mut by_unit: FxHashMap<u64, Vec<usize>> = FxHashMap::default();
        for (place, fragment) in loose.iter().enumerate() {
            by_unit.entry(fragment.unit).or_default().push(place);
        }
        AtCut { history, recording, loose, by_unit, all: None }
    }

    /// The loose fragments, in the order of a recipe's bits.
    pub fn loose(&self) -> &[Loose] {
        &self.loose
    }

    /// The drive.
    pub fn history(&self) -> &History {
        self.history
    }

    /// The digest of a state's image; what [`History::digest`] gives.
    ///
    /// # Panics
    /// If `kept` has not one bit a loose fragment.
    pub fn digest(&mut self, kept: &[bool], order: Order) -> Digest {
        assert_eq!(self.loose.len(), kept.len(), "one bit a loose fragment");
        let lost = kept.iter().filter(|kept| !**kept).count();
        let from_all = lost * 2 <= kept.len();
        let mut units: BTreeSet<u64> =
            self.loose.iter().zip(kept).filter(|(_, kept)| **kept != from_all).map(|(loose, _)| loose.unit).collect();
        if order != Order::Receipt {
            units.extend(&self.history.contested);
        }
        let mut digest = if from_all { self.all() } else { self.history.base.total };
        for unit in units {
            let before = self.compose(unit, Order::Receipt, |_| from_all);
            let after = self.compose(unit, order, |place| kept[place]);
            digest = digest.minus(self.history.unit_digest(self.recording, unit, before));
            digest = digest.plus(self.history.unit_digest(self.recording, unit, after));
        }
        digest
    }

    fn all(&mut self) -> Digest {
        if let Some(all) = self.all {
            return all;
        }
        let mut all = self.history.base.total;
        let units: Vec<u64> = self.by_unit.keys().copied().collect();
        for unit in units {
            let before = self.compose(unit, Order::Receipt, |_| false);
            let after = self.compose(unit, Order::Receipt, |_| true);
            all = all.minus(self.history.unit_digest(self.recording, unit, before));
            all = all.plus(self.history.unit_digest(self.recording, unit, after));
        }
        *self.all.insert(all)
    }

    /// What a unit holds if those of its loose fragments survive that `survives` names by their place.
    fn compose(&self, unit: u64, order: Order, survives: impl Fn(usize) -> bool) -> Composition {
        let places = self.by_unit.get(&unit).map_or(&[][..], Vec::as_slice);
        self.history.units[&unit].compose(unit, order, |version| {
            places.iter().any(|&place| self.loose[place].write == version.write && survives(place))
        })
    }
}
