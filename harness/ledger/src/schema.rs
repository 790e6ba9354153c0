//! What a ledger line says.

use serde::{Deserialize, Serialize};

use crate::selftest::Selftest;

/// The schema that this version writes; a reader refuses a newer one. Since 2 there are lines of [`Selftest`]s.
pub const SCHEMA: u32 = 2;

/// Any line of a ledger.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "kebab-case")]
pub enum Line {
    /// The first line.
    Header(Header),
    /// A case was recorded.
    Recording(Box<Recording>),
    /// A crash state was judged, or could not be.
    State(Box<State>),
    /// A picture of one recording with one cut.
    Timeline(Box<Timeline>),
    /// A whole case was skipped or broke before it had states.
    Case(CaseEnd),
    /// What the run measured about itself.
    Measured(Measured),
    /// The selftest of the run.
    Selftest(Selftest),
}

/// The first line of each ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// The version of this schema.
    pub schema: u32,
    /// Program and version that wrote it.
    pub tool: String,
    /// The seed of the run, from which every decision follows.
    pub seed: u64,
    /// The command line, as typed, for the page.
    pub command: String,
    /// When the run began: RFC 3339, UTC.
    pub started: String,
    /// Kernel release, processors and memory of the machine, as one sentence.
    pub machine: String,
    /// Which part of the matrix this run has, such as `2/4`; none: all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shard: Option<String>,
}

/// One combination of the matrix.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Case {
    /// File system, such as `ext4`.
    pub fs: String,
    /// Options of its mkfs, as one string.
    pub mkfs: String,
    /// Mode, such as `nobarrier-w1`.
    pub mode: String,
    /// Mount options; empty for the defaults.
    pub mount: String,
    /// Workload and what its options say, such as `mason workers=4 seconds=4`.
    pub workload: String,
    /// Drive description, such as `512M cache=8M fifo atomic=4096`.
    pub drive: String,
    /// Rig, such as `host-loop`.
    pub rig: String,
    /// Kernel release that recovered it, such as `6.18.44`.
    pub kernel: String,
    /// Seed of the case.
    pub seed: u64,
    /// What is expected of the cell.
    pub expectation: Expectation,
}

/// What is expected of a cell.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Expectation {
    /// No state is violated.
    Safe,
    /// The control: states are violated; a run that sees none proves nothing.
    Unsafe,
    /// These findings are known, and no others; none at all is fine too.
    Known {
        /// What may be found.
        findings: Vec<KnownFinding>,
        /// Where it is known from.
        reference: String,
        /// The largest share of violated states that is still as known, in parts per million; none: any share is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        at_most_ppm: Option<u32>,
    },
    /// Nothing is known: whatever is found is reported and departs from nothing.
    Open,
}

/// A finding that is known.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct KnownFinding {
    /// Its kind.
    pub kind: FindingKind,
    /// What its detail says somewhere; empty: every finding of the kind is known.
    pub says: String,
}

impl Expectation {
    /// Whether a finding departs from nothing.
    pub fn allows(&self, finding: &Finding) -> bool {
        match self {
            Expectation::Safe => false,
            Expectation::Unsafe | Expectation::Open => true,
            Expectation::Known { findings, .. } => {
                findings.iter().any(|known| known.kind == finding.kind && finding.detail.contains(&known.says))
            }
        }
    }
}

/// Which check a finding comes from, and so what kind of harm it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FindingKind {
    /// The kernel's recovery did not succeed, so the file system does not mount.
    Mounts,
    /// The kernel complained in its log.
    Kernel,
    /// Something that is listed can't be read or listed.
    Walk,
    /// A promise of fsync, fdatasync or rename is broken, or foreign data is exposed.
    Promises,
    /// fsck is not clean.
    Fsck,
    /// A second mount had to recover again.
    Quiet,
    /// A witness of the drive model itself failed (drives that lie).
    Witness,
    /// The kernel, e2fsck and the harness's own replay of one journal do not come to the same blocks.
    ReplayDiffers,
}

impl FindingKind {
    /// All kinds, in the order of the checks.
    pub const ALL: [FindingKind; 8] = [
        FindingKind::Mounts,
        FindingKind::Kernel,
        FindingKind::Walk,
        FindingKind::Promises,
        FindingKind::Fsck,
        FindingKind::Quiet,
        FindingKind::Witness,
        FindingKind::ReplayDiffers,
    ];

    /// The name as it stands in the ledger.
    pub fn name(self) -> &'static str {
        match self {
            FindingKind::Mounts => "mounts",
            FindingKind::Kernel => "kernel",
            FindingKind::Walk => "walk",
            FindingKind::Promises => "promises",
            FindingKind::Fsck => "fsck",
            FindingKind::Quiet => "quiet",
            FindingKind::Witness => "witness",
            FindingKind::ReplayDiffers => "replay-differs",
        }
    }
}

/// One thing that is wrong with one recovered state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Which check found it.
    pub kind: FindingKind,
    /// What it is, in one sentence, with what the kernel or fsck said.
    pub detail: String,
}

/// How a state or a case ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "outcome")]
pub enum Outcome {
    /// Every check passed.
    Held,
    /// At least one check found something.
    Violated {
        /// What was found; never empty.
        findings: Vec<Finding>,
    },
    /// Not tested.
    Skipped {
        /// What is missing, in one sentence.
        reason: String,
    },
    /// The harness itself failed; says nothing about the file system.
    Broken {
        /// What failed.
        reason: String,
    },
}

/// One crash state and its verdict.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// The cell.
    pub case: Case,
    /// The recipe as text: with the recording it makes the image again, bit for bit.
    pub state: String,
    /// Digest of the image, hexadecimal.
    pub image: String,
    /// The explorer that made it.
    pub explorer: String,
    /// The event at which the power fails.
    pub cut: u64,
    /// Loose fragments at the cut.
    pub loose: u64,
    /// Of them, how many did not survive.
    pub lost: u64,
    /// Requests that were received and not replied to at the cut, among those that write.
    pub in_flight: u64,
    /// The verdict.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// The command that replays this state, for a violation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay: Option<String>,
    /// How many crashes made it: 1 is a cut of the workload, 2 a cut of the recovery from one; none: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depth: Option<u32>,
    /// What the lost block that matters is, such as `commit block`; known once the state was explained.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// Why the state is violated, in a few sentences; known once the state was explained.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub explanation: Option<String>,
    /// Milliseconds from building the image to the verdict.
    pub took_ms: u64,
}

/// What a recording holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Recording {
    /// The cell.
    pub case: Case,
    /// Path of the recording, relative to the ledger's folder.
    pub path: String,
    /// Digest of the file, hexadecimal.
    pub digest: String,
    /// Events in it (receipts, replies and marks).
    pub events: u64,
    /// Writes, with trims and zeroes.
    pub writes: u64,
    /// Bytes they carried.
    pub written_bytes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Writes with FUA.
    pub fua: u64,
    /// Trims.
    pub trims: u64,
    /// Steps that workers returned from.
    pub steps: u64,
    /// First event at which a cut may lie (the mark `mounted`).
    pub first_cut: u64,
    /// Last event at which a cut may lie (the mark `workload-end`).
    pub last_cut: u64,
    /// Distinct images planned, and what was left out of the plan or sampled, as a sentence.
    pub planned: u64,
    /// Share of the planned states that have a loose fragment, in thousandths.
    pub loose_permille: u64,
    /// What of FLUSH, FUA and TRIM survives the rig's path: `native`, `as-flush` or `lost`, measured.
    pub path_keeps: PathKeeps,
    /// Milliseconds that recording took.
    pub took_ms: u64,
}

/// What survives the path from the kernel to the drive; each `native`, `as-flush`, `lost` or `not seen`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathKeeps {
    /// FLUSH.
    pub flush: String,
    /// FUA.
    pub fua: String,
    /// TRIM.
    pub trim: String,
}

/// What a write of a timeline belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Area {
    /// The journal.
    Journal,
    /// In place.
    Home,
}

/// One write in a timeline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimelineWrite {
    /// Event number of its receipt.
    pub event: u64,
    /// First sector (512 bytes).
    pub lba: u64,
    /// Length in sectors.
    pub sectors: u64,
    /// Where it goes.
    pub area: Area,
    /// It did not survive the cut (in whole or in part).
    pub lost: bool,
}

/// A picture of one recording around one cut, thinned so that it stays small.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Timeline {
    /// The cell.
    pub case: Case,
    /// The recipe that it shows.
    pub state: String,
    /// The event of the cut.
    pub cut: u64,
    /// Size of the drive in sectors.
    pub drive_sectors: u64,
    /// First event shown.
    pub first_event: u64,
    /// Last event shown.
    pub last_event: u64,
    /// Writes, in order; at most a few thousand.
    pub writes: Vec<TimelineWrite>,
    /// Of how many writes in the range these are a sample.
    pub of_writes: u64,
    /// Events at which a flush was received.
    pub flushes: Vec<u64>,
    /// Events at which a write with FUA was received.
    pub fua: Vec<u64>,
    /// Events at which a journal's commit block was received; empty for file systems whose log is not jbd2's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub commits: Vec<u64>,
}

/// A case that has no states: it was skipped, or it broke.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CaseEnd {
    /// The cell.
    pub case: Case,
    /// `skipped` or `broken`, with the sentence.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// A figure that the run measured about itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// What, such as `states a second`.
    pub what: String,
    /// How much.
    pub value: f64,
    /// In which unit.
    pub unit: String,
}
