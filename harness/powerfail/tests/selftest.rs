//! The selftest against real ext4: every lie is caught, the honest drive is not accused, canaries end as they must; and what a
//! run makes of a selftest that failed.

mod common;

use std::fs;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use common::*;
use powerfail_drive::lies::{self, Liar};
use powerfail_ledger::{Ending, Line, Selftest};
use powerfail_seed::Seed;

/// It judges some hundreds of states.
const LONG: Duration = Duration::from_secs(600);

/// One test at a time. What remains of a program is told by PID namespaces too, whose numbers the kernel gives out again: an
/// agent of another test may have that of one that has ended.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Each trial of a whole selftest, and whether its witness is the raw one.
const TRIALS: [(&str, bool); 17] = [
    ("honest", true),
    ("flush-ignored", true),
    ("fua-ignored", true),
    ("fua-is-flush", true),
    ("reorders-across-flush", true),
    ("tears-below-unit", true),
    ("comes-back-stale", true),
    ("lands-elsewhere", true),
    ("honest", false),
    ("flush-ignored", false),
    ("reorders-across-flush", false),
    ("comes-back-stale", false),
    ("lands-elsewhere", false),
    ("held", false),
    ("violated", false),
    ("skipped", false),
    ("hangs", false),
];

#[test]
fn every_lie_is_caught_by_its_witness_and_its_casebook_replays() {
    if !ready() {
        return;
    }
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("selftest");
    let mut command = program();
    command.args(["selftest", "--json", "--rig", "host-loop", "--out"]).arg(&out);
    let ran = Running::start(&mut command).wait(LONG).expect(0);
    let told: serde_json::Value = ran.json();
    assert_eq!(told["passed"], true);
    let selftest: Selftest = serde_json::from_value(told["selftest"].clone()).unwrap();
    let trials: Vec<_> =
        selftest.trials.iter().map(|trial| (trial.name.as_str(), trial.witness == "raw NBD client")).collect();
    assert_eq!(trials, TRIALS);
    for trial in &selftest.trials {
        assert!(matches!(trial.ending, Ending::Passed { .. }) && trial.states <= 200, "{trial:?}");
    }
    let books = fs::read_dir(out.join("lie-flush-ignored/casebooks")).unwrap();
    let book = books.map(|book| book.unwrap().path()).find(|path| path.join("state.json").exists()).unwrap();
    let state = fs::read_to_string(book.join("state.json")).unwrap();
    assert!(state.contains(" lie=flush-ignored:") && state.contains(", lie flush-ignored\""), "{state}");
    run(program().arg("replay").arg(&book)).expect(0);
    run(program().arg("materialise").arg(&book).arg("-o").arg(folder.path().join("image"))).expect(0);
    // The same recipe with another lie, or with none, is one of another drive.
    let state: powerfail_ledger::State = serde_json::from_str(&state).unwrap();
    for other in
        [state.state.replace("flush-ignored", "fua-ignored"), state.state.split(" lie=").next().unwrap().into()]
    {
        refuse(program().arg("replay").arg(other).arg("--dir").arg(&out), "the recipe's lie is");
    }
    // A folder that holds one already is refused before anything is written to it.
    refuse(program().arg("selftest").arg("--out").arg(&out), "holds a run already");
}

#[test]
fn a_run_begins_with_a_short_selftest_and_is_inconclusive_if_that_fails() {
    if !ready() {
        return;
    }
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let with_selftest = || {
        let mut command = program();
        command.arg("run").arg("--out").arg(&out).args(["--states", "6", "--steps", "100", "--seconds", "60"]);
        command.args(["--files", "120", "--workers", "2", "--hog", "0", "--size", "64M", "--rig", "host-loop"]);
        command
    };
    run(&mut with_selftest()).expect(0);
    let path = out.join("ledger.jsonl");
    let selftest = selftest_of(&path).expect("the run had one");
    assert_eq!(selftest.failures().count() + selftest.not_tried().count(), 0, "{selftest:?}");
    // Once a folder.
    run(with_selftest().arg("--resume")).expect(0);
    let text = fs::read_to_string(&path).unwrap();
    assert_eq!(text.matches("\"line\":\"selftest\"").count(), 1);

    fs::write(&path, text.replacen("\"ending\":\"passed\"", "\"ending\":\"failed\"", 1)).unwrap();
    let said = run(program().arg("report").arg(&out)).expect(1).stdout;
    assert!(said.contains("inconclusive") && said.contains("the honest drive was accused"), "{said}");
    let said = run(program().arg("report").arg("--json").arg(&out)).expect(1).json();
    assert_eq!(said["cells"][0]["verdict"], "inconclusive", "{said}");
}

fn selftest_of(ledger: &Path) -> Option<Selftest> {
    powerfail_ledger::read(ledger).unwrap().lines.into_iter().find_map(|line| match line {
        Line::Selftest(selftest) => Some(selftest),
        _ => None,
    })
}

#[test]
fn the_recording_of_a_liar_is_none_of_an_honest_cells() {
    if !ready() {
        return;
    }
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    run(&mut tiny("record", &out, "barrier", 4)).expect(0);
    assert!(!out.join("selftest").exists(), "only what is judged needs a harness that sees");
    let path = out.join(BARRIER).join("recording");
    let honest = fs::read(&path).unwrap();
    fs::write(&path, lies::tell(&honest, Liar::named("flush-ignored", Seed(1)).unwrap()).unwrap()).unwrap();
    refuse(program().arg("plan").arg(&out), "recording of another drive");
}
