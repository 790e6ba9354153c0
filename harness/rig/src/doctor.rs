//! What works on this machine, what is missing, and the Debian package that brings it.
//!
//! A probe tries the thing itself where that is harmless (it makes namespaces, attaches a loop device); a version or
//! a file's presence alone proves little.

use std::fs::{self, File, OpenOptions};
use std::os::fd::AsFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use serde::{Deserialize, Serialize};

use crate::agent::{Agent, AgentSetup};
use crate::workdir::Workdir;

/// One question to the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probe {
    /// What was asked for, e.g. "nbdfuse".
    pub name: String,
    /// The answer.
    pub state: State,
    /// Whether the rig can't do without it. File systems and their tools are needed only for their own cells.
    pub required: bool,
    /// One sentence for a person.
    pub detail: String,
}

/// Whether something works.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// It was tried and works.
    Works,
    /// It is not there.
    Missing {
        /// What.
        what: String,
        /// The Debian package that brings it; none: no package does (a kernel's option, a privilege).
        package: Option<String>,
    },
    /// It is found out when it is first used.
    Untried,
    /// It is there and does not work.
    Failed {
        /// What the system said.
        reason: String,
    },
}

impl Probe {
    /// Whether it works.
    pub fn works(&self) -> bool {
        self.state == State::Works
    }

    /// Whether the rig can't work because of it.
    pub fn blocks(&self) -> bool {
        self.required && matches!(self.state, State::Missing { .. } | State::Failed { .. })
    }
}

/// Everything that the rig `host-loop` uses. `program` and `arguments` start an agent, as in [`AgentSetup`].
pub fn probe_host_loop(program: &Path, arguments: &[&str]) -> Vec<Probe> {
    let mut probes = vec![
        root(),
        device("FUSE", "/dev/fuse", "nbdfuse can make a file of the drive"),
        device("loop devices", "/dev/loop-control", "the file can become a disk"),
        kernel_log(),
        memory_files(),
    ];
    probes.extend(TOOLS.iter().map(Tool::probe));
    probes.extend(FILE_SYSTEMS.iter().map(|fs| file_system(fs)));
    let needs: Vec<&str> = ["root", "loop devices", "kernel log", "memory files"]
        .into_iter()
        .filter(|name| probes.iter().any(|probe| probe.name == *name && !probe.works()))
        .collect();
    probes.push(agent(program, arguments, Some(SCRATCH), &needs));
    probes
}

/// Everything that the rig `host-nbd` uses beyond what every host rig needs.
pub fn probe_host_nbd(program: &Path, arguments: &[&str]) -> Vec<Probe> {
    let mut probes = vec![root(), nbd_driver(), NBD_CLIENT.probe(), kernel_log(), memory_files()];
    let needs: Vec<&str> = ["root", "kernel log", "memory files"]
        .into_iter()
        .filter(|name| probes.iter().any(|probe| probe.name == *name && !probe.works()))
        .collect();
    probes.push(agent(program, arguments, None, &needs));
    probes
}

pub(crate) const NBD_CLIENT: Tool =
    tool("nbd-client", "nbd-client", true, "connects a drive to the kernel's NBD driver");

fn nbd_driver() -> Probe {
    let works = Path::new("/sys/block/nbd0").exists() && Path::new("/dev/nbd0").exists();
    let (state, detail) = if works {
        (State::Works, "The kernel's NBD driver is there.".to_string())
    } else {
        let what = "the kernel's NBD driver".to_string();
        let detail = "There is no /dev/nbd0: load the kernel's module with `modprobe nbd` (package linux-image-amd64 has it), \
                      or use the rig guest.";
        (State::Missing { what, package: Some("linux-image-amd64".into()) }, detail.to_string())
    };
    Probe { name: "nbd in the kernel".into(), state, required: true, detail }
}

/// Whether a tool is where agents look for it.
pub fn has_tool(name: &str) -> bool {
    TOOL_FOLDERS.iter().any(|folder| runs(&Path::new(folder).join(name)))
}

/// A program that a rig runs.
pub(crate) struct Tool {
    name: &'static str,
    package: &'static str,
    required: bool,
    purpose: &'static str,
}

const fn tool(name: &'static str, package: &'static str, required: bool, purpose: &'static str) -> Tool {
    Tool { name, package, required, purpose }
}

const TOOLS: &[Tool] = &[
    tool("nbdfuse", "libnbd-bin", true, "makes a file of the drive's NBD export"),
    tool("mkfs.ext4", "e2fsprogs", false, "makes ext4, ext3 and ext2"),
    tool("e2fsck", "e2fsprogs", false, "judges ext4, ext3 and ext2"),
    tool("dumpe2fs", "e2fsprogs", false, "says what is in an ext4 superblock"),
    tool("debugfs", "e2fsprogs", false, "looks into ext4 by hand"),
    tool("mkfs.xfs", "xfsprogs", false, "makes XFS"),
    tool("xfs_repair", "xfsprogs", false, "judges XFS"),
    tool("mkfs.btrfs", "btrfs-progs", false, "makes btrfs"),
    tool("btrfs", "btrfs-progs", false, "judges btrfs"),
    tool("nbdinfo", "libnbd-bin", false, "asks a served drive who it is"),
    tool("nbdkit", "nbdkit", false, "is the server that the project's own is measured against"),
    tool("fio", "fio", false, "loads drives in benchmarks"),
];

/// File systems with a sentence for each.
const FILE_SYSTEMS: &[&str] = &["ext4", "ext3", "ext2", "xfs", "btrfs"];

impl Tool {
    pub(crate) fn probe(&self) -> Probe {
        let found = TOOL_FOLDERS.iter().map(|folder| Path::new(folder).join(self.name)).find(|path| runs(path));
        match found {
            Some(path) => Probe {
                name: self.name.to_string(),
                state: State::Works,
                required: self.required,
                detail: format!("{} {}.", path.display(), self.purpose),
            },
            None => Probe {
                name: self.name.to_string(),
                state: State::Missing { what: self.name.to_string(), package: Some(self.package.to_string()) },
                required: self.required,
                detail: format!("{} {}: apt-get install {}.", self.name, self.purpose, self.package),
            },
        }
    }
}

/// Where the agent looks for tools; the environment of the caller does not count there either.
const TOOL_FOLDERS: &[&str] = &["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// Whether a path is a program: a file that may be executed.
fn runs(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

fn root() -> Probe {
    let works = rustix::process::geteuid().is_root();
    let state =
        if works { State::Works } else { State::Missing { what: "the privileges of root".into(), package: None } };
    let detail = if works { "Mounts and loop devices can be made." } else { "Run as root, or use the rig guest." };
    Probe { name: "root".into(), state, required: true, detail: detail.into() }
}

fn device(name: &str, path: &str, purpose: &str) -> Probe {
    let (state, detail) = match OpenOptions::new().read(true).write(true).open(path) {
        Ok(_) => (State::Works, format!("{path} opens, so {purpose}.")),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => (
            State::Missing { what: path.to_string(), package: None },
            format!("There is no {path}: the kernel lacks it, or its module is not loaded, or this is a container."),
        ),
        Err(e) => (State::Failed { reason: e.to_string() }, format!("{path} can't be opened: {e}.")),
    };
    Probe { name: name.into(), state, required: true, detail }
}

fn kernel_log() -> Probe {
    let (state, detail) = match OpenOptions::new().read(true).custom_flags(NONBLOCK).open("/dev/kmsg") {
        Ok(_) => (State::Works, "/dev/kmsg opens, so the kernel's complaints are seen.".to_string()),
        Err(e) => {
            let reason = e.to_string();
            (State::Failed { reason }, format!("/dev/kmsg can't be read ({e}); without it no state can be judged."))
        }
    };
    Probe { name: "kernel log".into(), state, required: true, detail }
}

/// `O_NONBLOCK`.
const NONBLOCK: i32 = rustix::fs::OFlags::NONBLOCK.bits() as i32;

fn memory_files() -> Probe {
    let (state, detail) = match scratch_image() {
        Ok(_) => (State::Works, "memfd_create works, so crash states need no disk.".to_string()),
        Err(e) => (State::Failed { reason: e.to_string() }, format!("memfd_create fails: {e}.")),
    };
    Probe { name: "memory files".into(), state, required: true, detail }
}

fn scratch_image() -> rustix::io::Result<File> {
    let image = memfd_create("powerfail-probe", MemfdFlags::CLOEXEC)?;
    ftruncate(&image, SCRATCH)?;
    Ok(File::from(image))
}

/// Bytes of the image that the probe attaches.
const SCRATCH: u64 = 1 << 20;

/// Whether the kernel has a file system.
pub fn file_system(name: &str) -> Probe {
    let listed = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    let built_in = listed.lines().any(|line| line.trim() == name);
    let (state, detail) = if built_in {
        (State::Works, format!("The kernel has {name}."))
    } else if let Some(module) = module_of(name) {
        (State::Works, format!("The kernel has {name} as a module, {}.", module.display()))
    } else {
        let what = format!("{name} in the kernel");
        (State::Missing { what, package: None }, format!("The kernel has no {name}; its cells are skipped."))
    };
    Probe { name: format!("{name} in the kernel"), state, required: false, detail }
}

fn module_of(name: &str) -> Option<PathBuf> {
    let release = rustix::system::uname();
    let folder = Path::new("/lib/modules").join(release.release().to_string_lossy().as_ref());
    let suffixes = ["ko", "ko.xz", "ko.zst", "ko.gz"];
    suffixes.iter().map(|ko| folder.join(format!("kernel/fs/{name}/{name}.{ko}"))).find(|path| path.is_file())
}

/// Starts a real agent: namespaces, a loop device over a memory file of so many bytes if one is wanted, and a clean end.
fn agent(program: &Path, arguments: &[&str], disk: Option<u64>, needs: &[&str]) -> Probe {
    let name = "agent in namespaces of its own".to_string();
    let required = true;
    if !needs.is_empty() {
        let reason = format!("not tried without {}", needs.join(", "));
        return Probe {
            name,
            state: State::Failed { reason: reason.clone() },
            required,
            detail: format!("It was {reason}."),
        };
    }
    let (state, detail) = match try_agent(program, arguments, disk) {
        Ok(kernel) => {
            let attached = if disk.is_some() { ", attached a disk" } else { "" };
            (State::Works, format!("An agent started{attached} and left nothing, on Linux {kernel}."))
        }
        Err(reason) => (State::Failed { reason: reason.clone() }, format!("It does not work: {reason}.")),
    };
    Probe { name, state, required, detail }
}

fn try_agent(program: &Path, arguments: &[&str], disk: Option<u64>) -> Result<String, String> {
    const LIMIT: Duration = Duration::from_secs(20);
    let folder = Workdir::make().map_err(|e| format!("no folder under /run: {e}"))?;
    let image = scratch_image().map_err(|e| e.to_string())?;
    let setup = AgentSetup {
        program: program.to_path_buf(),
        arguments: arguments.iter().map(Into::into).collect(),
        folder: folder.agents(),
        images: vec![image.as_fd()],
    };
    let mut agent = Agent::spawn(&setup).map_err(|e| e.to_string())?;
    if let Some(bytes) = disk {
        agent.attach_image(0, bytes, LIMIT).map_err(|e| e.to_string())?;
        agent.detach(LIMIT).map_err(|e| e.to_string())?;
    }
    let kernel = agent.hello().kernel.clone();
    agent.quit(LIMIT).map_err(|e| e.to_string())?;
    Ok(kernel)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_tool_names_its_package() {
        let probe = tool("no-such-tool", "no-such-package", true, "does nothing").probe();
        let missing = State::Missing { what: "no-such-tool".into(), package: Some("no-such-package".into()) };
        assert_eq!(probe.state, missing);
        assert_eq!(probe.detail, "no-such-tool does nothing: apt-get install no-such-package.");
    }

    #[test]
    fn an_agent_that_is_none_is_a_failure_with_its_reason() {
        let probes = probe_host_loop(Path::new("/nonexistent/agent"), &[]);
        let last = probes.last().unwrap();
        assert!(!last.works() && last.required);
        assert!(probes.iter().all(|probe| probe.detail.ends_with('.')), "{probes:?}");
    }

    #[test]
    fn an_unknown_file_system_is_missing() {
        let probe = file_system("no-such-fs");
        assert!(matches!(probe.state, State::Missing { package: None, .. }), "{probe:?}");
    }
}
