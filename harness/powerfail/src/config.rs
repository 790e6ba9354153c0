//! What a run was asked for, as it is kept in its folder: every phase, and `--resume`, reads it from there. A run is a list
//! of cells, each with everything that decides it; how the list came about (options of `run`, a matrix file) is not kept.

use std::collections::HashSet;

use anyhow::bail;
use powerfail_drive::cache::{Cache, Policy};
use powerfail_drive::lies::Liar;
use powerfail_drive::request::Geometry;
use powerfail_drive::units::AtomicUnit;
use powerfail_ledger::Expectation;
use powerfail_seed::Seed;
use powerfail_workloads::Spec;
use powerfail_workloads::catalog::Workload;
use serde::{Deserialize, Serialize};

use crate::exploring::Exploring;
use crate::filesystems;
use crate::kernels::Kernel;
use crate::rigs;

/// The format of `run.json` that this version writes.
pub const FORMAT: u32 = 2;

/// Everything that decides what a run does. Two runs with equal configurations differ only by what the kernel did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The format.
    pub format: u32,
    /// Seed of all decisions, as it was said.
    pub seed: u64,
    /// The cells, in the order in which they run.
    pub cells: Vec<CellConfig>,
    /// Which part of a matrix this is, such as `2/4`; none: all of it.
    pub shard: Option<String>,
}

/// One cell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CellConfig {
    /// Name of its folder; no two cells of a run share one.
    pub name: String,
    /// File system, by name.
    pub fs: String,
    /// Mode, by name.
    pub mode: String,
    /// More options of mkfs than the mode's own.
    pub mkfs_opts: String,
    /// More mount options than the mode's own.
    pub mount_opts: String,
    /// The drive.
    pub drive: DriveConfig,
    /// The workload with its options and its seed.
    pub workload: Spec,
    /// Seed of the cell's decisions.
    pub seed: Seed,
    /// Distinct images to judge; of a live cell, power cuts.
    pub states: u64,
    /// Seconds that judging them may take; none: no limit.
    pub limit_s: Option<u64>,
    /// Crashes of the deepest states: 1, or more with crashes during recovery ([`crate::depth`]).
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub depth: u32,
    /// Each state is a power cut of the whole machine.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub live: bool,
    /// Which explorers make them.
    #[serde(default)]
    pub exploring: Exploring,
    /// The rig.
    pub rig: String,
    /// The kernel that it runs.
    pub kernel: Kernel,
    /// What is expected, if the file system's own expectation is not what counts.
    pub expectation: Option<Expectation>,
    /// The lie that its drive tells; only a selftest makes such cells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lie: Option<LieConfig>,
}

/// A lie of a cell's drive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LieConfig {
    /// Its name.
    pub name: String,
    /// The honest cell over whose recording it is told.
    pub over: String,
}

fn one() -> u32 {
    1
}

fn is_one(depth: &u32) -> bool {
    *depth == 1
}

/// A drive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DriveConfig {
    /// Size in bytes.
    pub size: u64,
    /// Size of the write cache in bytes.
    pub cache_bytes: u64,
    /// Its policy: `fifo`, `elevator` or `random`.
    pub cache_policy: String,
    /// Atomic unit in bytes; none: the mode's own.
    pub atomic: Option<u64>,
    /// Without a write cache: how many later requests a reply may be held back for; 0: not at all.
    pub hold_depth: u32,
    /// How long a reply may be held back, in microseconds.
    pub hold_us: u64,
}

impl Config {
    /// Refuses what can't be run, with what to say instead.
    ///
    /// # Errors
    /// The sentence for the user.
    pub fn check(&self) -> anyhow::Result<()> {
        let mut names = HashSet::new();
        if self.cells.is_empty() {
            bail!("there is no cell to run; name at least one mode");
        }
        for cell in &self.cells {
            if !names.insert(&cell.name) {
                bail!("two cells are called {}; say one of them once", cell.name);
            }
            cell.check()?;
        }
        for over in self.cells.iter().filter_map(|cell| cell.lie.as_ref().map(|lie| &lie.over)) {
            if !self.cells.iter().any(|cell| cell.name == *over && cell.lie.is_none()) {
                bail!("there is no honest cell {over} over which a lie could be told");
            }
        }
        Ok(())
    }
}

impl CellConfig {
    /// Refuses a cell that can't be run, with what to say instead.
    ///
    /// # Errors
    /// The sentence for the user.
    pub fn check(&self) -> anyhow::Result<()> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
        if self.name.is_empty() || self.name.starts_with('.') || !self.name.chars().all(plain) {
            bail!("`{}` can't be a folder's name; use letters, digits, `-`, `.` and `_`", self.name);
        }
        let Some(fs) = filesystems::named(&self.fs) else {
            bail!("there is no file system `{}`; there are {}", self.fs, filesystems::names());
        };
        if fs.mode(&self.mode).is_none() {
            let names: Vec<_> = fs.modes().iter().map(|mode| mode.name).collect();
            bail!("{} has no mode `{}`; it has {} and `all`", self.fs, self.mode, names.join(", "));
        }
        self.drive.check()?;
        if self.drive.size < fs.smallest() {
            let (size, smallest) = (self.drive.size, fs.smallest() >> 20);
            bail!("a drive of {size} bytes is too small for {}; at least {smallest}M", self.fs);
        }
        if self.states == 0 {
            bail!("--states 0 judges nothing; say at least 1");
        }
        if !(1..=crate::depth::DEEPEST).contains(&self.depth) {
            bail!(
                "--depth {} can't be; 1 is no crash during recovery, and {} the most",
                self.depth,
                crate::depth::DEEPEST
            );
        }
        if self.depth > 1 && crate::depth::shares(self.states, self.depth).1 == 0 {
            bail!("of {} states none is left for a crash during recovery; say at least --states 4", self.states);
        }
        if self.depth > 1 && self.live {
            bail!("live cuts have no depth: each ends with a recovery that nobody cuts; leave out --depth or --live");
        }
        self.exploring.check()?;
        if !rigs::NAMES.contains(&self.rig.as_str()) {
            bail!("there is no rig `{}`; there are {} and auto", self.rig, rigs::NAMES.join(", "));
        }
        if self.live && self.rig != "guest" {
            bail!(
                "live cuts need --rig guest: on {} the kernel is this machine's own, and can't be cut without cutting the \
                 machine",
                self.rig
            );
        }
        if let Some(lie) = &self.lie {
            Liar::named(&lie.name, self.seed)?;
        }
        rigs::check_kernel(&self.rig, &self.kernel)?;
        self.workload.check().map_err(anyhow::Error::msg)
    }

    /// The atomic unit that was asked for.
    pub fn unit(&self) -> Option<AtomicUnit> {
        self.drive.atomic.and_then(AtomicUnit::from_bytes)
    }
}

impl Default for DriveConfig {
    fn default() -> DriveConfig {
        DriveConfig {
            size: 512 << 20,
            cache_bytes: 8 << 20,
            cache_policy: "fifo".into(),
            atomic: None,
            hold_depth: 16,
            hold_us: 2000,
        }
    }
}

impl DriveConfig {
    fn check(&self) -> anyhow::Result<()> {
        if Geometry::new(self.size).is_none() {
            bail!("a drive of {} bytes is no whole number of 512-byte sectors; say for example --size 512M", self.size);
        }
        if self.atomic.is_some_and(|bytes| AtomicUnit::from_bytes(bytes).is_none()) {
            bail!("--atomic is 512 or 4096");
        }
        if self.cache_bytes < 4096 {
            bail!("a write cache holds at least one block of 4096 bytes; for no cache use the mode nobarrier-w0");
        }
        if !["fifo", "elevator", "random"].contains(&self.cache_policy.as_str()) {
            bail!("there is no cache policy `{}`; there are fifo, elevator and random", self.cache_policy);
        }
        Ok(())
    }

    /// The cache's policy, in a cell.
    pub fn policy(&self, cell: Seed) -> Policy {
        match self.cache_policy.as_str() {
            "elevator" => Policy::Elevator,
            "random" => Policy::Random(cell.at("cache", &[])),
            _ => Policy::Fifo,
        }
    }
}

/// A cache in words.
pub fn cache_text(cache: &Cache) -> String {
    let policy = match cache.policy {
        Policy::Fifo => "fifo",
        Policy::Elevator => "elevator",
        Policy::Random(_) => "random",
    };
    format!("cache {} KiB {policy}", cache.bytes >> 10)
}
