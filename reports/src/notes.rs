//! What a reader must know about a cell beside its verdict, one sentence each.

use crate::tally::Cell;
use crate::text::{counted, percent};
use crate::verdict::Verdict;

/// The sentences, the gravest first; none for a cell of which all was judged once.
pub(crate) fn notes(cell: &Cell) -> Vec<String> {
    let counts = &cell.counts;
    let mut notes = Vec::new();
    if counts.contradictions > 0 {
        let images = counted(counts.contradictions, "image", "images");
        notes.push(format!("{images} both held and were violated, in different ledgers; counted as violated"));
    }
    for (reason, &times) in &counts.break_reasons {
        notes.push(format!("broken, {}: {reason}", counted(times, "time", "times")));
    }
    // A cell of which all was skipped for one reason says it in its verdict.
    if !(matches!(cell.verdict, Verdict::Skipped { .. }) && counts.skip_reasons.len() == 1) {
        for (reason, &times) in &counts.skip_reasons {
            notes.push(format!("skipped, {}: {reason}", counted(times, "time", "times")));
        }
    }
    if cell.missing() > 0 {
        notes.push(format!(
            "{} planned but not judged: the run is not finished",
            counted(cell.missing(), "state", "states")
        ));
    }
    notes
}

/// `620 of 1,000 states have a loose fragment` in per cent, for one line under a cell.
pub(crate) fn shares(cell: &Cell) -> Option<String> {
    let (loose, in_flight) = (cell.loose_share()?, cell.in_flight_share()?);
    Some(format!("{} of the states have a loose fragment, {} a write in flight", percent(loose), percent(in_flight)))
}
