//! A cell: one combination of the matrix, with everything that a phase needs to know of it.

use powerfail_drive::cache::{Cache, Description};
use powerfail_drive::event::Header;
use powerfail_drive::recording::Reader;
use powerfail_drive::request::Geometry;
use powerfail_ledger::Case;
use powerfail_seed::Seed;
use powerfail_workloads::catalog::Workload;
use powerfail_workloads::{Promises, Spec};

use crate::config::{Config, cache_text};
use crate::folder::Usage;
use crate::modes::{Mode, Variant};
use crate::recording_file::Mapped;

/// One combination of the matrix.
#[derive(Clone, Debug)]
pub struct Cell {
    /// Name of its folder below the run's.
    pub name: String,
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
    /// The workload, seeded.
    pub spec: Spec,
    /// The cell's seed.
    pub seed: Seed,
    /// Its rig.
    pub rig: String,
}

impl Cell {
    /// The cells of a run, in the order in which they run: each mode once before any second variant.
    pub fn all(config: &Config) -> Vec<Cell> {
        let mut cells = Vec::new();
        for variant in [Variant::Csum, Variant::NoCsum] {
            for name in &config.modes {
                let mode = Mode::named(name).expect("checked when the options were read");
                let wanted = if config.all_modes { mode.variants.contains(&variant) } else { variant == Variant::Csum };
                if wanted {
                    cells.push(Cell::new(config, mode, variant));
                }
            }
        }
        cells
    }

    fn new(config: &Config, mode: &'static Mode, variant: Variant) -> Cell {
        let join =
            |parts: &[&str], by: &str| parts.iter().filter(|p| !p.is_empty()).copied().collect::<Vec<_>>().join(by);
        let mkfs = join(&[mode.mkfs, variant.mkfs(), &config.mkfs_opts], " ");
        let mount = join(&[mode.mount, &config.mount_opts], ",");
        let unit = config.unit().unwrap_or(mode.unit);
        let name = match variant {
            Variant::Csum => format!("{}-{}", config.fs, mode.name),
            Variant::NoCsum => format!("{}-{}-no-csum", config.fs, mode.name),
        };
        let seed = Seed(config.seed).at("cell", &[]).at(&name, &[]);
        let mut spec = config.workload.clone();
        let Spec::Mason(mason) = &mut spec;
        mason.seed = seed;
        let geometry = Geometry::new(config.size).expect("checked when the options were read");
        Cell {
            name,
            mode,
            mkfs,
            mount,
            drive: Description { unit, cache: Cache { bytes: config.cache_bytes, policy: config.policy(seed) } },
            header: Header { geometry, write_cache: mode.write_cache },
            spec,
            seed,
            rig: config.rig.clone(),
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
        Promises { data: self.mode.data, name_by_file_fsync: true }
    }

    /// The arguments of mkfs.
    pub fn mkfs_argv(&self) -> Vec<String> {
        // Lazy initialisation would write in place for minutes, and a default journal is too large to wrap in seconds.
        let mut argv: Vec<String> =
            ["mkfs.ext4", "-q", "-F", "-b", "4096", "-J", "size=4", "-E", "lazy_itable_init=0,lazy_journal_init=0"]
                .map(String::from)
                .to_vec();
        argv.extend(self.mkfs.split_whitespace().map(String::from));
        argv.push("{device}".into());
        argv
    }

    /// The cell as the ledger names it.
    pub fn case(&self, kernel: &str) -> Case {
        let cache = if self.mode.write_cache { cache_text(&self.drive.cache) } else { "no write cache".into() };
        Case {
            fs: "ext4".into(),
            mkfs: self.mkfs.clone(),
            mode: self.mode.name.into(),
            mount: self.mount.clone(),
            workload: self.spec.describe(),
            drive: format!(
                "{} MiB, {cache}, atomic unit {}",
                self.header.geometry.bytes() >> 20,
                self.drive.unit.bytes()
            ),
            rig: self.rig.clone(),
            kernel: kernel.into(),
            seed: self.seed.0,
            expectation: self.mode.expectation(&self.mkfs),
        }
    }
}
