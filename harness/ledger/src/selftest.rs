//! What a selftest found: does the harness see what it must see, and nothing else?

use serde::{Deserialize, Serialize};

/// One selftest. It is one line, so that it is there whole or not at all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Selftest {
    /// Each thing that was put before a witness.
    pub trials: Vec<Trial>,
    /// Milliseconds for all of it.
    pub took_ms: u64,
}

/// One thing that was put before a witness.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trial {
    /// What kind of thing.
    pub kind: TrialKind,
    /// Which: the name of a lie, `honest`, or the name of a canary.
    pub name: String,
    /// Who looked: `raw NBD client`, or a cell such as `ext4 barrier mason on host-loop`.
    pub witness: String,
    /// States that were looked at: until it was seen, or all.
    pub states: u64,
    /// How it ended.
    #[serde(flatten)]
    pub ending: Ending,
}

/// What kind of thing is put before a witness.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TrialKind {
    /// An honest drive: nothing may be found.
    Honest,
    /// A drive that lies: it must be caught.
    Lie,
    /// Something that must end in one certain way: held, violated, skipped or broken.
    Canary,
}

/// How a trial ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "ending")]
pub enum Ending {
    /// As it must.
    Passed {
        /// What was seen, in one sentence.
        seen: String,
    },
    /// Otherwise: what the harness says can't be relied on.
    Failed {
        /// What was seen instead.
        seen: String,
    },
    /// It could not be tried here.
    NotTried {
        /// What is missing.
        reason: String,
    },
}

impl Selftest {
    /// The trials that did not end as they must.
    pub fn failures(&self) -> impl Iterator<Item = &Trial> {
        self.trials.iter().filter(|trial| matches!(trial.ending, Ending::Failed { .. }))
    }

    /// The trials that could not be tried.
    pub fn not_tried(&self) -> impl Iterator<Item = &Trial> {
        self.trials.iter().filter(|trial| matches!(trial.ending, Ending::NotTried { .. }))
    }
}
