//! No false accusation: every crash that the tiny file system can reach is accepted.

use super::super::{DataMode, Oracle, Promises};
use super::EXT4;
use super::tinyfs::{TinyFs, with_directories};
use crate::catalog::Workload;
use crate::marks::Mark;
use crate::steps::{Op, Steps};
use crate::{Mason, Spec};
use proptest::prelude::*;
use std::collections::{BTreeMap, HashSet};

/// Steps of one short list, given out one by one; beyond its end it syncs a directory that is not there.
#[derive(Clone)]
pub(super) struct List(pub(super) std::vec::IntoIter<Op>);

impl Steps for List {
    fn next(&mut self) -> Op {
        self.0.next().unwrap_or(Op::SyncDir { dir: "none".to_owned() })
    }
    fn fork(&self) -> Box<dyn Steps> {
        Box::new(self.clone())
    }
}

/// An oracle of one worker that plays `ops`.
pub(super) fn oracle_of(ops: &[Op], promises: Promises) -> Oracle {
    let mut oracle = Oracle::new(&Spec::Mason(Mason { workers: 0, ..Mason::default() }), promises);
    oracle.directories = vec!["a".to_owned(), "b".to_owned()];
    oracle.workers[0].steps = Box::new(List(Vec::from(ops).into_iter()));
    oracle.returned(&Mark { worker: 0, step: 0, errno: 0 }).unwrap();
    oracle
}

/// Makes a possible list of steps out of any numbers: two directories, two names in each, files of up to three blocks.
pub(super) fn possible(draws: &[(u8, u8, u8)]) -> Vec<Op> {
    const PATHS: [&str; 4] = ["a/1", "a/2", "b/1", "b/2"];
    let mut live: BTreeMap<&str, (u64, u64, u32)> = BTreeMap::new();
    let mut created = 0;
    let mut ops = Vec::new();
    for (kind, one, two) in draws {
        let path = PATHS[usize::from(*one) % 4];
        let other = PATHS[usize::from(*two) % 4];
        let own = path.to_owned();
        let Some((file, size, generation)) = live.get(path).copied() else {
            created += 1;
            live.insert(path, (created, 0, 0));
            ops.push(Op::Create { file: created, path: own });
            continue;
        };
        match kind % 10 {
            0..3 => {
                let block = u64::from(*two) % (size + 1).min(3);
                let blocks = 1 + u64::from(*two / 16) % (3 - block).min(2);
                live.insert(path, (file, size.max(block + blocks), generation + 1));
                ops.push(Op::Write { file, path: own, generation: generation + 1, block, blocks });
            }
            3 if size > 0 => {
                let blocks = u64::from(*two) % size;
                live.insert(path, (file, blocks, generation));
                ops.push(Op::Truncate { file, path: own, blocks });
            }
            4 => ops.push(Op::Fsync { file, path: own }),
            5 => ops.push(Op::Fdatasync { file, path: own }),
            6 => ops.push(Op::SyncDir { dir: own[..1].to_owned() }),
            7 | 8 if path != other => {
                let moved = live.remove(path).unwrap();
                let replaced = live.insert(other, moved).map(|(file, ..)| file);
                ops.push(Op::Rename { file, from: own, to: other.to_owned(), replaced });
            }
            9 if *two % 8 == 0 => ops.push(Op::SyncFs),
            9 => {
                live.remove(path);
                ops.push(Op::Unlink { file, path: own });
            }
            _ => {}
        }
    }
    ops
}

/// All states that background events lead to from `states`.
fn closure(states: HashSet<TinyFs>) -> HashSet<TinyFs> {
    let mut all = states.clone();
    let mut fresh: Vec<_> = states.into_iter().collect();
    while let Some(state) = fresh.pop() {
        for next in state.background() {
            if all.insert(next.clone()) {
                fresh.push(next);
            }
        }
    }
    all
}

/// Plays `ops` with every interleaving and judges each distinct crash; returns how many there were.
fn every_crash_is_accepted(ops: &[Op], promises: Promises) -> Result<usize, String> {
    let mut oracle = oracle_of(ops, promises);
    let mut states = closure(HashSet::from([TinyFs::default()]));
    let mut judged = 0;
    for (step, op) in (1..).zip(ops) {
        for part in TinyFs::parts(op) {
            let applied = states.iter().map(|state| {
                let mut next = state.clone();
                next.apply(&part);
                next
            });
            let after = closure(applied.collect());
            // The states before this part were judged at the return of the step before, or as those after the part before.
            states = after;
            judged += judge_all(&oracle, &states).map_err(|why| format!("during {op}: {why}"))?;
        }
        oracle.returned(&Mark { worker: 0, step, errno: 0 }).unwrap();
        judged += judge_all(&oracle, &states).map_err(|why| format!("after {op}: {why}"))?;
    }
    Ok(judged)
}

fn judge_all(oracle: &Oracle, states: &HashSet<TinyFs>) -> Result<usize, String> {
    let seen: HashSet<_> = states.iter().map(|state| format!("{:?}", state.crash())).collect();
    let mut done = HashSet::new();
    for state in states {
        let crash = state.crash();
        if done.insert(format!("{crash:?}")) {
            let breaches = oracle.judge(&with_directories(crash.clone(), &oracle.directories));
            if !breaches.is_empty() {
                return Err(format!("{breaches:#?}\n{crash:#?}"));
            }
        }
    }
    Ok(seen.len())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]
    #[test]
    fn all_crashes_of_all_interleavings_of_a_short_list(draws in prop::collection::vec(any::<(u8, u8, u8)>(), 1..9)) {
        let ops = possible(&draws);
        for data in [DataMode::Ordered, DataMode::Writeback, DataMode::Journal] {
            for name_by_file_fsync in [true, false] {
                let judged = every_crash_is_accepted(&ops, Promises { data, name_by_file_fsync });
                prop_assert!(judged.is_ok(), "{}\n{:#?}", judged.unwrap_err(), ops);
            }
        }
    }

    #[test]
    fn random_crashes_of_a_long_list(
        draws in prop::collection::vec(any::<(u8, u8, u8)>(), 1..120),
        events in prop::collection::vec(any::<u64>(), 240),
    ) {
        let ops = possible(&draws);
        let mut oracle = oracle_of(&ops, EXT4);
        let mut fs = TinyFs::default();
        let mut events = events.into_iter().cycle();
        for (step, op) in (1..).zip(&ops) {
            for part in TinyFs::parts(op) {
                fs.apply(&part);
                (0..events.next().unwrap() % 3).for_each(|_| fs.disturb(events.next().unwrap()));
                let breaches = oracle.judge(&with_directories(fs.crash(), &oracle.directories));
                prop_assert!(breaches.is_empty(), "during {op}: {breaches:#?}\n{ops:#?}");
            }
            oracle.returned(&Mark { worker: 0, step, errno: 0 }).unwrap();
            let breaches = oracle.judge(&with_directories(fs.crash(), &oracle.directories));
            prop_assert!(breaches.is_empty(), "after {op}: {breaches:#?}\n{ops:#?}");
        }
    }
}

/// The workload itself: all workers of `mason` on one tiny file system, their steps interleaved by a keyed draw.
#[test]
fn crashes_of_mason_with_all_workers() {
    for seed in 1..4 {
        let seed = powerfail_seed::Seed(seed);
        let spec = Spec::Mason(Mason { seed, files: 60, ..Mason::default() });
        let mut oracle = Oracle::new(&spec, EXT4);
        let mut fs = TinyFs::default();
        oracle.returned(&Mark { worker: 0, step: 0, errno: 0 }).unwrap();
        for turn in 0..4000 {
            let worker = (seed.draw("worker", &[turn]) % u64::from(spec.workers())) as u32;
            let (_, step, op) = oracle.in_flight().find(|(number, ..)| *number == worker).unwrap();
            for part in TinyFs::parts(op) {
                fs.apply(&part);
            }
            fs.disturb(seed.draw("event", &[turn]));
            if turn % 8 == 0 {
                let seen = with_directories(fs.crash(), &spec.directories());
                assert_eq!(oracle.judge(&seen), [], "seed {seed} turn {turn} in flight");
            }
            oracle.returned(&Mark { worker, step, errno: 0 }).unwrap();
            if turn % 8 == 1 {
                let seen = with_directories(fs.crash(), &spec.directories());
                assert_eq!(oracle.judge(&seen), [], "seed {seed} turn {turn}");
            }
        }
    }
}

/// The enumeration is worth something only if it reaches many different crashes.
#[test]
fn the_enumeration_reaches_the_crashes_that_matter() {
    let path = || "a/1".to_owned();
    let ops = [
        Op::Create { file: 1, path: path() },
        Op::Write { file: 1, path: path(), generation: 1, block: 0, blocks: 2 },
        Op::Fsync { file: 1, path: path() },
        Op::Write { file: 1, path: path(), generation: 2, block: 0, blocks: 2 },
        Op::Create { file: 2, path: "a/2".to_owned() },
        Op::Rename { file: 2, from: "a/2".to_owned(), to: path(), replaced: Some(1) },
    ];
    // After the fsync: old or new in each of two blocks, or the empty new file, with or without the name a/2.
    let judged = every_crash_is_accepted(&ops, EXT4).unwrap();
    assert!(judged > 40, "{judged}");
}
