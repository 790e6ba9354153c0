//! Nights in a row: what belongs to one series, and what changed.

mod support;

use powerfail_reports::Tally;
use powerfail_reports::history::{History, Night};
use powerfail_reports::table::{self, Screen};
use support::nights;

fn changes(history: &History) -> Vec<(String, Vec<usize>)> {
    let changed = history.series.iter().filter(|series| !series.changes.is_empty());
    changed.map(|series| (series.name.clone(), series.changes.iter().map(|change| change.night).collect())).collect()
}

#[test]
fn the_night_of_each_change_is_found_and_scatter_is_none() {
    let history = History::of(nights());
    assert_eq!(history.series.len(), 7);
    assert_eq!(changes(&history), [("ext4 torn-512".into(), vec![10]), ("ext4 data-journal".into(), vec![7])]);
    let torn = history.series.iter().find(|series| series.name == "ext4 torn-512").unwrap();
    assert_eq!(torn.points.len(), 13, "one night did not test it");
    assert_eq!(torn.changes[0].kernels, Some(("6.18.44".into(), "6.18.45".into())));
    assert!(!torn.changes[0].rose());
}

#[test]
fn the_order_of_the_nights_is_not_part_of_the_result() {
    let mut turned = nights();
    turned.reverse();
    assert_eq!(History::of(turned), History::of(nights()));
}

#[test]
fn details_are_not_needed() {
    let bare = nights().into_iter().map(|night| Night { tally: night.tally.without_details(), ..night }).collect();
    assert_eq!(History::of(bare), History::of(nights()));
}

#[test]
fn kernels_of_one_night_are_series_of_their_own() {
    let mut nights = nights();
    for night in &mut nights {
        let mut other = night.tally.cells[0].clone();
        other.key.kernel = format!("6.1.{}", night.started.len());
        night.tally.cells.push(other);
    }
    let history = History::of(nights);
    assert_eq!(history.series.len(), 8);
    let names: Vec<_> = history.series.iter().map(|series| series.name.as_str()).collect();
    assert!(names.contains(&"ext4 barrier (kernel 6.1)") && names.contains(&"ext4 barrier (kernel 6.18)"), "{names:?}");
}

#[test]
fn the_table_has_a_bar_for_each_night_and_says_what_changed() {
    let text = table::history(&History::of(nights()), Screen { width: 140, colours: false });
    assert!(text.contains("_______▃▃▃▃▄▃▃") || text.contains("_______"), "{text}");
    assert!(text.contains("ext4 data-journal rose on 2026-01-12: 0 of 2,800 violated before"), "{text}");
    assert!(text.trim_end().ends_with("that of ext4 data-journal rose on 2026-01-12."), "{text}");
    let one = History::of(nights().into_iter().take(1).collect());
    assert!(
        table::history(&one, Screen { width: 80, colours: false })
            .contains("Over 1 night the rate of no cell changed.")
    );
    let empty = History::of(vec![Night::new("empty".into(), Tally::from_ledgers(&[]))]);
    assert!(empty.series.is_empty());
}
