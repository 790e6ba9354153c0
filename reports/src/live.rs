//! Live cuts beside constructed states: do they say the same of a mode?
//!
//! A live cell is one whose rig is called `RIG live`. What its drives lose is drawn by the explorer `sampled`, so it is
//! compared with the states of that explorer in the cell that is the same but for the cuts. Two rates agree if their
//! Wilson intervals at 95 % overlap.

use crate::labels::labels;
use crate::stats::wilson;
use crate::tally::{Cell, Key, Tally};
use crate::text::{count, percent_range};

/// What the rig of a live cell ends with.
const LIVE: &str = " live";
/// The explorer whose choices live cuts make too.
const EXPLORER: &str = "sampled";

/// A sentence for each live cell that has a constructed one to be compared with.
pub(crate) fn comparisons(tally: &Tally) -> Vec<String> {
    let labels = labels(&tally.cells);
    let live = tally.cells.iter().zip(&labels).filter_map(|(cell, label)| {
        let constructed = constructed(&cell.key)?;
        let other = tally.cells.iter().find(|other| other.key == constructed)?;
        Some((cell, other, format!("{} {}", label.fs, label.mode)))
    });
    live.filter_map(|(live, constructed, name)| compare(live, constructed, &name)).collect()
}

/// The cell that is the same but for the cuts.
fn constructed(key: &Key) -> Option<Key> {
    let rig = key.rig.strip_suffix(LIVE)?;
    Some(Key { rig: rig.into(), ..key.clone() })
}

fn compare(live: &Cell, constructed: &Cell, name: &str) -> Option<String> {
    let explored = constructed.explorers.get(EXPLORER)?;
    let here = wilson(live.counts.violated, live.counts.judged())?;
    let there = wilson(explored.violated, explored.judged)?;
    let verb = if here.low <= there.high && there.low <= here.high { "agree" } else { "DO NOT AGREE" };
    Some(format!(
        "{name}: live cuts and constructed states {verb}: {} of {} live cuts are violated ({}), {} of {} constructed states ({})",
        count(live.counts.violated),
        count(live.counts.judged()),
        percent_range(here.low, here.high),
        count(explored.violated),
        count(explored.judged),
        percent_range(there.low, there.high),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tally::{Counts, Explored};

    fn tally(live: (u64, u64), sampled: (u64, u64)) -> Tally {
        let cell = |rig: &str, violated: u64, judged: u64| {
            let key = Key { fs: "ext4".into(), mode: "barrier".into(), rig: rig.into(), ..Key::default() };
            let counts = Counts { violated, held: judged - violated, ..Counts::default() };
            Cell { counts, ..Cell::empty(key) }
        };
        let mut constructed = cell("guest", 0, 100);
        let explored = Explored { judged: sampled.1, violated: sampled.0 };
        constructed.explorers.insert(EXPLORER.into(), explored);
        let cells = vec![constructed, cell("guest live", live.0, live.1), cell("host-loop", 9, 9)];
        Tally { runs: Vec::new(), cells, duplicates: 0, missing_shards: Vec::new() }
    }

    #[test]
    fn rates_agree_if_their_intervals_overlap() {
        let said = comparisons(&tally((20, 30), (50, 100)));
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].starts_with("ext4 barrier: live cuts and constructed states agree: 20 of 30"), "{}", said[0]);
        assert!(comparisons(&tally((30, 30), (1, 100)))[0].contains("DO NOT AGREE"));
    }

    #[test]
    fn without_both_there_is_nothing_to_say() {
        let mut alone = tally((0, 30), (0, 50));
        alone.cells.remove(0);
        assert!(comparisons(&alone).is_empty());
        assert!(comparisons(&tally((0, 0), (0, 50))).is_empty());
        let mut others = tally((0, 30), (0, 50));
        others.cells[0].explorers.clear();
        assert!(comparisons(&others).is_empty());
    }
}
