//! The workload, the walk and the oracle on real file systems of this machine's kernel, loop-mounted.
//!
//! Needs root; without it each test says so and proves nothing. Every test lives in a mount namespace of its own thread,
//! and its loop devices go with their mounts, so that nothing is left whatever happens.
//!
//! The crash is the file system's own: the shutdown ioctl stops it without writing its log, so what was
//! in memory is lost while the device goes on. That is a weaker crash than a drive's, but a real one, and a legal
//! one: the oracle must find nothing.

use powerfail_workloads::catalog::Workload;
use powerfail_workloads::{DataMode, Mark, Marks, Mason, Observation, Oracle, Promises, Spec, run, walk};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

struct Fs {
    mkfs: &'static [&'static str],
    /// Mount options.
    options: &'static str,
    data: DataMode,
}

const MKE2FS: &[&str] =
    &["mkfs.ext4", "-q", "-F", "-b", "4096", "-J", "size=4", "-E", "lazy_itable_init=0,lazy_journal_init=0"];
const ORDERED: Fs = Fs { mkfs: MKE2FS, options: "data=ordered", data: DataMode::Ordered };
const WRITEBACK: Fs = Fs { mkfs: MKE2FS, options: "data=writeback", data: DataMode::Writeback };
const JOURNAL: Fs = Fs { mkfs: MKE2FS, options: "data=journal", data: DataMode::Journal };
const XFS: Fs = Fs { mkfs: &["mkfs.xfs", "-q", "-f"], options: "", data: DataMode::Ordered };

/// A made image with a place to mount it, in a mount namespace that ends with its thread.
struct Bench {
    dir: tempfile::TempDir,
    options: String,
}

impl Bench {
    fn image(&self) -> PathBuf {
        self.dir.path().join("image")
    }
    fn root(&self) -> PathBuf {
        self.dir.path().join("mnt")
    }
    fn mount(&self) {
        // Not `mount -o loop`: it asks every loop device for its file, and hangs if one of them lies on a dead FUSE mount.
        let device = command("losetup", &["-f", "--show", path(&self.image())]).trim().to_owned();
        let mounted = output(Command::new("mount").args(["-o", &self.options, &device, path(&self.root())]));
        // In use it goes with the mount; not mounted it goes now.
        command("losetup", &["-d", &device]);
        assert!(mounted.as_ref().is_ok_and(|output| output.status.success()), "{mounted:?}");
    }
    fn unmount(&self) {
        command("umount", &[path(&self.root())]);
    }
}

/// Runs `test` on its own thread with a made image, or says why not.
fn bench(fs: &Fs, test: impl FnOnce(&Bench) + Send) {
    // SAFETY: geteuid has no preconditions.
    if unsafe { libc::geteuid() } != 0 {
        return eprintln!("skipped: mounting needs root");
    }
    if output(Command::new(fs.mkfs[0]).arg("-V")).is_err() {
        return eprintln!("skipped: there is no {}", fs.mkfs[0]);
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // SAFETY: only this thread and its children change their namespace.
            assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNS) }, 0, "{}", io::Error::last_os_error());
            command("mount", &["--make-rprivate", "/"]);
            let dir = tempfile::tempdir().unwrap();
            let options = if fs.options.is_empty() { "defaults" } else { fs.options }.to_owned();
            let bench = Bench { dir, options };
            std::fs::create_dir(bench.root()).unwrap();
            std::fs::File::create(bench.image()).unwrap().set_len(384 << 20).unwrap();
            let (program, options) = fs.mkfs.split_first().unwrap();
            command(program, &[options, &[path(&bench.image())]].concat());
            bench.mount();
            test(&bench);
            bench.unmount();
        });
    });
}

fn command(program: &str, arguments: &[&str]) -> String {
    let output = output(Command::new(program).args(arguments)).unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs a program, one at a time: a child has copies of all descriptors of all tests until the kernel has closed them on its way
/// into the program, and a mount that one of them lies on is busy meanwhile.
fn output(command: &mut Command) -> io::Result<std::process::Output> {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    command.output()
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn promises(data: DataMode) -> Promises {
    Promises { data, name_by_file_fsync: true }
}

#[derive(Default)]
struct Kept(Mutex<Vec<Mark>>);

impl Marks for Kept {
    fn returned(&self, mark: &Mark) -> io::Result<()> {
        self.0.lock().unwrap().push(*mark);
        Ok(())
    }
}

fn oracle_after(spec: &Spec, data: DataMode, marks: &[Mark]) -> Oracle {
    let mut oracle = Oracle::new(spec, promises(data));
    marks.iter().for_each(|mark| oracle.returned(mark).unwrap());
    oracle
}

fn assert_kept(oracle: &Oracle, seen: &Observation, when: &str) {
    assert_eq!(seen.errors, [], "{when}");
    let breaches = oracle.judge(seen);
    assert!(
        breaches.is_empty(),
        "{when}: {} breaches, first of them {:#?}",
        breaches.len(),
        &breaches[..breaches.len().min(5)]
    );
}

#[test]
fn nothing_is_accused_where_nothing_was_lost() {
    bench(&ORDERED, |bench| {
        let spec = Spec::Mason(Mason { seconds: 3, ..Mason::default() });
        let marks = Kept::default();
        let begun = Instant::now();
        let summary = run(&bench.root(), &spec, &marks).unwrap();
        let took = begun.elapsed();
        assert!(summary.workers.iter().all(|worker| worker.failed.is_none()), "{summary:?}");

        let marks = marks.0.into_inner().unwrap();
        let fed = Instant::now();
        let oracle = oracle_after(&spec, DataMode::Ordered, &marks);
        let fed = fed.elapsed();
        let walked = Instant::now();
        let seen = walk(&bench.root());
        let walked = walked.elapsed();
        let judged = Instant::now();
        assert_kept(&oracle, &seen, "live");
        let judged = judged.elapsed();
        command("mount", &["-o", "remount", path(&bench.root())]);
        assert_kept(&oracle, &walk(&bench.root()), "remounted");
        bench.unmount();
        command("e2fsck", &["-fn", path(&bench.image())]);
        bench.mount();
        let cold = Instant::now();
        let again = walk(&bench.root());
        let cold = cold.elapsed();
        assert_kept(&oracle, &again, "mounted again");
        assert_eq!(again.entries.len(), seen.entries.len(), "the same tree");

        // The alarm, on the real tree: the newest promise is not judged away.
        let mut lost = again.clone();
        let files = lost.entries.len();
        lost.entries.retain(|entry| entry.runs.is_empty());
        let breaches = oracle.judge(&lost).len();
        assert!(
            breaches * 2 > files - lost.entries.len(),
            "{breaches} breaches for {} lost files",
            files - lost.entries.len()
        );

        let seconds = took.as_secs_f64();
        let synced: u64 = ["fsync", "fdatasync", "fsync-dir"].iter().map(|kind| summary.kinds[*kind]).sum();
        let bytes: u64 = seen.entries.iter().map(|entry| entry.size).sum();
        eprintln!(
            "{}: {:.0} steps/s, {:.0} syncs/s, {} entries of {} KiB; walk warm {walked:?}, cold {cold:?}; \
             {} marks fed in {fed:?}, judged in {judged:?}; {} bytes of JSON; {summary:?}",
            spec.describe(),
            (marks.len() as f64) / seconds,
            synced as f64 / seconds,
            seen.entries.len(),
            bytes >> 10,
            marks.len(),
            serde_json::to_string(&seen).unwrap().len(),
        );
    });
}

/// Shuts the file system down at the `at`th mark. What other workers do between that mark and the shutdown is not marked any more,
/// which only weakens what is asked.
struct CutAt {
    at: usize,
    root: std::fs::File,
    marks: Mutex<Vec<Mark>>,
}

impl Marks for CutAt {
    fn returned(&self, mark: &Mark) -> io::Result<()> {
        let mut marks = self.marks.lock().unwrap();
        if marks.len() >= self.at {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        marks.push(*mark);
        if marks.len() == self.at {
            // FS_IOC_SHUTDOWN with FS_SHUTDOWN_FLAGS_NOLOGFLUSH (include/uapi/linux/fs.h, XFS_IOC_GOINGDOWN before).
            let without_log: u32 = 2;
            // SAFETY: the ioctl reads one u32 that lives across the call.
            let result = unsafe { libc::ioctl(self.root.as_raw_fd(), 0x8004_587d, &without_log) };
            assert_eq!(result, 0, "{}", io::Error::last_os_error());
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        Ok(())
    }
}

/// Tries so many cuts, or `POWERFAIL_CUTS` of them for a longer look, up to the mark `most`.
fn crashes_are_not_accused(fs: &Fs, name: &str, cuts: u64, most: usize) {
    let cuts = std::env::var("POWERFAIL_CUTS").map_or(cuts, |text| text.parse().unwrap());
    let (mut lost, mut tried) = (0, 0);
    for cut in 0..cuts {
        bench(fs, |bench| {
            let seed = powerfail_seed::Seed(1000 + cut);
            let at = 1 + seed.draw("cut", &[]) as usize % most;
            let options = if name == "mason" { "seconds=60,files=300" } else { "seconds=60" };
            let spec = Spec::named(name).unwrap().with_options(options).unwrap().with_seed(seed);
            let root = std::fs::File::open(bench.root()).unwrap();
            let marks = CutAt { at, root, marks: Mutex::default() };
            let ran = run(&bench.root(), &spec, &marks);
            assert!(ran.is_err(), "{name} ended before its cut: {ran:?}");
            let marks = { marks }.marks.into_inner().unwrap();
            bench.unmount();
            bench.mount();
            let oracle = oracle_after(&spec, fs.data, &marks);
            let seen = walk(&bench.root());
            assert_kept(&oracle, &seen, &format!("{name} on {} {} cut at mark {at}", fs.mkfs[0], bench.options));
            // What the crash took: files that exist by the steps and do not by the tree, or the other way round.
            tried += 1;
            lost += usize::from(differs(&spec, &marks, &seen));
        });
    }
    if tried > 0 {
        eprintln!("{name} on {} {}: of {tried} crashes {lost} lost something", fs.mkfs[0], fs.options);
        assert!(lost > 0 || name != "mason", "crashes that lose nothing test nothing: {tried} tried");
    }
}

/// Whether the names in the tree are others than those after all returned steps.
fn differs(spec: &Spec, marks: &[Mark], seen: &Observation) -> bool {
    use powerfail_workloads::steps::Op;
    let mut names: std::collections::BTreeSet<String> = spec.directories().into_iter().collect();
    let mut workers: Vec<_> = (0..spec.workers()).map(|worker| spec.steps(worker)).collect();
    for mark in marks.iter().filter(|mark| mark.step > 0) {
        let steps = &mut workers[mark.worker as usize];
        let op = steps.next().unwrap();
        if mark.errno != 0 {
            steps.failed(mark.errno);
            continue;
        }
        match op {
            Op::Create { path, .. } | Op::Symlink { path, .. } | Op::Mkdir { path, .. } | Op::Link { to: path, .. } => {
                names.insert(path);
            }
            Op::Unlink { path, .. } | Op::Rmdir { path, .. } => {
                names.remove(&path);
            }
            Op::Rename { from, to, .. } => {
                names.remove(&from);
                names.insert(to);
            }
            _ => {}
        }
    }
    let found = seen.entries.iter().filter(|entry| entry.path != "lost+found").map(|entry| entry.path.clone());
    found.collect::<std::collections::BTreeSet<_>>() != names
}

/// All but `mason`, which the other tests look at for longer. `full` fills a whole drive and is left to the harness.
fn the_catalogue_is_not_accused(fs: &Fs) {
    for name in Spec::NAMES.iter().filter(|name| !["mason", "full"].contains(name)) {
        crashes_are_not_accused(fs, name, 2, 700);
    }
}

#[test]
fn crashes_of_the_catalogue_on_ext4_are_not_accused() {
    the_catalogue_is_not_accused(&ORDERED);
}

#[test]
fn crashes_of_the_catalogue_on_xfs_are_not_accused() {
    the_catalogue_is_not_accused(&XFS);
}

#[test]
fn crashes_of_ext4_ordered_are_not_accused() {
    crashes_are_not_accused(&ORDERED, "mason", 10, 6000);
}

#[test]
fn crashes_of_ext4_writeback_are_not_accused() {
    crashes_are_not_accused(&WRITEBACK, "mason", 6, 6000);
}

#[test]
fn crashes_of_ext4_with_journalled_data_are_not_accused() {
    crashes_are_not_accused(&JOURNAL, "mason", 6, 6000);
}

#[test]
fn crashes_of_xfs_are_not_accused() {
    crashes_are_not_accused(&XFS, "mason", 6, 6000);
}
