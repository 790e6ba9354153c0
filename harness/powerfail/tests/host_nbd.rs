//! The rig `host-nbd`: the program itself on a machine whose kernel has NBD devices. Where this machine's has none, a guest
//! is that machine: the program runs in it as on any other.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use powerfail_rig::guest::{Guest, GuestSetup, Kernel, cache_folder};
use powerfail_rig::{Agent, GuestError};

const LIMIT: Duration = Duration::from_secs(60);
/// The program makes, records and judges in a guest whose instructions are all emulated.
const RUN: Duration = Duration::from_secs(400);

const WORDS: &[&str] = &[
    "run",
    "--rig",
    "host-nbd",
    "--mode",
    "barrier,nobarrier-w1",
    "--states",
    "6",
    "--jobs",
    "1",
    "--steps",
    "80",
    "--seconds",
    "60",
    "--files",
    "60",
    "--workers",
    "2",
    "--hog",
    "0",
    "--size",
    "64M",
    "--json",
    "--seed",
    "3",
];

#[test]
fn the_program_uses_the_nbd_driver_of_the_machine_that_it_is_on() {
    let Some((guest, program)) = machine() else { return };
    let mut agent = guest.spawn().unwrap();
    let mut words = vec![program.as_str()];
    words.extend(WORDS);
    words.extend(["--out", "/tmp/out"]);
    let ran = agent.tool(&words, RUN).unwrap();
    assert_eq!(ran.code, Some(0), "{}{}", ran.stdout, ran.stderr);
    let told: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    let cells = told["cells"].as_array().unwrap();
    let violated: Vec<_> = cells.iter().map(|cell| cell["violated"].as_u64().unwrap()).collect();
    assert!(violated[0] == 0 && violated[1] > 0, "barrier holds and the control is seen: {told}");
    assert!(cells.iter().all(|cell| cell["rig"] == "host-nbd" && cell["broken"] == 0), "{told}");
    // FUA arrives as such, which host-loop can't show.
    let shown =
        agent.tool(&[&program, "recording", "show", "/tmp/out/ext4-barrier-host-nbd", "--json"], LIMIT).unwrap();
    let shown: serde_json::Value = serde_json::from_str(&shown.stdout).unwrap();
    assert!(shown["counts"]["fua"].as_u64().unwrap() > 0, "{shown}");
    assert_eq!(connected(&mut agent), [0; 0], "every device was given back");

    // A device that somebody else uses is never touched, and a kill leaves none connected.
    killed(&mut agent, &program);
    agent.quit(LIMIT).unwrap();
}

/// Kills the program with a device attached.
fn killed(agent: &mut Agent, program: &str) {
    let mut words = vec!["timeout", "--signal=KILL", "8", program];
    words.extend(WORDS.iter().map(|word| if *word == "80" { "100000" } else { word }));
    words.extend(["--out", "/tmp/killed"]);
    let ran = agent.tool(&words, RUN).unwrap();
    // `timeout` kills itself with its child's signal.
    assert!(ran.signal == Some(9) || ran.code == Some(137), "{ran:?}");
    let mut left = connected(agent);
    for _ in 0..100 {
        if left.is_empty() {
            return;
        }
        // The kernel takes the processes' devices away when they are dead; that is soon, not at once.
        agent.tool(&["sleep", "0.1"], LIMIT).unwrap();
        left = connected(agent);
    }
    panic!("still connected: {left:?}");
}

/// Numbers of the NBD devices that have a size.
fn connected(agent: &mut Agent) -> Vec<u32> {
    let mut numbers = Vec::new();
    for number in 0..8 {
        let size = agent.tool(&["cat", &format!("/sys/block/nbd{number}/size")], LIMIT).unwrap();
        if size.stdout.trim() != "0" {
            numbers.push(number);
        }
    }
    numbers
}

#[test]
fn where_the_kernel_has_no_nbd_devices_it_is_skipped_with_a_sentence() {
    if Path::new("/sys/block/nbd0").exists() {
        println!("SKIPPED: this kernel has NBD devices.");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let ran = common::run(common::program().args(["run", "--rig", "host-nbd", "--out"]).arg(&out));
    assert_eq!(ran.code(), Some(4), "{}", ran.stderr);
    assert!(ran.stderr.contains("modprobe nbd") && ran.stderr.contains("linux-image-amd64"), "{}", ran.stderr);
    assert!(!out.exists());
}

/// A guest with the program in it, and where it is there; a skip with its reason where that can't be.
fn machine() -> Option<(Guest, String)> {
    let program = stripped();
    let made = || -> Result<Guest, GuestError> {
        let kernel = Kernel::debian("6.1", &cache_folder(None)?)?;
        let mut setup = GuestSetup::with_agent(kernel, "ext4", common::static_agent(), cache_folder(None)?);
        setup.tools.extend([program.clone(), "timeout".into(), "cat".into(), "sleep".into()]);
        setup.memory_mib = 1536;
        Guest::prepare(setup)
    };
    match made() {
        Ok(guest) => Some((guest, program)),
        Err(GuestError::Missing(reason)) => {
            println!("SKIPPED: {reason}.");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// The program without what only debuggers read: each megabyte of a guest's image costs time.
fn stripped() -> String {
    let to: PathBuf = Path::new(env!("CARGO_TARGET_TMPDIR")).join("powerfail");
    let ran = Command::new("strip").arg("-o").arg(&to).arg(env!("CARGO_BIN_EXE_powerfail")).status();
    if !ran.is_ok_and(|status| status.success()) {
        std::fs::copy(env!("CARGO_BIN_EXE_powerfail"), &to).unwrap();
    }
    to.display().to_string()
}
