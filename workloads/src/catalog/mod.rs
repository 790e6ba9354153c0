//! The workloads there are. A new one is a file that implements [`Workload`] and a line in the list below.

pub mod append;
pub mod bounded;
pub mod fs_mark;
pub mod full;
mod kit;
pub mod links;
pub mod mason;
mod options;
pub mod overwrite;
pub mod quota;
pub mod replace;
pub mod truncate;
pub mod unlinked;

use crate::hog::Hog;
use crate::steps::Steps;
use powerfail_seed::Seed;
use serde::{Deserialize, Serialize};

/// A workload: its directories, its workers and their steps, as a pure function of its options.
pub trait Workload {
    /// Directories that the runner makes before the workers begin, parents first.
    fn directories(&self) -> Vec<String>;
    /// Number of workers. Their names and files are disjoint, so they are judged one by one.
    fn workers(&self) -> u32;
    /// The steps of one worker.
    fn steps(&self, worker: u32) -> Box<dyn Steps>;
    /// When it ends.
    fn limits(&self) -> Limits;
    /// What runs beside the workers.
    fn hog(&self) -> Hog;
    /// One line for people, the options that matter in it.
    fn describe(&self) -> String;
    /// Takes the seed that decides every step.
    fn reseed(&mut self, seed: Seed);
    /// Refuses options that promise nothing, or can't be run, with a sentence for the user.
    ///
    /// # Errors
    /// That sentence.
    fn check(&self) -> Result<(), String>;
}

/// When a workload ends: at whichever comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// A worker begins no step after so many seconds.
    pub seconds: u32,
    /// A worker begins no step after so many of its own.
    pub steps: Option<u64>,
}

/// The list: text name, variant, type of the options.
macro_rules! catalog {
    ($($name:literal $variant:ident($options:ty),)+) => {
        /// A workload with its options; this is what the harness sends to the agent.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(tag = "workload")]
        pub enum Spec {
            $(
                #[doc = concat!("`", $name, "`")]
                #[serde(rename = $name)]
                $variant($options),
            )+
        }

        impl Spec {
            /// The names of all workloads.
            pub const NAMES: &[&str] = &[$($name),+];

            /// The workload of that name with its default options.
            pub fn named(name: &str) -> Option<Spec> {
                match name {
                    $($name => Some(Spec::$variant(<$options>::default())),)+
                    _ => None,
                }
            }

            /// Its name.
            pub fn name(&self) -> &'static str {
                match self {
                    $(Spec::$variant(_) => $name,)+
                }
            }

            /// The same with the options that `text` changes: `key=value,key=value`.
            ///
            /// # Errors
            /// A sentence for the user: which key is none, with those there are, or which value does not fit.
            pub fn with_options(&self, text: &str) -> Result<Spec, String> {
                match self {
                    $(Spec::$variant(options) => options::changed($name, options, text).map(Spec::$variant),)+
                }
            }

            fn workload(&self) -> &dyn Workload {
                match self {
                    $(Spec::$variant(options) => options,)+
                }
            }

            fn workload_mut(&mut self) -> &mut dyn Workload {
                match self {
                    $(Spec::$variant(options) => options,)+
                }
            }
        }
    };
}

catalog! {
    "mason" Mason(mason::Mason),
    "fs-mark" FsMark(fs_mark::FsMark),
    "append" Append(append::Append),
    "replace" Replace(replace::Replace),
    "links" Links(links::Links),
    "truncate" Truncate(truncate::Truncate),
    "overwrite" Overwrite(overwrite::Overwrite),
    "unlinked" Unlinked(unlinked::Unlinked),
    "full" Full(full::Full),
    "quota" Quota(quota::Quota),
    "bounded" Bounded(bounded::Bounded),
}

impl Spec {
    /// The same with the seed that decides every step.
    #[must_use]
    pub fn with_seed(mut self, seed: Seed) -> Spec {
        self.workload_mut().reseed(seed);
        self
    }
}

impl Workload for Spec {
    fn directories(&self) -> Vec<String> {
        self.workload().directories()
    }
    fn workers(&self) -> u32 {
        self.workload().workers()
    }
    fn steps(&self, worker: u32) -> Box<dyn Steps> {
        self.workload().steps(worker)
    }
    fn limits(&self) -> Limits {
        self.workload().limits()
    }
    fn hog(&self) -> Hog {
        self.workload().hog()
    }
    fn describe(&self) -> String {
        self.workload().describe()
    }
    fn reseed(&mut self, seed: Seed) {
        self.workload_mut().reseed(seed);
    }
    fn check(&self) -> Result<(), String> {
        self.workload().check()
    }
}

#[cfg(test)]
mod tests;
