//! `kill -9` of the harness, in each phase: after two seconds there is nothing left.

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use common::*;
use powerfail_rig::workdir::{Workdir, clean_leftovers};

/// Each begins right after the harness has said its name.
const PHASES: &[&str] = &["attach", "mkfs", "mount", "run", "observe", "unmount", "fsck", "detach", "idle"];
/// The harness's own server dies with it; one that outlives it a little is harder on what stands on it.
const SOURCES: &[&str] = &["image", "nbd", "nbd-outlives"];
const SOURCE: &str = "POWERFAIL_TEST_SOURCE";

#[test]
fn a_killed_harness_leaves_nothing_in_any_phase() {
    if !ready(&["nbdfuse", "nbdkit", "setpriv", "mkfs.ext4", "e2fsck"]) {
        return;
    }
    for source in SOURCES {
        for phase in PHASES {
            // At once, and when the phase has gone on for a while.
            for pause in [Duration::ZERO, Duration::from_millis(7)] {
                kill_in(source, phase, pause);
            }
        }
    }
}

/// Stands for the harness; only its killer starts it.
#[test]
#[ignore = "the process that the other test kills"]
fn harness() {
    let Ok(source) = std::env::var(SOURCE) else { panic!("{SOURCE} is not set: this is no test by itself") };
    let folder = Workdir::make().unwrap();
    let image = memory(64 * MIB);
    let server = match source.as_str() {
        "nbd" => Some(Server::dying_at_once(folder.path(), "nbd.sock", &["memory", "64M"])),
        "nbd-outlives" => Some(Server::start(folder.path(), "nbd.sock", &["memory", "64M"])),
        _ => None,
    };
    let mut agent = spawn(&folder, &[&image]);
    say(&format!("agent {} {}", agent.pid(), folder.path().display()));
    say("attach");
    let attached = match &server {
        Some(server) => agent.attach_nbd(&server.socket, LIMIT).unwrap(),
        None => agent.attach_image(0, 64 * MIB, LIMIT).unwrap(),
    };
    say(&format!("tag {}", attached.tag));
    say("mkfs");
    mkfs(&mut agent);
    say("mount");
    mount(&mut agent);
    say("run");
    agent.run(&small(300), LIMIT, |_| ()).unwrap();
    say("observe");
    agent.observe(LIMIT).unwrap();
    say("unmount");
    unmount(&mut agent);
    say("fsck");
    fsck(&mut agent);
    say("detach");
    agent.detach(LIMIT).unwrap();
    say("idle");
    // Until the kill; the end of the input means that the killer itself died.
    let _ = std::io::stdin().read(&mut [0]);
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

fn kill_in(source: &str, phase: &str, pause: Duration) {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "harness", "--ignored", "--nocapture", "--test-threads=1"])
        .env(SOURCE, source)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut child = Killed(child);
    let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
    let mut agent: Option<(u64, PathBuf)> = None;
    let mut tag = String::from("none yet");
    loop {
        let line = lines.next().expect("the harness goes on").unwrap();
        let Some((_, said)) = line.split_once('@') else { continue };
        let words: Vec<&str> = said.split(' ').collect();
        match words[..] {
            ["agent", pid, folder] => agent = Some((namespace_of(pid.parse().unwrap()), folder.into())),
            ["tag", name] => tag = name.to_string(),
            [name] if name == phase => break,
            _ => {}
        }
    }
    std::thread::sleep(pause);
    child.0.kill().unwrap();
    child.0.wait().unwrap();
    let (namespace, folder) = agent.unwrap();
    let left = remains_after(Duration::from_secs(2), || remains(namespace, &folder, &tag));
    assert!(left.is_empty(), "{source}, killed {pause:?} into {phase}: {left:#?}");
    assert!(folder.exists(), "a killed harness can't remove its folder");
    // Another test's harness may be the one that cleans it.
    clean_leftovers().unwrap();
    assert!(!folder.exists());
}
