//! The words of `serve` and `ctl`, and what a drive is asked to be.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::bail;
use clap::{Args, Subcommand, ValueEnum};
use powerfail_drive::cache::{Cache, Description, Policy};
use powerfail_drive::event::Header;
use powerfail_drive::request::Geometry;
use powerfail_drive::units::AtomicUnit;
use powerfail_nbd::{Hold, MAX_DEPTH};
use powerfail_seed::Seed;

use super::protocol::Style;
use crate::cli::bytes;
use crate::folder::Usage;

/// What to serve.
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// Size of the drive
    #[arg(long, default_value = "512M", value_parser = bytes)]
    pub size: u64,
    /// Size of its write cache
    #[arg(long, default_value = "8M", value_parser = bytes)]
    pub cache: u64,
    /// What a full cache writes first: fifo, elevator or random
    #[arg(long, default_value = "fifo")]
    pub cache_policy: String,
    /// Atomic unit in bytes: 512 or 4096
    #[arg(long, default_value_t = 4096)]
    pub atomic: u64,
    /// Whether there is a volatile write cache; without one FLUSH and FUA are not offered
    #[arg(long, value_enum, default_value_t = Switch::On)]
    pub write_cache: Switch,
    /// Listen on this Unix socket; by default one in a folder of its own
    #[arg(long, value_name = "PATH", conflicts_with = "listen")]
    pub unix: Option<PathBuf>,
    /// Listen on this TCP address, for example 127.0.0.1:10809
    #[arg(long, value_name = "ADDR")]
    pub listen: Option<SocketAddr>,
    /// Allow an address that other machines can reach; nothing asks them for a password
    #[arg(long, requires = "listen")]
    pub anywhere: bool,
    /// The control socket, for `powerfail ctl`; by default one in a folder of its own
    #[arg(long, value_name = "PATH")]
    pub control: Option<PathBuf>,
    /// Keep the recordings in this folder, which must be new or empty; by default they are removed at the end
    #[arg(long, value_name = "DIR")]
    pub record: Option<PathBuf>,
    /// Seed of every decision
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Hold a reply back for up to so many later requests, so that writes are in flight; 0: not at all
    #[arg(long, default_value_t = 0)]
    pub hold: u32,
    /// … and for at most so many microseconds
    #[arg(long, default_value_t = 2000)]
    pub hold_us: u64,
    /// Name of the export
    #[arg(long, default_value = "")]
    pub export: String,
    /// Print one line of JSON instead of the commands that attach
    #[arg(long)]
    pub json: bool,
}

/// On or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    /// It is there.
    On,
    /// It is not.
    Off,
}

/// What to tell a served drive.
#[derive(Debug, Args)]
pub struct CtlArgs {
    /// The control socket; by default that of the only `powerfail serve` that runs
    #[arg(long, value_name = "PATH", global = true)]
    pub control: Option<PathBuf>,
    /// Print the answer as it comes, as JSON
    #[arg(long, global = true)]
    pub json: bool,
    /// Wait so many seconds for the server to come up
    #[arg(long, value_name = "SECONDS", default_value_t = 0, global = true)]
    pub wait: u64,
    /// What to tell it
    #[command(subcommand)]
    pub verb: CtlVerb,
}

/// What to tell a served drive.
#[derive(Debug, Subcommand)]
pub enum CtlVerb {
    /// Cut the power
    Cut {
        /// What hosts see: errors for what is in flight, only closed connections, or nothing at all
        #[arg(long, value_enum, default_value_t = Style::Error)]
        style: Style,
        /// Seed of what survives; by default drawn from the server's seed
        #[arg(long)]
        seed: Option<u64>,
    },
    /// Bring the power back; the drive has what survived
    Restore,
    /// Say whether the power is on, who is connected, what was recorded
    Status,
    /// Put a mark in the recording
    Mark {
        /// Its text
        text: String,
    },
    /// Write what hosts see now to a file; without power: what is on the platter
    Snapshot {
        /// Where to; must not exist
        file: PathBuf,
    },
    /// Write the recording so far as a dm-log-writes log
    Export {
        /// Where to; must not exist
        file: PathBuf,
    },
}

/// What a drive is, as it was asked for.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) header: Header,
    pub(crate) drive: Description,
    pub(crate) seed: Seed,
    pub(crate) hold: Option<Hold>,
    pub(crate) export: String,
}

impl ServeArgs {
    /// Checks what was asked for.
    ///
    /// # Errors
    /// [`Usage`] with what to say instead.
    pub(crate) fn setup(&self) -> anyhow::Result<Setup> {
        let usage = |text: String| Err(Usage(text).into());
        let Some(geometry) = Geometry::new(self.size) else {
            return usage(format!("a drive of {} bytes is no whole number of 512-byte sectors", self.size));
        };
        let Some(unit) = AtomicUnit::from_bytes(self.atomic) else {
            return usage(format!("--atomic is 512 or 4096, not {}", self.atomic));
        };
        if self.cache < unit.bytes() {
            return usage("a write cache holds at least one atomic unit; for none say --write-cache off".into());
        }
        if self.hold > MAX_DEPTH {
            return usage(format!("--hold is at most {MAX_DEPTH}"));
        }
        let seed = Seed(self.seed);
        let policy = match self.cache_policy.as_str() {
            "fifo" => Policy::Fifo,
            "elevator" => Policy::Elevator,
            "random" => Policy::Random(seed.at("cache", &[])),
            other => bail!(Usage(format!("there is no cache policy `{other}`; there are fifo, elevator and random"))),
        };
        let hold = (self.hold > 0).then(|| Hold {
            seed: seed.at("hold", &[]),
            depth: self.hold,
            max_time: Duration::from_micros(self.hold_us),
        });
        Ok(Setup {
            header: Header::honest(geometry, self.write_cache == Switch::On),
            drive: Description::honest(unit, Cache { bytes: self.cache, policy }),
            seed,
            hold,
            export: self.export.clone(),
        })
    }
}
