//! The two ends of each cut: nothing loose survives, or all of it does.

use powerfail_seed::Seed;

use super::{Aim, Choice, Explorer, Outline, View, spread};

/// All lost, all kept.
#[derive(Clone, Copy, Debug)]
pub struct EveryCut;

impl EveryCut {
    /// Both ends of a cut.
    pub fn ends(view: &View<'_>) -> [Choice; 2] {
        [view.choice(|_| false), view.choice(|_| true)]
    }
}

impl Explorer for EveryCut {
    fn name(&self) -> &'static str {
        "every-cut"
    }

    fn aims(&self, seed: Seed, outline: &Outline, want: u64, round: u64) -> Vec<Aim> {
        let cuts = spread(seed, self.name(), outline.span(), want.div_ceil(2), round);
        cuts.into_iter().map(|cut| Aim { cut, target: 0 }).collect()
    }

    fn choices(&self, _: Seed, view: &View<'_>, _: u64, _: u64) -> Vec<Choice> {
        EveryCut::ends(view).into()
    }
}
