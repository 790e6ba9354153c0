//! One write of several units survives in part.
//!
//! A write is split at one unit: its first part survives, or its last; or one unit in its middle is missing, or alone is
//! there. The rest of what is loose is kept, or lost. Half of the cuts aim at a write in flight, the others at one in the cache.
//! With units of 4096 bytes only requests of several blocks are torn; with units of 512 each aligned block can be.

use powerfail_seed::{Seed, below};

use super::{Aim, Choice, Explorer, Op, Outline, Span, View, cut_in, strata};
use crate::request::Command;

/// Torn writes.
#[derive(Clone, Debug)]
pub struct Torn {
    /// Receipts of writes of several units, with the cuts at which they are loose.
    writes: Vec<(u64, Span)>,
}

/// States of one torn write at one cut: four kinds of tear, with the rest kept and lost.
const PER_CUT: u64 = 8;

impl Torn {
    /// Looks for the writes of a recording that can be torn.
    pub fn of(outline: &Outline) -> Torn {
        let unit = outline.unit();
        let several = |op: &&Op| {
            op.command == Command::Write
                && op.sectors.0 > 0
                && unit.of(op.lba) != unit.of(crate::units::Lba(op.lba.0 + op.sectors.0 - 1))
        };
        let writes = outline.ops().iter().filter(several);
        Torn { writes: writes.filter_map(|op| Some((op.receipt, outline.window(op)?))).collect() }
    }
}

impl Explorer for Torn {
    fn name(&self) -> &'static str {
        "torn"
    }

    fn aims(&self, seed: Seed, outline: &Outline, want: u64, round: u64) -> Vec<Aim> {
        let writes = strata(seed, self.name(), self.writes.len() as u64, want.div_ceil(PER_CUT), round);
        let aim = |at: u64| {
            let (target, window) = self.writes[at as usize];
            // A reply is an event of its own, so the first cut of the window lies before it.
            let replied = outline.op(target).and_then(|op| op.replied);
            let in_flight =
                Span { first: window.first, last: replied.unwrap_or(window.last).clamp(window.first, window.last) };
            let window =
                if seed.draw("torn in flight", &[target, round]).is_multiple_of(2) { in_flight } else { window };
            Aim { cut: cut_in(seed, "torn", &[target, round], window), target }
        };
        writes.into_iter().map(aim).collect()
    }

    fn choices(&self, seed: Seed, view: &View<'_>, target: u64, round: u64) -> Vec<Choice> {
        let units: Vec<u64> = view.loose.iter().filter(|loose| loose.write == target).map(|loose| loose.unit).collect();
        if units.len() < 2 {
            return Vec::new();
        }
        let mut rng = seed.rng("torn", &[view.cut, target, round]);
        // At least one unit on either side.
        let border = units[1 + below(&mut rng, units.len() as u64 - 1) as usize];
        let middle = units[below(&mut rng, units.len() as u64) as usize];
        let parts: [&dyn Fn(u64) -> bool; 4] =
            [&|unit| unit < border, &|unit| unit >= border, &|unit| unit != middle, &|unit| unit == middle];
        let torn = |part: &dyn Fn(u64) -> bool, rest: bool| {
            view.choice(|loose| if loose.write == target { part(loose.unit) } else { rest })
        };
        parts.iter().flat_map(|part| [torn(part, true), torn(part, false)]).collect()
    }
}
