//! The alarm proven: what was promised, damaged, is refused; one literal case for each rule, and mutations at random.

use super::super::{Breach, DataMode, Oracle, Promises, Rule};
use super::EXT4;
use super::legal::oracle_of;
use super::lists::possible;
use super::tinyfs::{TinyFs, entry, with_directories};
use crate::content::Identity;
use crate::marks::Mark;
use crate::observation::{Content, Entry, Kind, Observation, WalkError};
use crate::steps::{How, Op};
use proptest::prelude::*;

pub(super) fn create(file: u64, path: &str) -> Op {
    Op::Create { file, path: path.to_owned() }
}
pub(super) fn write(file: u64, path: &str, generation: u32, block: u64, blocks: u64) -> Op {
    Op::Write { file, path: path.to_owned(), generation, block, blocks, how: How::Buffered }
}
pub(super) fn fsync(file: u64, path: &str) -> Op {
    Op::Fsync { file, path: path.to_owned() }
}
pub(super) fn fdatasync(file: u64, path: &str) -> Op {
    Op::Fdatasync { file, path: path.to_owned() }
}
pub(super) fn sync_dir(dir: &str) -> Op {
    Op::SyncDir { dir: dir.to_owned() }
}
pub(super) fn rename(file: u64, from: &str, to: &str, replaced: Option<u64>) -> Op {
    Op::Rename { file, from: from.to_owned(), to: to.to_owned(), replaced }
}
pub(super) fn unlink(file: u64, path: &str) -> Op {
    Op::Unlink { file, path: path.to_owned() }
}
pub(super) fn truncate(file: u64, path: &str, blocks: u64) -> Op {
    Op::Truncate { file, path: path.to_owned(), blocks }
}

/// An oracle that has seen all of `ops` return.
pub(super) fn after(ops: &[Op], promises: Promises) -> Oracle {
    let mut oracle = oracle_of(ops, promises);
    for step in 1..=ops.len() as u64 {
        oracle.returned(&Mark { worker: 0, step, errno: 0 }).unwrap();
    }
    oracle
}

pub(super) fn tree(oracle: &Oracle, entries: Vec<Entry>) -> Observation {
    with_directories(Observation { entries, errors: Vec::new() }, &oracle.directories)
}

pub(super) fn rules(breaches: &[Breach]) -> Vec<Rule> {
    breaches.iter().map(|breach| breach.rule).collect()
}

/// Judges trees after `ops` under ext4's promises: each with the rules it must break.
pub(super) fn cases(ops: &[Op], cases: Vec<(Vec<Entry>, &[Rule])>) {
    let oracle = after(ops, EXT4);
    for (entries, broken) in cases {
        let breaches = oracle.judge(&tree(&oracle, entries.clone()));
        assert_eq!(rules(&breaches), broken, "{breaches:#?}\n{entries:#?}");
    }
}

#[test]
fn an_fsynced_file_is_there_with_its_name_size_and_data() {
    cases(
        &[create(1, "a/1"), write(1, "a/1", 1, 0, 3), fsync(1, "a/1")],
        vec![
            (vec![entry("a/1", 1, &[1, 1, 1])], &[]),
            (vec![], &[Rule::Name]),
            (vec![entry("a/1", 1, &[1, 1])], &[Rule::Size]),
            (vec![entry("a/1", 1, &[1, 0, 1])], &[Rule::Data]),
            (vec![entry("a/1", 1, &[1, 2, 1])], &[Rule::Data]),
            (vec![entry("a/1", 2, &[1, 1, 1])], &[Rule::Name]),
            (vec![entry("a/1", 1, &[])], &[Rule::Size]),
            (vec![entry("a/1", 1, &[1, 1, 1]), entry("a/2", 1, &[1, 1, 1])], &[Rule::Unknown]),
        ],
    );
}

#[test]
fn an_fsync_promises_no_name_where_the_file_system_does_not() {
    let ops = [create(1, "a/1"), write(1, "a/1", 1, 0, 1), fsync(1, "a/1")];
    let oracle = after(&ops, Promises { name_by_file_fsync: false, ..EXT4 });
    assert_eq!(oracle.judge(&tree(&oracle, vec![])), []);
    assert_eq!(rules(&oracle.judge(&tree(&oracle, vec![entry("a/1", 1, &[0])]))), [Rule::Data]);
}

#[test]
fn an_fdatasync_promises_data_where_the_file_is_found_but_no_name() {
    cases(
        &[create(1, "a/1"), write(1, "a/1", 1, 0, 2), fdatasync(1, "a/1")],
        vec![(vec![], &[]), (vec![entry("a/1", 1, &[1, 1])], &[]), (vec![entry("a/1", 1, &[1])], &[Rule::Size])],
    );
}

#[test]
fn later_writes_may_be_there_block_by_block() {
    cases(
        &[create(1, "a/1"), write(1, "a/1", 1, 0, 2), fsync(1, "a/1"), write(1, "a/1", 2, 1, 3)],
        vec![
            (vec![entry("a/1", 1, &[1, 1])], &[]),
            (vec![entry("a/1", 1, &[1, 2, 0, 2])], &[]),
            (vec![entry("a/1", 1, &[1, 1, 2])], &[]),
            (vec![entry("a/1", 1, &[1, 0, 2])], &[Rule::Data]),
            (vec![entry("a/1", 1, &[2, 2])], &[Rule::Data]),
            (vec![entry("a/1", 1, &[1, 2, 1])], &[Rule::Exposed]),
            (vec![entry("a/1", 1, &[1, 2, 2, 2, 0])], &[Rule::Size]),
        ],
    );
}

#[test]
fn a_truncate_that_was_synced_does_not_come_undone_and_shows_nothing_old() {
    let mut ops = vec![
        create(1, "a/1"),
        write(1, "a/1", 1, 0, 4),
        fsync(1, "a/1"),
        truncate(1, "a/1", 1),
        write(1, "a/1", 2, 1, 2),
    ];
    cases(
        &ops,
        vec![
            (vec![entry("a/1", 1, &[1, 1, 1, 1])], &[]),
            (vec![entry("a/1", 1, &[1, 0, 1])], &[]),
            (vec![entry("a/1", 1, &[1, 2, 2])], &[]),
            (vec![entry("a/1", 1, &[])], &[Rule::Size]),
        ],
    );
    ops.splice(4.., [fsync(1, "a/1"), write(1, "a/1", 2, 1, 2)]);
    cases(
        &ops,
        vec![
            (vec![entry("a/1", 1, &[1])], &[]),
            (vec![entry("a/1", 1, &[1, 0, 2])], &[]),
            (vec![entry("a/1", 1, &[1, 1, 2])], &[Rule::Exposed]),
            (vec![entry("a/1", 1, &[1, 1, 1, 1])], &[Rule::Size]),
        ],
    );
}

#[test]
fn foreign_data_is_a_breach_except_in_writeback_where_nothing_is_promised() {
    let ops = [create(1, "a/1"), write(1, "a/1", 1, 0, 1), fsync(1, "a/1"), write(1, "a/1", 2, 0, 3)];
    let at = |block: u64, identity: Identity| {
        let mut damaged = Entry { runs: vec![], ..entry("a/1", 1, &[1, 2, 2]) };
        (0..3).for_each(|number| {
            let whole = Identity::Ours { file: 1, generation: if number == 0 { 1 } else { 2 }, block: number };
            damaged.push(number, if number == block { identity } else { whole });
        });
        vec![damaged]
    };
    let foreign = Identity::Foreign([9; 8]);
    let others = Identity::Ours { file: 7, generation: 1, block: 2 };
    let misplaced = Identity::Ours { file: 1, generation: 2, block: 1 };
    for identity in [foreign, others, misplaced] {
        let ordered = after(&ops, EXT4);
        assert_eq!(rules(&ordered.judge(&tree(&ordered, at(2, identity)))), [Rule::Exposed], "{identity:?}");
        let journal = after(&ops, Promises { data: DataMode::Journal, ..EXT4 });
        assert_eq!(rules(&journal.judge(&tree(&journal, at(2, identity)))), [Rule::Exposed], "{identity:?}");
        let writeback = after(&ops, Promises { data: DataMode::Writeback, ..EXT4 });
        assert_eq!(writeback.judge(&tree(&writeback, at(2, identity))), [], "{identity:?}");
    }
    let writeback = after(&ops, Promises { data: DataMode::Writeback, ..EXT4 });
    assert_eq!(rules(&writeback.judge(&tree(&writeback, at(0, foreign)))), [Rule::Data]);
}

#[test]
fn a_mixture_is_allowed_only_of_versions_that_are() {
    let torn = |head, tail| {
        let mut torn = Entry { runs: vec![], ..entry("a/1", 1, &[0]) };
        torn.push(0, Identity::Torn { file: 1, block: 0, head, tail });
        vec![torn]
    };
    let mut ops = vec![create(1, "a/1"), write(1, "a/1", 1, 0, 1), fsync(1, "a/1"), write(1, "a/1", 2, 0, 1)];
    cases(
        &ops,
        vec![
            (torn(Some(2), Some(1)), &[]),
            (torn(Some(1), Some(2)), &[]),
            (torn(Some(2), None), &[Rule::Data]),
            (torn(Some(3), Some(1)), &[Rule::Data]),
        ],
    );
    ops.push(fsync(1, "a/1"));
    cases(&ops, vec![(torn(Some(2), Some(1)), &[Rule::Data])]);
}

#[test]
fn a_replaced_name_holds_the_old_file_or_the_new_one() {
    let old = [create(1, "a/1"), write(1, "a/1", 1, 0, 2), fsync(1, "a/1")];
    let mut ops = old.to_vec();
    ops.extend([create(2, "a/2"), write(2, "a/2", 1, 0, 2), rename(2, "a/2", "a/1", Some(1))]);
    let mut mixture = entry("a/1", 1, &[1]);
    mixture.push(1, Identity::Ours { file: 2, generation: 1, block: 1 });
    mixture.size = 1024;
    cases(
        &ops,
        vec![
            (vec![entry("a/1", 1, &[1, 1])], &[]),
            (vec![entry("a/1", 1, &[1, 1]), entry("a/2", 2, &[])], &[]),
            (vec![entry("a/1", 2, &[1, 0])], &[]),
            (vec![entry("a/1", 2, &[])], &[]),
            (vec![], &[Rule::Name]),
            (vec![entry("a/2", 2, &[1, 1])], &[Rule::Name]),
            (vec![mixture], &[Rule::Data]),
        ],
    );
    // With the new file synced before, the new name never shows less than all of it.
    let mut ops = old.to_vec();
    ops.extend([create(2, "a/2"), write(2, "a/2", 1, 0, 2), fsync(2, "a/2"), rename(2, "a/2", "a/1", Some(1))]);
    cases(
        &ops,
        vec![
            (vec![entry("a/1", 2, &[1, 1])], &[]),
            (vec![entry("a/1", 1, &[1, 1]), entry("a/2", 2, &[1, 1])], &[]),
            (vec![entry("a/1", 2, &[])], &[Rule::Size]),
            (vec![entry("a/1", 1, &[1, 1])], &[Rule::Lost]),
        ],
    );
}

#[test]
fn a_promised_file_is_not_lost_by_a_rename_and_its_old_name_goes_with_the_sync_of_its_directory() {
    let mut ops = vec![create(1, "a/1"), write(1, "a/1", 1, 0, 1), fsync(1, "a/1"), rename(1, "a/1", "b/1", None)];
    let (here, there) = (entry("a/1", 1, &[1]), entry("b/1", 1, &[1]));
    cases(
        &ops,
        vec![
            (vec![here.clone()], &[]),
            (vec![there.clone()], &[]),
            (vec![here.clone(), there.clone()], &[]),
            (vec![], &[Rule::Lost]),
        ],
    );
    ops.push(sync_dir("a"));
    cases(
        &ops,
        vec![
            (vec![there.clone()], &[]),
            (vec![here.clone(), there.clone()], &[Rule::Unknown]),
            (vec![], &[Rule::Lost]),
        ],
    );
    *ops.last_mut().unwrap() = sync_dir("b");
    cases(&ops, vec![(vec![here.clone(), there], &[]), (vec![here], &[Rule::Name])]);
}

#[test]
fn an_unlinked_name_stays_gone_once_its_directory_was_synced() {
    let mut ops = vec![create(1, "a/1"), write(1, "a/1", 1, 0, 1), fsync(1, "a/1"), unlink(1, "a/1")];
    cases(&ops, vec![(vec![entry("a/1", 1, &[1])], &[]), (vec![], &[])]);
    ops.push(sync_dir("b"));
    cases(&ops, vec![(vec![entry("a/1", 1, &[1])], &[])]);
    ops.push(sync_dir("a"));
    cases(&ops, vec![(vec![entry("a/1", 1, &[1])], &[Rule::Unknown]), (vec![], &[])]);
    // The name is used again: only the new file may be there, and the old one is still a breach.
    ops.extend([create(2, "a/1"), write(2, "a/1", 1, 0, 1)]);
    cases(
        &ops,
        vec![
            (vec![], &[]),
            (vec![entry("a/1", 2, &[1])], &[]),
            (vec![entry("a/1", 2, &[])], &[]),
            (vec![entry("a/1", 1, &[1])], &[Rule::Name]),
        ],
    );
}

#[test]
fn a_step_that_is_in_flight_may_have_happened_and_one_that_has_not_begun_may_not() {
    let ops = [create(1, "a/1"), fsync(1, "a/1"), unlink(1, "a/1"), create(2, "a/2")];
    let oracle = after(&ops[..2], EXT4);
    // `after` saw two of two steps, so nothing else is in flight; with the full list the unlink is.
    assert_eq!(rules(&oracle.judge(&tree(&oracle, vec![]))), [Rule::Name]);
    let mut oracle = oracle_of(&ops, EXT4);
    (1..=2).for_each(|step| oracle.returned(&Mark { worker: 0, step, errno: 0 }).unwrap());
    assert_eq!(oracle.judge(&tree(&oracle, vec![])), []);
    assert_eq!(rules(&oracle.judge(&tree(&oracle, vec![entry("a/2", 2, &[])]))), [Rule::Unknown]);
}

#[test]
fn a_failed_step_may_have_happened() {
    let ops = [create(1, "a/1"), fsync(1, "a/1"), create(2, "a/2")];
    let mut oracle = oracle_of(&ops, EXT4);
    oracle.returned(&Mark { worker: 0, step: 1, errno: 0 }).unwrap();
    oracle.returned(&Mark { worker: 0, step: 2, errno: 28 }).unwrap();
    assert_eq!(oracle.judge(&tree(&oracle, vec![])), [], "a failed fsync promises nothing");
    assert_eq!(oracle.judge(&tree(&oracle, vec![entry("a/1", 1, &[])])), []);
}

#[test]
fn a_worker_that_does_not_go_on_after_a_failure_has_no_next_step() {
    let mut oracle = Oracle::new(&crate::Spec::named("mason").unwrap(), EXT4);
    oracle.returned(&Mark { worker: 0, step: 0, errno: 0 }).unwrap();
    oracle.returned(&Mark { worker: 0, step: 1, errno: libc::EIO }).unwrap();
    assert!(oracle.returned(&Mark { worker: 0, step: 2, errno: 0 }).is_err());
}

#[test]
fn marks_out_of_order_are_refused() {
    let mut oracle = oracle_of(&[create(1, "a/1")], EXT4);
    for (worker, step) in [(0, 0), (0, 2), (1, 1), (9, 1)] {
        assert!(oracle.returned(&Mark { worker, step, errno: 0 }).is_err(), "w{worker} s{step}");
    }
    oracle.returned(&Mark { worker: 0, step: 1, errno: 0 }).unwrap();
    assert!(oracle.returned(&Mark { worker: 0, step: 1, errno: 0 }).is_err());
}

#[test]
fn directories_are_promised_by_step_0_and_not_before() {
    let spec = crate::Spec::named("mason").unwrap();
    let mut oracle = Oracle::new(&spec, EXT4);
    assert_eq!(oracle.judge(&Observation::default()), []);
    assert!(oracle.returned(&Mark { worker: 0, step: 1, errno: 0 }).is_err());
    oracle.returned(&Mark { worker: 0, step: 0, errno: 0 }).unwrap();
    assert_eq!(rules(&oracle.judge(&Observation::default())), vec![Rule::Name; 9]);
    let mut whole = with_directories(Observation::default(), &oracle.directories);
    whole.entries.push(Entry { path: "lost+found".into(), ..whole.entries[0].clone() });
    assert_eq!(oracle.judge(&whole), []);
    whole.entries.push(Entry { path: "odd".into(), ..whole.entries[0].clone() });
    whole.entries[0].kind = Kind::File;
    assert_eq!(rules(&oracle.judge(&whole)), [Rule::Name, Rule::Unknown]);
}

#[test]
fn what_the_walk_could_not_see_is_not_judged() {
    let ops = [create(1, "a/1"), write(1, "a/1", 1, 0, 2), fsync(1, "a/1")];
    let oracle = after(&ops, EXT4);
    let blind = |path: &str, entries: Vec<Entry>| {
        let mut seen = tree(&oracle, entries);
        let (operation, error) = ("read".to_owned(), "EIO".to_owned());
        seen.errors.push(WalkError { path: path.to_owned(), operation, error });
        oracle.judge(&seen)
    };
    assert_eq!(blind("a", vec![]), []);
    assert_eq!(blind("a/1", vec![]), []);
    assert_eq!(blind("a/1", vec![Entry { size: 1024, ..entry("a/1", 1, &[1]) }]), []);
    assert_eq!(rules(&blind("a/1", vec![entry("a/1", 1, &[1])])), [Rule::Size]);
    assert_eq!(rules(&blind("b", vec![])), [Rule::Name]);
}

/// What a mutation damages; each is refused whenever it applies.
fn damage(seen: &mut Observation, how: u8, at: usize, synced: u64) -> bool {
    let Some(index) = seen.entries.iter().position(|e| e.runs.iter().any(|run| ours(run, synced))) else {
        return false;
    };
    let file = seen.entries[index].clone();
    let own = file.runs.iter().filter(|run| ours(run, synced)).flat_map(|run| run.start..run.start + run.count);
    let own: Vec<u64> = own.collect();
    let block = own[at % own.len()];
    let rebuilt = |identity: Option<Identity>| {
        let mut damaged = Entry { runs: vec![], size: 0, ..file.clone() };
        for run in &file.runs {
            for number in run.start..run.start + run.count {
                let whole = match run.what {
                    Content::Ours { file, generation } => Identity::Ours { file, generation, block: number },
                    _ => Identity::Zero,
                };
                let identity = if number == block { identity } else { Some(whole) };
                if let Some(identity) = identity {
                    damaged.push(number, identity);
                    damaged.size += 512;
                }
            }
        }
        damaged
    };
    match how % 7 {
        0 => seen.entries[index] = rebuilt(Some(Identity::Zero)),
        1 => seen.entries[index] = rebuilt(Some(Identity::Foreign([3; 8]))),
        2 => seen.entries[index] = rebuilt(Some(Identity::Ours { file: synced, generation: 0x7000, block })),
        3 => seen.entries[index] = rebuilt(Some(Identity::Ours { file: synced, generation: 1, block: block + 1 })),
        4 => seen.entries[index].size -= 512,
        5 => drop(seen.entries.remove(index)),
        _ => seen.entries[index].path = "a/3".to_owned(),
    }
    true
}

fn ours(run: &crate::observation::Run, id: u64) -> bool {
    matches!(run.what, Content::Ours { file, .. } if file == id)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]
    /// A list that ends with an fsync after a syncfs: that file is promised whole under its one name.
    #[test]
    fn damage_to_what_was_just_synced_is_refused(
        draws in prop::collection::vec(any::<(u8, u8, u8)>(), 1..40),
        how: u8,
        at: usize,
    ) {
        let mut ops: Vec<_> = possible(&draws, false).into_iter().map(|listed| listed.op).collect();
        let Some(Op::Write { file, path, .. }) = ops.iter().rev().find(|op| matches!(op, Op::Write { .. })).cloned() else {
            return Ok(());
        };
        // A file that is only held open is nowhere.
        prop_assume!(path != "gone");
        let cut = ops.iter().rposition(|op| matches!(op, Op::Write { .. })).unwrap();
        ops.truncate(cut + 1);
        ops.extend([Op::SyncFs, fsync(file, &path)]);
        let oracle = after(&ops, EXT4);
        let mut fs = TinyFs::default();
        ops.iter().for_each(|op| fs.apply(op));
        let mut seen = with_directories(fs.crash(), &oracle.directories);
        prop_assert_eq!(oracle.judge(&seen), vec![]);
        prop_assert!(damage(&mut seen, how, at, file), "the file is there");
        prop_assert_ne!(oracle.judge(&seen), vec![], "{:#?}", seen);
    }

    #[test]
    fn two_synced_files_that_changed_places_are_refused(draws in prop::collection::vec(any::<(u8, u8, u8)>(), 8..60)) {
        let mut ops: Vec<_> = possible(&draws, false).into_iter().map(|listed| listed.op).collect();
        ops.push(Op::SyncFs);
        let oracle = after(&ops, EXT4);
        let mut fs = TinyFs::default();
        ops.iter().for_each(|op| fs.apply(op));
        let mut seen = with_directories(fs.crash(), &oracle.directories);
        let holds = |at: usize| seen.entries[at].runs.iter().find_map(|run| match run.what {
            Content::Ours { file, .. } => Some(file),
            _ => None,
        });
        let mut full: Vec<_> = (0..seen.entries.len()).filter(|&at| holds(at).is_some()).collect();
        // Two names of one file may change places.
        full.dedup_by_key(|at| holds(*at));
        if let [one, two, ..] = full[..] {
            let first = seen.entries[one].path.clone();
            seen.entries[one].path = std::mem::replace(&mut seen.entries[two].path, first);
            prop_assert!(oracle.judge(&seen).len() >= 2, "{:#?}", seen);
        }
    }
}
