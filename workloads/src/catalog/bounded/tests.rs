//! The set is what it says: every number another sequence, each possible, none of the short ones left out.

use super::*;
use std::collections::HashSet;

#[test]
fn every_number_stands_for_another_sequence() {
    let [one, two, all] = size();
    let texts: HashSet<_> = (0..one + two).map(|number| sequence(number).unwrap().join("; ")).collect();
    assert_eq!(texts.len() as u64, one + two);
    assert!((200..1000).contains(&one), "{one}");
    assert!(two > one * one, "an action and a point after each are worth more than a pair of last ones: {two}");
    assert!(sequence(all).is_none());
    let long = sequence(all - 1).unwrap();
    assert!((4..=6).contains(&long.len()), "{long:?}");
    assert_eq!(sequence(all - 1), Some(long));
}

/// If this moves, numbers no longer mean what they meant in reports that name them.
#[test]
fn numbers_are_stable() {
    assert_eq!(size(), GOLDEN.0);
    assert_eq!(sequence(0).unwrap().join("; "), GOLDEN.1);
    assert_eq!(sequence(60_000).unwrap().join("; "), GOLDEN.2);
}
const GOLDEN: ([u64; 3], &str, &str) = (
    [263, 84_635, 184_898],
    "overwrite A/foo Buffered; fsync A/foo",
    "fallocate B/foo KeepSize; overwrite B/foo Dsync; fsync B",
);

#[test]
fn parts_are_checked() {
    let part = |part: &str| Bounded { part: part.to_owned(), ..Bounded::default() }.check();
    assert_eq!(part("0-149"), Ok(()));
    for wrong in ["", "5", "7-5", "0-5000", "999999998-999999999", "a-b"] {
        assert!(part(wrong).is_err(), "{wrong}");
    }
    assert!(part("999999998-999999999").unwrap_err().contains("of length 2"));
    let all = size()[2];
    let last = Bounded { part: format!("{}-{}", all - 2, all + 100), ..Bounded::default() };
    assert_eq!((last.check(), last.directories().len()), (Ok(()), 6));
}

#[test]
fn each_sequence_has_its_own_directory_and_ends_with_a_sync() {
    let options = Bounded { part: "400-450".to_owned(), ..Bounded::default() };
    assert_eq!(options.directories().len(), 51 * 3);
    let mut steps = options.steps(0);
    let mut ops = Vec::new();
    while let Some(op) = steps.next() {
        ops.push(op);
    }
    let begun = ops.iter().filter(|op| matches!(op, Op::Create { path, .. } if path.ends_with("A/foo"))).count();
    assert!(begun >= 51, "{begun}");
    let synced = |op: &Op| matches!(op, Op::SyncFs | Op::Fsync { .. } | Op::Fdatasync { .. } | Op::SyncDir { .. });
    assert!(synced(ops.last().unwrap()));
}
