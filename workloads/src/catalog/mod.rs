//! The workloads there are. A new one is a file that implements [`Workload`] and a line in the list below.

pub mod mason;

use crate::hog::Hog;
use crate::steps::Steps;
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

            fn workload(&self) -> &dyn Workload {
                match self {
                    $(Spec::$variant(options) => options,)+
                }
            }
        }
    };
}

catalog! {
    "mason" Mason(mason::Mason),
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_in_the_list_is_a_workload_that_survives_its_json() {
        for name in Spec::NAMES {
            let spec = Spec::named(name).unwrap();
            assert!(spec.describe().starts_with(name), "{}", spec.describe());
            assert_eq!(serde_json::from_str::<Spec>(&serde_json::to_string(&spec).unwrap()).unwrap(), spec);
        }
        assert_eq!(Spec::named("nothing"), None);
    }
}
