//! Crashes during recovery, on real file systems: they hold where they should, and where the drive lied about a recovery's
//! flushes they do not.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use common::*;
use powerfail::cell::Cell;
use powerfail::config::Config;
use powerfail::depth::{Chain, over};
use powerfail::plan_file::Entry;
use powerfail::recording_file::Mapped;
use powerfail_drive::event::HEADER;
use powerfail_drive::lies;
use powerfail_drive::recording::Reader;
use powerfail_ledger::{Outcome, State};
use powerfail_seed::Seed;

fn deep(out: &Path) -> Vec<State> {
    states(out).into_iter().filter(|state| state.depth.is_some()).collect()
}

fn cell(out: &Path) -> Cell {
    let config: Config = serde_json::from_slice(&fs::read(out.join("run.json")).unwrap()).unwrap();
    Cell::all(&config).remove(0)
}

/// The recording that the last recipe of a state names.
fn recovery(out: &Path, state: &Chain) -> Mapped {
    let name = format!("-{}.rec", state.last().recording);
    let mut files = fs::read_dir(out.join(BARRIER).join("recoveries")).unwrap().map(|entry| entry.unwrap().path());
    Mapped::open(&files.find(|path| path.to_string_lossy().ends_with(&name)).unwrap()).unwrap()
}

#[test]
fn a_recovery_that_is_cut_is_recovered_from() {
    if !ready() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let ran = run(small("run", &out, "barrier", 112).args(["--depth", "3"])).expect(0);
    assert!(ran.stderr.contains("depth 2: 28 states planned, crashes of "), "{}", ran.stderr);
    let states = deep(&out);
    for depth in [2, 3] {
        let of_depth: Vec<_> = states.iter().filter(|state| state.depth == Some(depth)).collect();
        assert_eq!(of_depth.len(), 28);
        for state in &of_depth {
            assert_eq!((&state.outcome, state.explorer.as_str()), (&Outcome::Held, "recovery"), "{state:?}");
            assert_eq!(state.state.parse::<Chain>().unwrap().depth(), depth);
        }
    }
    // Subsets, not only prefixes: something is lost that a later write outlives.
    let gap = |state: &&State| {
        let kept = state.state.parse::<Chain>().unwrap().last().kept.clone();
        kept.iter().skip_while(|kept| **kept).any(|kept| *kept)
    };
    let gaps = states.iter().filter(gap).count();
    assert!(gaps > 4, "{gaps} of {} states", states.len());
    let images: BTreeSet<_> = common::states(&out).into_iter().map(|state| state.image).collect();
    assert_eq!(images.len(), 112, "no image is judged twice, whatever its depth");
    let page = fs::read_to_string(out.join("page.html")).unwrap();
    assert!(page.contains("by depth"), "the page shows depths");
    // The plan of the same recoveries is the same, and a run that is resumed has nothing left to do.
    for depth in [2, 3] {
        let plan = out.join(BARRIER).join(format!("plan-{depth}.jsonl"));
        let before = fs::read(&plan).unwrap();
        fs::remove_file(&plan).unwrap();
        run(small("run", &out, "barrier", 112).args(["--depth", "3", "--resume"])).expect(0);
        assert!(before == fs::read(&plan).unwrap(), "another plan of the same recordings");
    }
    assert_eq!(common::states(&out).len(), 112);
    same_again(&out, folder.path(), &states);
}

/// The image is the one of the ledger, bit for bit, and so is the verdict.
fn same_again(out: &Path, folder: &Path, states: &[State]) {
    for state in [&states[0], &states[states.len() / 2], &states[states.len() - 1]] {
        let image = folder.join("image");
        run(program().arg("materialise").arg(&state.state).arg("--dir").arg(out).arg("-o").arg(&image)).expect(0);
        assert_eq!(digest_of(&image), state.image, "{}", state.state);
        fs::remove_file(image).unwrap();
        let ran = run(program().arg("replay").arg(&state.state).arg("--dir").arg(out).arg("--json")).expect(0);
        assert_eq!(ran.json()["outcomes"][0]["outcome"], "held");
    }
    let state = &states[0].state;
    let replay = |state: &str| {
        let mut command = program();
        command.arg("replay").arg(state).arg("--dir").arg(out);
        command
    };
    let (first, last) = state.split_once(" >> ").unwrap();
    let name = &last[last.find("rec=").unwrap()..][4..20];
    refuse(&mut replay(&state.replace(name, "0123456789abcdef")), "no recording of a recovery is called");
    refuse(&mut replay(&format!("{first} >> {}", last.replace("cut=", "cut=9"))), "fragments are loose");
    refuse(&mut replay(&format!("{first} >>")), "not a crash state");
    refuse(program().arg("explain").arg(state).arg("--dir").arg(out), "a crash during recovery (depth 2); only");
}

/// The drive that ignored the flushes of a recovery leaves states from which none goes on; the honest one left none.
#[test]
fn a_drive_that_lied_in_a_recovery_is_caught() {
    if !ready() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    run(small("run", &out, "barrier", 48).args(["--depth", "2"])).expect(0);
    let honest = deep(&out);
    assert!(honest.len() == 12 && honest.iter().all(|state| state.outcome == Outcome::Held));
    let lie = lies::ALL.iter().find(|lie| lie.name() == "flush-ignored").unwrap();
    let chain: Chain = honest[0].state.parse().unwrap();
    let base = chain.first.to_string();
    let image = states(&out).into_iter().find(|state| state.state == base).unwrap().image;
    let honest = recovery(&out, &chain);
    let mut told = lies::tell(honest.bytes(), lies::Liar::new(*lie, Seed(1))).unwrap();
    // A recording says who lied in it, and is refused where that is not expected; here nobody is to know.
    told[..HEADER].copy_from_slice(&honest.bytes()[..HEADER]);
    let name = format!("lied-{}.rec", &blake3::hash(&told).to_hex()[..16]);
    let path = out.join(BARRIER).join("recoveries").join(name);
    fs::write(&path, told).unwrap();
    let base = Entry { state: base, image, explorer: String::new(), in_flight: 0 };
    let lied = over(&cell(&out), &base, &Mapped::open(&path).unwrap(), 40).unwrap();
    assert!(lied.len() > 30, "{}", lied.len());
    let caught = lied.iter().rev().find(|entry| {
        let ran = run(program().arg("replay").arg(&entry.state).arg("--dir").arg(&out).arg("--json")).expect(0);
        ran.json()["outcomes"][0]["outcome"] == "violated"
    });
    assert!(caught.is_some(), "none of {} states shows the lie", lied.len());
}

/// What lay beneath a recovery's writes is a small part of the image.
#[test]
fn the_recording_of_a_recovery_is_small_and_a_run_that_stops_at_depth_2_goes_on() {
    if !ready() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    run(&mut small("run", &out, "barrier", 12)).expect(0);
    // The same run, asked for deeper states: another run, and refused as such.
    refuse(small("run", &out, "barrier", 12).args(["--depth", "2", "--resume"]), "holds another run");
    refuse(small("run", &folder.path().join("x"), "barrier", 3).args(["--depth", "2"]), "at least --states 4");
    refuse(small("run", &folder.path().join("x"), "barrier", 40).args(["--depth", "4"]), "--depth 4 can't be");
    assert!(!folder.path().join("x").exists(), "nothing is left behind");
    let out = folder.path().join("deep");
    run(small("run", &out, "barrier", 16).args(["--depth", "2"])).expect(0);
    let state = deep(&out).remove(0);
    let recorded = || fs::read_dir(out.join(BARRIER).join("recoveries")).unwrap().count();
    let before = recorded();
    let recording = recovery(&out, &state.state.parse().unwrap());
    let size = recording.bytes().len();
    assert!(size < 4 << 20, "{size} bytes");
    let mut reader = Reader::new(recording.bytes(), true).unwrap();
    while reader.next().unwrap().is_some() {}
    // Verdicts that the ledger lost come again from the same plan and the same recording.
    let ledger = out.join("ledger.jsonl");
    let text = fs::read_to_string(&ledger).unwrap();
    let kept: Vec<&str> = text.lines().filter(|line| !line.contains("\"depth\":2")).collect();
    fs::write(&ledger, kept.join("\n") + "\n").unwrap();
    run(small("run", &out, "barrier", 16).args(["--depth", "2", "--resume"])).expect(0);
    let again: BTreeSet<_> = deep(&out).into_iter().map(|state| state.image).collect();
    assert_eq!(again.len(), 4);
    assert!(again.contains(&state.image));
    assert_eq!(recorded(), before, "a recovery is recorded once");
}
