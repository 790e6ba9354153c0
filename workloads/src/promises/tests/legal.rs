//! No false accusation: every crash that the tiny file system can reach is accepted.

use super::super::{DataMode, Oracle, Promises};
use super::EXT4;
use super::lists::{Listed, possible};
use super::tinyfs::{TinyFs, with_directories};
use crate::catalog::Workload;
use crate::marks::Mark;
use crate::steps::{How, Op, Steps};
use crate::{Mason, Spec};
use proptest::prelude::*;
use std::collections::HashSet;

/// Steps of one short list, given out one by one; a step that fails is not the last.
#[derive(Clone)]
pub(super) struct List(pub(super) std::vec::IntoIter<Op>);

impl Steps for List {
    fn next(&mut self) -> Option<Op> {
        self.0.next()
    }
    fn failed(&mut self, _: i32) -> bool {
        true
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
fn every_crash_is_accepted(ops: &[Listed], promises: Promises) -> Result<usize, String> {
    let plain: Vec<_> = ops.iter().map(|listed| listed.op.clone()).collect();
    let mut oracle = oracle_of(&plain, promises);
    let mut states = closure(HashSet::from([TinyFs::default()]));
    let mut judged = 0;
    for (step, Listed { op, fails }) in (1..).zip(ops) {
        // A step that fails stops anywhere: everything on its way is a state after it.
        let mut stopped = if *fails { states.clone() } else { HashSet::new() };
        for part in TinyFs::parts(op) {
            let applied = states.iter().map(|state| {
                let mut next = state.clone();
                next.apply(&part);
                next
            });
            // The states before this part were judged at the return of the step before, or as those after the part before.
            states = closure(applied.collect());
            judged += judge_all(&oracle, &states).map_err(|why| format!("during {op}: {why}"))?;
            if *fails {
                stopped.extend(states.iter().cloned());
            }
        }
        if *fails {
            if let Op::Fsync { file, .. } | Op::Fdatasync { file, .. } = op {
                let given_up = stopped.iter().map(|state| {
                    let mut next = state.clone();
                    next.give_up(*file);
                    next
                });
                stopped = stopped.iter().cloned().chain(given_up.collect::<Vec<_>>()).collect();
            }
            states = stopped;
        }
        let errno = if *fails { libc::ENOSPC } else { 0 };
        oracle.returned(&Mark { worker: 0, step, errno }).unwrap();
        judged += judge_all(&oracle, &states).map_err(|why| format!("after {op}: {why}"))?;
        if states.len() > MANY {
            return Ok(judged);
        }
    }
    Ok(judged)
}

/// With more states than this at a time the rest of a list is left out: its beginning was judged in full.
const MANY: usize = 20_000;

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
    fn all_crashes_of_all_interleavings_of_a_short_list(draws in prop::collection::vec(any::<(u8, u8, u8)>(), 1..9), may_fail: bool) {
        let ops = possible(&draws, may_fail);
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
        may_fail: bool,
    ) {
        let list = possible(&draws, may_fail);
        let ops: Vec<_> = list.iter().map(|listed| listed.op.clone()).collect();
        let mut oracle = oracle_of(&ops, EXT4);
        let mut fs = TinyFs::default();
        let mut events = events.into_iter().cycle();
        for (step, Listed { op, fails }) in (1..).zip(&list) {
            let parts = TinyFs::parts(op);
            let done = if *fails { events.next().unwrap() as usize % (parts.len() + 1) } else { parts.len() };
            for part in &parts[..done] {
                fs.apply(part);
                (0..events.next().unwrap() % 3).for_each(|_| fs.disturb(events.next().unwrap()));
                let breaches = oracle.judge(&with_directories(fs.crash(), &oracle.directories));
                prop_assert!(breaches.is_empty(), "during {op}: {breaches:#?}\n{list:#?}");
            }
            if let (true, Op::Fsync { file, .. } | Op::Fdatasync { file, .. }) = (fails, op)
                && events.next().unwrap() % 2 == 0
            {
                fs.give_up(*file);
            }
            oracle.returned(&Mark { worker: 0, step, errno: if *fails { libc::ENOSPC } else { 0 } }).unwrap();
            let breaches = oracle.judge(&with_directories(fs.crash(), &oracle.directories));
            prop_assert!(breaches.is_empty(), "after {op}: {breaches:#?}\n{list:#?}");
        }
    }
}

/// The workloads themselves: all workers of each on one tiny file system, their steps interleaved by a keyed draw.
#[test]
fn crashes_of_every_workload_with_all_workers() {
    for name in Spec::NAMES {
        let options = if *name == "mason" { "files=60" } else { "" };
        for seed in 1..3 {
            let seed = powerfail_seed::Seed(seed);
            let spec = Spec::named(name).unwrap().with_options(options).unwrap().with_seed(seed);
            crashes_of(&spec, seed, if ["full", "overwrite", "append"].contains(name) { 500 } else { 2000 });
        }
    }
}

fn crashes_of(spec: &Spec, seed: powerfail_seed::Seed, turns: u64) {
    let mut oracle = Oracle::new(spec, EXT4);
    let mut fs = TinyFs::default();
    oracle.returned(&Mark { worker: 0, step: 0, errno: 0 }).unwrap();
    for turn in 0..turns {
        let worker = (seed.draw("worker", &[turn]) % u64::from(spec.workers())) as u32;
        let Some((_, step, op)) = oracle.in_flight().find(|(number, ..)| *number == worker) else { continue };
        // Space is what `full` has not much of: whatever takes some fails now and then, half done.
        let takes = matches!(op, Op::Write { .. } | Op::Allocate { .. } | Op::Create { .. } | Op::Fsync { .. });
        let fails = spec.name() == "full" && takes && seed.draw("fails", &[turn]).is_multiple_of(3);
        let parts = TinyFs::parts(op);
        let done = if fails { seed.draw("part", &[turn]) as usize % (parts.len() + 1) } else { parts.len() };
        parts[..done].iter().for_each(|part| fs.apply(part));
        fs.disturb(seed.draw("event", &[turn]));
        let when = format!("{} seed {seed} turn {turn} {op}", spec.name());
        let at = spec.directories();
        if turn % 8 == 0 {
            assert_eq!(oracle.judge(&with_directories(fs.crash(), &at)), [], "{when} in flight");
        }
        oracle.returned(&Mark { worker, step, errno: if fails { libc::ENOSPC } else { 0 } }).unwrap();
        if turn % 8 == 1 {
            assert_eq!(oracle.judge(&with_directories(fs.crash(), &at)), [], "{when}");
        }
    }
}

/// The enumeration is worth something only if it reaches many different crashes.
#[test]
fn the_enumeration_reaches_the_crashes_that_matter() {
    let path = || "a/1".to_owned();
    let write = |generation| Op::Write { file: 1, path: path(), generation, block: 0, blocks: 2, how: How::Buffered };
    let ops = [
        Op::Create { file: 1, path: path() },
        write(1),
        Op::Fsync { file: 1, path: path() },
        write(2),
        Op::Create { file: 2, path: "a/2".to_owned() },
        Op::Rename { file: 2, from: "a/2".to_owned(), to: path(), replaced: Some(1) },
    ];
    // After the fsync: old or new in each of two blocks, or the empty new file, with or without the name a/2.
    let ops = ops.map(|op| Listed { op, fails: false });
    let judged = every_crash_is_accepted(&ops, EXT4).unwrap();
    assert!(judged > 40, "{judged}");
}
