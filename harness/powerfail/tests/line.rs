//! The straight line from end to end: record, plan, verify, report, and back from a casebook to the same findings.

mod common;

use std::fs;
use std::path::Path;

use common::*;
use powerfail_ledger::{Expectation, Line, Outcome};

#[test]
fn a_barrier_run_holds_and_writes_its_page() {
    if !ready() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let ran = run(&mut small("run", &out, "barrier", 12)).expect(0);
    assert!(ran.stdout.contains("barrier"), "{}", ran.stdout);

    let lines = ledger(&out);
    let Line::Recording(recording) = &lines[0] else { panic!("what was recorded comes first: {:?}", lines[0]) };
    assert!(recording.planned == 12 && recording.steps > 0 && recording.flushes > 0, "{recording:?}");
    assert_eq!(recording.case.expectation, Expectation::Safe);
    let file = fs::read(out.join(&recording.path)).unwrap();
    assert_eq!(blake3::hash(&file).to_hex().as_str(), recording.digest);
    let states = states(&out);
    assert_eq!(states.len(), 12);
    for state in &states {
        assert_eq!(state.outcome, Outcome::Held, "{}", state.state);
        assert_eq!(state.case, recording.case);
        assert!((recording.first_cut..=recording.last_cut).contains(&state.cut), "{state:?}");
        assert!(state.lost <= state.loose && state.image.len() == 64, "{state:?}");
    }
    assert!(states.iter().any(|state| state.lost > 0), "a run in which nothing is ever lost tests nothing");
    assert_judged_once(&out, BARRIER);

    let page = fs::read_to_string(out.join("page.html")).unwrap();
    assert!(page.contains("barrier") && page.contains("<svg") && page.contains("</html>"));
    assert!(!page.contains("src=\"http") && !page.contains("href=\"http"), "the page is self-contained");
}

#[test]
fn the_control_is_violated_and_each_casebook_replays_to_the_same_findings() {
    if !ready() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let ran = run(small("run", &out, "nobarrier-w1", 12).arg("--json")).expect(0);
    let cell = &ran.json()["cells"][0];
    assert_eq!((&cell["mode"], &cell["held"]), (&"nobarrier-w1".into(), &(12 - violations(&out)).into()), "{cell}");

    let states = states(&out);
    let violated: Vec<_> = states.iter().filter(|state| matches!(state.outcome, Outcome::Violated { .. })).collect();
    // A state that lost nothing shows the drive as it was, and there are always some: they say nothing of the mode.
    let lossy = states.iter().filter(|state| state.lost > 0).count();
    assert!(violated.iter().all(|state| state.lost > 0), "a state that lost nothing is violated");
    assert!(
        violated.len() * 2 > lossy,
        "only {} of the {lossy} states that lost something are violated",
        violated.len()
    );
    for state in &violated {
        let Outcome::Violated { findings } = &state.outcome else { unreachable!("filtered") };
        // Of states that are wrong in the same way some have a casebook, and the others are replayed by their recipe.
        let by_recipe = state.replay.as_ref().is_some_and(|replay| replay.contains("pf1 "));
        let replayed = if by_recipe {
            run(program().arg("replay").arg(&state.state).arg("--dir").arg(&out).arg("--json")).expect(0).json()
        } else {
            let casebook = casebook_of(state);
            for name in ["state.json", "README.md", "kernel.log"] {
                assert!(casebook.join(name).is_file(), "{} has no {name}", casebook.display());
            }
            run(program().arg("replay").arg(casebook).arg("--json")).expect(0).json()
        };
        assert_eq!(replayed["same"], 1, "{replayed}");
        assert_eq!(replayed["outcomes"][0]["findings"], serde_json::to_value(findings).unwrap());
    }

    let casebook = casebook_of(violated[0]);
    let images = [folder.path().join("one"), folder.path().join("two")];
    for image in &images {
        run(program().arg("materialise").arg(casebook).arg("-o").arg(image)).expect(0);
    }
    let image = fs::read(&images[0]).unwrap();
    assert_eq!(image.len(), 64 << 20);
    assert!(image == fs::read(&images[1]).unwrap(), "one casebook gives one image");
    run(program().arg("materialise").arg(casebook).arg("-o").arg(&images[0])).expect(2);
}

#[test]
fn a_changed_expectation_is_noticed_by_a_replay() {
    if !ready() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    run(&mut small("run", &out, "nobarrier-w1", 8)).expect(0);
    let violated = states(&out).into_iter().find(|state| state.replay.is_some()).unwrap();
    let file = casebook_of(&violated).join("state.json");
    let mut state: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    state["findings"][0]["detail"] = "something else".into();
    fs::write(&file, state.to_string()).unwrap();
    run(program().arg("replay").arg(casebook_of(&violated))).expect(1);
}

#[test]
fn two_runs_make_one_report() {
    if !ready() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let outs = [folder.path().join("a"), folder.path().join("b")];
    run(&mut small("run", &outs[0], "barrier", 8)).expect(0);
    run(&mut small("run", &outs[1], "nobarrier-w0", 8)).expect(0);
    let before = outs.each_ref().map(|out| snapshot(out));
    let (html, markdown) = (folder.path().join("both.html"), folder.path().join("both.md"));
    let mut report = program();
    report.arg("report").args(&outs).arg("--json").arg("--html").arg(&html).arg("--summary").arg(&markdown);
    let told = run(&mut report).expect(0).json();
    let modes: Vec<_> = told["cells"].as_array().unwrap().iter().map(|cell| cell["mode"].as_str().unwrap()).collect();
    assert_eq!(modes.len(), 2);
    for mode in ["barrier", "nobarrier-w0"] {
        assert!(modes.contains(&mode), "{modes:?}");
        for file in [&html, &markdown] {
            assert!(fs::read_to_string(file).unwrap().contains(mode), "{} says nothing of {mode}", file.display());
        }
    }
    assert_eq!(told["exit_code"], 0);
    assert_eq!(before, outs.each_ref().map(|out| snapshot(out)), "a report elsewhere changes nothing in the folders");
    let table = run(program().arg("report").args(&outs).arg("--html").arg(&html)).expect(0).stdout;
    assert!(table.contains("nobarrier-w0") && table.contains("0/8"), "{table}");
}

fn violations(out: &Path) -> usize {
    states(out).iter().filter(|state| matches!(state.outcome, Outcome::Violated { .. })).count()
}

/// The folder that the ledger's own command names.
fn casebook_of(state: &powerfail_ledger::State) -> &Path {
    let replay = state.replay.as_deref().expect("a violation has a command that replays it");
    Path::new(replay.strip_prefix("powerfail replay ").unwrap())
}
