//! From a violated state to an answer: shrunk to what matters, explained, and reproduced without this program.

mod common;

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use common::*;

#[test]
fn a_refused_mount_comes_down_to_one_log_block_whose_commit_landed() {
    if !ready() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let mut command = small("run", &out, "async-commit", 30);
    // Aimed states: with so few, chance is not to decide whether there is one to look into.
    let ran = run(command.args(["--explorers", "journal-aware", "--shrink", "1", "--seed", "5"]));
    assert!(matches!(ran.code(), Some(0 | 1)), "{}", ran.stderr);
    let state = states(&out).into_iter().find(|state| state.role.is_some()).expect("a state was looked into");
    assert!(state.role.as_ref().unwrap().starts_with("log block ("), "{:?}", state.role);
    let casebooks = out.join("ext4-async-commit/casebooks");
    let small = small_casebook(&casebooks);

    let explanation = fs::read_to_string(small.join("explanation.md")).unwrap();
    for says in ["one of them was lost", "is on the platter, but not all that it commits", "checksum v1"] {
        assert!(explanation.contains(says), "{says}: {explanation}");
    }
    let origin: serde_json::Value = serde_json::from_slice(&fs::read(small.join("shrunk.json")).unwrap()).unwrap();
    assert_eq!((&origin["lost"], &origin["stable"]), (&1.into(), &"5 of 5".into()), "{origin}");
    assert!(fs::read_to_string(small.join("journal.txt")).unwrap().contains("commit"));
    let index: serde_json::Value = serde_json::from_slice(&fs::read(casebooks.join("index.json")).unwrap()).unwrap();
    assert!(index[0][1]["states"].as_u64().unwrap() > 0, "{index}");

    // The script shows it from another folder, with mount alone; and not on an image without the loss.
    let elsewhere = folder.path().join("elsewhere");
    copy(&small, &elsewhere);
    let shown = Command::new("unshare").args(["--mount", "sh"]).arg(elsewhere.join("reproduce.sh")).output().unwrap();
    let said = String::from_utf8_lossy(&shown.stdout);
    assert_eq!(shown.status.code(), Some(0), "{said}{}", String::from_utf8_lossy(&shown.stderr));
    assert!(said.contains("Invalid checksum recovering data block"), "{said}");

    // The small state is a casebook like any other, and shrinking it again finds nothing smaller.
    run(program().arg("replay").arg(&small)).expect(0);
    let again = run(program().arg("shrink").arg(&small).arg("--json")).expect(0).json();
    assert_eq!((&again["state"]["lost"], &again["stable"]), (&1.into(), &5.into()));
    let told = run(program().arg("explain").arg(&small)).expect(0);
    assert!(told.stdout.contains("log block"), "{}", told.stdout);
}

/// The casebook that was made by shrinking.
fn small_casebook(casebooks: &std::path::Path) -> PathBuf {
    let folders = fs::read_dir(casebooks).unwrap().map(|entry| entry.unwrap().path());
    folders.into_iter().find(|path| path.join("shrunk.json").exists()).expect("a casebook of a small state")
}

#[test]
fn what_is_no_casebook_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    for verb in ["shrink", "explain"] {
        refuse(program().arg(verb).arg(folder.path()), "is no casebook");
        refuse(program().arg(verb).arg(folder.path().join("missing")), "is no casebook");
    }
}
