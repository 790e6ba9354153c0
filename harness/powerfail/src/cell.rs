//! A cell: one combination of the matrix, with everything that a phase needs to know of it.

use powerfail_drive::cache::{Cache, Description};
use powerfail_drive::event::Header;
use powerfail_drive::lies::Liar;
use powerfail_drive::recording::Reader;
use powerfail_drive::request::Geometry;
use powerfail_ledger::Case;
use powerfail_nbd::Hold;
use powerfail_seed::Seed;
use powerfail_workloads::catalog::Workload;
use powerfail_workloads::{Promises, Spec};
use std::time::Duration;

use crate::config::{CellConfig, Config, cache_text};
use crate::exploring::Exploring;
use crate::filesystems::{self, FileSystem};
use crate::folder::Usage;
use crate::kernels::Kernel;
use crate::modes::Mode;
use crate::recording_file::Mapped;

/// One combination of the matrix.
#[derive(Clone, Debug)]
pub struct Cell {
    /// Name of its folder below the run's.
    pub name: String,
    /// The file system.
    pub fs: &'static dyn FileSystem,
    /// The mode.
    pub mode: &'static Mode,
    /// Options of mkfs, beyond those of every run.
    pub mkfs: String,
    /// Mount options.
    pub mount: String,
    /// The drive.
    pub drive: Description,
    /// What the recording is of.
    pub header: Header,
    /// Of a drive that lies: the honest cell over whose recording the lie is told.
    pub told_over: Option<String>,
    /// How replies are held back, where the drive has no write cache.
    pub hold: Option<Hold>,
    /// The workload, seeded.
    pub spec: Spec,
    /// The cell's seed.
    pub seed: Seed,
    /// Distinct images to judge, of one crash each; of a live cell, power cuts.
    pub states: u64,
    /// Crashes of the deepest states.
    pub depth: u32,
    /// Distinct images to judge at each depth below the first.
    pub deeper_states: u64,
    /// How long judging them may take; none: no limit.
    pub limit: Option<Duration>,
    /// Each state is a power cut of the whole machine ([`crate::live`]).
    pub live: bool,
    /// Who makes them.
    pub exploring: Exploring,
    /// Its rig.
    pub rig: String,
    /// The kernel that the rig runs.
    pub kernel: Kernel,
    /// As it was asked for.
    config: CellConfig,
}

impl Cell {
    /// The cells of a run, in the order in which they run.
    pub fn all(config: &Config) -> Vec<Cell> {
        config.cells.iter().map(Cell::new).collect()
    }

    /// The cell of a configuration that was checked.
    fn new(config: &CellConfig) -> Cell {
        let join =
            |parts: &[&str], by: &str| parts.iter().filter(|p| !p.is_empty()).copied().collect::<Vec<_>>().join(by);
        let fs = filesystems::named(&config.fs).expect("checked when the options were read");
        let mode = fs.mode(&config.mode).expect("checked when the options were read");
        let lie = config
            .lie
            .as_ref()
            .map(|lie| Liar::named(&lie.name, config.seed.at("lie", &[])).expect("checked when the options were read"));
        let unit = config.unit().unwrap_or(mode.unit);
        let unit = lie.map_or(unit, |liar| liar.lie().unit(unit));
        let geometry = Geometry::new(config.drive.size).expect("checked when the options were read");
        let cache = Cache { bytes: config.drive.cache_bytes, policy: config.drive.policy(config.seed) };
        let (states, deeper_states) = crate::depth::shares(config.states, config.depth);
        let hold = (config.drive.hold_depth > 0 && !mode.write_cache).then(|| Hold {
            seed: config.seed.at("hold", &[]),
            depth: config.drive.hold_depth,
            max_time: Duration::from_micros(config.drive.hold_us),
        });
        Cell {
            name: config.name.clone(),
            fs,
            mode,
            mkfs: join(&[mode.mkfs, &config.mkfs_opts], " "),
            mount: join(&[mode.mount, &config.mount_opts], ","),
            drive: Description { unit, cache, lie },
            header: Header { geometry, write_cache: mode.write_cache, lie },
            told_over: config.lie.as_ref().map(|lie| lie.over.clone()),
            hold,
            spec: config.workload.clone(),
            seed: config.seed,
            states,
            depth: config.depth,
            deeper_states,
            limit: config.limit_s.map(Duration::from_secs),
            live: config.live,
            exploring: config.exploring.clone(),
            rig: config.rig.clone(),
            kernel: config.kernel.clone(),
            config: config.clone(),
        }
    }

    /// Refuses a recording of another drive: its events would not fit on this cell's images.
    ///
    /// # Errors
    /// [`Usage`].
    pub fn check_drive(&self, recording: &Mapped) -> Result<(), Usage> {
        let usage = |why: String| Usage(format!("{}: {why}", recording.path().display()));
        let header = Reader::new(recording.bytes(), false).map_err(|error| usage(error.to_string()))?.header();
        if header != self.header {
            return Err(usage(format!("it is a recording of another drive than the one of {}", self.name)));
        }
        Ok(())
    }

    /// What is asked of what the file system promised.
    pub fn promises(&self) -> Promises {
        self.fs.promises(self.mode)
    }

    /// Whether the drive offers FLUSH and FUA.
    pub fn offers_flush(&self) -> bool {
        self.mode.write_cache && self.mode.offers_flush
    }

    /// The mount options for judging its states.
    pub fn judge_mount(&self) -> String {
        match (self.mount.as_str(), self.fs.judge_options()) {
            (mount, "") => mount.into(),
            ("", judge) => judge.into(),
            (mount, judge) => format!("{mount},{judge}"),
        }
    }

    /// The arguments of mkfs.
    pub fn mkfs_argv(&self) -> Vec<String> {
        let mut argv: Vec<String> = self.fs.mkfs().iter().map(ToString::to_string).collect();
        argv.extend(self.mkfs.split_whitespace().map(String::from));
        argv.push("{device}".into());
        argv
    }

    /// The cell as the ledger names it.
    pub fn case(&self, kernel: &str) -> Case {
        let cache = if self.mode.write_cache { cache_text(&self.drive.cache) } else { "no write cache".into() };
        let silent = if self.mode.write_cache && !self.mode.offers_flush { ", FLUSH not offered" } else { "" };
        let lie = self.drive.lie.map_or(String::new(), |liar| format!(", lie {}", liar.name()));
        Case {
            fs: self.fs.name().into(),
            mkfs: self.mkfs.clone(),
            mode: self.mode.name.into(),
            mount: self.mount.clone(),
            workload: self.spec.describe(),
            drive: format!(
                "{} MiB, {cache}{silent}, atomic unit {}{lie}",
                self.header.geometry.bytes() >> 20,
                self.drive.unit.bytes()
            ),
            rig: if self.live { format!("{} live", self.rig) } else { self.rig.clone() },
            kernel: kernel.into(),
            seed: self.seed.0,
            expectation: self.config.expectation.clone().unwrap_or_else(|| self.fs.expectation(self.mode, &self.mkfs)),
        }
    }
}
