//! Live cuts through the program: a machine loses its power in the middle of a workload, another one recovers.

mod common;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use common::{ledger, program, refuse, run, states};
use powerfail_ledger::{Line, Outcome};

fn live(out: &Path, agent: &Path) -> Command {
    let mut command = program();
    command.args(["run", "--live", "--cuts", "2", "--mode", "nobarrier-w1,barrier", "--kernel", "debian-6.1"]);
    command.args(["--steps", "100", "--seconds", "60", "--files", "100", "--workers", "4", "--hog", "0"]);
    command.args(["--size", "64M", "--seed", "5", "--out"]).arg(out).env("POWERFAIL_GUEST_AGENT", agent);
    command
}

#[test]
fn live_cuts_are_judged_as_others_and_survive_a_kill() {
    if !has_guests() {
        return;
    }
    let agent = common::static_agent();
    let place = tempfile::tempdir().unwrap();
    let out = place.path().join("out");
    let mut killed = live(&out, &agent).spawn().unwrap();
    // The second cut: one guest is at work, and the one that judged the first cut waits.
    let part = out.join("ext4-nobarrier-w1-debian-6.1-live/cuts/0001/recording.part");
    let end = Instant::now() + Duration::from_secs(240);
    let guests = |pids: &[u32]| pids.iter().filter(|pid| name_of(**pid).starts_with("qemu")).count();
    let qemus = loop {
        let found = descendants(killed.id());
        if part.exists() && guests(&found) == 2 {
            break found;
        }
        assert!(killed.try_wait().unwrap().is_none() && Instant::now() < end, "it records");
        std::thread::yield_now();
    };
    killed.kill().unwrap();
    killed.wait().unwrap();
    let end = Instant::now() + Duration::from_secs(2);
    while qemus.iter().any(|pid| is_alive(*pid)) {
        assert!(Instant::now() < end, "nothing of a killed run is left");
        std::thread::yield_now();
    }
    let first = states(&out).remove(0);

    let ran = live(&out, &agent).arg("--resume").output().unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{}: {said}", ran.status);
    let states = states(&out);
    assert_eq!(states[0], first, "what was judged before the kill stands");
    assert!(states.iter().all(|state| state.explorer == "live" && state.case.rig == "guest live"));
    let of = |mode: &str| states.iter().filter(|state| state.case.mode == mode).collect::<Vec<_>>();
    let (safe, control) = (of("barrier"), of("nobarrier-w1"));
    assert_eq!((safe.len(), control.len()), (2, 2), "{said}");
    assert!(safe.iter().all(|state| state.outcome == Outcome::Held), "{safe:#?}");
    let violated: Vec<_> = control.iter().filter(|s| matches!(s.outcome, Outcome::Violated { .. })).collect();
    assert!(!violated.is_empty(), "the control is seen to fail: {control:#?}");
    let recordings = ledger(&out).iter().filter(|line| matches!(line, Line::Recording(_))).count();
    assert_eq!(recordings, 4);
    let kept = |cell: &str| fs::read_dir(out.join(cell).join("cuts")).unwrap().count();
    assert_eq!(kept("ext4-barrier-debian-6.1-live"), 0, "of a state that held nothing is kept");
    assert_eq!(kept("ext4-nobarrier-w1-debian-6.1-live"), violated.len());

    let casebook = violated[0].replay.as_ref().unwrap().strip_prefix("powerfail replay ").unwrap();
    let replay = program().args(["replay", casebook]).env("POWERFAIL_GUEST_AGENT", &agent).output().unwrap();
    assert!(
        replay.status.success(),
        "{}{}",
        String::from_utf8_lossy(&replay.stdout),
        String::from_utf8_lossy(&replay.stderr)
    );

    // All is done: nothing is cut again.
    let before = fs::read(out.join("ledger.jsonl")).unwrap();
    assert!(live(&out, &agent).arg("--resume").output().unwrap().status.success());
    assert_eq!(fs::read(out.join("ledger.jsonl")).unwrap(), before);
}

#[test]
fn the_machines_own_kernel_is_not_cut() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = program();
    command.args(["run", "--live", "--rig", "host-loop", "--out"]).arg(folder.path().join("out"));
    refuse(&mut command, "can't be cut without cutting the machine");
    let mut command = program();
    command.args(["record", "--live", "--out"]).arg(folder.path().join("out"));
    refuse(&mut command, "recorded and judged one by one");
    let mut command = program();
    let ran = run(command.args(["run", "--cuts", "3", "--out"]).arg(folder.path().join("out"))).expect(2);
    assert!(ran.stderr.contains("--live"), "{}", ran.stderr);
    assert!(!folder.path().join("out").exists(), "nothing is left behind");
}

fn has_guests() -> bool {
    for (tool, package) in
        [("qemu-system-x86_64", "qemu-system-x86"), ("nbd-client", "nbd-client"), ("mkfs.ext4", "e2fsprogs")]
    {
        if !["/usr/sbin", "/usr/bin", "/sbin", "/bin"].iter().any(|folder| Path::new(folder).join(tool).exists()) {
            println!("SKIPPED: there is no {tool}; apt-get install {package}.");
            return false;
        }
    }
    true
}

fn name_of(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default()
}

/// The state and the parent of a process.
fn stat(pid: u32) -> Option<(char, u32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

fn is_alive(pid: u32) -> bool {
    stat(pid).is_some_and(|(state, _)| state != 'Z' && state != 'X')
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
