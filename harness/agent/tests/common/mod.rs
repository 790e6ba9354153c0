//! What the tests of the agent share: a folder, agents, servers, and looking for what was left.
#![allow(dead_code, reason = "each test program uses a part")]

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use powerfail_rig::workdir::Workdir;
use powerfail_rig::{Agent, AgentSetup};
use powerfail_workloads::{Mason, Spec};

pub(crate) const LIMIT: Duration = Duration::from_secs(30);
pub(crate) const MIB: u64 = 1 << 20;

/// Says why and returns false if this machine can't run the test.
pub(crate) fn ready(tools: &[&str]) -> bool {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: mounts and loop devices need root.");
        return false;
    }
    for needed in ["/dev/fuse", "/dev/loop-control", "/dev/kmsg"] {
        if !Path::new(needed).exists() {
            println!("SKIPPED: there is no {needed} on this machine.");
            return false;
        }
    }
    for tool in tools {
        let folders = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"];
        if !folders.iter().any(|folder| Path::new(folder).join(tool).exists()) {
            println!("SKIPPED: {tool} is not installed.");
            return false;
        }
    }
    true
}

pub(crate) fn memory(size: u64) -> File {
    let file = File::from(rustix::fs::memfd_create("test-image", rustix::fs::MemfdFlags::CLOEXEC).unwrap());
    file.set_len(size).unwrap();
    file
}

pub(crate) fn spawn(folder: &Workdir, images: &[&File]) -> Agent {
    let setup = AgentSetup {
        program: env!("CARGO_BIN_EXE_powerfail-agent").into(),
        arguments: Vec::new(),
        folder: folder.agents(),
        images: images.iter().map(|image| image.as_fd()).collect(),
    };
    Agent::spawn(&setup).unwrap()
}

pub(crate) const MKFS: &[&str] = &["mkfs.ext4", "-q", "-F", "-b", "4096", "-J", "size=4", "-E", LAZY, "{device}"];
const LAZY: &str = "lazy_itable_init=0,lazy_journal_init=0";

pub(crate) fn mkfs(agent: &mut Agent) {
    let ran = agent.tool(MKFS, LIMIT).unwrap();
    assert_eq!(ran.code, Some(0), "{ran:?}");
}

pub(crate) fn fsck(agent: &mut Agent) {
    let ran = agent.tool(&["e2fsck", "-fn", "{device}"], LIMIT).unwrap();
    assert_eq!(ran.code, Some(0), "{ran:?}");
}

/// A mount that must succeed; returns the kernel's lines.
pub(crate) fn mount(agent: &mut Agent) -> powerfail_rig::protocol::Log {
    match agent.mount("ext4", "noatime", LIMIT, LIMIT).unwrap() {
        powerfail_rig::MountOutcome::Mounted { log, .. } => log,
        refused => panic!("{refused:?}"),
    }
}

pub(crate) fn unmount(agent: &mut Agent) {
    let outcome = agent.unmount(LIMIT).unwrap();
    assert!(matches!(outcome, powerfail_rig::UnmountOutcome::Unmounted { .. }), "{outcome:?}");
}

/// A small workload; `steps` of each worker.
pub(crate) fn small(steps: u64) -> Spec {
    let mason =
        Mason { workers: 3, steps: Some(steps), seconds: 60, files: 60, hog_mib: 0, hog_every: 0, ..Mason::default() };
    Spec::Mason(mason)
}

/// A server that dies with its guard.
pub(crate) struct Server {
    child: Child,
    pub(crate) socket: PathBuf,
}

impl Server {
    /// Ends when the thread that starts it does, in its own time.
    pub(crate) fn start(folder: &Path, name: &str, arguments: &[&str]) -> Server {
        let mut nbdkit = Command::new("nbdkit");
        nbdkit.arg("--exit-with-parent");
        Server::run(nbdkit, folder, name, arguments)
    }

    /// Is killed when the thread that starts it ends.
    pub(crate) fn dying_at_once(folder: &Path, name: &str, arguments: &[&str]) -> Server {
        let mut nbdkit = Command::new("setpriv");
        nbdkit.args(["--pdeathsig", "KILL", "nbdkit"]);
        Server::run(nbdkit, folder, name, arguments)
    }

    fn run(mut nbdkit: Command, folder: &Path, name: &str, arguments: &[&str]) -> Server {
        let (socket, pidfile) = (folder.join(name), folder.join(format!("{name}.pid")));
        let mut child = nbdkit
            .args(["-f", "-U"])
            .arg(&socket)
            .arg("-P")
            .arg(&pidfile)
            .args(arguments)
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let end = Instant::now() + LIMIT;
        // nbdkit writes this file when it listens, and has no other way to say so.
        while !pidfile.exists() {
            assert!(child.try_wait().unwrap().is_none() && Instant::now() < end, "nbdkit does not listen");
            std::thread::yield_now();
        }
        Server { child, socket }
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The PID namespace that a leash made.
pub(crate) fn namespace_of(leash: u32) -> u64 {
    fs::metadata(format!("/proc/{leash}/ns/pid_for_children")).unwrap().ino()
}

/// What there still is of an agent: processes of its PID namespace or with its folder in their arguments, loop
/// devices under its tag, mounts in the host's namespace.
pub(crate) fn remains(namespace: u64, folder: &Path, tag: &str) -> Vec<String> {
    let mut found = Vec::new();
    let needle = folder.to_str().unwrap();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<u32>() else { continue };
        let command = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command).replace('\0', " ");
        let inside = fs::metadata(entry.path().join("ns/pid")).is_ok_and(|meta| meta.ino() == namespace);
        if inside || command.contains(needle) {
            found.push(format!("process {pid}: {command}"));
        }
    }
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    found.extend(mounts.lines().filter(|line| line.contains(needle)).map(|line| format!("mount {line}")));
    found.extend(
        (0..256).filter(|n| powerfail_agent::attach::loop_device::is_bound(*n, tag)).map(|n| format!("loop{n}")),
    );
    found
}

/// Looks until nothing remains or the time is over.
pub(crate) fn remains_after(limit: Duration, look: impl Fn() -> Vec<String>) -> Vec<String> {
    let end = Instant::now() + limit;
    loop {
        let found = look();
        if found.is_empty() || Instant::now() >= end {
            return found;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
