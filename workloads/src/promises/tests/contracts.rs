//! Each promise of `docs/promises.md` beyond plain files: its breach is seen, and where the contract is silent so is the oracle.

use super::super::{Breach, DataMode, Oracle, Promises, Rule};
use super::EXT4;
use super::alarm::{after, cases, create, fdatasync, fsync, rename, rules, sync_dir, tree, truncate, unlink, write};
use super::legal::oracle_of;
use super::tinyfs::{directory, entry, symlink};
use crate::marks::Mark;
use crate::observation::Entry;
use crate::steps::{Allocate, How, Op};

fn write_by(how: How, generation: u32, block: u64, blocks: u64) -> Op {
    Op::Write { file: 1, path: "a/1".to_owned(), generation, block, blocks, how }
}
fn allocate(mode: Allocate, block: u64, blocks: u64) -> Op {
    Op::Allocate { file: 1, path: "a/1".to_owned(), mode, block, blocks }
}
fn link(file: u64, from: &str, to: &str) -> Op {
    Op::Link { file, from: Some(from.to_owned()), to: to.to_owned() }
}
fn exchange(file: u64, path: &str, other: u64, other_path: &str) -> Op {
    Op::Exchange { file, path: path.to_owned(), other, other_path: other_path.to_owned() }
}
fn mkdir(dir: u64, path: &str) -> Op {
    Op::Mkdir { dir, path: path.to_owned() }
}

/// A synced file of blocks of generation 1 at `a/1`, and what is done then.
fn synced(blocks: u64, then: &[Op]) -> Vec<Op> {
    [&[create(1, "a/1"), write(1, "a/1", 1, 0, blocks), fsync(1, "a/1")], then].concat()
}

/// An oracle that has seen `ops` return, each with its error number.
fn returned(ops: &[(Op, i32)]) -> Oracle {
    let plain: Vec<_> = ops.iter().map(|(op, _)| op.clone()).collect();
    let mut oracle = oracle_of(&plain, EXT4);
    for (step, (_, errno)) in (1..).zip(ops) {
        oracle.returned(&Mark { worker: 0, step, errno: *errno }).unwrap();
    }
    oracle
}

fn judged(oracle: &Oracle, entries: &[Entry]) -> Vec<Rule> {
    rules(&oracle.judge(&tree(oracle, entries.to_vec())))
}

#[test]
fn a_write_that_promises_itself_promises_its_own_blocks_and_no_others() {
    for how in [How::Dsync, How::Sync, How::DirectDsync, How::Msync, How::UringDsync] {
        let ops = synced(4, &[write(1, "a/1", 2, 0, 2), write_by(how, 3, 1, 2)]);
        cases(
            &ops,
            vec![
                (vec![entry("a/1", 1, &[2, 3, 3, 1])], &[]),
                // The unsynced write beside it is promised nothing.
                (vec![entry("a/1", 1, &[1, 3, 3, 1])], &[]),
                (vec![entry("a/1", 1, &[1, 2, 3, 1])], &[Rule::Data]),
                (vec![entry("a/1", 1, &[2, 3, 1, 1])], &[Rule::Data]),
                (vec![entry("a/1", 1, &[2, 3, 3, 0])], &[Rule::Data]),
            ],
        );
    }
    for how in [How::Buffered, How::Direct, How::Mapped, How::Uring] {
        let ops = synced(4, &[write_by(how, 2, 1, 2)]);
        cases(&ops, vec![(vec![entry("a/1", 1, &[1, 1, 2, 1])], &[]), (vec![entry("a/1", 1, &[1, 1, 1, 1])], &[])]);
    }
}

#[test]
fn a_write_that_promises_itself_promises_the_size_that_it_needs() {
    let ops = synced(2, &[write(1, "a/1", 2, 2, 2), write_by(How::Dsync, 3, 4, 1)]);
    cases(
        &ops,
        vec![
            (vec![entry("a/1", 1, &[1, 1, 0, 2, 3])], &[]),
            (vec![entry("a/1", 1, &[1, 1, 2, 2])], &[Rule::Size]),
            (vec![entry("a/1", 1, &[1, 1, 2, 2, 0])], &[Rule::Data]),
            (vec![entry("a/1", 1, &[1, 1, 1, 2, 3])], &[Rule::Data]),
        ],
    );
    // Cut before: what was cut may be back under the new size, or be zeroes.
    let ops = synced(4, &[truncate(1, "a/1", 1), write_by(How::Dsync, 2, 2, 1)]);
    cases(
        &ops,
        vec![
            (vec![entry("a/1", 1, &[1, 0, 2])], &[]),
            (vec![entry("a/1", 1, &[1, 1, 2, 1])], &[]),
            (vec![entry("a/1", 1, &[1, 1])], &[Rule::Size]),
        ],
    );
}

#[test]
fn a_size_that_grew_without_data_is_zeroes_and_is_promised_by_a_sync() {
    for grow in [truncate(1, "a/1", 4), allocate(Allocate::Extend, 2, 2), allocate(Allocate::Zero, 2, 2)] {
        let mut ops = synced(2, std::slice::from_ref(&grow));
        cases(
            &ops,
            vec![
                (vec![entry("a/1", 1, &[1, 1])], &[]),
                (vec![entry("a/1", 1, &[1, 1, 0])], &[]),
                (vec![entry("a/1", 1, &[1, 1, 0, 0])], &[]),
                (vec![entry("a/1", 1, &[1, 1, 0, 1])], &[Rule::Exposed]),
            ],
        );
        ops.push(fdatasync(1, "a/1"));
        cases(
            &ops,
            vec![
                (vec![entry("a/1", 1, &[1, 1, 0, 0])], &[]),
                (vec![entry("a/1", 1, &[1, 1, 0])], &[Rule::Size]),
                (vec![entry("a/1", 1, &[1, 1, 0, 1])], &[Rule::Data]),
            ],
        );
    }
    let ops = synced(2, &[allocate(Allocate::KeepSize, 2, 4), fsync(1, "a/1")]);
    cases(&ops, vec![(vec![entry("a/1", 1, &[1, 1])], &[]), (vec![entry("a/1", 1, &[1, 1, 0])], &[Rule::Size])]);
}

#[test]
fn a_hole_that_was_synced_stays_one() {
    for hole in [allocate(Allocate::Punch, 1, 2), allocate(Allocate::ZeroKeepSize, 1, 2)] {
        let mut ops = synced(4, std::slice::from_ref(&hole));
        cases(
            &ops,
            vec![
                (vec![entry("a/1", 1, &[1, 1, 0, 1])], &[]),
                (vec![entry("a/1", 1, &[1, 0, 0, 0])], &[Rule::Data]),
                (vec![entry("a/1", 1, &[1, 0])], &[Rule::Size]),
            ],
        );
        ops.push(fsync(1, "a/1"));
        cases(
            &ops,
            vec![(vec![entry("a/1", 1, &[1, 0, 0, 1])], &[]), (vec![entry("a/1", 1, &[1, 1, 0, 1])], &[Rule::Data])],
        );
    }
}

#[test]
fn a_hole_that_is_filled_may_show_old_blocks_only_in_writeback() {
    let ops = synced(4, &[allocate(Allocate::Punch, 1, 2), fsync(1, "a/1"), write(1, "a/1", 2, 1, 1)]);
    let mut stale = entry("a/1", 1, &[1, 0, 0, 1]);
    stale.runs[1].what = crate::observation::Content::Foreign { hex: "ee".to_owned() };
    for (data, expected) in [(DataMode::Ordered, &[Rule::Data][..]), (DataMode::Writeback, &[])] {
        let oracle = after(&ops, Promises { data, ..EXT4 });
        assert_eq!(judged(&oracle, &[stale.clone()]), expected);
    }
    // Nothing was given to the file since: then writeback shows nothing either.
    let oracle = after(&ops[..5], Promises { data: DataMode::Writeback, ..EXT4 });
    assert_eq!(judged(&oracle, &[stale]), [Rule::Data]);
}

#[test]
fn a_second_name_is_promised_by_its_directory_and_the_file_by_its_sync() {
    let mut ops = synced(1, &[link(1, "a/1", "b/1")]);
    let (here, there) = (entry("a/1", 1, &[1]), entry("b/1", 1, &[1]));
    let (both, one, other) = (vec![here.clone(), there.clone()], vec![here], vec![there]);
    cases(&ops, vec![(both.clone(), &[]), (one.clone(), &[]), (other.clone(), &[Rule::Name])]);
    ops.push(sync_dir("b"));
    cases(&ops, vec![(both.clone(), &[]), (one.clone(), &[Rule::Name])]);
    ops.push(unlink(1, "a/1"));
    cases(&ops, vec![(both.clone(), &[]), (other.clone(), &[]), (one, &[Rule::Name]), (vec![], &[Rule::Name])]);
    ops.push(sync_dir("a"));
    cases(&ops, vec![(both, &[Rule::Unknown]), (other, &[])]);
}

#[test]
fn which_of_its_names_a_synced_file_has_is_open_but_it_has_one() {
    let ops = [create(1, "a/1"), write(1, "a/1", 1, 0, 1), link(1, "a/1", "b/1"), fsync(1, "a/1")];
    let (here, there) = (entry("a/1", 1, &[1]), entry("b/1", 1, &[1]));
    cases(
        &ops,
        vec![(vec![here.clone(), there.clone()], &[]), (vec![here], &[]), (vec![there], &[]), (vec![], &[Rule::Lost])],
    );
    // The one name that was promised goes, the other never was: no order between the two is asked.
    let ops = synced(1, &[link(1, "a/1", "b/1"), unlink(1, "a/1")]);
    cases(&ops, vec![(vec![], &[])]);
}

#[test]
fn a_symbolic_link_is_promised_by_its_directory_and_holds_what_it_was_given() {
    let mut ops = vec![Op::Symlink { link: 1, path: "a/1".to_owned(), target: "x".to_owned() }];
    cases(&ops, vec![(vec![], &[]), (vec![symlink("a/1", "x")], &[]), (vec![symlink("a/1", "y")], &[Rule::Name])]);
    ops.push(sync_dir("a"));
    cases(
        &ops,
        vec![
            (vec![], &[Rule::Name]),
            (vec![symlink("a/1", "x")], &[]),
            (vec![symlink("a/1", "")], &[Rule::Name]),
            (vec![entry("a/1", 1, &[])], &[Rule::Name]),
            (vec![directory("a/1")], &[Rule::Name]),
        ],
    );
}

#[test]
fn an_exchange_loses_neither() {
    let mut ops =
        synced(1, &[create(2, "b/2"), write(2, "b/2", 1, 0, 1), fsync(2, "b/2"), exchange(1, "a/1", 2, "b/2")]);
    let before = vec![entry("a/1", 1, &[1]), entry("b/2", 2, &[1])];
    let since = vec![entry("a/1", 2, &[1]), entry("b/2", 1, &[1])];
    cases(
        &ops,
        vec![
            (before.clone(), &[]),
            (since.clone(), &[]),
            (vec![entry("a/1", 2, &[1]), entry("b/2", 2, &[1])], &[Rule::Lost]),
            (vec![entry("b/2", 1, &[1])], &[Rule::Name]),
        ],
    );
    ops.extend([sync_dir("a"), sync_dir("b")]);
    cases(&ops, vec![(since, &[]), (before, &[Rule::Name, Rule::Name])]);
}

#[test]
fn a_rename_without_any_sync_promises_only_that_nothing_is_lost() {
    let ops = synced(1, &[rename(1, "a/1", "b/1", None)]);
    let (here, there) = (entry("a/1", 1, &[1]), entry("b/1", 1, &[1]));
    cases(&ops, vec![(vec![here], &[]), (vec![there], &[]), (vec![], &[Rule::Lost])]);
    let unsynced = [create(1, "a/1"), write(1, "a/1", 1, 0, 1), rename(1, "a/1", "b/1", None)];
    cases(&unsynced, vec![(vec![], &[]), (vec![entry("b/1", 1, &[])], &[]), (vec![entry("a/1", 1, &[1])], &[])]);
}

#[test]
fn a_file_in_a_new_directory_is_promised_with_that_directory_only() {
    let mut ops = vec![mkdir(9, "a/d"), create(1, "a/d/1"), write(1, "a/d/1", 1, 0, 1), fsync(1, "a/d/1")];
    let whole = vec![directory("a/d"), entry("a/d/1", 1, &[1])];
    cases(&ops, vec![(vec![], &[]), (whole.clone(), &[]), (vec![directory("a/d")], &[])]);
    ops.push(sync_dir("a/d"));
    // Its entries are promised; whether it is there is another directory's affair.
    cases(&ops, vec![(vec![], &[]), (whole.clone(), &[]), (vec![directory("a/d")], &[Rule::Name])]);
    ops.push(sync_dir("a"));
    cases(&ops, vec![(vec![], &[Rule::Name]), (whole, &[]), (vec![directory("a/d")], &[Rule::Name])]);
    let gone = [mkdir(9, "a/d"), sync_dir("a"), Op::Rmdir { dir: 9, path: "a/d".to_owned() }, sync_dir("a")];
    cases(&gone, vec![(vec![], &[]), (vec![directory("a/d")], &[Rule::Unknown])]);
    cases(&gone[..3], vec![(vec![], &[]), (vec![directory("a/d")], &[])]);
}

#[test]
fn a_file_without_a_name_is_promised_nothing_and_its_old_name_is_free() {
    let open = Op::Open { file: 1, path: "a/1".to_owned() };
    let mut ops = synced(1, &[open, unlink(1, "a/1"), write(1, "a/1", 2, 0, 2), fsync(1, "a/1")]);
    // The sync was of the file, not of the directory: the name may still be there, and then holds what was synced.
    cases(
        &ops,
        vec![(vec![], &[]), (vec![entry("a/1", 1, &[2, 2])], &[]), (vec![entry("a/1", 1, &[1])], &[Rule::Size])],
    );
    ops.extend([create(2, "a/1"), write(2, "a/1", 1, 0, 1), fsync(2, "a/1")]);
    cases(&ops, vec![(vec![entry("a/1", 2, &[1])], &[]), (vec![entry("a/1", 1, &[2, 2])], &[Rule::Name])]);
}

#[test]
fn a_file_that_gets_its_name_late_is_promised_with_it() {
    let tmpfile = Op::Tmpfile { file: 1, dir: "a".to_owned() };
    let named = Op::Link { file: 1, from: None, to: "a/1".to_owned() };
    let mut ops = vec![tmpfile, write(1, "tmpfile", 1, 0, 2), fsync(1, "tmpfile"), named];
    cases(
        &ops,
        vec![(vec![], &[]), (vec![entry("a/1", 1, &[1, 1])], &[]), (vec![entry("a/1", 1, &[1])], &[Rule::Size])],
    );
    ops.push(sync_dir("a"));
    cases(&ops, vec![(vec![], &[Rule::Name]), (vec![entry("a/1", 1, &[1, 1])], &[])]);
}

#[test]
fn a_step_that_found_no_space_may_be_done_in_part_whatever_is_synced_later() {
    let ops: Vec<_> = synced(2, &[write(1, "a/1", 2, 1, 3), fsync(1, "a/1")]).into_iter().map(|op| (op, 0)).collect();
    let mut failed = ops.clone();
    failed[3].1 = libc::ENOSPC;
    let oracle = returned(&failed);
    for (blocks, expected) in [
        (&[1, 1][..], &[][..]),
        (&[1, 2, 2], &[]),
        (&[1, 1, 0, 2], &[]),
        (&[1, 2, 2, 2, 0], &[Rule::Size]),
        (&[1], &[Rule::Size]),
        (&[2, 2], &[Rule::Data]),
        (&[1, 1, 1], &[Rule::Exposed]),
    ] {
        assert_eq!(judged(&oracle, &[entry("a/1", 1, blocks)]), expected, "{blocks:?}");
    }
    // The same without the failure is promised in full.
    assert_eq!(judged(&returned(&ops), &[entry("a/1", 1, &[1, 1])]), [Rule::Size]);
    // And what is written again for certain is promised by the next sync.
    failed.extend([(truncate(1, "a/1", 1), 0), (write(1, "a/1", 3, 1, 1), 0), (fsync(1, "a/1"), 0)]);
    let oracle = returned(&failed);
    assert_eq!(judged(&oracle, &[entry("a/1", 1, &[1, 3])]), []);
    assert_eq!(judged(&oracle, &[entry("a/1", 1, &[1, 2])]), [Rule::Data]);
    assert_eq!(judged(&oracle, &[entry("a/1", 1, &[1])]), [Rule::Size]);
}

#[test]
fn after_a_failed_fsync_a_later_one_promises_only_what_was_written_since() {
    let mut ops: Vec<_> =
        synced(3, &[write(1, "a/1", 2, 0, 2), fsync(1, "a/1"), write(1, "a/1", 3, 1, 1), fsync(1, "a/1")])
            .into_iter()
            .map(|op| (op, 0))
            .collect();
    assert_eq!(judged(&returned(&ops), &[entry("a/1", 1, &[1, 3, 1])]), [Rule::Data]);
    ops[4].1 = libc::EIO;
    let oracle = returned(&ops);
    assert_eq!(judged(&oracle, &[entry("a/1", 1, &[1, 3, 1])]), []);
    assert_eq!(judged(&oracle, &[entry("a/1", 1, &[2, 3, 1])]), []);
    assert_eq!(judged(&oracle, &[entry("a/1", 1, &[2, 2, 1])]), [Rule::Data]);
}

/// The size is in doubt after the failed fsync, so the hole may lie behind it.
#[test]
fn a_hole_in_a_file_whose_size_is_in_doubt_says_nothing_of_the_size() {
    let mut ops: Vec<_> = [
        create(1, "a/1"),
        write(1, "a/1", 1, 1, 1),
        truncate(1, "a/1", 0),
        fsync(1, "a/1"),
        allocate(Allocate::Punch, 0, 1),
        fsync(1, "a/1"),
    ]
    .into_iter()
    .map(|op| (op, 0))
    .collect();
    assert_eq!(judged(&returned(&ops), &[entry("a/1", 1, &[0, 1])]), [Rule::Size]);
    ops[3].1 = libc::EIO;
    assert_eq!(judged(&returned(&ops), &[entry("a/1", 1, &[])]), []);
    assert_eq!(judged(&returned(&ops), &[entry("a/1", 1, &[0, 1])]), []);
}

#[test]
fn a_name_whose_change_failed_may_be_either_even_after_its_directory_is_synced() {
    let mut ops: Vec<_> = synced(1, &[unlink(1, "a/1"), sync_dir("a")]).into_iter().map(|op| (op, 0)).collect();
    assert_eq!(judged(&returned(&ops), &[entry("a/1", 1, &[1])]), [Rule::Unknown]);
    ops[3].1 = libc::ENOSPC;
    assert_eq!(judged(&returned(&ops), &[entry("a/1", 1, &[1])]), []);
    assert_eq!(judged(&returned(&ops), &[]), []);
    let mut ops: Vec<_> = [create(1, "a/1"), sync_dir("a")].into_iter().map(|op| (op, 0)).collect();
    ops[0].1 = libc::ENOSPC;
    assert_eq!(judged(&returned(&ops), &[entry("a/1", 1, &[])]), []);
    assert_eq!(judged(&returned(&ops), &[]), []);
    assert_eq!(judged(&returned(&ops), &[entry("a/1", 1, &[1])]), [Rule::Size]);
}

#[test]
fn a_path_that_may_be_old_or_new_says_which_and_why() {
    let ops = synced(1, &[create(2, "a/2"), fsync(2, "a/2"), rename(2, "a/2", "a/1", Some(1))]);
    let oracle = after(&ops, EXT4);
    let said = oracle.possibilities("a/1").unwrap();
    assert_eq!(said, "file 0:1 (by step 1, synced by step 3) or file 0:2 (by step 6, not synced)");
    assert_eq!(
        oracle.possibilities("a/2").unwrap(),
        "file 0:2 (by step 4, synced by step 5) or absent (by step 6, not synced)"
    );
    assert_eq!(oracle.possibilities("a/3"), None);
    let breaches: Vec<Breach> = oracle.judge(&tree(&oracle, vec![]));
    assert!(breaches[0].detail.contains(&said), "{breaches:#?}");
}
