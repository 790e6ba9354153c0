//! Matrix files: TOML that says which cells a night has, how much each may cost, and what is expected of it.
//!
//! ```toml
//! seeds = [1]                    # every cell once for each seed
//! states = 60                    # distinct images, for each cell
//! depth = 2                      # a quarter of the states are crashes during recovery
//! minutes = 5                    # and no more time than that, for each cell
//!
//! [drive]                        # all optional
//! size = "512M"
//! cache = "8M"
//!
//! [[cells]]                      # every combination of a block's lists is a cell
//! fs = ["ext4", "xfs"]
//! modes = ["barrier", "nobarrier-w1"]
//! workloads = ["mason", { name = "mason", opts = "files=200" }]
//! kernels = ["host", "debian-6.1"]
//! exclude = [{ fs = "xfs", mode = "nobarrier-w1" }]
//! expect = { known = [{ kind = "mounts", says = "Invalid checksum" }], reference = "…", at_most = 0.1 }
//! ```
//!
//! A key that is none and a combination that can't be are refused with their line: a typing error must not become a night
//! without a test.

use std::ops::Range;
use std::path::Path;

use powerfail_ledger::{Expectation, FindingKind, KnownFinding};
use powerfail_workloads::Spec;
use serde::Deserialize;
use toml::Spanned;

use crate::axes::{Axes, spread};
use crate::cli::bytes;
use crate::config::{CellConfig, Config, DriveConfig, FORMAT};
use crate::exploring::Exploring;
use crate::filesystems;
use crate::folder::Usage;
use crate::kernels::Kernel;

/// A matrix, as its file says it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Matrix {
    #[serde(default = "one")]
    seeds: Vec<u64>,
    states: Option<u64>,
    depth: Option<u32>,
    minutes: Option<u64>,
    #[serde(default)]
    drive: Drive,
    #[serde(default)]
    cells: Vec<Block>,
}

fn one() -> Vec<u64> {
    vec![1]
}

/// A drive; what is not said is as in `powerfail run`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Drive {
    size: Option<Spanned<String>>,
    cache: Option<Spanned<String>>,
    cache_policy: Option<String>,
    atomic: Option<u64>,
    hold: Option<u32>,
    hold_us: Option<u64>,
}

/// Axes that are multiplied out.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Block {
    #[serde(default)]
    label: String,
    #[serde(default = "ext4")]
    fs: Vec<Spanned<String>>,
    modes: Vec<Spanned<String>>,
    #[serde(default)]
    workloads: Vec<Spanned<Workload>>,
    #[serde(default)]
    kernels: Vec<Spanned<String>>,
    rig: Option<Spanned<String>>,
    #[serde(default)]
    mkfs: String,
    #[serde(default)]
    mount: String,
    states: Option<u64>,
    depth: Option<u32>,
    explorers: Option<Spanned<Vec<String>>>,
    minutes: Option<u64>,
    #[serde(default)]
    drive: Drive,
    #[serde(default)]
    exclude: Vec<Spanned<Exclude>>,
    expect: Option<Spanned<Expect>>,
}

fn ext4() -> Vec<Spanned<String>> {
    vec![Spanned::new(0..0, "ext4".into())]
}

/// A workload, with or without options.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum Workload {
    Name(String),
    With(WorkloadWith),
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WorkloadWith {
    name: String,
    opts: String,
}

/// Which cells of a block are left out: those that have all that is said.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Exclude {
    fs: Option<String>,
    mode: Option<String>,
    workload: Option<String>,
    kernel: Option<String>,
    seed: Option<u64>,
}

/// What is expected of a block's cells.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Expect {
    Word(String),
    Known(Known),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Known {
    known: Vec<KnownWord>,
    reference: String,
    at_most: Option<f64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct KnownWord {
    kind: FindingKind,
    #[serde(default)]
    says: String,
}

/// Says which rig runs a kernel where the file does not: none stands for a kernel that was not named either.
pub type Auto<'a> = &'a dyn Fn(&str, Option<&Kernel>) -> anyhow::Result<(String, Kernel)>;

/// Reads a matrix file; `seed` stands for the file's own.
///
/// # Errors
/// [`Usage`] with the line.
pub fn read(path: &Path, seed: Option<u64>, auto: Auto<'_>) -> anyhow::Result<Config> {
    let text = std::fs::read_to_string(path).map_err(|error| Usage(format!("{}: {error}", path.display())))?;
    let source = Source { name: path.display().to_string(), text: &text };
    let mut matrix: Matrix = toml::from_str(&text).map_err(|error| {
        let place = error.span().unwrap_or(0..0);
        source.refuse(&place, error.message())
    })?;
    if let Some(seed) = seed {
        if matrix.seeds.len() > 1 {
            return Err(Usage(format!("{} has several seeds; --seed is for files with one", source.name)).into());
        }
        matrix.seeds = vec![seed];
    }
    let mut cells = Vec::new();
    for block in &matrix.cells {
        block.cells(&matrix, &source, auto, &mut cells)?;
    }
    let seed = matrix.seeds.first().copied().unwrap_or(1);
    let config = Config { format: FORMAT, seed, cells: spread(cells), shard: None };
    config.check().map_err(|error| Usage(format!("{}: {error}", source.name)))?;
    Ok(config)
}

/// The file's text, to say in which line something is.
struct Source<'a> {
    name: String,
    text: &'a str,
}

impl Source<'_> {
    fn refuse(&self, place: &Range<usize>, why: impl std::fmt::Display) -> Usage {
        let line = self.text[..place.start.min(self.text.len())].matches('\n').count() + 1;
        Usage(format!("{} line {line}: {why}", self.name))
    }
}

impl Block {
    fn cells(
        &self,
        matrix: &Matrix,
        source: &Source<'_>,
        auto: Auto<'_>,
        cells: &mut Vec<CellConfig>,
    ) -> anyhow::Result<()> {
        for name in &self.fs {
            if filesystems::named(name.get_ref()).is_none() {
                let why = format!("there is no file system `{}`; there are {}", name.get_ref(), filesystems::names());
                return Err(source.refuse(&name.span(), why).into());
            }
        }
        let drive = matrix.drive.with(&self.drive).config(source)?;
        let Some(states) = self.states.or(matrix.states) else {
            let place = self.modes.first().map_or(0..0, Spanned::span);
            return Err(source.refuse(&place, "nothing says how many states these cells have; say states = 60").into());
        };
        let expectation = self.expect.as_ref().map(|expect| expected(expect, source)).transpose()?;
        let exploring = self.exploring(source)?;
        for mode in &self.modes {
            let axes = Axes {
                fs: self.fs.iter().map(|fs| fs.get_ref().clone()).collect(),
                modes: vec![mode.get_ref().clone()],
                mkfs_opts: self.mkfs.clone(),
                mount_opts: self.mount.clone(),
                drive: drive.clone(),
                workloads: self.workloads(source)?,
                rigs: self.rigs(source, auto)?,
                seeds: matrix.seeds.clone(),
                states,
                depth: self.depth.or(matrix.depth).unwrap_or(1),
                exploring: exploring.clone(),
                limit_s: self.minutes.or(matrix.minutes).map(|minutes| minutes * 60),
                expectation: expectation.clone(),
                label: self.label.clone(),
            };
            let made = axes.cells().map_err(|error| source.refuse(&mode.span(), format!("{error:#}")))?;
            for cell in made {
                if self.exclude.iter().any(|exclude| exclude.get_ref().hits(&cell, &axes)) {
                    continue;
                }
                cell.check().map_err(|error| source.refuse(&mode.span(), format!("{error:#}")))?;
                if cells.iter().any(|other| other.name == cell.name) {
                    let why = format!("a cell {} is there already; give this block a label = \"…\"", cell.name);
                    return Err(source.refuse(&mode.span(), why).into());
                }
                cells.push(cell);
            }
        }
        self.all_excludes_hit(source)
    }

    /// Who makes the states.
    fn exploring(&self, source: &Source<'_>) -> anyhow::Result<Exploring> {
        let Some(explorers) = &self.explorers else { return Ok(Exploring::default()) };
        let exploring = Exploring { explorers: explorers.get_ref().clone(), recipes: Vec::new() };
        exploring.check().map_err(|error| source.refuse(&explorers.span(), format!("{error:#}")))?;
        Ok(exploring)
    }

    /// An exclude that names what the block does not have would leave out nothing, and nobody would notice.
    fn all_excludes_hit(&self, source: &Source<'_>) -> anyhow::Result<()> {
        for exclude in &self.exclude {
            let names = |wanted: &Option<String>, have: &[&str]| {
                wanted.as_ref().is_none_or(|wanted| have.is_empty() || have.contains(&wanted.as_str()))
            };
            let fs: Vec<_> = self.fs.iter().map(|fs| fs.get_ref().as_str()).collect();
            let modes: Vec<_> = self.modes.iter().map(|mode| mode.get_ref().as_str()).collect();
            let modes = if modes.contains(&"all") { Vec::new() } else { modes };
            let it = exclude.get_ref();
            if !names(&it.fs, &fs) || !names(&it.mode, &modes) {
                return Err(source.refuse(&exclude.span(), "this exclude names what the block does not have").into());
            }
        }
        Ok(())
    }

    fn workloads(&self, source: &Source<'_>) -> anyhow::Result<Vec<Spec>> {
        let spec = |workload: &Spanned<Workload>| {
            let (name, opts) = match workload.get_ref() {
                Workload::Name(name) => (name, ""),
                Workload::With(with) => (&with.name, with.opts.as_str()),
            };
            let Some(spec) = Spec::named(name) else {
                let why = format!("there is no workload `{name}`; there are {}", Spec::NAMES.join(", "));
                return Err(source.refuse(&workload.span(), why));
            };
            spec.with_options(opts).map_err(|why| source.refuse(&workload.span(), why))
        };
        if self.workloads.is_empty() {
            return Ok(vec![Spec::named("mason").expect("it is there")]);
        }
        Ok(self.workloads.iter().map(spec).collect::<Result<_, _>>()?)
    }

    fn rigs(&self, source: &Source<'_>, auto: Auto<'_>) -> anyhow::Result<Vec<(String, Kernel)>> {
        let fs = self.fs.first().map_or("ext4", |fs| fs.get_ref().as_str());
        let mut rigs = Vec::new();
        let named: Vec<_> = self.kernels.iter().map(|text| (text.span(), text.get_ref().parse::<Kernel>())).collect();
        for (place, kernel) in named {
            let kernel = kernel.and_then(Kernel::absolute).map_err(|error| source.refuse(&place, error))?;
            rigs.push(match self.rig.as_ref().map(|rig| rig.get_ref().as_str()) {
                None | Some("auto") => auto(fs, Some(&kernel))?,
                Some(rig) => (rig.to_owned(), kernel),
            });
        }
        if rigs.is_empty() {
            rigs.push(match self.rig.as_ref().map(|rig| rig.get_ref().as_str()) {
                None | Some("auto") => auto(fs, None)?,
                Some("guest") => ("guest".into(), crate::doctor::guest_kernel()),
                Some(rig) => (rig.to_owned(), Kernel::Host),
            });
        }
        Ok(rigs)
    }
}

impl Exclude {
    fn hits(&self, cell: &CellConfig, axes: &Axes) -> bool {
        let is = |wanted: &Option<String>, have: &str| wanted.as_ref().is_none_or(|wanted| wanted == have);
        let seeded =
            self.seed.is_none_or(|seed| axes.seeds.len() == 1 || cell.name.ends_with(&format!("-seed-{seed}")));
        is(&self.fs, &cell.fs)
            && is(&self.mode, &cell.mode)
            && is(&self.workload, cell.workload.name())
            && is(&self.kernel, &cell.kernel.to_string())
            && seeded
    }
}

impl Drive {
    /// What `other` says, and else what this says.
    fn with(&self, other: &Drive) -> Drive {
        Drive {
            size: other.size.clone().or_else(|| self.size.clone()),
            cache: other.cache.clone().or_else(|| self.cache.clone()),
            cache_policy: other.cache_policy.clone().or_else(|| self.cache_policy.clone()),
            atomic: other.atomic.or(self.atomic),
            hold: other.hold.or(self.hold),
            hold_us: other.hold_us.or(self.hold_us),
        }
    }

    fn config(&self, source: &Source<'_>) -> Result<DriveConfig, Usage> {
        let usual = DriveConfig::default();
        let size = |text: &Option<Spanned<String>>, usual: u64| match text {
            None => Ok(usual),
            Some(text) => bytes(text.get_ref()).map_err(|error| source.refuse(&text.span(), error)),
        };
        Ok(DriveConfig {
            size: size(&self.size, usual.size)?,
            cache_bytes: size(&self.cache, usual.cache_bytes)?,
            cache_policy: self.cache_policy.clone().unwrap_or(usual.cache_policy),
            atomic: self.atomic,
            hold_depth: self.hold.unwrap_or(usual.hold_depth),
            hold_us: self.hold_us.unwrap_or(usual.hold_us),
        })
    }
}

fn expected(expect: &Spanned<Expect>, source: &Source<'_>) -> Result<Expectation, Usage> {
    match expect.get_ref() {
        Expect::Word(word) => match word.as_str() {
            "safe" => Ok(Expectation::Safe),
            "unsafe" => Ok(Expectation::Unsafe),
            "open" => Ok(Expectation::Open),
            other => {
                let why = format!(
                    "`{other}` is no expectation; say safe, unsafe, open or {{ known = […], reference = \"…\" }}"
                );
                Err(source.refuse(&expect.span(), why))
            }
        },
        Expect::Known(known) => {
            let share = known.at_most.map(|share| (0.0..=1.0).contains(&share).then_some((share * 1e6) as u32));
            let at_most_ppm = match share {
                Some(None) => return Err(source.refuse(&expect.span(), "at_most is a share, between 0 and 1")),
                Some(some) => some,
                None => None,
            };
            let finding = |word: &KnownWord| KnownFinding { kind: word.kind, says: word.says.clone() };
            Ok(Expectation::Known {
                findings: known.known.iter().map(finding).collect(),
                reference: known.reference.clone(),
                at_most_ppm,
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard::Shard;

    fn parse(text: &str) -> anyhow::Result<Config> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        read(file.path(), None, &|_, kernel| match kernel {
            None | Some(Kernel::Host) => Ok(("host-loop".into(), Kernel::Host)),
            Some(other) => Ok(("guest".into(), other.clone())),
        })
    }

    const TWO: &str = r#"
states = 10
seeds = [1, 2]
[[cells]]
fs = ["ext4", "xfs"]
modes = ["barrier", "nobarrier-w1"]
exclude = [{ fs = "xfs", mode = "nobarrier-w1" }]
[[cells]]
label = "small"
modes = ["all"]
kernels = ["debian-6.1"]
drive = { size = "64M" }
expect = "open"
"#;

    #[test]
    fn every_combination_is_a_cell_and_each_mode_comes_early() {
        let config = parse(TWO).unwrap();
        let names: Vec<_> = config.cells.iter().map(|cell| cell.name.as_str()).collect();
        assert!(names.contains(&"ext4-barrier-seed-1") && names.contains(&"xfs-barrier-seed-2"), "{names:?}");
        assert!(!names.iter().any(|name| name.starts_with("xfs-nobarrier-w1")), "{names:?}");
        assert!(names.contains(&"small-ext4-barrier-no-csum-debian-6.1-seed-1"), "{names:?}");
        let small = config.cells.iter().find(|cell| cell.name.starts_with("small")).unwrap();
        assert_eq!((small.drive.size, small.rig.as_str()), (64 << 20, "guest"));
        assert_eq!(small.expectation, Some(Expectation::Open));
        let mut modes = std::collections::HashSet::new();
        let first = config.cells.iter().take_while(|cell| modes.insert((&cell.fs, &cell.mode))).count();
        assert_eq!(first, modes.len(), "no mode a second time before each was there once: {names:?}");
    }

    #[test]
    fn shards_are_a_partition() {
        let config = parse(TWO).unwrap();
        let mut all: Vec<_> = (0..4)
            .flat_map(|number| Shard { number, of: 4 }.of(config.clone()).unwrap().cells)
            .map(|cell| cell.name)
            .collect();
        all.sort();
        let mut whole: Vec<_> = config.cells.iter().map(|cell| cell.name.clone()).collect();
        whole.sort();
        assert_eq!(all, whole);
        assert!(Shard { number: 999, of: 1000 }.of(config).is_err());
    }

    #[test]
    fn what_cannot_be_is_refused_with_its_line() {
        let cases = [
            ("states = 1\nstats = 2\n", "line 2", "stats"),
            ("states = 1\n[[cells]]\nmodes = [\"barrier\",\n \"nosuch\"]\n", "line 4", "nosuch"),
            ("states = 1\n[[cells]]\nfs = [\"ntfs\"]\nmodes = [\"barrier\"]\n", "line 3", "ntfs"),
            ("[[cells]]\nmodes = [\"barrier\"]\n", "line 2", "how many states"),
            ("states = 1\n[[cells]]\nmodes = [\"barrier\"]\nworkloads = [\"nosuch\"]\n", "line 4", "nosuch"),
            ("states = 1\n[[cells]]\nmodes = [\"barrier\"]\nkernels = [\"x\"]\n", "line 4", "no kernel"),
            ("states = 1\n[[cells]]\nmodes = [\"barrier\"]\nexpect = \"fine\"\n", "line 4", "no expectation"),
            ("states = 1\n[[cells]]\nmodes = [\"barrier\"]\nexclude = [{ fs = \"xfs\" }]\n", "line 4", "does not have"),
            ("states = 1\n[[cells]]\nmodes = [\"barrier\"]\n[[cells]]\nmodes = [\"barrier\"]\n", "line 5", "label"),
            ("states = 1\n[drive]\nsize = \"big\"\n[[cells]]\nmodes = [\"barrier\"]\n", "line 3", "no size"),
            ("states = 1\n[[cells]]\nfs = [\"xfs\"]\nmodes = [\"torn-512\"]\n", "line 4", "xfs has no mode"),
            (
                "states = 1\n[[cells]]\nmodes = [\"barrier\"]\nkernels = [\"debian-6.1\"]\nrig = \"host-loop\"\n",
                "line 3",
                "--rig guest",
            ),
            ("states = 8\n[[cells]]\nmodes = [\"barrier\"]\ndepth = 4\n", "line 3", "--depth 4"),
            ("states = 3\ndepth = 2\n[[cells]]\nmodes = [\"barrier\"]\n", "line 4", "at least --states 4"),
            ("states = 1\n", "matrix", "no cell"),
        ];
        for (text, line, why) in cases {
            let error = parse(text).unwrap_err();
            let said = error.to_string();
            assert!(error.is::<Usage>() && said.contains(why), "{text}: {said}");
            assert!(line == "matrix" || said.contains(line), "{text}: {said}");
        }
    }

    #[test]
    fn a_known_rate_has_a_bound() {
        let text = "states = 1\n[[cells]]\nmodes = [\"barrier\"]\nexpect = { known = [{ kind = \"mounts\" }], reference = \
                    \"here\", at_most = 0.25 }\n";
        let Some(Expectation::Known { findings, at_most_ppm, .. }) = parse(text).unwrap().cells[0].expectation.clone()
        else {
            panic!("known")
        };
        assert_eq!((findings[0].kind, at_most_ppm), (FindingKind::Mounts, Some(250_000)));
        assert!(parse(&text.replace("0.25", "25")).unwrap_err().to_string().contains("between 0 and 1"));
    }
}
