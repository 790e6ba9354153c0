//! Keyed random subsets of what is loose.
//!
//! The share that is lost is drawn per state, so that small losses (one log block) and large ones both occur: half of
//! the states lose a share that is uniform in its logarithm, from one fragment up to all, a quarter keep such a share,
//! and a quarter lose a share that is uniform. With an atomic unit of 512 bytes half of the states still treat the
//! fragments of one aligned 4 KiB of one write as one, as a drive does that tears rarely.

use powerfail_seed::{Ratio, Seed, below};
use rand::Rng;

use super::{Aim, Choice, Explorer, Outline, View, spread};
use crate::versions::Order;

/// Keyed random subsets.
#[derive(Clone, Copy, Debug)]
pub struct Sampled;

/// Shares are exact: so many of 2^20.
const WHOLE: u32 = 1 << 20;

impl Sampled {
    /// The subset of one cut and round.
    pub fn subset(seed: Seed, view: &View<'_>, round: u64) -> Choice {
        let mut rng = seed.rng("sampled", &[view.cut, round]);
        let share = share_lost(&mut rng, view.loose.len() as u64);
        let whole_pages = view.unit_sectors == 1 && Ratio::new(1, 2).happens(&mut rng);
        let order = if view.contested { Order::Keyed(rng.next_u64()) } else { Order::Receipt };
        let place = seed.at("sampled fragment", &[view.cut, round]);
        let kept = view.loose.iter().map(|fragment| {
            let at = if whole_pages { fragment.unit / 8 * 8 } else { fragment.unit };
            !share.happens(&mut place.rng("lost", &[fragment.write, at]))
        });
        Choice { kept: kept.collect(), order }
    }
}

impl Explorer for Sampled {
    fn name(&self) -> &'static str {
        "sampled"
    }

    fn aims(&self, seed: Seed, outline: &Outline, want: u64, round: u64) -> Vec<Aim> {
        let cuts = spread(seed, self.name(), outline.span(), want, round);
        cuts.into_iter().map(|cut| Aim { cut, target: 0 }).collect()
    }

    fn choices(&self, seed: Seed, view: &View<'_>, _: u64, round: u64) -> Vec<Choice> {
        vec![Sampled::subset(seed, view, round)]
    }
}

fn share_lost(rng: &mut impl Rng, loose: u64) -> Ratio {
    let logarithmic = |rng: &mut _| {
        // Uniform in the exponent from 1/loose to 1, in steps of a quarter of an octave.
        let octaves = 64 - loose.max(1).leading_zeros() as u64;
        let quarter = below(rng, octaves * 4 + 1);
        let part = f64::from(WHOLE) * (-(quarter as f64) / 4.0).exp2();
        (part as u32).clamp(1, WHOLE)
    };
    match below(rng, 4) {
        0 | 1 => Ratio::new(logarithmic(rng), WHOLE),
        2 => Ratio::new(WHOLE - logarithmic(rng), WHOLE),
        _ => Ratio::new(below(rng, u64::from(WHOLE) + 1) as u32, WHOLE),
    }
}
