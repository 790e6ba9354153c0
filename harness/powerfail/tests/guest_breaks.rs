//! Guests that break by themselves, and kernels that crash or hang in recovery: the first are broken and never a verdict,
//! the second are findings. Every guest here is a real QEMU with Debian's kernel.

mod common;

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use powerfail::cell::Cell;
use powerfail::config::{CellConfig, Config, DriveConfig, FORMAT};
use powerfail::evidence::Mounting;
use powerfail::folder::CellFolder;
use powerfail::image::Image;
use powerfail::kernels;
use powerfail::plan_file::plan_cell;
use powerfail::record::About;
use powerfail::recording_file::{FileSink, Mapped};
use powerfail::rigs::{Rig, Seat, ServedImage};
use powerfail::served_drive::ServedDrive;
use powerfail::stop::Stop;
use powerfail::verify::{Examined, Extent, Job, Limits, examine, verify};
use powerfail_agent::protocol::{Attached, Source};
use powerfail_drive::device::{Device, Offers, Receipt};
use powerfail_drive::history::{MOUNTED, WORKLOAD_END};
use powerfail_drive::request::{Command as Asked, Geometry, Refusal, Request};
use powerfail_ledger::{FindingKind, Line, Outcome, State};
use powerfail_nbd::{Address, Config as Serving, Exports, Farewell, Handle, Reach, Server};
use powerfail_rig::guest::{HOST, Kernel};
use powerfail_rig::{Agent, Guest, GuestError, GuestSetup};
use powerfail_seed::Seed;
use powerfail_workloads::Spec;
use rustix::process::{Pid, Signal, kill_process};

/// Long for anything that works, short for what never will.
const LIMITS: Limits = Limits {
    mount: Duration::from_secs(20),
    lock: Duration::from_secs(5),
    walk: Duration::from_secs(20),
    fsck: Duration::from_secs(20),
    other: Duration::from_secs(20),
};
const SIZE: u64 = 32 << 20;

/// What becomes of the guest of a seat.
#[derive(Clone, Copy, Debug)]
enum Fate {
    NeverBoots,
    Panics,
    Hangs,
    Floods,
    Lives,
}

/// The rig `guest`, each of whose guests has a fate.
#[derive(Debug)]
struct Unruly {
    guest: Guest,
    /// It is given up before any kernel can have started.
    late: Guest,
    fates: Mutex<VecDeque<Fate>>,
}

impl Rig for Unruly {
    fn name(&self) -> &'static str {
        "guest"
    }

    fn bind(&self, _: &str) -> anyhow::Result<Server> {
        anyhow::bail!("nothing is recorded here")
    }

    fn drive(&self, _: &Address) -> Source {
        unreachable!("nothing is recorded here")
    }

    fn agent(&self) -> anyhow::Result<Agent> {
        Ok(self.guest.spawn()?)
    }

    fn seat(&self, image: &Image) -> anyhow::Result<Seat> {
        let fate = self.fates.lock().unwrap().pop_front().expect("no guest is started that is not needed");
        if matches!(fate, Fate::NeverBoots) {
            return Err(self.late.spawn().map(drop).unwrap_err().into());
        }
        let mut seat = seat(self.agent()?, image);
        match fate {
            // The guest dies of it, and the agent can't answer any more.
            Fate::Panics => drop(shell(&mut seat.agent, "echo c > /proc/sysrq-trigger")),
            Fate::Hangs => {
                let qemu = seat.agent.power_switch().expect("a guest").pid();
                kill_process(Pid::from_raw(qemu as i32).unwrap(), Signal::STOP)?;
            }
            Fate::Floods => {
                let printed = seat.agent.printed();
                shell(
                    &mut seat.agent,
                    "(a='for ever and ever '; for i in 1 2 3 4 5 6 7; do a=$a$a; done; while :; do echo $a; done) > /dev/console &",
                )?;
                while seat.agent.printed() < printed + (200 << 10) {
                    std::thread::yield_now();
                }
            }
            Fate::Lives | Fate::NeverBoots => {}
        }
        Ok(seat)
    }

    fn limits(&self) -> Limits {
        LIMITS
    }
}

fn seat(agent: Agent, image: &Image) -> Seat {
    let served = ServedImage::new(image).unwrap();
    Seat { agent, source: source(served.address().port()), served: Some(served) }
}

fn source(port: u16) -> Source {
    Source::NbdClient { host: HOST.into(), port, export: String::new() }
}

fn shell(agent: &mut Agent, script: &str) -> Result<(), powerfail_rig::Asked> {
    let ran = agent.tool(&["sh", "-c", script], LIMITS.other)?;
    assert_eq!(ran.code, Some(0), "{} {}", ran.stdout, ran.stderr);
    Ok(())
}

/// A guest with a shell, and how it is given up if it does not boot within so many seconds.
fn guest(boot_seconds: u64) -> Option<Guest> {
    let make = || -> Result<Guest, GuestError> {
        let cache = powerfail_rig::guest::cache_folder(None)?;
        let kernel = Kernel::by_name("debian-6.1", &cache)?;
        let mut setup = GuestSetup::with_agent(kernel, "ext4", common::static_agent(), cache);
        setup.tools.extend(["sh", "mkdir", "mount"].map(String::from));
        Guest::prepare(GuestSetup { boot_limit: Duration::from_secs(boot_seconds), ..setup })
    };
    match make() {
        Ok(guest) => Some(guest),
        Err(GuestError::Missing(reason)) => {
            println!("SKIPPED: {reason}.");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

const BOOT: u64 = 120;

fn cell() -> Cell {
    let drive = DriveConfig {
        size: SIZE,
        cache_bytes: 8 << 20,
        cache_policy: "fifo".into(),
        atomic: None,
        hold_depth: 0,
        hold_us: 0,
    };
    let cell = CellConfig {
        name: "ext4-barrier".into(),
        fs: "ext4".into(),
        mode: "barrier".into(),
        mkfs_opts: String::new(),
        mount_opts: String::new(),
        drive,
        workload: Spec::named("mason").unwrap(),
        seed: Seed(1),
        states: 3,
        limit_s: None,
        depth: 1,
        live: false,
        exploring: powerfail::exploring::Exploring::default(),
        rig: "guest".into(),
        kernel: "debian-6.1".parse::<kernels::Kernel>().unwrap(),
        expectation: None,
        lie: None,
    };
    Cell::all(&Config { format: FORMAT, seed: 1, cells: vec![cell], shard: None }).remove(0)
}

/// An ext4 of this machine's mkfs.
fn made(folder: &Path, mkfs: &[&str]) -> PathBuf {
    let path = folder.join("image");
    fs::File::create(&path).unwrap().set_len(SIZE).unwrap();
    let mut command = Command::new("mkfs.ext4");
    command.args(["-q", "-F", "-b", "4096", "-J", "size=4", "-E", "lazy_itable_init=0,lazy_journal_init=0"]);
    assert!(command.args(mkfs).arg(&path).status().unwrap().success());
    path
}

/// An image that is that file.
fn image_of(path: &Path) -> Image {
    let image = Image::new(SIZE).unwrap();
    let file = fs::File::from(image.fd().try_clone_to_owned().unwrap());
    std::os::unix::fs::FileExt::write_all_at(&file, &fs::read(path).unwrap(), 0).unwrap();
    image
}

/// A recording of a file system that was just made, with a few writes to a block that is free.
fn recording(cell: &Cell, folder: &CellFolder) -> Mapped {
    let bytes = fs::read(made(&folder.path, &[])).unwrap();
    let sink = FileSink::create(&folder.recording(), cell.header).unwrap();
    let drive = ServedDrive::new(cell.header, true, sink);
    let write = |offset: u64, data: &[u8]| {
        let request = Request { command: Asked::Write, offset, length: data.len() as u64, fua: false, data };
        drive.reply(drive.receive(&request).unwrap()).unwrap();
    };
    for (at, page) in bytes.chunks(4096).enumerate().filter(|(_, page)| page.iter().any(|byte| *byte != 0)) {
        write(at as u64 * 4096, page);
    }
    drive.mark(MOUNTED).unwrap();
    for byte in 1..=4 {
        write(SIZE - 4096, &[byte; 4096]);
    }
    drive.mark(WORKLOAD_END).unwrap();
    drive.close().unwrap().finish().unwrap();
    Mapped::open(&folder.recording()).unwrap()
}

fn about() -> About {
    let attached = Attached {
        device: "/dev/nbd0".into(),
        tag: String::new(),
        write_cache: "write back".into(),
        fua: true,
        discard_max_bytes: 0,
        logical_block: 512,
        direct_io: true,
        nbdfuse: String::new(),
        took_us: 0,
    };
    About {
        kernel: "6.1".into(),
        attached,
        journal: Vec::new(),
        steps: 0,
        workload_ms: 0,
        took_ms: 0,
        summary: Default::default(),
    }
}

#[test]
fn guests_that_break_are_broken_with_their_consoles_and_the_rest_is_judged() {
    let (Some(guest), Some(late)) = (guest(BOOT), guest(2)) else { return };
    let place = tempfile::tempdir().unwrap();
    let (cell, folder) = (cell(), CellFolder { path: place.path().into() });
    let recording = recording(&cell, &folder);
    let plan = plan_cell(&cell, &folder, &recording, &about()).unwrap();
    assert_eq!(plan.entries.len(), 3);
    let fates = [Fate::NeverBoots, Fate::Panics, Fate::Hangs, Fate::Floods, Fate::Lives];
    let rig = Unruly { guest, late, fates: Mutex::new(fates.into()) };
    let about = about();
    let job = Job {
        cell: &cell,
        folder: &folder,
        recording: &recording,
        about: &about,
        rig: &rig,
        jobs: 1,
        until_found: false,
        end: None,
    };
    let mut states: Vec<State> = Vec::new();
    verify(&job, &plan.entries, &Stop::listen().unwrap(), |line| {
        if let Line::State(state) = line {
            states.push((**state).clone());
        }
        Ok(())
    })
    .unwrap();
    let outcomes: Vec<_> = states.iter().map(|state| &state.outcome).collect();
    assert!(
        matches!(outcomes[..], [Outcome::Broken { .. }, Outcome::Broken { .. }, Outcome::Held]),
        "the matrix goes on with a new guest: {outcomes:#?}"
    );
    assert!(rig.fates.lock().unwrap().is_empty(), "each state was tried twice");
    let kept = |state: usize, name: &str| {
        let path = folder.path.join("broken").join(&states[state].image[..16]).join(name);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    };
    assert!(kept(0, "reason-1.txt").contains("did not answer within 2000 ms"), "{}", kept(0, "reason-1.txt"));
    assert!(kept(0, "console-1.log").contains("powerfail-leash holds process"), "{}", kept(0, "console-1.log"));
    assert!(kept(0, "console-2.log").contains("Kernel panic - not syncing: sysrq triggered crash"));
    assert!(kept(1, "reason-1.txt").contains("did not answer"), "{}", kept(1, "reason-1.txt"));
    assert!(kept(1, "reason-2.txt").contains("printed"), "{}", kept(1, "reason-2.txt"));
    let flood = kept(1, "console-2.log");
    assert!(flood.contains("for ever and ever") && flood.len() < 200_000, "{} bytes", flood.len());
}

#[test]
fn a_cell_is_given_up_when_no_guest_starts_any_more() {
    let (Some(guest), Some(late)) = (guest(BOOT), guest(1)) else { return };
    let place = tempfile::tempdir().unwrap();
    let (cell, folder) = (cell(), CellFolder { path: place.path().into() });
    let recording = recording(&cell, &folder);
    let plan = plan_cell(&cell, &folder, &recording, &about()).unwrap();
    let rig = Unruly { guest, late, fates: Mutex::new([Fate::NeverBoots; 6].into()) };
    let about = about();
    let job = Job {
        cell: &cell,
        folder: &folder,
        recording: &recording,
        about: &about,
        rig: &rig,
        jobs: 1,
        until_found: false,
        end: None,
    };
    let mut states = 0;
    let error = verify(&job, &plan.entries, &Stop::listen().unwrap(), |_| {
        states += 1;
        Ok(())
    })
    .unwrap_err();
    assert!(error.to_string().contains("no agent started for 3 states in a row") && states == 2, "{error:#}");
}

/// A file system that its owner has told to panic at the first error, and whose orphan list names an inode that is free:
/// the kernel panics in the mount's own thread, in ext4's code.
#[test]
fn a_panic_in_recovery_is_a_finding() {
    let Some(guest) = guest(BOOT) else { return };
    let place = tempfile::tempdir().unwrap();
    let path = made(place.path(), &["-e", "panic"]);
    let ran =
        Command::new("debugfs").args(["-w", "-R", "set_super_value last_orphan 500"]).arg(&path).output().unwrap();
    assert!(ran.status.success(), "{ran:?}");
    let image = image_of(&path);
    let mut seat = seat(guest.spawn().unwrap(), &image);
    let Ok(Examined::Stopped(evidence)) = examine(&mut seat, &cell(), Extent::Everything, &LIMITS) else {
        panic!("it panics")
    };
    let oracle = powerfail_workloads::Oracle::new(&cell().spec, cell().promises());
    let findings = powerfail::check::findings(&evidence, &oracle);
    let [finding] = &findings[..] else { panic!("{findings:#?}") };
    assert_eq!(finding.kind, FindingKind::Kernel);
    assert_eq!(
        finding.detail,
        "the kernel crashed in recovery: Kernel panic - not syncing: EXT4-fs (device DEVICE): panic forced after error, \
         in ext4_handle_error.cold"
    );
    let console = evidence.stopped.console.unwrap();
    assert!(console.contains("orphan inode 500"), "{console}");
}

/// The kernel throttles the disk to two bytes a second: the mount waits in the kernel, and the drive has answered everything.
#[test]
fn a_hang_in_recovery_is_a_finding_as_long_as_the_drive_owes_nothing() {
    let Some(guest) = guest(BOOT) else { return };
    let place = tempfile::tempdir().unwrap();
    let image = image_of(&made(place.path(), &[]));
    let mut seat = seat(guest.spawn().unwrap(), &image);
    shell(
        &mut seat.agent,
        "mkdir -p /cg && mount -t cgroup2 none /cg && echo +io > /cg/cgroup.subtree_control && mkdir /cg/slow && \
         echo '43:0 rbps=2' > /cg/slow/io.max && echo $PPID > /cg/slow/cgroup.procs",
    )
    .unwrap();
    let limits = Limits { mount: Duration::from_secs(3), ..LIMITS };
    match examine(&mut seat, &cell(), Extent::Everything, &limits) {
        Ok(Examined::Stopped(evidence)) => {
            assert!(matches!(evidence.recovery, Some(Mounting::TimedOut { seconds: 3 })), "{evidence:?}");
            assert!(evidence.crash.is_none());
            assert!(evidence.stopped.stack.contains("ext4"), "{}", evidence.stopped.stack);
        }
        other => panic!("{other:?}"),
    }
}

/// The same mount, but here it is the server that never answers: nobody's finding.
#[test]
fn a_mount_that_waits_for_the_drive_is_broken() {
    let Some(guest) = guest(BOOT) else { return };
    let place = tempfile::tempdir().unwrap();
    let silent = Silent::serve(fs::read(made(place.path(), &[])).unwrap());
    let mut agent = guest.spawn().unwrap();
    // The kernel looks for partitions when it attaches; from then on nothing is answered.
    agent.attach(source(silent.port), LIMITS.other).unwrap();
    agent.detach(LIMITS.other).unwrap();
    let seat = Seat { agent, source: source(silent.port), served: None };
    let limits = Limits { mount: Duration::from_secs(3), ..LIMITS };
    let mut seat = seat;
    let broke = examine(&mut seat, &cell(), Extent::Everything, &limits).expect_err("no verdict");
    assert!(broke.reason.contains("the disk owes") && !broke.reason.contains("owes 0"), "{}", broke.reason);
    drop(seat);
}

/// A drive that answers no read of the superblock.
#[derive(Debug)]
struct Silent {
    port: u16,
    device: Arc<SilentDevice>,
    runtime: tokio::runtime::Runtime,
    handle: Option<Handle>,
}

#[derive(Debug)]
struct SilentDevice {
    bytes: Vec<u8>,
    ended: Mutex<bool>,
    end: Condvar,
}

impl Silent {
    fn serve(bytes: Vec<u8>) -> Silent {
        let device = Arc::new(SilentDevice { bytes, ended: Mutex::new(false), end: Condvar::new() });
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let inside = runtime.enter();
        let server = Server::bind_tcp("127.0.0.1:0".parse().unwrap(), Reach::Loopback).unwrap();
        let handle = server.serve(Exports::one(device.clone()), Serving::default()).unwrap();
        drop(inside);
        let Address::Tcp(address) = handle.address().clone() else { panic!("bound as TCP") };
        Silent { port: address.port(), device, runtime, handle: Some(handle) }
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        *self.device.ended.lock().unwrap() = true;
        self.device.end.notify_all();
        if let Some(handle) = self.handle.take() {
            self.runtime.block_on(handle.shutdown(Farewell::Drop));
        }
    }
}

impl Device for SilentDevice {
    fn geometry(&self) -> Geometry {
        Geometry::new(SIZE).unwrap()
    }

    fn offers(&self) -> Offers {
        Offers::ALL
    }

    fn receive(&self, request: &Request<'_>) -> Result<Receipt, Refusal> {
        // ext4 reads its superblock alone; who attaches reads a page at least.
        if request.command == Asked::Read && request.offset == 1024 {
            let ended = self.ended.lock().unwrap();
            drop(self.end.wait_while(ended, |ended| !*ended).unwrap());
            return Err(Refusal::PowerOff);
        }
        Ok(Receipt::for_event(0))
    }

    fn read(&self, offset: u64, out: &mut [u8]) {
        out.copy_from_slice(&self.bytes[offset as usize..offset as usize + out.len()]);
    }

    fn reply(&self, _: Receipt) -> Result<(), Refusal> {
        Ok(())
    }
}
