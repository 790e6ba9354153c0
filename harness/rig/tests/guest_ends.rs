//! How guests end: by a power cut in the middle of a workload, by kill -9 of the harness, by never having started.

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::drive::Served;
use common::{LIMIT, MIB, guest, kernel, setup};
use powerfail_rig::guest::{HOST, Kernel};
use powerfail_rig::{Asked, Guest, GuestError, GuestSetup, LinkError, MountOutcome};
use powerfail_workloads::{Mason, Spec};

fn any_guest() -> Option<Guest> {
    guest(&kernel("debian-6.1")?)
}

fn endless() -> Spec {
    Spec::Mason(Mason { workers: 3, seconds: 600, files: 60, hog_mib: 0, hog_every: 0, ..Mason::default() })
}

#[test]
fn a_power_cut_in_a_workload_ends_it_and_another_guest_recovers() {
    let Some(guest) = any_guest() else { return };
    let drive = Served::new(128 * MIB);
    let mut agent = guest.spawn().unwrap();
    agent.attach_nbd_client(HOST, drive.port, "", LIMIT).unwrap();
    let ran = agent.tool(&["mkfs.ext4", "-q", "-F", "-b", "4096", "-J", "size=4", "{device}"], LIMIT).unwrap();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(matches!(agent.mount("ext4", "", LIMIT, LIMIT), Ok(MountOutcome::Mounted { .. })));
    let switch = agent.power_switch().unwrap();
    let (mut marks, mut cut_at) = (0, None);
    let ended = agent.run(&endless(), LIMIT, |_| {
        marks += 1;
        if marks == 200 {
            let started = Instant::now();
            switch.cut().unwrap();
            cut_at = Some(started.elapsed());
        }
    });
    assert!(matches!(ended, Err(Asked::Link(LinkError::Died { .. }))), "{ended:?}");
    assert!(!is_alive(switch.pid()) && marks >= 200, "{marks} marks");
    println!("the power cut took {cut_at:?}");
    drop(agent);

    let mut agent = guest.spawn().unwrap();
    agent.attach_nbd_client(HOST, drive.port, "", LIMIT).unwrap();
    match agent.mount("ext4", "", LIMIT, LIMIT).unwrap() {
        MountOutcome::Mounted { log, .. } => {
            assert!(log.lines.iter().any(|line| line.text.contains("recovery complete")), "{log:?}");
        }
        refused => panic!("{refused:?}"),
    }
    agent.unmount(LIMIT).unwrap();
    let ran = agent.tool(&["e2fsck", "-fn", "{device}"], LIMIT).unwrap();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    agent.kill().unwrap();
}

#[test]
fn kill_9_of_the_harness_leaves_no_guest_in_any_phase() {
    if any_guest().is_none() {
        return;
    }
    for phase in ["booting", "idle", "running"] {
        let mut harness = Killed(
            Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "harness", "--ignored", "--nocapture", "--test-threads=1"])
                .env(PHASE, phase)
                .env("POWERFAIL_GUEST_AGENT", common::static_agent())
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap(),
        );
        let out = BufReader::new(harness.0.stdout.take().unwrap());
        let reached = out.lines().map_while(Result::ok).any(|line| line.contains(&format!("@{phase}")));
        assert!(reached, "the harness gets to {phase}");
        let children = descendants(harness.0.id());
        assert!(children.iter().any(|pid| name_of(*pid).contains("qemu")), "{phase}: {children:?}");
        harness.0.kill().unwrap();
        let end = Instant::now() + Duration::from_secs(2);
        while children.iter().any(|pid| is_alive(*pid)) {
            assert!(
                Instant::now() < end,
                "{phase}: of {children:?} remain {:?}",
                children.iter().map(|pid| name_of(*pid))
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

const PHASE: &str = "POWERFAIL_TEST_PHASE";

#[test]
#[ignore = "the process that the other test kills"]
fn harness() {
    let phase = std::env::var(PHASE).expect("this is no test by itself");
    let guest = any_guest().unwrap();
    if phase == "booting" {
        // The leash starts QEMU within this time; QEMU's kernel does not come far in it.
        std::thread::spawn(|| {
            while !descendants(std::process::id()).iter().any(|pid| name_of(*pid).contains("qemu")) {
                std::thread::sleep(Duration::from_millis(1));
            }
            say("booting");
        });
    }
    let drive = Served::new(128 * MIB);
    let mut agent = guest.spawn().unwrap();
    if phase == "running" {
        agent.attach_nbd_client(HOST, drive.port, "", LIMIT).unwrap();
        agent.tool(&["mkfs.ext4", "-q", "-F", "{device}"], LIMIT).unwrap();
        agent.mount("ext4", "", LIMIT, LIMIT).unwrap();
        let mut marks = 0;
        let _ = agent.run(&endless(), LIMIT, |_| {
            marks += 1;
            if marks == 50 {
                say("running");
            }
        });
    }
    say(&phase);
    let _ = std::io::stdin().read(&mut [0]);
}

#[test]
fn what_is_no_kernel_is_an_error_at_once_with_what_qemu_said() {
    let Some(real) = kernel("debian-6.1") else { return };
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("bogus");
    fs::write(&image, vec![0x5a; 100_000]).unwrap();
    let Some((error, took)) = does_not_start(&image, &real) else { return };
    assert!(
        matches!(&error, GuestError::Start { source: LinkError::Died { said, .. }, .. } if said.contains("kernel")),
        "{error}"
    );
    assert!(took < Duration::from_secs(5), "{took:?}");
}

#[test]
fn a_guest_that_never_boots_is_an_error_in_time_with_its_console() {
    let Some(real) = kernel("debian-6.1") else { return };
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("halts");
    // QEMU and the boot code take it; what it unpacks to is damaged, and it stops there for ever.
    let mut bytes = fs::read(&real.image).unwrap();
    let half = bytes.len() / 2;
    bytes[half..half + 4096].fill(0xff);
    fs::write(&image, bytes).unwrap();
    let Some((error, took)) = does_not_start(&image, &real) else { return };
    match &error {
        GuestError::Start { source: LinkError::Deadline { said, .. }, .. } => {
            assert!(said.contains("System halted"), "{said}");
        }
        other => panic!("{other}"),
    }
    assert!(took < BOOT + Duration::from_secs(2), "{took:?}");
}

const BOOT: Duration = Duration::from_secs(20);

fn does_not_start(image: &Path, real: &Kernel) -> Option<(GuestError, Duration)> {
    guest(real)?;
    let kernel = Kernel::own(image, real.modules.as_deref()).unwrap();
    let guest = Guest::prepare(GuestSetup { boot_limit: BOOT, ..setup(&kernel).unwrap() }).unwrap();
    let started = Instant::now();
    let error = guest.spawn().unwrap_err();
    assert!(descendants(std::process::id()).iter().all(|pid| !is_running(*pid, image)), "QEMU is gone");
    Some((error, started.elapsed()))
}

/// Whether a process runs that has the image in its arguments; other tests have guests of their own.
fn is_running(pid: u32, image: &Path) -> bool {
    let arguments = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&arguments).contains(image.to_str().unwrap())
}

fn say(what: &str) {
    let mut out = std::io::stdout();
    writeln!(out, "@{what}").and_then(|()| out.flush()).unwrap();
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The state and the parent of a process.
fn stat(pid: u32) -> Option<(char, u32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

/// A zombie whose parent has not asked yet is dead.
fn is_alive(pid: u32) -> bool {
    stat(pid).is_some_and(|(state, _)| state != 'Z' && state != 'X')
}

fn name_of(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_string()
}

fn descendants(of: u32) -> Vec<u32> {
    let all: Vec<(u32, u32)> = fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| entry.file_name().to_string_lossy().parse().ok())
        .filter_map(|pid| Some((pid, stat(pid)?.1)))
        .collect();
    let mut found = vec![of];
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        found.extend(all.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
        next += 1;
    }
    found.split_off(1)
}
