//! Which of the many states of a recording are made: explorers, each a small file behind one trait, and the plan that
//! shares a budget among them.
//!
//! An explorer first says where it wants cuts ([`Explorer::aims`], from the [`Outline`] of the recording alone) and then, at
//! each of them, what survives ([`Explorer::choices`]). Every subset of what is loose is a legal state, so an explorer can
//! be wrong about what is worth a state, and never about what may happen.
//!
//! | explorer | its states |
//! | --- | --- |
//! | `every-cut` | all lost and all kept, at cuts spread over the workload |
//! | `sampled` | keyed random subsets, at cuts spread over the workload |
//! | `exhaustive` | every subset where few fragments are loose, small losses first |
//! | `torn` | one write of several units survives in part, in flight or in the cache |
//! | `journal-aware` | commits without one of their log blocks, lost commits, the log's superblock, revokes, the wrap |
//! | `edges` | the last writes before a flush and around FUA, for journals that nothing here can read |
//! | `mkfs`, `unmount` | ends and random subsets, at cuts before `mounted` and after `workload-end` |
//! | `replay` | the recipes that it is given |

mod edges;
mod every_cut;
mod exhaustive;
mod journal;
mod journal_aware;
mod list;
mod outline;
mod outside;
mod plan;
mod replay;
mod roles;
mod sampled;
mod torn;
mod walk;

use powerfail_seed::{Seed, below};

use crate::history::Loose;
use crate::versions::Order;

pub use edges::Edges;
pub use every_cut::EveryCut;
pub use exhaustive::{Exhaustive, MOST_LOOSE};
pub use journal::{Block, Journal, Transaction};
pub use journal_aware::JournalAware;
pub use list::{DEFAULT, Material, NAMES, UnknownExplorer, explorers, named};
pub use outline::{Op, Outline, span};
pub use outside::Outside;
pub use plan::{Asked, Plan, PlanError, Planned, Share, plan};
pub use replay::Replay;
pub use roles::{Role, Roles};
pub use sampled::Sampled;
pub use torn::Torn;
pub use walk::Walk;

/// Where cuts may lie, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Just after the mark `mounted`.
    pub first: u64,
    /// At the mark `workload-end`.
    pub last: u64,
}

/// One cut that an explorer wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Aim {
    /// The event at which the power fails.
    pub cut: u64,
    /// What the explorer is after there, in numbers of its own.
    pub target: u64,
}

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

    /// Cuts at which `want` states can be had, in any order; none if it has no state at all. `round` is larger each time
    /// a plan needs more states than the rounds before gave.
    fn aims(&self, seed: Seed, outline: &Outline, want: u64, round: u64) -> Vec<Aim>;

    /// The states of one of those aims, the most telling first.
    fn choices(&self, seed: Seed, view: &View<'_>, target: u64, round: u64) -> Vec<Choice>;
}

impl View<'_> {
    /// The state in which the fragments that `kept` names survive, and land in the order of their receipt.
    pub fn choice(&self, kept: impl FnMut(&Loose) -> bool) -> Choice {
        Choice { kept: self.loose.iter().map(kept).collect(), order: Order::Receipt }
    }
}

/// One keyed cut in each of `cuts` equal parts of a span.
fn spread(seed: Seed, explorer: &str, span: Span, cuts: u64, round: u64) -> Vec<u64> {
    let events = span.last - span.first + 1;
    let places = strata(seed, explorer, events, cuts, round);
    places.into_iter().map(|place| span.first + place).collect()
}

/// One keyed number in each of `parts` equal parts of `0..of`; all numbers if there are no more than that.
fn strata(seed: Seed, label: &str, of: u64, parts: u64, round: u64) -> Vec<u64> {
    let parts = parts.min(of);
    let mut rng = seed.at("strata", &[]).rng(label, &[round]);
    let at = |part: u64| (u128::from(of) * u128::from(part) / u128::from(parts)) as u64;
    (0..parts).map(|part| at(part) + below(&mut rng, at(part + 1) - at(part))).collect()
}

/// A keyed cut of a window: its first event, its last, or one between, each as often.
fn cut_in(seed: Seed, explorer: &str, key: &[u64], window: Span) -> u64 {
    let mut rng = seed.at("cut", &[]).rng(explorer, key);
    match below(&mut rng, 3) {
        0 => window.first,
        1 => window.last,
        _ => window.first + below(&mut rng, window.last - window.first + 1),
    }
}
