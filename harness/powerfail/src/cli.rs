//! The command line: its words, and what they become.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Args, Parser, Subcommand, ValueEnum};
use powerfail_workloads::Spec;

use crate::axes::Axes;
use crate::config::{Config, DriveConfig, FORMAT};
use crate::doctor;
use crate::exploring::ExploreArgs;
use crate::filesystems;
use crate::folder::Usage;
use crate::kernels::Kernel;
use crate::plan_again::PlanArgs;
use crate::progress::say;
use crate::recoveries::RecoveriesArgs;
use crate::run::Effort;
use crate::selftest::SelftestArgs;
use crate::serve::{CtlArgs, ServeArgs};
use crate::verbs_answers::{ExplainArgs, ShrinkArgs};
use crate::verbs_matrix::MatrixArgs;
use crate::verbs_results::{CompareArgs, HistoryArgs, ReportArgs};

/// A power-fail crash-consistency torture harness: what does a power cut do to this file system, in this mode?
#[derive(Debug, Parser)]
#[command(
    name = "powerfail",
    version,
    max_term_width = 110,
    after_help = "\
Exit codes: 0 every cell as expected; 1 a cell departs from its expectation, or inconclusive; 2 usage or input; \
3 the harness itself broke; 4 nothing could be tested; 130 stopped by Ctrl-C."
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Say what works here, what is missing, and the package that brings it
    Doctor {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Record a workload on a real kernel, cut the power many times, judge every recovery
    // A script's own words come before its user's, and the last one counts.
    #[command(args_override_self = true)]
    Run(RunArgs),
    /// The first phase of a run alone: record
    Record(RunArgs),
    /// The second phase alone: plan the crash states of what was recorded
    #[command(args_override_self = true)]
    Plan {
        /// The folder of the run
        dir: PathBuf,
        /// What to plan, if not what the run was begun with
        #[command(flatten)]
        args: PlanArgs,
    },
    /// The third phase alone: judge what was planned and has no verdict yet
    Verify {
        /// The folder of the run
        dir: PathBuf,
        /// How hard to try
        #[command(flatten)]
        effort: EffortArgs,
        /// What to print and write
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Run the cells of a matrix file: file systems, modes, workloads, kernels, seeds, each with its budget and expectation
    Matrix(MatrixArgs),
    /// Print the table of one or more runs and write their page
    Report(ReportArgs),
    /// Say whether one run is worse than another, by Fisher's exact test; for `git bisect run`
    Compare(CompareArgs),
    /// Prove that this harness sees what it must: drives that lie are caught, an honest one is not accused, canaries end as they must
    Selftest(SelftestArgs),
    /// Rates over many nights, and the night on which one changed
    History(HistoryArgs),
    /// Judge one crash state again: the same findings must come out
    Replay {
        /// The folder of a casebook, or a recipe (`pf1 rec=…`)
        what: String,
        /// The folder of the run whose recording a recipe needs
        #[arg(long)]
        dir: Option<PathBuf>,
        /// How often, each time with a new agent and image
        #[arg(long, default_value_t = 1)]
        times: u32,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Find the few lost fragments of a violated state that matter; a casebook for a maintainer comes of it
    Shrink(ShrinkArgs),
    /// Say what a state lost, by the role that it had, and how that led to what is found
    Explain(ExplainArgs),
    /// Write the image of one crash state to a file
    Materialise {
        /// The folder of a casebook, or a recipe
        what: String,
        /// The folder of the run, or of a served drive, whose recording a recipe needs
        #[arg(long)]
        dir: Option<PathBuf>,
        /// Where to; must not exist
        #[arg(short, long)]
        output: PathBuf,
    },
    /// List the journal of an ext3 or ext4 image as a table
    Journal {
        /// The image: a file, or a device that is not mounted
        image: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Replay the journals of crash states by kernel, e2fsck and powerfail itself, and compare block by block
    Recoveries(RecoveriesArgs),
    /// Serve a drive to use by hand, whose power can be cut
    Serve(ServeArgs),
    /// Cut the power of a served drive, restore it, look at it
    Ctl(CtlArgs),
    /// Look at a recording, or carry it from and to dm-log-writes
    Recording {
        /// What to do with it
        #[command(subcommand)]
        verb: RecordingVerb,
    },
    /// The project's own figures, beside their floor or peer
    Bench {
        /// Which
        #[command(subcommand)]
        verb: BenchVerb,
    },
}

/// What to do with a recording.
#[derive(Debug, Subcommand)]
pub enum RecordingVerb {
    /// Write a recording in another format
    Export {
        /// The recording, or the folder that holds it
        dir: PathBuf,
        /// The format
        #[arg(long)]
        format: Format,
        /// Where to; must not exist
        #[arg(short, long)]
        output: PathBuf,
    },
    /// Read a recording from another format
    Import {
        /// The log
        file: PathBuf,
        /// The format
        #[arg(long)]
        format: Format,
        /// The folder for the recording
        #[arg(short, long)]
        output: PathBuf,
        /// Size of the drive, which a log does not say
        #[arg(long, default_value = "512M", value_parser = bytes)]
        size: u64,
    },
    /// Count what a recording holds, and check every checksum
    Show {
        /// The recording, or the folder that holds it
        dir: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

/// Formats of recordings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// The kernel's dm-log-writes
    LogWrites,
}

/// The project's own figures.
#[derive(Debug, Subcommand)]
pub enum BenchVerb {
    /// States verified a second, beside a bare loop device over the same images
    Verify {
        /// States
        #[arg(long, default_value_t = 120)]
        states: u64,
        /// At a time
        #[arg(long, default_value_t = 4)]
        jobs: usize,
        /// Files in the tree
        #[arg(long, default_value_t = 1000)]
        files: u32,
        /// Rounds; the median counts
        #[arg(long, default_value_t = 3)]
        rounds: usize,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// A workload on a recorded drive, beside the same drive unrecorded
    Record {
        /// Steps of each worker
        #[arg(long, default_value_t = 1500)]
        steps: u64,
        /// Rounds; the median counts
        #[arg(long, default_value_t = 5)]
        rounds: usize,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Guests: from the start to attached, states verified a second, and where the time of one goes
    Guest {
        /// States
        #[arg(long, default_value_t = 60)]
        states: u64,
        /// Guests at a time
        #[arg(long, default_value_t = 2)]
        guests: usize,
        /// Files in the tree
        #[arg(long, default_value_t = 300)]
        files: u32,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// The server while it records, beside qemu-nbd and nbdkit, by fio over a Unix socket
    Nbd {
        /// Size of the drives; four times that is the most that one figure writes
        #[arg(long, default_value = "256M", value_parser = bytes)]
        size: u64,
        /// Most seconds for one figure
        #[arg(long, default_value_t = 2)]
        seconds: u32,
        /// Rounds; the median counts
        #[arg(long, default_value_t = 3)]
        rounds: usize,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

/// What to run.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// File systems, separated by commas: ext4, ext4-1k, ext3, ext2, xfs, btrfs
    #[arg(long, default_value = "ext4", value_delimiter = ',')]
    pub fs: Vec<String>,
    /// Modes, separated by commas; `all` is every mode, with and without metadata checksums where it matters
    #[arg(long, default_value = "barrier", value_delimiter = ',')]
    pub mode: Vec<String>,
    /// Workloads, separated by commas
    #[arg(long, default_value = "mason", value_delimiter = ',')]
    pub workload: Vec<String>,
    /// Options of the workload, as key=value,key=value; said for one workload alone
    #[arg(long, default_value = "", value_name = "OPTS")]
    pub workload_opts: String,
    /// Seed of every decision
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Distinct images to judge, for each mode
    #[arg(long, default_value_t = 200)]
    pub states: u64,
    /// Crashes of a state: 2 cuts recoveries too, 3 also the recoveries from those; each depth has a quarter of the states
    #[arg(long, default_value_t = 1)]
    pub depth: u32,
    /// Judge no longer than this, in each cell, such as 10m; the states that were judged are spread over the recording
    #[arg(long = "for", value_name = "TIME", value_parser = humantime::parse_duration)]
    pub limit: Option<Duration>,
    /// Cut the power of the whole machine, each time a fresh guest, instead of constructing states; needs the rig guest
    #[arg(long)]
    pub live: bool,
    /// How many live cuts, for each mode
    #[arg(long, default_value_t = 30, requires = "live", value_parser = clap::value_parser!(u64).range(1..=9999))]
    pub cuts: u64,
    /// Who makes them
    #[command(flatten)]
    pub explore: ExploreArgs,
    /// Rig: where the kernel is and how it is attached
    #[arg(long, default_value = "auto")]
    pub rig: String,
    /// Kernels, separated by commas, one row each: host, debian-6.1, debian-6.12, or the path of your own bzImage (./bzImage)
    #[arg(long, value_delimiter = ',')]
    pub kernel: Vec<String>,
    /// The modules of your own kernel: lib/modules/VERSION, or what INSTALL_MOD_PATH was
    #[arg(long, value_name = "DIR")]
    pub modules: Option<PathBuf>,
    /// Folder of the run; must be new or empty
    #[arg(long, default_value = "powerfail-out")]
    pub out: PathBuf,
    /// Go on with the run in the folder
    #[arg(long)]
    pub resume: bool,
    /// Leave out the short selftest, of a few seconds, with which a run begins
    #[arg(long)]
    pub no_selftest: bool,
    /// More options for mkfs
    #[arg(long, default_value = "", allow_hyphen_values = true)]
    pub mkfs_opts: String,
    /// More mount options
    #[arg(long, default_value = "")]
    pub mount_opts: String,
    /// Size of the drive
    #[arg(long, default_value = "512M", value_parser = bytes)]
    pub size: u64,
    /// Size of the drive's write cache
    #[arg(long, default_value = "8M", value_parser = bytes)]
    pub cache: u64,
    /// What a full cache writes first: fifo, elevator or random
    #[arg(long, default_value = "fifo")]
    pub cache_policy: String,
    /// Atomic unit in bytes, 512 or 4096; the mode's own if not said
    #[arg(long)]
    pub atomic: Option<u64>,
    /// Without a write cache: a reply is held back for up to so many later requests, so that writes are in flight
    #[arg(long, default_value_t = 16)]
    pub hold: u32,
    /// … and for at most so many microseconds
    #[arg(long, default_value_t = 2000)]
    pub hold_us: u64,
    /// Options of the workload
    #[command(flatten)]
    pub mason: MasonArgs,
    /// How hard to try
    #[command(flatten)]
    pub effort: EffortArgs,
    /// What to print and write
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Options of the workload mason.
#[derive(Debug, Args)]
pub struct MasonArgs {
    /// Seconds that the workload runs
    #[arg(long, default_value_t = 4)]
    pub seconds: u32,
    /// Steps of each worker, if they are to end it before the seconds do
    #[arg(long)]
    pub steps: Option<u64>,
    /// Workers
    #[arg(long, default_value_t = 4)]
    pub workers: u32,
    /// Files that they keep
    #[arg(long, default_value_t = 1000)]
    pub files: u32,
    /// Percent of the new names that are long
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(0..=100))]
    pub long_names: u32,
    /// Percent of the changes that are synced at once
    #[arg(long, default_value_t = 65, value_parser = clap::value_parser!(u32).range(0..=100))]
    pub syncs: u32,
    /// Largest file, in KiB
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub file_size: u64,
    /// Memory that the hog takes, in MiB; 0 for none
    #[arg(long, default_value_t = 64)]
    pub hog: u32,
}

/// How hard to try.
#[derive(Debug, Args)]
pub struct EffortArgs {
    /// States verified at a time; 0: twice the processors
    #[arg(long, default_value_t = 0)]
    pub jobs: usize,
    /// Stop each cell at its first violation
    #[arg(long)]
    pub until_found: bool,
    /// Cells at a time; 0: one for every two processors
    #[arg(long, default_value_t = 0)]
    pub cells: usize,
    /// In each cell, shrink and explain a state of so many groups that are wrong in the same way; 1 on host rigs, 0 in guests
    #[arg(long, value_name = "GROUPS")]
    pub shrink: Option<usize>,
    /// Recordings that stay when their cell is done: all, or violated, which are those of cells with a violated state
    #[arg(long, value_enum, default_value_t = Keep::All)]
    pub keep: Keep,
}

/// Which recordings stay when their cell is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Keep {
    /// All.
    All,
    /// Those of cells with a violated state: the others have nothing to replay.
    Violated,
}

/// What to print and write.
#[derive(Debug, Args)]
pub struct OutputArgs {
    /// Where the page goes; by default page.html in the (first) folder
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Print JSON instead of the table
    #[arg(long)]
    pub json: bool,
}

impl RunArgs {
    /// The configuration that was asked for.
    ///
    /// # Errors
    /// [`Usage`] with what to say instead.
    pub fn config(&self) -> anyhow::Result<Config> {
        // Bad options are refused before the machine is asked which rig works.
        let kernels = self.kernels()?;
        self.with_rigs(self.rigs(&kernels, |kernel| match kernel {
            None | Some(Kernel::Host) => Ok(("host-loop".into(), Kernel::Host)),
            Some(other) => Ok(("guest".into(), other.clone())),
        })?)?;
        let fs = filesystems::named(&self.fs[0]).expect("just checked");
        self.with_rigs(self.rigs(&kernels, |kernel| match kernel {
            None => {
                let (rig, kernel, why) = doctor::choose(fs)?;
                say(&why);
                Ok((rig.into(), kernel))
            }
            Some(Kernel::Host) => Ok((doctor::choose_host(fs)?.into(), Kernel::Host)),
            Some(other) => Ok(("guest".into(), other.clone())),
        })?)
    }

    fn with_rigs(&self, rigs: Vec<(String, Kernel)>) -> anyhow::Result<Config> {
        let workloads = self.workload.iter().map(|name| self.workload(name)).collect::<anyhow::Result<Vec<_>>>()?;
        let axes = Axes {
            fs: self.fs.clone(),
            modes: self.mode.clone(),
            mkfs_opts: self.mkfs_opts.clone(),
            mount_opts: self.mount_opts.clone(),
            drive: DriveConfig {
                size: self.size,
                cache_bytes: self.cache,
                cache_policy: self.cache_policy.clone(),
                atomic: self.atomic,
                hold_depth: self.hold,
                hold_us: self.hold_us,
            },
            workloads,
            rigs,
            seeds: vec![self.seed],
            states: self.states,
            depth: self.depth,
            limit_s: self.limit.map(|limit| limit.as_secs().max(1)),
            exploring: self.explore.exploring()?.unwrap_or_default(),
            expectation: None,
            label: String::new(),
        };
        let mut cells = axes.cells()?;
        if self.live {
            for cell in &mut cells {
                // The seed stays: the same steps as in the cell whose states are constructed.
                cell.name.push_str("-live");
                (cell.live, cell.states) = (true, self.cuts);
            }
        }
        let config = Config { format: FORMAT, seed: self.seed, cells, shard: None };
        config.check().map_err(|error| Usage(error.to_string()))?;
        Ok(config)
    }

    fn workload(&self, name: &str) -> anyhow::Result<Spec> {
        let Some(mut spec) = Spec::named(name) else {
            bail!(Usage(format!("there is no workload `{name}`; there are {}", Spec::NAMES.join(", "))));
        };
        if let Spec::Mason(mason) = &mut spec {
            mason.seconds = self.mason.seconds;
            mason.steps = self.mason.steps;
            mason.workers = self.mason.workers;
            mason.files = self.mason.files;
            mason.long_names_percent = self.mason.long_names;
            mason.sync_percent = self.mason.syncs;
            mason.file_blocks = self.mason.file_size * 2;
            mason.hog_mib = self.mason.hog;
        }
        if self.workload_opts.is_empty() {
            return Ok(spec);
        }
        if self.workload.len() > 1 {
            bail!(Usage("--workload-opts is for one workload; run them one by one, or write a matrix file".into()));
        }
        Ok(spec.with_options(&self.workload_opts).map_err(Usage)?)
    }

    fn kernels(&self) -> anyhow::Result<Vec<Kernel>> {
        let kernel = |text: &String| text.parse::<Kernel>()?.with_modules(self.modules.as_deref()).absolute();
        let kernels = self.kernel.iter().map(kernel).collect::<anyhow::Result<Vec<_>>>()?;
        if self.modules.is_some() && !kernels.iter().any(|kernel| matches!(kernel, Kernel::Own { .. })) {
            bail!(Usage("--modules is for a kernel of your own; say --kernel PATH, its bzImage".into()));
        }
        Ok(kernels)
    }

    /// Each kernel with the rig that runs it; `auto` says which rig that is where it was not said, and which kernel where
    /// none was.
    fn rigs(
        &self,
        kernels: &[Kernel],
        auto: impl Fn(Option<&Kernel>) -> anyhow::Result<(String, Kernel)>,
    ) -> anyhow::Result<Vec<(String, Kernel)>> {
        let rig = if self.live && self.rig == "auto" { "guest" } else { &self.rig };
        match (rig, kernels) {
            ("auto", []) => Ok(vec![auto(None)?]),
            ("auto", kernels) => kernels.iter().map(|kernel| auto(Some(kernel))).collect(),
            ("guest", []) => Ok(vec![("guest".into(), doctor::guest_kernel())]),
            (rig, []) => Ok(vec![(rig.into(), Kernel::Host)]),
            (rig, kernels) => Ok(kernels.iter().map(|kernel| (rig.into(), kernel.clone())).collect()),
        }
    }
}

impl EffortArgs {
    /// With the defaults filled in.
    pub fn effort(&self) -> Effort {
        let processors = std::thread::available_parallelism().map_or(2, usize::from);
        let cells = if self.cells == 0 { (processors / 2).max(1) } else { self.cells };
        let jobs = if self.jobs == 0 { (processors * 2).div_ceil(cells) } else { self.jobs };
        Effort { jobs, until_found: self.until_found, cells, keep: self.keep, shrink: self.shrink }
    }
}

/// A size such as `512M` (MiB) or a plain number of bytes.
pub(crate) fn bytes(text: &str) -> anyhow::Result<u64> {
    parse_size::Config::new()
        .with_binary()
        .parse_size(text)
        .with_context(|| format!("`{text}` is no size, such as 512M"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_word_on_an_option_counts() {
        let cli = Cli::try_parse_from(["powerfail", "run", "--states", "200", "--seed", "3", "--states", "7"]).unwrap();
        let Verb::Run(args) = cli.verb else { panic!("a run") };
        assert_eq!((args.states, args.seed), (7, 3));
    }
}
