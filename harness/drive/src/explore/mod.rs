//! Which of the many states of a recording are made: explorers, each a small file behind one trait, and the plan that
//! shares a budget among them.

mod every_cut;
mod plan;
mod sampled;

use powerfail_seed::Seed;

use crate::history::Loose;
use crate::versions::Order;

pub use every_cut::EveryCut;
pub use plan::{Plan, PlanError, Planned, Span, Walk, plan, span};
pub use sampled::Sampled;

/// What an explorer sees at a cut.
#[derive(Debug)]
pub struct View<'a> {
    /// The event at which the power fails.
    pub cut: u64,
    /// The loose fragments.
    pub loose: &'a [Loose],
    /// Whether the order of landing can make a difference.
    pub contested: bool,
    /// The unit's size in sectors.
    pub unit_sectors: u64,
}

/// One choice of what survives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// A bit for each loose fragment.
    pub kept: Vec<bool>,
    /// The order in which survivors land.
    pub order: Order,
}

/// A way of choosing crash states.
pub trait Explorer {
    /// Its name, as it stands in the ledger.
    fn name(&self) -> &'static str;

    /// How many states one cut gives, at most.
    fn per_cut(&self) -> u64;

    /// The states of one cut. `round` is larger each time a plan needs more states than the rounds before gave.
    fn choices(&self, seed: Seed, view: &View<'_>, round: u64) -> Vec<Choice>;
}

/// All explorers, in the order in which a plan asks them.
pub fn explorers() -> Vec<Box<dyn Explorer>> {
    vec![Box::new(EveryCut), Box::new(Sampled)]
}
