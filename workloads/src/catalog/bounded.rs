//! `bounded`: every short sequence of operations over a tiny set of names, in the spirit of ACE (Mohan and others, "Finding
//! Crash-Consistency Bugs with Bounded Black-Box Crash Testing", OSDI 2018).
//!
//! A sequence has two directories `A` and `B` with a file `foo` in each, which are synced with all else before it begins. It is
//! one to three operations, each followed by a persistence point (fsync of any file, fdatasync of the file that was
//! touched, fsync of any directory, syncfs) or, except for the last, by none. All sequences of length 1 and 2 have
//! a number, in the order of their length; those of length 3 are drawn, each at the place of its number, so that a
//! number stands for the same sequence for ever.
//!
//! Many sequences share a recording, each in a directory of its own that is named after its number, so that one mkfs and
//! one mount serve hundreds of them. They run one after the other: at any cut those before are over and promised, and one is
//! in the middle. The option `part` says which numbers a recording takes, so the whole set can be done in as many
//! nights as it needs.
//!
//! Left out: renaming a directory that holds something, extended attributes, and names deeper than one directory that a
//! sequence makes itself.

mod actions;
mod numbers;

use super::{Limits, Workload};
use crate::hog::Hog;
use crate::steps::{Op, Steps, file_id};
use actions::{Action, Persist, Place, State};
use powerfail_seed::Seed;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::ops::RangeInclusive;

pub use numbers::{LENGTH_3, sequence, size};

/// Options of `bounded`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Bounded {
    /// Decides nothing here: the numbers do.
    pub seed: Seed,
    /// The numbers of this recording's sequences, `first-last`, both included; what lies behind the last of all is left out.
    pub part: String,
    /// A worker begins no step after so many seconds; a part that is not done by then has too many sequences.
    pub seconds: u32,
    /// The worker begins no step after so many; none: the sequences end it.
    pub steps: Option<u64>,
}

impl Default for Bounded {
    fn default() -> Bounded {
        Bounded { seed: Seed(1), part: "0-149".to_owned(), seconds: 120, steps: None }
    }
}

/// Sequences of one part at most: each makes three directories before the first begins.
const MOST: u64 = 2000;

impl Bounded {
    fn numbers(&self) -> Result<RangeInclusive<u64>, String> {
        let wrong = || format!("part={} is no range of sequences; say for example part=0-149", self.part);
        let (first, last) = self.part.split_once('-').ok_or_else(wrong)?;
        let (first, last) = (first.parse::<u64>().map_err(|_| wrong())?, last.parse::<u64>().map_err(|_| wrong())?);
        let [one, two, all] = size();
        if first > last || first >= all {
            return Err(format!(
                "part={first}-{last}: there are the numbers 0 to {} ({one} sequences of length 1, {two} of length 2, \
                 and {LENGTH_3} drawn ones of length 3)",
                all - 1
            ));
        }
        let last = last.min(all - 1);
        if last - first >= MOST {
            return Err(format!("part={first}-{last} has more than {MOST} sequences; take it in smaller parts"));
        }
        Ok(first..=last)
    }

    /// The numbers, none if they are none: `check` says so before.
    fn each(&self) -> impl Iterator<Item = u64> {
        self.numbers().ok().into_iter().flatten()
    }
}

impl Workload for Bounded {
    fn directories(&self) -> Vec<String> {
        self.each().map(home).flat_map(|home| [home.clone(), format!("{home}/A"), format!("{home}/B")]).collect()
    }

    fn workers(&self) -> u32 {
        1
    }

    fn steps(&self, worker: u32) -> Box<dyn Steps> {
        Box::new(Sequences { worker, left: self.each().collect(), made: 0, script: VecDeque::new() })
    }

    fn limits(&self) -> Limits {
        Limits { seconds: self.seconds, steps: self.steps }
    }

    fn hog(&self) -> Hog {
        Hog { mib: 0, every: 0 }
    }

    fn describe(&self) -> String {
        let [one, two, all] = size();
        format!(
            "bounded part={} of {all} sequences ({one} of length 1, {two} of length 2, {LENGTH_3} drawn of length 3)",
            self.part
        )
    }

    fn reseed(&mut self, seed: Seed) {
        self.seed = seed;
    }

    fn check(&self) -> Result<(), String> {
        if self.seconds == 0 || self.steps == Some(0) {
            return Err("bounded with no seconds or no steps promises nothing that could be broken".into());
        }
        self.numbers().map(drop)
    }
}

/// The directory of a sequence.
fn home(number: u64) -> String {
    format!("s{number:06}")
}

/// The steps of all sequences of a part.
#[derive(Clone)]
struct Sequences {
    worker: u32,
    left: VecDeque<u64>,
    /// Ids given out.
    made: u64,
    script: VecDeque<Op>,
}

impl Steps for Sequences {
    fn next(&mut self) -> Option<Op> {
        if self.script.is_empty() {
            let number = self.left.pop_front()?;
            self.play(number);
        }
        self.script.pop_front()
    }

    /// Whatever the file system does not have; the rest of the sequence would not be what its number says.
    fn failed(&mut self, errno: i32) -> bool {
        self.script.clear();
        matches!(errno, libc::EOPNOTSUPP | libc::EINVAL)
    }

    fn fork(&self) -> Box<dyn Steps> {
        Box::new(self.clone())
    }
}

impl Sequences {
    fn play(&mut self, number: u64) {
        let home = home(number);
        let mut id = || {
            self.made += 1;
            file_id(self.worker, self.made)
        };
        let mut state = State::default();
        for place in [Place::AFoo, Place::BFoo] {
            self.script.extend(state.apply(&Action::Create(place), &home, &mut id));
            self.script.extend(state.apply(&Action::Append(place), &home, &mut id));
        }
        self.script.push_back(Op::SyncFs);
        for (action, persist) in numbers::decode(number).unwrap_or_default() {
            self.script.extend(state.apply(&action, &home, &mut id));
            self.script.extend(persist.and_then(|persist: Persist| state.persist(persist, &home)));
        }
    }
}

#[cfg(test)]
mod tests;
