//! The rig `guest`: a machine of its own for the agent, by QEMU. Any kernel, no root, and killing QEMU is a real power
//! failure for the guest's kernel.
//!
//! ```text
//! kernel     a Debian package, fetched and unpacked, or the user's own files
//! modules    which kernel modules are needed, in order, from what the module files say themselves
//! libraries  which shared libraries the tools need, from the tools' ELF headers
//! image      all of that and the static agent as /init, in one initramfs
//! probe      what of all this is here, for the doctor
//! qemu       the command line; KVM if it works, which only trying can tell
//! ```
//!
//! The guest reaches a drive that is served on the host's loopback at [`HOST`], and attaches it with the real nbd-client:
//! FLUSH, FUA and TRIM arrive as such. The line to the agent is a virtio-serial port that ends in QEMU's standard input
//! and output; the guest's console and QEMU's complaints are on its standard error.

mod image;
pub mod kernel;
mod libraries;
mod modules;
mod probe;
mod qemu;
mod static_agent;
mod unpack;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::agent::{Agent, LinkError};
pub use kernel::Kernel;
pub use probe::probe_guest;
pub use qemu::Accel;
pub use static_agent::find as find_static_agent;

/// The host's loopback, as a guest sees it.
pub const HOST: &str = "10.0.2.2";

/// What a guest is made of.
#[derive(Clone, Debug)]
pub struct GuestSetup {
    /// The kernel under test.
    pub kernel: Kernel,
    /// The static agent; see [`find_static_agent`].
    pub agent: PathBuf,
    /// Programs of this machine that are put into the guest with their libraries; see [`tools_for`].
    pub tools: Vec<String>,
    /// File systems whose modules are loaded, e.g. `ext4`. Each costs time at the boot, so only what is needed.
    pub file_systems: Vec<String>,
    /// Memory, MiB.
    pub memory_mib: u32,
    /// Processors.
    pub cpus: u32,
    /// Who executes the guest's instructions.
    pub accel: Accel,
    /// Longest time from the start to the agent's first answer.
    pub boot_limit: Duration,
    /// Where images and unpacked kernels are kept; see [`cache_folder`].
    pub cache: PathBuf,
}

impl GuestSetup {
    /// A guest for one file system, with moderate values for everything else.
    ///
    /// # Errors
    /// There is no static agent or no place for the cache.
    pub fn new(kernel: Kernel, file_system: &str) -> Result<GuestSetup, GuestError> {
        Ok(GuestSetup::with_agent(kernel, file_system, find_static_agent(None)?, cache_folder(None)?))
    }

    /// The same with this agent and this cache.
    pub fn with_agent(kernel: Kernel, file_system: &str, agent: PathBuf, cache: PathBuf) -> GuestSetup {
        GuestSetup {
            kernel,
            agent,
            tools: tools_for(file_system),
            file_systems: vec![file_system.to_string()],
            memory_mib: 512,
            cpus: 2,
            accel: Accel::Auto,
            boot_limit: Duration::from_secs(60),
            cache,
        }
    }
}

/// The programs that make and check a file system, and nbd-client.
pub fn tools_for(file_system: &str) -> Vec<String> {
    let of_fs: &[&str] = match file_system {
        "ext2" | "ext3" | "ext4" => &["mkfs.ext4", "e2fsck", "dumpe2fs", "debugfs"],
        "xfs" => &["mkfs.xfs", "xfs_repair", "xfs_db"],
        "btrfs" => &["mkfs.btrfs", "btrfs"],
        _ => &[],
    };
    of_fs.iter().chain(&["nbd-client"]).map(ToString::to_string).collect()
}

/// Why there is no guest. Each says what is missing and what would bring it.
#[derive(Debug, thiserror::Error)]
pub enum GuestError {
    /// Something that the rig needs is not on this machine.
    #[error("{0}")]
    Missing(String),
    /// A file can't be read, made or understood.
    #[error("{doing}: {reason}")]
    Failed {
        /// The step.
        doing: String,
        /// What went wrong.
        reason: String,
    },
    /// The guest did not start, or did not answer.
    #[error("the guest of {kernel} with {accel} does not start: {source}")]
    Start {
        /// The kernel's name.
        kernel: String,
        /// KVM or TCG.
        accel: Accel,
        /// The reason, with the end of what was on its console.
        source: LinkError,
        /// All that is kept of what was on its console.
        console: String,
    },
}

impl GuestError {
    fn failed(doing: impl Into<String>, reason: impl std::fmt::Display) -> GuestError {
        GuestError::Failed { doing: doing.into(), reason: reason.to_string() }
    }
}

/// A guest that is ready to be started, any number of times.
#[derive(Clone, Debug)]
pub struct Guest {
    setup: GuestSetup,
    initramfs: PathBuf,
    qemu: PathBuf,
}

impl Guest {
    /// Finds QEMU and makes the initramfs, or takes it from the cache.
    ///
    /// # Errors
    /// Something is missing.
    pub fn prepare(setup: GuestSetup) -> Result<Guest, GuestError> {
        let qemu = qemu::find()?;
        let initramfs = image::make(&setup)?;
        Ok(Guest { setup, initramfs, qemu })
    }

    /// Boots one and waits until its agent answers.
    ///
    /// # Errors
    /// It does not come that far in time; with the text on its console.
    pub fn spawn(&self) -> Result<Agent, GuestError> {
        qemu::start(self)
    }

    /// Who executes its instructions; [`Accel::Auto`] only as long as that was not tried.
    pub fn accel(&self) -> Accel {
        qemu::chosen(self)
    }

    /// The initramfs.
    pub fn initramfs(&self) -> &Path {
        &self.initramfs
    }
}

/// Where kernels and images are kept: `asked`, or `powerfail` in the user's cache folder (XDG).
///
/// # Errors
/// The environment names no folder.
pub fn cache_folder(asked: Option<&Path>) -> Result<PathBuf, GuestError> {
    if let Some(folder) = asked {
        return Ok(folder.to_path_buf());
    }
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = variable("XDG_CACHE_HOME").or_else(|| variable("HOME").map(|home| home.join(".cache")));
    cache.map(|cache| cache.join("powerfail")).ok_or_else(|| {
        GuestError::Missing("there is no place for kernels and images: set XDG_CACHE_HOME or HOME".to_string())
    })
}

/// Makes `path` by `make`, whole or not at all: another process, or a killed one, never leaves half of it. `make` gets a
/// path in a new folder beside it.
fn whole(path: &Path, make: impl FnOnce(&Path) -> Result<(), GuestError>) -> Result<(), GuestError> {
    if path.exists() {
        return Ok(());
    }
    let doing = || format!("make {}", path.display());
    let folder = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(folder).map_err(|e| GuestError::failed(doing(), e))?;
    clean_parts(folder);
    let part = tempfile::Builder::new().prefix(PART).tempdir_in(folder);
    let part = part.map_err(|e| GuestError::failed(doing(), e))?;
    let made = part.path().join("made");
    make(&made)?;
    match fs::rename(&made, path) {
        Ok(()) => Ok(()),
        // Somebody else was faster; theirs is as good.
        Err(_) if path.exists() => Ok(()),
        Err(e) => Err(GuestError::failed(doing(), e)),
    }
}

const PART: &str = ".part-";
/// Nobody takes longer than this to make something.
const STALE: Duration = Duration::from_secs(24 * 3600);

/// Removes what killed runs left.
fn clean_parts(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let ours = entry.file_name().to_string_lossy().starts_with(PART);
        let age = entry.metadata().and_then(|meta| meta.modified()).ok().and_then(|time| time.elapsed().ok());
        if ours && age.is_some_and(|age| age > STALE) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Runs a program of this machine to its end; its standard output.
fn run(program: &str, arguments: &[&str], folder: &Path, package: &str) -> Result<String, GuestError> {
    let doing = format!("run {program} {}", arguments.join(" "));
    let started = Instant::now();
    let ran = std::process::Command::new(program)
        .args(arguments)
        .current_dir(folder)
        .env("LC_ALL", "C")
        .stdin(std::process::Stdio::null())
        .output()
        .map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => {
                GuestError::Missing(format!("{program} is not installed: apt-get install {package}"))
            }
            _ => GuestError::failed(&doing, e),
        })?;
    if ran.status.success() {
        return Ok(String::from_utf8_lossy(&ran.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&ran.stderr);
    let took = started.elapsed().as_secs();
    Err(GuestError::failed(doing, format!("it failed after {took} s: {}", said.trim())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_is_made_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/thing");
        let failed = whole(&path, |part| {
            fs::write(part, "half").unwrap();
            Err(GuestError::failed("make", "out of ideas"))
        });
        assert!(failed.is_err() && !path.exists());
        assert_eq!(fs::read_dir(folder.path().join("deep")).unwrap().count(), 0, "nothing is left of it");
        whole(&path, |part| fs::write(part, "whole").map_err(|e| GuestError::failed("write", e))).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "whole");
        whole(&path, |_| panic!("it is there already")).unwrap();
    }

    #[test]
    fn a_program_that_is_missing_names_its_package() {
        let error = run("no-such-program", &[], Path::new("/"), "no-such-package").unwrap_err();
        assert_eq!(error.to_string(), "no-such-program is not installed: apt-get install no-such-package");
        let error = run("ls", &["/no/such/path"], Path::new("/"), "coreutils").unwrap_err();
        assert!(error.to_string().contains("No such file"), "{error}");
    }
}
