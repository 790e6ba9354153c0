//! What the workloads share: options, live files, and a player of scripts.
//!
//! A workload is a [`Plan`] for each worker: whenever its last script is over, it is asked for the next one, a few steps
//! long, drawn at a place that is keyed by worker and step. The plan keeps its own pure model of the live files.

use crate::steps::{Allocate, How, Op, Steps, dir_of, file_id};
use powerfail_seed::Seed;
use rand_chacha::ChaCha8Rng;
use std::collections::VecDeque;

/// Makes the options of a workload with the ones that all have, and the parts of [`super::Workload`] that follow from them.
macro_rules! options {
    ($name:literal, $(#[$doc:meta])* $type:ident {
        workers: $workers:literal, seconds: $seconds:literal,
        $($(#[$field_doc:meta])* $field:ident: $of:ty = $default:expr,)*
    }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct $type {
            /// Decides every step.
            pub seed: powerfail_seed::Seed,
            /// Workers; their names and files are disjoint.
            pub workers: u32,
            /// A worker begins no step after so many seconds.
            pub seconds: u32,
            /// A worker begins no step after so many of its own; none: only the seconds count.
            pub steps: Option<u64>,
            /// Memory that the hog holds, MiB; at most a quarter of what is available is taken.
            pub hog_mib: u32,
            /// Steps of all workers between two passes of the hog; 0: no hog.
            pub hog_every: u32,
            $($(#[$field_doc])* pub $field: $of,)*
        }

        impl Default for $type {
            fn default() -> Self {
                $type {
                    seed: powerfail_seed::Seed(1),
                    workers: $workers,
                    seconds: $seconds,
                    steps: None,
                    hog_mib: 16,
                    hog_every: 64,
                    $($field: $default,)*
                }
            }
        }

        impl $type {
            fn usual_limits(&self) -> super::Limits {
                super::Limits { seconds: self.seconds, steps: self.steps }
            }

            fn usual_description(&self) -> String {
                let length = self.steps.map_or(format!("seconds={}", self.seconds), |steps| format!("steps={steps}"));
                let own: String = [$(format!("{}={} ", stringify!($field), self.$field)),*].concat();
                format!("{} workers={} {length} {own}seed={}", $name, self.workers, self.seed)
            }

            fn usual_check(&self) -> Result<(), String> {
                if self.seconds == 0 || self.steps == Some(0) || self.workers == 0 {
                    return Err(format!(
                        "{} with no seconds, no steps or no workers promises nothing that could be broken; say at least 1",
                        $name
                    ));
                }
                Ok(())
            }
        }
    };
}

/// The parts of [`super::Workload`] that are as in every workload.
macro_rules! usual {
    () => {
        fn workers(&self) -> u32 {
            self.workers
        }
        fn limits(&self) -> super::Limits {
            self.usual_limits()
        }
        fn hog(&self) -> crate::hog::Hog {
            crate::hog::Hog { mib: self.hog_mib, every: self.hog_every }
        }
        fn describe(&self) -> String {
            self.usual_description()
        }
        fn reseed(&mut self, seed: powerfail_seed::Seed) {
            self.seed = seed;
        }
    };
}

pub(super) use {options, usual};

/// A file that exists when all steps so far have happened.
#[derive(Clone, Debug)]
pub(super) struct Live {
    pub(super) file: u64,
    pub(super) path: String,
    pub(super) blocks: u64,
    pub(super) generation: u32,
}

impl Live {
    pub(super) fn create(&self) -> Op {
        Op::Create { file: self.file, path: self.path.clone() }
    }

    pub(super) fn write(&mut self, block: u64, blocks: u64) -> Op {
        self.write_by(block, blocks, How::Buffered)
    }

    pub(super) fn write_by(&mut self, block: u64, blocks: u64, how: How) -> Op {
        self.generation += 1;
        self.blocks = self.blocks.max(block + blocks);
        Op::Write { file: self.file, path: self.path.clone(), generation: self.generation, block, blocks, how }
    }

    pub(super) fn append(&mut self, blocks: u64) -> Op {
        self.write(self.blocks, blocks)
    }

    pub(super) fn truncate(&mut self, blocks: u64) -> Op {
        self.blocks = blocks;
        Op::Truncate { file: self.file, path: self.path.clone(), blocks }
    }

    pub(super) fn allocate(&mut self, mode: Allocate, block: u64, blocks: u64) -> Op {
        if matches!(mode, Allocate::Extend | Allocate::Zero) {
            self.blocks = self.blocks.max(block + blocks);
        }
        Op::Allocate { file: self.file, path: self.path.clone(), mode, block, blocks }
    }

    pub(super) fn fsync(&self) -> Op {
        Op::Fsync { file: self.file, path: self.path.clone() }
    }

    pub(super) fn fdatasync(&self) -> Op {
        Op::Fdatasync { file: self.file, path: self.path.clone() }
    }

    pub(super) fn sync_dir(&self) -> Op {
        Op::SyncDir { dir: dir_of(&self.path).to_owned() }
    }

    pub(super) fn unlink(&self) -> Op {
        Op::Unlink { file: self.file, path: self.path.clone() }
    }

    pub(super) fn open(&self) -> Op {
        Op::Open { file: self.file, path: self.path.clone() }
    }

    pub(super) fn close(&self) -> Op {
        Op::Close { file: self.file }
    }

    /// Moves to a free name, or over what has it.
    pub(super) fn rename(&mut self, to: String, replaced: Option<u64>) -> Op {
        let from = std::mem::replace(&mut self.path, to.clone());
        Op::Rename { file: self.file, from, to, replaced }
    }
}

/// Where a worker's scripts are put together.
#[derive(Clone)]
pub(super) struct Desk {
    pub(super) worker: u32,
    made: u64,
    script: VecDeque<Op>,
}

impl Desk {
    /// An id that nothing has had.
    pub(super) fn id(&mut self) -> u64 {
        self.made += 1;
        file_id(self.worker, self.made)
    }

    /// A file that is not there yet.
    pub(super) fn file(&mut self, path: String) -> Live {
        Live { file: self.id(), path, blocks: 0, generation: 0 }
    }

    /// A name in `dir` that nothing has had.
    pub(super) fn fresh(&mut self, dir: &str) -> String {
        self.made += 1;
        format!("{dir}/w{}-{:x}", self.worker, self.made)
    }

    /// The next step of the script.
    pub(super) fn push(&mut self, op: Op) {
        self.script.push_back(op);
    }

    /// What is left of the script is dropped.
    pub(super) fn drop_script(&mut self) {
        self.script.clear();
    }
}

/// What a worker does.
pub(super) trait Plan: Clone + Send + Sync + 'static {
    /// Puts together the next script. If what was drawn can't be done it stays empty, and is drawn again.
    fn plan(&mut self, desk: &mut Desk, rng: &mut ChaCha8Rng);

    /// A step failed. Whether the worker goes on.
    fn failed(&mut self, desk: &mut Desk, op: &Op, errno: i32) -> bool {
        let _ = (desk, op, errno);
        false
    }
}

/// Plays the scripts of a plan.
#[derive(Clone)]
pub(super) struct Player<P> {
    seed: Seed,
    label: &'static str,
    step: u64,
    desk: Desk,
    plan: P,
    last: Option<Op>,
}

impl<P: Plan> Player<P> {
    pub(super) fn boxed(seed: Seed, label: &'static str, worker: u32, plan: P) -> Box<dyn Steps> {
        let desk = Desk { worker, made: 0, script: VecDeque::new() };
        Box::new(Player { seed, label, step: 0, desk, plan, last: None })
    }
}

impl<P: Plan> Steps for Player<P> {
    fn next(&mut self) -> Option<Op> {
        self.step += 1;
        for attempt in 0.. {
            if !self.desk.script.is_empty() {
                break;
            }
            let mut rng = self.seed.rng(self.label, &[u64::from(self.desk.worker), self.step, attempt]);
            self.plan.plan(&mut self.desk, &mut rng);
        }
        self.last = self.desk.script.pop_front();
        self.last.clone()
    }

    fn failed(&mut self, errno: i32) -> bool {
        self.last.take().is_some_and(|op| self.plan.failed(&mut self.desk, &op, errno))
    }

    fn fork(&self) -> Box<dyn Steps> {
        Box::new(self.clone())
    }
}
