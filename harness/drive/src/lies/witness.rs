//! The raw witness: a host that writes, flushes and writes with FUA, and knows of each block what a cut may leave of it. It
//! notices what no file system can: FUA taken for a flush is safer than promised, and some rigs carry no FUA at all.
//!
//! The host works on blocks of 4 KiB whose every sector says which block and which generation it is. What it was promised:
//!
//! 1. *flush*: after the flush every block of the table holds its first generation or a later one;
//! 2. *fua*: after the write with FUA its block holds it;
//! 3. *fua-alone*: that write settled nothing else, so in some state a block of the second generation is lost;
//! 4. *unit*: no block is of two generations;
//! 5. *place*: a block holds what was written to it, and nothing where nothing was written.

use std::collections::{BTreeMap, BTreeSet};

use powerfail_seed::{Seed, below};
use rand::Rng;

use crate::cache::{Cache, Description, Policy};
use crate::explore::{PlanError, Walk, span};
use crate::recording::Reader;
use crate::units::{AtomicUnit, SECTOR};
use crate::versions::Order;

/// Bytes of a block.
pub const BLOCK: u64 = 4096;
/// Blocks of the drive that the host works on.
pub const BLOCKS: u64 = 512;
/// The blocks of its table.
const TABLE: u64 = 128;
/// The block that it writes with FUA.
const SAFE: u64 = 200;
/// Where it writes many blocks with one request.
const LONG: (u64, u64) = (256, 16);

/// What the host does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Writes blocks, all of one generation, with one request, and waits for the reply.
    Write {
        /// The first.
        block: u64,
        /// How many.
        blocks: u64,
        /// What they hold.
        generation: u64,
        /// With FUA.
        fua: bool,
    },
    /// Flushes and waits for the reply.
    Flush,
    /// Says how far it is.
    Mark(&'static str),
}

const FLUSHED: &str = "flushed";
const SAVED: &str = "saved";

/// All that it does, from the mark `mounted` to the mark `workload-end`.
pub fn script() -> Vec<Act> {
    let write = |block, generation| Act::Write { block, blocks: 1, generation, fua: false };
    let mut acts = vec![Act::Mark(crate::history::MOUNTED)];
    acts.extend((0..TABLE).map(|block| write(block, 1)));
    acts.extend([Act::Flush, Act::Mark(FLUSHED)]);
    acts.extend((0..TABLE).map(|block| write(block, 2)));
    acts.push(Act::Write { block: SAFE, blocks: 1, generation: 1, fua: true });
    acts.push(Act::Mark(SAVED));
    acts.push(Act::Write { block: LONG.0, blocks: LONG.1, generation: 1, fua: false });
    acts.extend((0..8).map(|block| write(LONG.0 + 64 + block, 1)));
    acts.push(Act::Mark(crate::history::WORKLOAD_END));
    acts
}

/// What a block of a generation holds.
pub fn content(block: u64, generation: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(BLOCK as usize);
    for sector in 0..BLOCK / SECTOR {
        for word in [0x7769_746e_6573_7321, block, generation, sector] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes.resize(((sector + 1) * SECTOR) as usize, 0);
    }
    bytes
}

/// A promise of the list above that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caught {
    /// Which.
    pub promise: &'static str,
    /// After how many states.
    pub states: u64,
    /// What was seen.
    pub detail: String,
}

/// Cuts the power `states` times; gives every promise that was found broken, in the order of the list. An honest drive
/// breaks none. Whether the drive is honest is what the recording says.
///
/// # Errors
/// If the recording is none of this script's.
pub fn look(recording: &[u8], seed: Seed, states: u64) -> Result<Vec<Caught>, PlanError> {
    let lie = Reader::new(recording, false)?.header().lie;
    let promised = AtomicUnit::B4096;
    let unit = lie.map_or(promised, |liar| liar.lie().unit(promised));
    let cache = Cache { bytes: BLOCKS * BLOCK, policy: Policy::Fifo };
    let span = span(recording)?;
    let events = span.last - span.first + 1;
    let mut walk = Walk::new(recording, Description { unit, cache, lie })?;
    let mut marks: BTreeSet<String> = BTreeSet::new();
    let mut caught: BTreeMap<&'static str, Caught> = BTreeMap::new();
    let mut only_safe_was_saved = false;
    for state in 0..states {
        // Half of the states at the very end, where everything was promised.
        let cut = if state * 2 < states { span.first + events * state * 2 / states.max(1) } else { span.last };
        walk.advance_with(cut, |label| {
            marks.insert(label.to_owned());
        })?;
        let mut rng = seed.rng("witness", &[state]);
        let share = below(&mut rng, 5);
        let kept: Vec<bool> = walk.history.loose().iter().map(|_| below(&mut rng, 4) < share).collect();
        let image = image(&walk, recording, &kept, rng.next_u64());
        let mut see = |promise: &'static str, detail: String| {
            caught.entry(promise).or_insert(Caught { promise, states: state + 1, detail });
        };
        only_safe_was_saved |= marks.contains(SAVED) && (0..TABLE).any(|block| image.generation(block) == Some(1));
        judge(&image, &marks, &mut see);
    }
    if states > 0 && !only_safe_was_saved {
        let detail = "no state has lost a write that only a flush would have settled".to_owned();
        caught.insert("fua-alone", Caught { promise: "fua-alone", states, detail });
    }
    let order = ["flush", "fua", "fua-alone", "unit", "place"];
    Ok(order.iter().filter_map(|promise| caught.remove(promise)).collect())
}

fn judge(image: &Image<'_>, marks: &BTreeSet<String>, see: &mut impl FnMut(&'static str, String)) {
    for block in 0..TABLE {
        if marks.contains(FLUSHED) && image.generation(block).is_none() && !image.is_odd(block) {
            see("flush", format!("block {block} was flushed and is gone"));
        }
    }
    if marks.contains(SAVED) && image.generation(SAFE).is_none() && !image.is_odd(SAFE) {
        see("fua", format!("block {SAFE} was written with FUA and is gone"));
    }
    for block in 0..BLOCKS {
        match image.seen(block) {
            Seen::Whole(_) | Seen::Empty => {}
            Seen::Torn => see("unit", format!("block {block} is of two generations")),
            Seen::Foreign(whose) => see("place", format!("block {block} holds what was written to block {whose}")),
        }
    }
}

/// What is in one block.
enum Seen {
    Empty,
    /// Its own, of one generation.
    Whole(u64),
    /// Sectors of several generations, or some of none.
    Torn,
    /// What was written to another one.
    Foreign(u64),
}

/// The image after a cut: sectors that are not empty, by number.
struct Image<'a> {
    sectors: BTreeMap<u64, &'a [u8]>,
}

fn image<'a>(walk: &Walk<'_>, recording: &'a [u8], kept: &[bool], order: u64) -> Image<'a> {
    let unit = walk.history.description().unit;
    let mut sectors = BTreeMap::new();
    for (number, composition) in walk.history.image(kept, Order::Keyed(order)) {
        let first = unit.first(number).0;
        for (sector, &at) in composition.0.iter().enumerate().filter(|(_, at)| **at != 0) {
            let at = at as usize;
            sectors.insert(first + sector as u64, &recording[at..at + SECTOR as usize]);
        }
    }
    Image { sectors }
}

impl Image<'_> {
    fn seen(&self, block: u64) -> Seen {
        let each = BLOCK / SECTOR;
        let word =
            |bytes: &[u8], at: usize| u64::from_le_bytes(bytes[at * 8..at * 8 + 8].try_into().expect("eight bytes"));
        let found: Vec<Option<(u64, u64)>> = (block * each..(block + 1) * each)
            .map(|sector| self.sectors.get(&sector).map(|bytes| (word(bytes, 1), word(bytes, 2))))
            .collect();
        if let Some((whose, _)) = found.iter().flatten().find(|(whose, _)| *whose != block) {
            return Seen::Foreign(*whose);
        }
        match found[0] {
            None if found.iter().all(Option::is_none) => Seen::Empty,
            Some((_, generation)) if found.iter().all(|one| one.is_some_and(|(_, g)| g == generation)) => {
                Seen::Whole(generation)
            }
            _ => Seen::Torn,
        }
    }

    /// The generation of a block that is whole.
    fn generation(&self, block: u64) -> Option<u64> {
        match self.seen(block) {
            Seen::Whole(generation) => Some(generation),
            Seen::Empty | Seen::Torn | Seen::Foreign(_) => None,
        }
    }

    /// Torn, or foreign: another promise is broken then.
    fn is_odd(&self, block: u64) -> bool {
        matches!(self.seen(block), Seen::Torn | Seen::Foreign(_))
    }
}
