//! What the tests of the program share: starting it, waiting for it within deadlines, and looking for what it left.
//!
//! Every program that a test starts is looked after until it ends, however the test ends: its guard kills it, and when
//! the test's own process is killed the kernel does. Nothing that it had may outlive it, so each end is followed by a look
//! at processes, mounts and loop devices.
#![allow(dead_code, reason = "each test program uses a part")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use powerfail_drive::digest::Digest;
use powerfail_drive::units::{Lba, SECTOR};
use powerfail_ledger::{Line, Outcome, State};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// For anything that the program does in these tests; none takes a tenth of it on an idle machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);
/// For all that a dead program had to be gone.
pub(crate) const GONE: Duration = Duration::from_secs(2);
/// The cell of a run in one mode.
pub(crate) const BARRIER: &str = "ext4-barrier";

/// Says why and returns false if this machine can't run the test.
pub(crate) fn ready() -> bool {
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
    for (tool, package) in [("nbdfuse", "libnbd-bin"), ("mkfs.ext4", "e2fsprogs"), ("e2fsck", "e2fsprogs")] {
        let folders = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];
        if !folders.iter().any(|folder| Path::new(folder).join(tool).exists()) {
            println!("SKIPPED: there is no {tool}; apt-get install {package}.");
            return false;
        }
    }
    true
}

/// The program.
pub(crate) fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_powerfail"))
}

/// A small run: 1,000 steps of each of two workers, 120 files, no hog, 64 MiB. Steps, not seconds, so that the recording
/// is as large on a busy machine.
pub(crate) fn small(verb: &str, out: &Path, mode: &str, states: u64) -> Command {
    sized(1000, verb, out, mode, states)
}

/// A run whose recording has a few megabytes.
pub(crate) fn tiny(verb: &str, out: &Path, mode: &str, states: u64) -> Command {
    sized(100, verb, out, mode, states)
}

/// The same with so many steps.
pub(crate) fn sized(steps: u64, verb: &str, out: &Path, mode: &str, states: u64) -> Command {
    let mut command = program();
    command.arg(verb).arg("--out").arg(out).args(["--mode", mode, "--states", &states.to_string()]);
    command.args(["--steps", &steps.to_string(), "--seconds", "60", "--files", "120", "--workers", "2"]);
    command.args(["--hog", "0", "--size", "64M"]);
    if verb == "run" {
        // Tests of its own look at it.
        command.arg("--no-selftest");
    }
    command
}

/// How a program ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    /// The exit code; none after a signal.
    pub(crate) fn code(&self) -> Option<i32> {
        self.status.code()
    }

    /// The same, where another code than this one is a failed test.
    pub(crate) fn expect(self, code: i32) -> Ran {
        let Ran { status, stdout, stderr } = &self;
        assert_eq!(status.code(), Some(code), "{status}\n-- stdout\n{stdout}\n-- stderr\n{stderr}");
        self
    }

    /// Standard output as JSON.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {}", self.stdout))
    }
}

/// Runs a command to its end.
pub(crate) fn run(command: &mut Command) -> Ran {
    Running::start(command).wait(LIMIT)
}

/// Exit code 2 with a sentence; gives it.
pub(crate) fn refuse(command: &mut Command, sentence: &str) -> String {
    let ran = run(command).expect(2);
    assert!(ran.stderr.contains(sentence), "{command:?}: `{sentence}` is not in: {}", ran.stderr);
    assert!(
        ran.stderr.starts_with("powerfail: ") || ran.stderr.starts_with("rig ") || ran.stderr.starts_with("seed "),
        "{}",
        ran.stderr
    );
    assert!(!ran.stderr.contains("panicked"), "{}", ran.stderr);
    ran.stderr
}

/// A program that is running, with all that it starts. Killed when dropped.
pub(crate) struct Running {
    child: Child,
    out: File,
    err: File,
    /// PID namespaces of its agents, as far as they were seen.
    namespaces: BTreeSet<u64>,
}

impl Running {
    /// Starts it in a process group of its own, as a shell does, so that a Ctrl-C can be sent to it alone.
    pub(crate) fn start(command: &mut Command) -> Running {
        let (out, err) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        command.stdin(Stdio::null()).stdout(out.try_clone().unwrap()).stderr(err.try_clone().unwrap());
        command.process_group(0);
        // SAFETY: one system call between fork and exec: no allocation, no lock.
        unsafe {
            command.pre_exec(|| Ok(rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?));
        }
        let child = command.spawn().unwrap();
        Running { child, out, err, namespaces: BTreeSet::new() }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until `look` sees something; the program must not end before.
    pub(crate) fn until<T>(&mut self, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
        let end = Instant::now() + LIMIT;
        loop {
            if let Some(seen) = look() {
                return seen;
            }
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!("it ended ({status}) before {what}: {}", text(&self.err));
            }
            assert!(Instant::now() < end, "not within {LIMIT:?}: {what}");
            std::thread::yield_now();
        }
    }

    /// Waits for its end, and that nothing is left of it.
    pub(crate) fn wait(mut self, limit: Duration) -> Ran {
        let end = Instant::now() + limit;
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < end, "it did not end within {limit:?}: {}", text(&self.err));
            self.note_namespaces();
            pause();
        };
        assert_eq!(self.remains_after(GONE), Vec::<String>::new(), "after its end");
        assert_eq!(workdirs(self.pid()), Vec::<PathBuf>::new(), "after its end");
        Ran { status, stdout: text(&self.out), stderr: text(&self.err) }
    }

    /// `kill -9`, of the program alone; then nothing may remain but its folder below /run, which is returned.
    pub(crate) fn kill(mut self) -> Vec<PathBuf> {
        self.note_namespaces();
        let folders = workdirs(self.pid());
        self.child.kill().unwrap();
        let killed = Instant::now();
        let status = self.child.wait().unwrap();
        assert_eq!(status.signal(), Some(9), "it was to be killed, and {status}: {}", text(&self.err));
        assert_eq!(self.remains_after(GONE), Vec::<String>::new(), "{:?} after kill -9", killed.elapsed());
        folders
    }

    /// What the terminal does at Ctrl-C: SIGINT to the whole process group.
    pub(crate) fn ctrl_c(&self) {
        kill_process_group(Pid::from_child(&self.child), Signal::INT).unwrap();
    }

    /// SIGINT to the program alone.
    pub(crate) fn interrupt(&self) {
        kill_process(Pid::from_child(&self.child), Signal::INT).unwrap();
    }

    /// What it has now: processes, mounts and loop devices. It must not have ended.
    pub(crate) fn look(&mut self) -> Vec<String> {
        assert_eq!(self.child.try_wait().unwrap(), None, "it ended: {}", text(&self.err));
        self.note_namespaces();
        self.remains()
    }

    fn needle(&self) -> String {
        format!("/run/powerfail-{}-", self.pid())
    }

    /// Remembers by which PID namespaces its agents' processes and loop devices can be told.
    fn note_namespaces(&mut self) {
        let own = namespace("/proc/self/ns/pid");
        for (pid, command) in processes() {
            if command.contains(&self.needle()) {
                let inside = namespace(&format!("/proc/{pid}/ns/pid_for_children"));
                self.namespaces.extend(inside.filter(|_| inside != own));
            }
        }
    }

    /// Looks until nothing remains or the time is over.
    fn remains_after(&mut self, limit: Duration) -> Vec<String> {
        let end = Instant::now() + limit;
        loop {
            // An agent that was being started at the last look may be seen only now.
            self.note_namespaces();
            let found = self.remains();
            if found.is_empty() || Instant::now() >= end {
                return found;
            }
            pause();
        }
    }

    /// Processes, mounts (in anybody's namespace) and loop devices of this program.
    fn remains(&self) -> Vec<String> {
        let needle = self.needle();
        let mut found = Vec::new();
        let processes = processes();
        // The kernel gives the number of a namespace that is gone to the next one: that of another program's agent is not
        // ours any more, and nothing of ours can be in it.
        let others: Vec<u64> = processes
            .iter()
            .filter(|(_, command)| command.contains("/run/powerfail-") && !command.contains(&needle))
            .flat_map(|(pid, _)| ["pid", "pid_for_children"].map(|which| namespace(&format!("/proc/{pid}/ns/{which}"))))
            .flatten()
            .collect();
        let own = |inside: &u64| self.namespaces.contains(inside) && !others.contains(inside);
        for (pid, command) in processes {
            let inside = namespace(&format!("/proc/{pid}/ns/pid"));
            if command.contains(&needle) || inside.is_some_and(|inside| own(&inside)) {
                found.push(format!("process {pid}: {command}"));
            }
            let mounts = fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap_or_default();
            let ours = mounts.lines().filter(|line| line.contains(&needle));
            found.extend(ours.map(|line| format!("mount, seen by {pid} ({command}): {line}")));
        }
        for entry in fs::read_dir("/sys/block").unwrap().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let Ok(backing) = fs::read_to_string(entry.path().join("loop/backing_file")) else { continue };
            let tag = loop_tag(&name).unwrap_or_default();
            let ours = |namespace: &u64| tag.starts_with(&format!("powerfail-{namespace:x}-"));
            if backing.contains(&needle) || self.namespaces.iter().filter(|inside| own(inside)).any(ours) {
                found.push(format!("{name} over {backing}"));
            }
        }
        found
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Its agents watch it and end with it. After `wait` and `kill` it is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let left = self.remains_after(GONE);
            if !left.is_empty() {
                eprintln!("left after a failed test: {left:#?}");
            }
            let _ = powerfail_rig::workdir::clean_leftovers();
        }
    }
}

/// The folders below /run that a program of that process id made.
pub(crate) fn workdirs(pid: u32) -> Vec<PathBuf> {
    let prefix = format!("powerfail-{pid}-");
    let entries = fs::read_dir("/run").unwrap().flatten();
    let mut found: Vec<_> =
        entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix)).map(|e| e.path()).collect();
    found.sort();
    found
}

/// Between two looks; never the proof of anything.
fn pause() {
    std::thread::sleep(Duration::from_millis(10));
}

fn text(file: &File) -> String {
    use std::os::unix::fs::FileExt;
    let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn processes() -> Vec<(u32, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse() else { continue };
        let command = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        found.push((pid, String::from_utf8_lossy(&command).replace('\0', " ")));
    }
    found
}

fn namespace(link: &str) -> Option<u64> {
    fs::metadata(link).ok().map(|meta| meta.ino())
}

/// The name that an agent gave its loop device (`lo_file_name` of `struct loop_info64`, linux/loop.h).
fn loop_tag(name: &str) -> Option<String> {
    const LOOP_GET_STATUS64: libc::c_ulong = 0x4C05;
    let device = File::open(Path::new("/dev").join(name)).ok()?;
    let mut info = [0u8; 232];
    // SAFETY: the call writes one `struct loop_info64`, which is 232 bytes long.
    if unsafe { libc::ioctl(device.as_raw_fd(), LOOP_GET_STATUS64, info.as_mut_ptr()) } != 0 {
        return None;
    }
    let name = &info[56..120];
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    Some(String::from_utf8_lossy(&name[..end]).into_owned())
}

/// Everything below a folder, with the digest of each file.
pub(crate) fn snapshot(folder: &Path) -> BTreeMap<PathBuf, Option<String>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path.clone());
                found.insert(path, None);
            } else {
                let digest = blake3::hash(&fs::read(&path).unwrap()).to_hex().to_string();
                found.insert(path, Some(digest));
            }
        }
    }
    found
}

/// Copies a folder and all that is in it.
pub(crate) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// The lines of a run's ledger; each must be well formed.
pub(crate) fn ledger(out: &Path) -> Vec<Line> {
    let contents = powerfail_ledger::read(&out.join("ledger.jsonl")).unwrap();
    assert_eq!(contents.torn_bytes, 0);
    contents.lines
}

/// The judged states of a run's ledger; of one that was explained afterwards the line that says so, in the place of its
/// verdict's.
pub(crate) fn states(out: &Path) -> Vec<State> {
    let mut states: Vec<State> = Vec::new();
    for line in ledger(out) {
        let Line::State(state) = line else { continue };
        let verdict = states.iter_mut().find(|other| state.explanation.is_some() && other.state == state.state);
        match verdict {
            Some(verdict) => *verdict = *state,
            None => states.push(*state),
        }
    }
    states
}

/// The recipes of a cell's plan, read without the program's own reader.
pub(crate) fn planned(out: &Path, cell: &str) -> Vec<String> {
    let text = fs::read_to_string(out.join(cell).join("plan.jsonl")).unwrap();
    let recipe =
        |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["state"].as_str().unwrap().to_owned();
    text.lines().skip(1).map(recipe).collect()
}

/// Every planned recipe has one verdict: none is lost, none is repeated, none is of another plan.
pub(crate) fn assert_judged_once(out: &Path, cell: &str) {
    let mut verdicts: Vec<_> = states(out)
        .into_iter()
        .filter(|state| matches!(state.outcome, Outcome::Held | Outcome::Violated { .. }))
        .map(|state| state.state)
        .collect();
    let mut planned = planned(out, cell);
    verdicts.sort();
    planned.sort();
    assert_eq!(verdicts, planned);
}

/// The static agent for guests, built beside the other builds. `POWERFAIL_GUEST_AGENT` saves the build.
pub(crate) fn static_agent() -> PathBuf {
    if let Some(named) = std::env::var_os("POWERFAIL_GUEST_AGENT") {
        return named.into();
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("static-agent");
    let built = Command::new(env!("CARGO"))
        .args(["build", "--release", "--quiet", "--package", "powerfail-agent", "--target", "x86_64-unknown-linux-gnu"])
        .arg("--target-dir")
        .arg(&folder)
        .env("RUSTFLAGS", "-C target-feature=+crt-static -C strip=symbols")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    folder.join("x86_64-unknown-linux-gnu/release/powerfail-agent")
}

/// The digest of an image, from the file alone.
pub(crate) fn digest_of(image: &Path) -> String {
    let file = fs::File::open(image).unwrap();
    let sectors = file.metadata().unwrap().len() / SECTOR;
    let mut digest = Digest::default();
    let mut chunk = vec![0; 1 << 20];
    for first in (0..sectors).step_by(chunk.len() / SECTOR as usize) {
        let length = chunk.len().min(((sectors - first) * SECTOR) as usize);
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut chunk[..length], first * SECTOR).unwrap();
        for (index, sector) in chunk[..length].chunks(SECTOR as usize).enumerate() {
            digest = digest.plus(Digest::of_sector(Lba(first + index as u64), sector));
        }
    }
    digest.to_string()
}
