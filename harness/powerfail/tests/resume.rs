//! A run that is killed or stopped in any phase leaves nothing behind but its folder, and goes on from there.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::*;
use powerfail_ledger::{Line, Outcome};

const STATES: u64 = 24;

/// Where a run is killed; in this order, each time the same run is resumed.
#[derive(Clone, Copy, Debug)]
enum Phase {
    /// The recording has just been begun: the agent starts, attaches and makes the file system.
    Beginning,
    /// So many mebibytes are recorded: the workload runs.
    Recording(u64),
    /// The recording is whole and mapped, and there is no plan.
    Planning,
    /// So many states have verdicts.
    Verifying(usize),
}

const PHASES: &[Phase] = &[
    Phase::Beginning,
    Phase::Recording(2),
    Phase::Recording(8),
    Phase::Planning,
    Phase::Verifying(1),
    Phase::Verifying(7),
    Phase::Verifying(16),
];

#[test]
fn kill_9_in_each_phase_leaves_nothing_and_loses_no_verdict() {
    if !ready() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let mut dead: Vec<PathBuf> = Vec::new();
    for phase in PHASES {
        let mut running = start_and_reach(*phase, &out);
        for path in dead.drain(..) {
            assert!(!path.exists(), "{} of a killed run is there after the next start", path.display());
        }
        if matches!(phase, Phase::Recording(_)) {
            assert_seen(&running.look());
        }
        dead = running.kill();
        assert_eq!(dead.len(), 1, "{phase:?}: a run has one folder below /run");
    }
    let before = ledger(&out);
    run(&mut again(&out, "barrier")).expect(0);
    assert!(dead.iter().all(|path| !path.exists()), "{dead:?}");
    let after = ledger(&out);
    assert_eq!(after[..before.len()], before, "what was judged is kept");
    assert_whole(&out, BARRIER);
    // A run that is whole has nothing to do.
    run(&mut again(&out, "barrier")).expect(0);
    assert_eq!(ledger(&out), after);
}

/// Killed while it records with one more cell done: that cell is not touched again.
#[test]
fn a_second_cell_is_killed_and_the_first_stays() {
    if !ready() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let modes = "nobarrier-w1,nobarrier-w0";
    let mut running = Running::start(&mut again(&out, modes));
    reach(&mut running, Phase::Recording(2), &out, "ext4-nobarrier-w0");
    running.kill();
    let first = snapshot(&out.join("ext4-nobarrier-w1"));
    let mut running = Running::start(&mut again(&out, modes));
    // Of the second cell: the first has all of its states already.
    reach(&mut running, Phase::Verifying(STATES as usize + 5), &out, "ext4-nobarrier-w0");
    running.kill();
    run(&mut again(&out, modes)).expect(0);
    assert_eq!(snapshot(&out.join("ext4-nobarrier-w1")), first);
    let mut judged: Vec<_> = states(&out).into_iter().map(|state| state.state).collect();
    let mut wanted = planned(&out, "ext4-nobarrier-w1");
    wanted.extend(planned(&out, "ext4-nobarrier-w0"));
    judged.sort();
    wanted.sort();
    assert_eq!(judged, wanted);
}

/// The last line was torn by the kill: its state has no verdict and gets one.
#[test]
fn a_torn_last_line_is_judged_again() {
    if !ready() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let mut running = Running::start(&mut again(&out, "barrier"));
    reach(&mut running, Phase::Verifying(5), &out, BARRIER);
    running.kill();
    let file = out.join("ledger.jsonl");
    let text = fs::read(&file).unwrap();
    fs::write(&file, &text[..text.len() - 20]).unwrap();
    run(&mut again(&out, "barrier")).expect(0);
    assert_whole(&out, BARRIER);
}

#[test]
fn ctrl_c_stops_in_good_order_and_the_run_goes_on() {
    if !ready() {
        return;
    }
    for phase in [Phase::Recording(2), Phase::Verifying(3)] {
        // A terminal sends it to the whole process group; `kill -INT` to the program alone.
        for terminal in [true, false] {
            let folder = tempfile::tempdir().unwrap();
            let out = folder.path().join("run");
            let mut running = Running::start(&mut again(&out, "barrier"));
            reach(&mut running, phase, &out, BARRIER);
            if terminal {
                running.ctrl_c()
            } else {
                running.interrupt()
            }
            // `wait` looks that nothing is left, the folder below /run included.
            let stopped = running.wait(LIMIT).expect(130);
            assert!(stopped.stderr.contains("--resume"), "{}", stopped.stderr);
            let broken = |line: &Line| match line {
                Line::Case(_) => true,
                Line::State(state) => matches!(state.outcome, Outcome::Broken { .. }),
                _ => false,
            };
            assert!(!ledger(&out).iter().any(broken), "{phase:?}: a stop is no failure of the harness");
            assert!(!out.join(BARRIER).join("recording.part").exists());
            assert!(states(&out).len() < STATES as usize, "{phase:?}: it was stopped, not finished");
            run(&mut again(&out, "barrier")).expect(0);
            assert_whole(&out, BARRIER);
        }
    }
}

/// The look that must find nothing after a kill finds everything before it; else it would prove nothing.
fn assert_seen(has: &[String]) {
    for what in ["process", "nbdfuse /run/", " - fuse /dev/fuse", " - ext4 /dev/loop", "loop"] {
        let seen = has.iter().any(|seen| if what == "loop" { seen.starts_with(what) } else { seen.contains(what) });
        assert!(seen, "no {what} was seen: {has:#?}");
    }
}

/// A replay has agents and images too.
#[test]
fn a_killed_replay_leaves_nothing() {
    if !ready() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    run(&mut tiny("run", &out, "barrier", 4)).expect(0);
    let before = snapshot(&out);
    let recipe = states(&out)[2].state.clone();
    let replay = |times: u32| {
        let mut command = program();
        command.arg("replay").arg(&recipe).arg("--dir").arg(&out).args(["--times", &times.to_string()]);
        command
    };
    let mut running = Running::start(&mut replay(1000));
    let mut has = Vec::new();
    let loop_device = |has: &Vec<String>| has.iter().any(|seen| seen.starts_with("loop"));
    while !loop_device(&has) {
        has = running.look();
    }
    let dead = running.kill();
    assert_eq!(snapshot(&out), before);
    run(&mut replay(1)).expect(0);
    assert!(dead.len() == 1 && !dead[0].exists(), "{dead:?} of a killed replay is there after the next start");
}

/// Starts the run, or goes on with it, always with the same options. One state at a time, so that each phase lasts.
fn again(out: &Path, modes: &str) -> Command {
    let mut command = small("run", out, modes, STATES);
    command.args(["--jobs", "1"]);
    if out.join("run.json").exists() {
        command.arg("--resume");
    }
    command
}

/// Goes on with the run until it is in a phase.
fn start_and_reach(phase: Phase, out: &Path) -> Running {
    const ATTEMPTS: u32 = 10;
    let plan = out.join(BARRIER).join("plan.jsonl");
    for _ in 0..ATTEMPTS {
        let mut running = Running::start(&mut again(out, "barrier"));
        reach(&mut running, phase, out, BARRIER);
        if !matches!(phase, Phase::Planning) || !plan.exists() {
            return running;
        }
        // On a busy machine the plan may be made between two looks. It is pure, so it can be made again.
        running.kill();
        fs::remove_file(&plan).unwrap();
    }
    panic!("{ATTEMPTS} times the plan was made between two looks");
}

/// Waits until the run is in a phase.
fn reach(running: &mut Running, phase: Phase, out: &Path, cell: &str) {
    let cell = out.join(cell);
    let pid = running.pid();
    running.until(&format!("{phase:?}"), || {
        let seen = match phase {
            Phase::Beginning => cell.join("recording.part").exists(),
            Phase::Recording(mib) => {
                fs::metadata(cell.join("recording.part")).is_ok_and(|meta| meta.len() >= mib << 20)
            }
            Phase::Planning => {
                let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
                maps.lines().any(|line| line.ends_with("/recording"))
            }
            Phase::Verifying(count) => lines_of_states(out) >= count,
        };
        seen.then_some(())
    });
}

/// Whole lines of judged states, read while the program writes.
fn lines_of_states(out: &Path) -> usize {
    let text = fs::read_to_string(out.join("ledger.jsonl")).unwrap_or_default();
    text.split_inclusive('\n').filter(|line| line.ends_with('\n') && line.starts_with("{\"line\":\"state\"")).count()
}

fn assert_whole(out: &Path, cell: &str) {
    assert_judged_once(out, cell);
    assert_eq!(states(out).len(), STATES as usize, "no state was tried twice");
    assert!(out.join("page.html").is_file());
    let recordings = ledger(out).iter().filter(|line| matches!(line, Line::Recording(_))).count();
    assert_eq!(recordings, 1);
}
