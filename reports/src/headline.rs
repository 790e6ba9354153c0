//! The whole result in one sentence.

use crate::labels::{Label, labels};
use crate::tally::{Cell, Tally};
use crate::text::{count, counted, listed};
use crate::verdict::Verdict;

/// That many cells are named; of more it is said how many.
const NAMED: usize = 3;

/// `Out of 9,000 power cuts 2,023 ended in a violation; …`
pub(crate) fn headline(tally: &Tally) -> String {
    let labels = labels(&tally.cells);
    let cuts = match (tally.judged(), tally.violated()) {
        (0, _) => "No power cut was judged".to_string(),
        (judged, 0) => format!("Out of {} none ended in a violation", counted(judged, "power cut", "power cuts")),
        (judged, violated) => {
            format!("Out of {} {} ended in a violation", counted(judged, "power cut", "power cuts"), count(violated))
        }
    };
    let named = |test: fn(&Verdict) -> bool| -> Vec<(&Cell, &Label)> {
        tally.cells.iter().zip(&labels).filter(|(cell, _)| test(&cell.verdict)).collect()
    };
    let as_expected = named(|verdict| matches!(verdict, Verdict::AsExpected)).len();
    let worse = named(|verdict| matches!(verdict, Verdict::Worse { .. }));
    let better = named(|verdict| matches!(verdict, Verdict::Better { .. }));
    let broken = named(|verdict| matches!(verdict, Verdict::Broken { .. }));
    let inconclusive = named(|verdict| matches!(verdict, Verdict::Inconclusive { .. }));
    let skipped = named(|verdict| matches!(verdict, Verdict::Skipped { .. })).len();

    let mut parts = Vec::new();
    if as_expected > 0 {
        let tested = if skipped > 0 { " that were tested" } else { "" };
        parts.push(match (as_expected, tally.cells.len()) {
            (1, 1) => "the one cell is as expected".into(),
            (some, all) if some + skipped < all => format!("{some} of {all} cells are as expected"),
            (1, _) => "the one cell that was tested is as expected".into(),
            (some, _) => format!("all {some} cells{tested} are as expected"),
        });
    }
    // What is worse is named whatever else there is; the rest is named only if it is all that there is to say.
    let alone = worse.is_empty();
    parts.extend(sum(&worse, true, ["is worse than expected", "are worse than expected"]));
    parts.extend(sum(&better, alone, ["fails no more", "fail no more"]));
    parts.extend(sum(&broken, alone, ["is broken", "are broken"]));
    parts.extend(sum(&inconclusive, alone, ["is inconclusive", "are inconclusive"]));
    if skipped > 0 {
        parts.push(format!("{skipped} {} skipped", if skipped == 1 { "was" } else { "were" }));
    }
    if parts.is_empty() { format!("{cuts}.") } else { format!("{cuts}; {}.", listed(&parts)) }
}

fn sum(cells: &[(&Cell, &Label)], named: bool, [one, many]: [&str; 2]) -> Option<String> {
    let verb = if cells.len() == 1 { one } else { many };
    match cells.len() {
        0 => None,
        _ if named => Some(format!("{} {verb}", names(cells))),
        number => Some(format!("{number} {verb}")),
    }
}

fn names(cells: &[(&Cell, &Label)]) -> String {
    let mut names: Vec<String> = cells.iter().take(NAMED).map(|(_, label)| label.whole()).collect();
    if cells.len() > NAMED {
        names.push(format!("{} more", cells.len() - NAMED));
    }
    listed(&names)
}
