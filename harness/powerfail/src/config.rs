//! What a run was asked for, as it is kept in its folder: every phase, and `--resume`, reads it from there.

use anyhow::bail;
use powerfail_drive::cache::{Cache, Policy};
use powerfail_drive::request::Geometry;
use powerfail_drive::units::AtomicUnit;
use powerfail_seed::Seed;
use powerfail_workloads::Spec;
use serde::{Deserialize, Serialize};

use crate::modes::{MODES, Mode};

/// The format of `run.json` that this version writes.
pub const FORMAT: u32 = 1;

/// Everything that decides what a run does. Two runs with equal configurations differ only by what the kernel did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The format.
    pub format: u32,
    /// Seed of all decisions.
    pub seed: u64,
    /// File system.
    pub fs: String,
    /// Modes, by name.
    pub modes: Vec<String>,
    /// `--mode all`: every mode, in the variants where they matter.
    pub all_modes: bool,
    /// More options of mkfs.
    pub mkfs_opts: String,
    /// More mount options.
    pub mount_opts: String,
    /// Size of the drive in bytes.
    pub size: u64,
    /// Size of the write cache in bytes.
    pub cache_bytes: u64,
    /// Its policy: `fifo`, `elevator` or `random`.
    pub cache_policy: String,
    /// Atomic unit in bytes; none: the mode's own.
    pub atomic: Option<u64>,
    /// The workload with its options.
    pub workload: Spec,
    /// Distinct images to judge, per cell.
    pub states: u64,
    /// The rig.
    pub rig: String,
    /// The kernel that a guest runs, such as `debian-6.1`; `host` on host rigs.
    pub kernel: String,
    /// How many later requests a reply may be held back for; 0: not at all.
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
        if self.fs != "ext4" {
            bail!("there is no file system `{}` here; this version knows ext4", self.fs);
        }
        for mode in &self.modes {
            if Mode::named(mode).is_none() {
                let names: Vec<_> = MODES.iter().map(|mode| mode.name).collect();
                bail!("there is no mode `{mode}`; there are {} and `all`", names.join(", "));
            }
        }
        if Geometry::new(self.size).is_none() {
            bail!("a drive of {} bytes is no whole number of 512-byte sectors; say for example --size 512M", self.size);
        }
        if self.size < 32 << 20 {
            bail!("a drive of {} bytes is too small for ext4 with a 4 MiB journal; at least 32M", self.size);
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
        if self.states == 0 {
            bail!("--states 0 judges nothing; say at least 1");
        }
        let Spec::Mason(mason) = &self.workload;
        if mason.seconds == 0 || mason.steps == Some(0) {
            bail!("a workload of no seconds or no steps promises nothing that could be broken; say at least 1");
        }
        Ok(())
    }

    /// The atomic unit that was asked for.
    pub fn unit(&self) -> Option<AtomicUnit> {
        self.atomic.and_then(AtomicUnit::from_bytes)
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
