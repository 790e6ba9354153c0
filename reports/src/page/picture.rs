//! The timelines of the cells, as many as there is room for.

use powerfail_ledger::Timeline;
use serde::Serialize;

use crate::charts;
use crate::tally::Tally;
use crate::text::count;
use crate::verdict::Verdict;

use super::view::Chart;

#[derive(Serialize)]
pub(super) struct TimelineView {
    chart: Chart,
    recipe: String,
    sampled: Option<String>,
}

impl TimelineView {
    fn of(timeline: &Timeline) -> TimelineView {
        let shown = timeline.writes.len() as u64;
        TimelineView {
            chart: Chart::of(|width| charts::timeline::chart(timeline, width)),
            recipe: timeline.state.clone(),
            sampled: (timeline.of_writes > shown)
                .then(|| format!("{} of {} writes are shown.", count(shown), count(timeline.of_writes))),
        }
    }

    fn size(&self) -> usize {
        self.chart.wide.len() + self.chart.narrow.len() + self.recipe.len()
    }
}

/// The timelines of each cell. Cells take turns, those that need a look first, until the next would not fit.
pub(super) fn pictures(tally: &Tally, bytes: usize) -> Vec<Vec<TimelineView>> {
    let mut order: Vec<usize> = (0..tally.cells.len()).collect();
    order.sort_by_key(|&index| {
        let cell = &tally.cells[index];
        (!matches!(cell.verdict, Verdict::Worse { .. }), cell.counts.violated == 0)
    });
    let turns = tally.cells.iter().map(|cell| cell.timelines.len()).max().unwrap_or(0);
    let mut shown: Vec<Vec<TimelineView>> = tally.cells.iter().map(|_| Vec::new()).collect();
    let mut left = bytes;
    for turn in 0..turns {
        for &index in &order {
            let Some(timeline) = tally.cells[index].timelines.get(turn) else { continue };
            let view = TimelineView::of(timeline);
            if view.size() > left {
                return shown;
            }
            left -= view.size();
            shown[index].push(view);
        }
    }
    shown
}
