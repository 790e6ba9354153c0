//! The two ends of each cut: nothing loose survives, or all of it does.

use powerfail_seed::Seed;

use super::{Choice, Explorer, View};
use crate::versions::Order;

/// All lost, all kept.
#[derive(Clone, Copy, Debug)]
pub struct EveryCut;

impl Explorer for EveryCut {
    fn name(&self) -> &'static str {
        "every-cut"
    }

    fn per_cut(&self) -> u64 {
        2
    }

    fn choices(&self, _: Seed, view: &View<'_>, _: u64) -> Vec<Choice> {
        let end = |kept| Choice { kept: vec![kept; view.loose.len()], order: Order::Receipt };
        vec![end(false), end(true)]
    }
}
