//! Crashes during recovery: the power fails again while the kernel recovers from a crash, and must find its way from there.
//!
//! A state of depth 2 is a state of depth 1 whose recovery was cut; of depth 3, one of depth 2 whose recovery was cut again.
//!
//! ```text
//! a state that held -> its image -> a recorded drive over it <- mount, unmount   => CELL/recoveries/IMAGE-REC.rec
//!   explorers over that recording                                                => CELL/plan-2.jsonl
//!   verify: image, overlaid with the recipe of the recovery -> agent -> checks   => ledger.jsonl, depth 2
//! ```
//!
//! Recovery must be idempotent: after any crash in it, a further one ends where the first would have ended. So the question
//! is that of depth 1, put by the same checks: the mount succeeds, the kernel has nothing to say, all promises made until the
//! *first* cut are kept, fsck is clean. Only states that held are recovered into a recording: what was broken before its
//! recovery was cut says nothing about the cut.
//!
//! Cuts lie from the first thing that the mount writes to the end of the unmount: replay, the cleanup of orphans, the
//! superblock, and what the unmount writes of them. What is lost is chosen as at depth 1, by `exhaustive` (while few
//! fragments are loose), `every-cut` and `sampled`: subsets, not only prefixes. The drive is the cell's own, with its cache,
//! and the mount has the cell's options.
//!
//! A state is written as its recipes, joined: `pf1 … >> pf1 …` ([`Chain`]). The recording of a recovery begins with what lay
//! beneath, but only where the recovery wrote ([`powerfail_drive::thin`]); the image is the one beneath, overlaid. Its digest
//! is that of the whole image, as at depth 1: that of the image beneath, less what lay beneath in the recording, plus the
//! recording's own.

mod chain;
mod images;
mod plan;
mod recovery;

pub use chain::{Chain, depth_of};
pub use images::{forget, overlay};
pub use plan::{Asked, Deeper, over, plan};

use powerfail_drive::crash::Recipe;

use crate::cell::Cell;
use crate::folder::Usage;
use crate::plan_file::{Entry, PlanFile};

/// The deepest that a run goes.
pub const DEEPEST: u32 = 3;

/// How many of a cell's states are of depth 1, and how many of each depth below: a quarter for each.
pub fn shares(states: u64, depth: u32) -> (u64, u64) {
    let deeper = if depth > 1 { states / 4 } else { 0 };
    (states - deeper * u64::from(depth.saturating_sub(1)), deeper)
}

/// Which part of a cell's time states may take that are all of one depth.
pub fn share_of_time(cell: &Cell, states: &[Entry]) -> f64 {
    let all = cell.states + cell.deeper_states * u64::from(cell.depth - 1);
    let deep = states.first().is_some_and(|entry| depth_of(&entry.state) > 1);
    (if deep { cell.deeper_states } else { cell.states }) as f64 / all as f64
}

/// The states of a plan of depth 1 that are cuts of the workload: what was cut in mkfs has no recovery to ask for.
///
/// # Errors
/// [`Usage`] if the plan is damaged.
pub fn within(plan: &PlanFile) -> anyhow::Result<Vec<Entry>> {
    let (first, last) = plan.head.cuts;
    let mut entries = Vec::new();
    for entry in &plan.entries {
        let recipe: Recipe = entry.state.parse().map_err(|error| Usage(format!("`{}`: {error}", entry.state)))?;
        if (first..=last).contains(&recipe.cut) {
            entries.push(entry.clone());
        }
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::shares;

    #[test]
    fn a_quarter_goes_to_each_depth_and_nothing_is_lost() {
        assert_eq!(shares(200, 1), (200, 0));
        assert_eq!(shares(200, 2), (150, 50));
        assert_eq!(shares(200, 3), (100, 50));
        assert_eq!(shares(3, 3), (3, 0));
        assert_eq!(shares(1, 2), (1, 0));
    }
}
