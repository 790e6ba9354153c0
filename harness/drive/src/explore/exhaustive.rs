//! Every subset of what is loose, where that is little.
//!
//! The order shows small losses first: all kept and all lost, then one fragment lost and its complement (it alone
//! survives), then two, and so on. Where the order of landing can matter, the same subsets follow once more, each in a
//! drawn order. Cuts are drawn among those at which few enough fragments are loose.

use powerfail_seed::{Seed, below};
use rand::Rng;

use super::{Aim, Choice, Explorer, Outline, View, strata};
use crate::versions::Order;

/// At most so many loose fragments: 2^10 subsets.
pub const MOST_LOOSE: u32 = 10;

/// All subsets.
#[derive(Clone, Debug)]
pub struct Exhaustive {
    /// Cuts at which something is loose and not too much.
    cuts: Vec<u64>,
}

impl Exhaustive {
    /// Looks for the cuts of a recording's workload.
    pub fn of(outline: &Outline) -> Exhaustive {
        let span = outline.span();
        let few = |cut: &u64| (1..=MOST_LOOSE).contains(&outline.loose_at(*cut));
        Exhaustive { cuts: (span.first..=span.last).filter(few).collect() }
    }
}

impl Explorer for Exhaustive {
    fn name(&self) -> &'static str {
        "exhaustive"
    }

    fn aims(&self, seed: Seed, outline: &Outline, want: u64, round: u64) -> Vec<Aim> {
        let count = self.cuts.len() as u64;
        if count == 0 {
            return Vec::new();
        }
        // So many cuts as it takes, drawn until their subsets are enough: whole sets, rather than a little of each.
        let mut rng = seed.rng("exhaustive start", &[round]);
        let order = strata(seed, self.name(), count, want, round);
        let start = below(&mut rng, order.len() as u64) as usize;
        // Neighbours in time have nearly the same loose set; a stride that is coprime to the length visits all.
        let stride = coprime_near(order.len() as u64 * 5 / 8, order.len() as u64) as usize;
        let mut subsets = 0;
        let mut aims = Vec::new();
        for step in 0..order.len() {
            if subsets >= want {
                break;
            }
            let cut = self.cuts[order[(start + step * stride) % order.len()] as usize];
            subsets += 1 << outline.loose_at(cut);
            aims.push(Aim { cut, target: 0 });
        }
        aims
    }

    fn choices(&self, seed: Seed, view: &View<'_>, _: u64, round: u64) -> Vec<Choice> {
        if view.loose.len() > MOST_LOOSE as usize {
            return Vec::new();
        }
        let mut choices: Vec<Choice> = by_loss(view.loose.len())
            .into_iter()
            .map(|lost| Choice { kept: lost.into_iter().map(|lost| !lost).collect(), order: Order::Receipt })
            .collect();
        if view.contested {
            let mut rng = seed.rng("exhaustive", &[view.cut, round]);
            let drawn: Vec<_> =
                choices.iter().map(|c| Choice { order: Order::Keyed(rng.next_u64()), ..c.clone() }).collect();
            choices.extend(drawn);
        }
        choices
    }
}

/// All subsets of `count` fragments as what is lost: by the smaller of loss and survival, each followed by its complement.
fn by_loss(count: usize) -> Vec<Vec<bool>> {
    let mut masks: Vec<u32> = (0..1u32 << count).collect();
    let all = (1u32 << count) - 1;
    let size = |mask: u32| mask.count_ones().min((all & !mask).count_ones());
    // The pair of a set and its complement is named by the smaller one, or of two equally large by the smaller number.
    let pair = |mask: u32| {
        let other = all & !mask;
        if (mask.count_ones(), mask) <= (other.count_ones(), other) { mask } else { other }
    };
    masks.sort_by_key(|&mask| (size(mask), pair(mask), mask != pair(mask)));
    masks.into_iter().map(|mask| (0..count).map(|bit| mask >> bit & 1 == 1).collect()).collect()
}

/// The first number from `from` on that shares no divisor with `length`.
fn coprime_near(from: u64, length: u64) -> u64 {
    let gcd = |mut a: u64, mut b: u64| {
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    (from.max(1)..).find(|&step| gcd(step, length) == 1).expect("primes are endless")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_losses_come_first_each_with_its_complement() {
        let text = |lost: &Vec<bool>| lost.iter().map(|lost| if *lost { 'x' } else { '.' }).collect::<String>();
        let shown: Vec<String> = by_loss(3).iter().map(text).collect();
        assert_eq!(shown, ["...", "xxx", "x..", ".xx", ".x.", "x.x", "..x", "xx."]);
        assert_eq!(by_loss(0), [Vec::<bool>::new()]);
        for count in 0..=10 {
            let all: std::collections::BTreeSet<_> = by_loss(count).into_iter().collect();
            assert_eq!(all.len(), 1 << count, "each subset once");
        }
    }
}
