//! `mason`: in the spirit of the test with which Chris Mason showed in May 2008 what ext3 loses without barriers.
//!
//! Of his test it is certain that it filled a large indexed directory and that a forced full fsck after journal replay
//! found the damage in the tree of that directory. The rest here is in its spirit and claims no parameter of it:
//! workers that create, write, append, overwrite, fsync, fdatasync, fsync the directory, rename between long and short
//! names, replace by rename, truncate and unlink, in directories of their own and in one that they share; one more
//! worker in a loop of write + fsync + truncate on one small file; and a hog beside them (see `hog`).
//!
//! A worker first creates its share of the files without syncing any of them, calls `syncfs` once, and from then on
//! plays short *scripts* of one to five steps. Some scripts end with a sync and some do not, so at any moment
//! there are promised and unpromised names and blocks side by side. Each script is drawn at a place keyed by worker and step.

mod names;
mod scripts;

use super::{Limits, Workload};
use crate::hog::Hog;
use crate::steps::Steps;
use powerfail_seed::Seed;
use serde::{Deserialize, Serialize};

/// Options of `mason`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Mason {
    /// Decides every step.
    pub seed: Seed,
    /// Workers with many files; the one with the small file comes on top.
    pub workers: u32,
    /// A worker begins no step after so many seconds.
    pub seconds: u32,
    /// A worker begins no step after so many of its own; none: only the seconds count.
    pub steps: Option<u64>,
    /// Live files that all workers together keep about.
    pub files: u32,
    /// Largest file, in blocks of 512 bytes; most are a quarter of it or less.
    pub file_blocks: u64,
    /// Directories of each worker's own, beside the shared one.
    pub own_directories: u32,
    /// Percent of the new names that are long (64 to 255 bytes).
    pub long_names_percent: u32,
    /// Percent of the data scripts that end with fsync or fdatasync, and of the name scripts that end with a sync.
    pub sync_percent: u32,
    /// Memory that the hog holds, MiB; at most a quarter of what is available is taken.
    pub hog_mib: u32,
    /// Steps of all workers between two passes of the hog; 0: no hog.
    pub hog_every: u32,
}

impl Default for Mason {
    fn default() -> Mason {
        Mason {
            seed: Seed(1),
            workers: 4,
            seconds: 4,
            steps: None,
            files: 1000,
            file_blocks: 64,
            own_directories: 2,
            long_names_percent: 60,
            sync_percent: 65,
            hog_mib: 64,
            hog_every: 64,
        }
    }
}

impl Workload for Mason {
    fn directories(&self) -> Vec<String> {
        let own = (0..self.workers).flat_map(|worker| self.own(worker));
        std::iter::once(SHARED.to_owned()).chain(own).collect()
    }

    fn workers(&self) -> u32 {
        self.workers + 1
    }

    fn steps(&self, worker: u32) -> Box<dyn Steps> {
        if worker < self.workers {
            Box::new(scripts::Tree::new(self.clone(), worker))
        } else {
            Box::new(scripts::Loop::new(self.seed, worker))
        }
    }

    fn limits(&self) -> Limits {
        Limits { seconds: self.seconds, steps: self.steps }
    }

    fn hog(&self) -> Hog {
        Hog { mib: self.hog_mib, every: self.hog_every }
    }

    fn describe(&self) -> String {
        let length = self.steps.map_or(format!("seconds={}", self.seconds), |steps| format!("steps={steps}"));
        format!("mason workers={} {length} files={} seed={}", self.workers, self.files, self.seed)
    }

    fn reseed(&mut self, seed: Seed) {
        self.seed = seed;
    }

    fn check(&self) -> Result<(), String> {
        if self.seconds == 0 || self.steps == Some(0) {
            return Err(
                "a workload of no seconds or no steps promises nothing that could be broken; say at least 1".into()
            );
        }
        Ok(())
    }
}

const SHARED: &str = "shared";

impl Mason {
    /// Directories of one worker's own.
    fn own(&self, worker: u32) -> Vec<String> {
        (0..self.own_directories).map(|n| format!("w{worker}-{n}")).collect()
    }
}
