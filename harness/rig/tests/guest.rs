//! Guests with Debian's kernels, as a user without any privilege: the whole line, a refused mount, devices in use.
//!
//! Where the tests run as root they start themselves again as `nobody`.

mod common;

use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use common::drive::Served;
use common::{CACHE, LIMIT, MIB, cache, guest, kernel, setup, static_agent};
use powerfail_rig::guest::{Accel, HOST, Kernel};
use powerfail_rig::{Agent, Asked, Guest, GuestError, GuestSetup, MountOutcome, RunOutcome, UnmountOutcome};
use powerfail_workloads::{Mason, Spec};

const MKFS: &[&str] = &["mkfs.ext4", "-q", "-F", "-b", "4096", "-J", "size=4", "-E", LAZY, "{device}"];
const LAZY: &str = "lazy_itable_init=0,lazy_journal_init=0";

#[test]
fn linux_6_1_is_attached_made_mounted_worked_on_and_given_back() {
    as_nobody("whole_line", "debian-6.1");
}

#[test]
fn linux_6_12_is_attached_made_mounted_worked_on_and_given_back() {
    as_nobody("whole_line", "debian-6.12");
}

#[test]
fn a_series_that_nobody_has_is_missing_with_what_to_do() {
    match Kernel::by_name("debian-0.99", &cache()) {
        Err(GuestError::Missing(reason)) => {
            assert!(reason.contains("apt-get update") || reason.contains("apt-get install"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
    assert!(matches!(Kernel::by_name("hurd", &cache()), Err(GuestError::Missing(_))));
}

#[test]
fn whether_kvm_works_is_found_out_once_by_trying() {
    let Some(kernel) = kernel("debian-6.1") else { return };
    if guest(&kernel).is_none() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let own_cache = GuestSetup { accel: Accel::Auto, cache: place.path().into(), ..setup(&kernel).unwrap() };
    let guest = Guest::prepare(own_cache).unwrap();
    assert_eq!(guest.accel(), Accel::Auto);
    let mut last = None;
    for _ in 0..2 {
        let started = Instant::now();
        guest.spawn().unwrap().quit(LIMIT).unwrap();
        println!("{} after {:?}", guest.accel(), started.elapsed());
        assert_ne!(guest.accel(), Accel::Auto);
        assert!(last.is_none_or(|last| last == guest.accel()), "it is not tried again");
        last = Some(guest.accel());
    }
}

const NAME: &str = "POWERFAIL_TEST_KERNEL";

/// Runs one of the tests below in a process of its own, without root.
fn as_nobody(test: &str, name: &str) {
    let agent = static_agent();
    let place = tempfile::tempdir().unwrap();
    std::fs::set_permissions(place.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let program = std::env::current_exe().unwrap();
    let mut command = if rustix::process::geteuid().is_root() {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs"]).arg(&program);
        command
    } else {
        Command::new(&program)
    };
    // It can't write to the cache of others: it fetches and makes everything by itself, which must work too.
    command.args(["--exact", test, "--ignored", "--nocapture", "--test-threads=1"]);
    command.env(NAME, name).env(CACHE, place.path().join("cache")).env("POWERFAIL_GUEST_AGENT", &agent);
    command.env("HOME", place.path()).env("TMPDIR", place.path()).current_dir("/");
    let ran = command.output().unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    println!("{said}");
    assert!(ran.status.success(), "{said}");
}

#[test]
#[ignore = "started by other tests, as another user"]
fn whole_line() {
    assert!(!rustix::process::geteuid().is_root(), "no privilege is needed");
    let name = std::env::var(NAME).unwrap();
    let Some(guest) = kernel(&name).and_then(|kernel| guest(&kernel)) else { return };
    let drive = Served::new(128 * MIB);
    let mut agent = guest.spawn().unwrap();
    let version = name.strip_prefix("debian-").unwrap();
    assert!(agent.hello().kernel.starts_with(version), "{}", agent.hello().kernel);

    for round in 0..2 {
        let attached = agent.attach_nbd_client(HOST, drive.port, "", LIMIT).unwrap();
        assert_eq!((attached.write_cache.as_str(), attached.fua), ("write back", true), "{attached:?}");
        assert_eq!((attached.logical_block, attached.direct_io), (512, true), "{attached:?}");
        assert!(attached.discard_max_bytes > 0, "{attached:?}");
        if round == 0 {
            tool(&mut agent, MKFS);
            mounted(&mut agent);
            worked_on(&mut agent);
        } else {
            mounted(&mut agent);
        }
        let (seen, log) = agent.observe(LIMIT).unwrap();
        assert!(seen.errors.is_empty() && seen.entries.len() > 10 && log.lost == 0, "{} entries", seen.entries.len());
        unmounted(&mut agent);
        tool(&mut agent, &["e2fsck", "-fn", "{device}"]);
        agent.detach(LIMIT).unwrap();
    }
    let arrived = [&drive.drive.writes, &drive.drive.flushes, &drive.drive.fuas].map(|count| count.load(Relaxed));
    assert!(arrived.iter().all(|count| *count > 0), "writes, flushes, FUA arrive as such: {arrived:?}");

    refused(&mut agent, &drive);
    another_device_than_one_in_use(&mut agent, &drive);
    no_server_is_a_failure_in_words(&mut agent);
    agent.quit(LIMIT).unwrap();
}

fn worked_on(agent: &mut Agent) {
    let mason = Mason { workers: 3, seconds: 2, files: 100, hog_mib: 0, hog_every: 0, ..Mason::default() };
    let mut marks = 0;
    let outcome = agent.run(&Spec::Mason(mason), LIMIT, |_| marks += 1).unwrap();
    assert!(matches!(outcome, RunOutcome::Done { .. }) && marks > 50, "{marks} marks, {outcome:?}");
    let log = agent.sync(LIMIT).unwrap();
    assert!(log.lines.is_empty(), "{log:?}");
}

/// A superblock that is none.
fn refused(agent: &mut Agent, drive: &Served) {
    drive.drive.fill(0, 4096, 0xa5);
    agent.attach_nbd_client(HOST, drive.port, "", LIMIT).unwrap();
    match agent.mount("ext4", "", LIMIT, LIMIT).unwrap() {
        MountOutcome::Refused { errno, log, .. } => {
            assert_eq!(errno, 22);
            assert!(log.lines.iter().any(|line| line.names_device && line.text.contains("EXT4-fs")), "{log:?}");
        }
        mounted => panic!("{mounted:?}"),
    }
    agent.detach(LIMIT).unwrap();
}

/// Somebody else in the guest has all devices but one, and keeps them.
fn another_device_than_one_in_use(agent: &mut Agent, drive: &Served) {
    let port = drive.port.to_string();
    let others: Vec<String> = (0..8).filter(|n| *n != 5).map(|n| format!("/dev/nbd{n}")).collect();
    for device in &others {
        tool(agent, &["nbd-client", HOST, &port, device, "-b", "512"]);
    }
    for _ in 0..2 {
        let attached = agent.attach_nbd_client(HOST, drive.port, "", LIMIT).unwrap();
        assert_eq!(attached.device, "/dev/nbd5");
        agent.detach(LIMIT).unwrap();
    }
    tool(agent, &["nbd-client", HOST, &port, "/dev/nbd5", "-b", "512"]);
    match agent.attach_nbd_client(HOST, drive.port, "", LIMIT) {
        Err(Asked::Failed(failure)) => assert!(failure.reason.contains("all 8 NBD devices are in use"), "{failure}"),
        other => panic!("{other:?}"),
    }
    for device in others.iter().map(String::as_str).chain(["/dev/nbd5"]) {
        tool(agent, &["nbd-client", "-d", device]);
    }
}

fn no_server_is_a_failure_in_words(agent: &mut Agent) {
    // A port that was free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    match agent.attach_nbd_client(HOST, port, "", LIMIT) {
        Err(Asked::Failed(failure)) => assert!(failure.doing.contains("nbd-client"), "{failure}"),
        other => panic!("{other:?}"),
    }
}

fn tool(agent: &mut Agent, argv: &[&str]) {
    let ran = agent.tool(argv, LIMIT).unwrap();
    assert_eq!(ran.code, Some(0), "{argv:?} {ran:?}");
}

fn mounted(agent: &mut Agent) {
    let outcome = agent.mount("ext4", "noatime", LIMIT, LIMIT).unwrap();
    assert!(matches!(outcome, MountOutcome::Mounted { .. }), "{outcome:?}");
}

fn unmounted(agent: &mut Agent) {
    let outcome = agent.unmount(LIMIT).unwrap();
    assert!(matches!(outcome, UnmountOutcome::Unmounted { .. }), "{outcome:?}");
}
