//! Axes: what a list of cells is multiplied out from.
//!
//! The order of the cells shows a first result of each mode early: file systems and modes come before variants,
//! workloads, kernels and seeds.

use std::collections::HashMap;

use anyhow::bail;
use powerfail_ledger::Expectation;
use powerfail_seed::Seed;
use powerfail_workloads::Spec;

use crate::config::{CellConfig, DriveConfig};
use crate::exploring::Exploring;
use crate::filesystems::{self, FileSystem};
use crate::folder::Usage;
use crate::kernels::Kernel;
use crate::modes::{Mode, Variant};

/// The axes of one block of cells; every combination is a cell.
#[derive(Clone, Debug)]
pub struct Axes {
    /// File systems, by name.
    pub fs: Vec<String>,
    /// Modes, by name; `all` is every mode of each file system, in the variants where they matter.
    pub modes: Vec<String>,
    /// More options of mkfs.
    pub mkfs_opts: String,
    /// More mount options.
    pub mount_opts: String,
    /// The drive.
    pub drive: DriveConfig,
    /// Workloads; their seeds are the cells' own.
    pub workloads: Vec<Spec>,
    /// Rigs with the kernels that they run.
    pub rigs: Vec<(String, Kernel)>,
    /// Seeds.
    pub seeds: Vec<u64>,
    /// Distinct images to judge in each cell.
    pub states: u64,
    /// Seconds that judging one cell may take; none: until all its states are judged.
    pub limit_s: Option<u64>,
    /// Crashes of the deepest states.
    pub depth: u32,
    /// Who makes them.
    pub exploring: Exploring,
    /// What is expected of all these cells, if not what the file systems say.
    pub expectation: Option<Expectation>,
    /// What the names of these cells have in front; with it blocks that differ only in options can stand side by side.
    pub label: String,
}

/// A mode as it is asked for, in one variant.
struct Asked {
    fs: &'static dyn FileSystem,
    mode: &'static Mode,
    variant: Variant,
}

impl Axes {
    /// The cells, in the order in which they run.
    ///
    /// # Errors
    /// [`Usage`] if a file system or a mode is none.
    pub fn cells(&self) -> anyhow::Result<Vec<CellConfig>> {
        let asked = self.asked()?;
        let mut cells = Vec::new();
        for &seed in &self.seeds {
            for (rig, kernel) in &self.rigs {
                for workload in &self.workloads {
                    for asked in &asked {
                        cells.push(self.cell(asked, workload, rig, kernel, seed));
                    }
                }
            }
        }
        Ok(cells)
    }

    /// Each mode once, then what has further variants.
    fn asked(&self) -> anyhow::Result<Vec<Asked>> {
        let mut asked = Vec::new();
        for variant in Variant::ALL {
            for name in &self.fs {
                let Some(fs) = filesystems::named(name) else {
                    bail!(Usage(format!("there is no file system `{name}`; there are {}", filesystems::names())));
                };
                let all = self.modes.iter().any(|mode| mode == "all");
                let modes: Vec<&'static Mode> = if all {
                    fs.modes().iter().filter(|mode| mode.variants.contains(&variant)).collect()
                } else if variant == Variant::Csum {
                    self.modes.iter().map(|name| mode_of(fs, name)).collect::<Result<_, _>>()?
                } else {
                    Vec::new()
                };
                asked.extend(modes.into_iter().map(|mode| Asked { fs, mode, variant }));
            }
        }
        Ok(asked)
    }

    fn cell(&self, asked: &Asked, workload: &Spec, rig: &str, kernel: &Kernel, seed: u64) -> CellConfig {
        let Asked { fs, mode, variant } = asked;
        let mut place = format!("{}-{}{}", fs.name(), mode.name, variant.suffix());
        if !self.label.is_empty() {
            place = format!("{}-{place}", self.label);
        }
        if workload.name() != DEFAULT_WORKLOAD {
            place = format!("{place}-{}", workload.name());
        }
        // The kernel has no part in it: the same steps on each.
        let cell_seed = Seed(seed).at("cell", &[]).at(&place, &[]);
        let mut name = place;
        if *kernel != Kernel::Host {
            name = format!("{name}-{}", kernel.word());
        } else if rig != DEFAULT_RIG {
            name = format!("{name}-{rig}");
        }
        if self.seeds.len() > 1 {
            name = format!("{name}-seed-{seed}");
        }
        let mkfs = [variant.mkfs(), &self.mkfs_opts];
        CellConfig {
            name,
            fs: fs.name().into(),
            mode: mode.name.into(),
            mkfs_opts: mkfs.iter().filter(|part| !part.is_empty()).copied().collect::<Vec<_>>().join(" "),
            mount_opts: self.mount_opts.clone(),
            drive: self.drive.clone(),
            workload: workload.clone().with_seed(cell_seed),
            seed: cell_seed,
            states: self.states,
            limit_s: self.limit_s,
            depth: self.depth,
            live: false,
            exploring: self.exploring.clone(),
            rig: rig.into(),
            kernel: kernel.clone(),
            expectation: self.expectation.clone(),
            lie: None,
        }
    }
}

/// Puts cells in an order that shows a first result of each mode early: no file system's mode comes a second time before
/// each was there once.
pub fn spread(cells: Vec<CellConfig>) -> Vec<CellConfig> {
    let mut seen: HashMap<(String, String), u32> = HashMap::new();
    let mut rounds: Vec<(u32, CellConfig)> = Vec::new();
    for cell in cells {
        let round = seen.entry((cell.fs.clone(), cell.mode.clone())).or_default();
        rounds.push((*round, cell));
        *round += 1;
    }
    rounds.sort_by_key(|(round, _)| *round);
    rounds.into_iter().map(|(_, cell)| cell).collect()
}

const DEFAULT_WORKLOAD: &str = "mason";
const DEFAULT_RIG: &str = "host-loop";

fn mode_of(fs: &'static dyn FileSystem, name: &str) -> Result<&'static Mode, Usage> {
    fs.mode(name).ok_or_else(|| {
        let names: Vec<_> = fs.modes().iter().map(|mode| mode.name).collect();
        Usage(format!("{} has no mode `{name}`; it has {} and `all`", fs.name(), names.join(", ")))
    })
}
