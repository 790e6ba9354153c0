//! The same program on the rig `guest`: another kernel, without any privilege, attached by the real nbd-client.

mod common;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use powerfail_ledger::Line;

fn missing() -> Option<&'static str> {
    [("qemu-system-x86_64", "qemu-system-x86"), ("nbd-client", "nbd-client"), ("mkfs.ext4", "e2fsprogs")]
        .into_iter()
        .find(|(tool, _)| {
            !["/usr/sbin", "/usr/bin", "/sbin", "/bin"].iter().any(|folder| Path::new(folder).join(tool).exists())
        })
        .map(|(_, package)| package)
}

#[test]
fn an_ordinary_user_gets_a_verdict_from_a_kernel_in_a_guest() {
    if let Some(package) = missing() {
        println!("SKIPPED: guests need a program that is not here; apt-get install {package}.");
        return;
    }
    let agent = common::static_agent();
    let place = tempfile::tempdir().unwrap();
    std::fs::set_permissions(place.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    for (from, name) in [(Path::new(env!("CARGO_BIN_EXE_powerfail")), "powerfail"), (&agent, "powerfail-agent-static")]
    {
        std::fs::copy(from, place.path().join(name)).unwrap();
    }
    let out = place.path().join("out");
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", "300"]);
    if rustix::process::geteuid().is_root() {
        command.args(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs"]);
    }
    command.arg(place.path().join("powerfail"));
    command.args([
        "run",
        "--rig",
        "guest",
        "--kernel",
        "debian-6.1",
        "--mode",
        "barrier",
        "--states",
        "8",
        "--jobs",
        "1",
    ]);
    command.args([
        "--steps",
        "60",
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
    ]);
    let ran = command.arg("--out").arg(&out).env("HOME", place.path()).current_dir(place.path()).output().unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{}: {said}", ran.status);
    assert_eq!(common::states(&out).len(), 8);
    let recording = common::ledger(&out).into_iter().find_map(|line| match line {
        Line::Recording(recording) => Some(recording),
        _ => None,
    });
    let recording = recording.expect("a recording");
    assert!(recording.case.kernel.starts_with("6.1."), "{}", recording.case.kernel);
    assert!(recording.fua > 0 && recording.path_keeps.fua == "native", "FUA arrives as such: {recording:?}");
}
