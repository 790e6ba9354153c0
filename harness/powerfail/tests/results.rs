//! What reads results needs no rig: `report` of any number of folders, `compare` under `git bisect run`, `history`.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::*;
use powerfail_ledger::{Case, Expectation, Finding, FindingKind, Header, Line, Outcome, SCHEMA, State};

fn case(mode: &str, expectation: Expectation) -> Case {
    Case {
        fs: "ext4".into(),
        mkfs: String::new(),
        mode: mode.into(),
        mount: String::new(),
        workload: "mason workers=4 seconds=4".into(),
        drive: "512 MiB".into(),
        rig: "host-loop".into(),
        kernel: "6.18.44".into(),
        seed: 1,
        expectation,
    }
}

/// A folder with the ledger of a run: a safe cell and a control, so many states of the safe one violated.
fn run_folder(folder: &Path, day: u64, violated: u64) -> PathBuf {
    fs::create_dir_all(folder).unwrap();
    let mut lines = Vec::new();
    for (mode, expectation, states, violated) in
        [("barrier", Expectation::Safe, 120, violated), ("nobarrier-w1", Expectation::Unsafe, 10, 8)]
    {
        for index in 0..states {
            let finding = Finding { kind: FindingKind::Fsck, detail: format!("inode {index} is wrong") };
            let outcome = if index < violated { Outcome::Violated { findings: vec![finding] } } else { Outcome::Held };
            lines.push(Line::State(Box::new(State {
                case: Case { seed: day, ..case(mode, expectation.clone()) },
                state: format!("recipe {index}"),
                image: format!("{index:032x}"),
                explorer: "sampled".into(),
                cut: index,
                loose: 1,
                lost: 1,
                in_flight: 0,
                outcome,
                replay: None,
                depth: None,
                role: None,
                explanation: None,
                took_ms: 1,
            })));
        }
    }
    write(&folder.join("ledger.jsonl"), day, &lines);
    folder.to_owned()
}

fn write(path: &Path, day: u64, lines: &[Line]) {
    let header = Header {
        schema: SCHEMA,
        tool: "powerfail".into(),
        seed: day,
        command: "powerfail run".into(),
        started: format!("2026-01-{day:02}T02:00:00Z"),
        machine: "a machine".into(),
        shard: None,
    };
    let mut text = serde_json::to_string(&Line::Header(header)).unwrap() + "\n";
    for line in lines {
        text.push_str(&serde_json::to_string(line).unwrap());
        text.push('\n');
    }
    fs::write(path, text).unwrap();
}

#[test]
fn folders_are_merged_and_each_output_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let parts = folder.path().join("parts");
    let one = run_folder(&parts.join("1"), 1, 0);
    run_folder(&parts.join("2"), 2, 0);
    // Names without a folder are in the one that the program runs in.
    let mut command = program();
    command.current_dir(folder.path()).args(["report", "parts", "parts/1"]);
    let ran = run(command.args(["--html", "p.html", "--junit", "j.xml", "--summary", "s.md"])).expect(0);
    assert!(
        ran.stdout.contains("0/240") && ran.stdout.contains("130 lines of the ledgers said again"),
        "{}",
        ran.stdout
    );
    let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    assert!(read("p.html").contains("Out of 260 power cuts 16 ended in a violation"));
    assert!(read("j.xml").contains("tests=\"2\"") && read("s.md").starts_with("**Out of 260 power cuts"));
    let json = run(program().arg("report").arg(&one).arg("--json")).expect(0).stdout;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["exit_code"], &json["cells"][0]["held"]), (&0.into(), &120.into()));
}

#[test]
fn torn_ledgers_are_read_and_newer_ones_refused() {
    let folder = tempfile::tempdir().unwrap();
    let torn = run_folder(&folder.path().join("torn"), 1, 0);
    let ledger = torn.join("ledger.jsonl");
    let bytes = fs::read(&ledger).unwrap();
    fs::write(&ledger, &bytes[..bytes.len() - 9]).unwrap();
    assert!(run(program().arg("report").arg(&torn)).expect(0).stdout.contains("ends with a torn line"));
    let newer = folder.path().join("newer");
    fs::create_dir(&newer).unwrap();
    fs::write(newer.join("ledger.jsonl"), "{\"line\":\"header\",\"schema\":99}\n").unwrap();
    for verb in ["report", "compare", "history"] {
        let ran = run(program().arg(verb).arg(&torn).arg(&newer)).expect(2);
        assert!(ran.stderr.contains("use the newer powerfail that wrote it"), "{verb}: {}", ran.stderr);
        let ran = run(program().arg(verb).arg(&torn).arg(folder.path().join("nowhere"))).expect(2);
        assert!(ran.stderr.contains("nowhere"), "{verb}: {}", ran.stderr);
    }
    assert!(!newer.join("page.html").exists());
}

#[test]
fn a_comparison_says_worse_no_worse_or_nobody_can_tell() {
    let folder = tempfile::tempdir().unwrap();
    let side = |name: &str, violated| run_folder(&folder.path().join(name), 1, violated);
    let (good, same, bad, doubtful) = (side("good", 0), side("same", 0), side("bad", 12), side("doubtful", 2));
    for (after, code, sentence) in [
        (&same, 0, "No cell is worse."),
        (&bad, 1, "1 of 2 cells is worse."),
        (&doubtful, 125, "Cannot tell: 1 of 2 cells can't be told apart."),
    ] {
        let ran = run(program().arg("compare").arg(&good).arg(after)).expect(code);
        assert!(ran.stdout.trim_end().ends_with(sentence), "{}", ran.stdout);
        let ran = run(program().arg("compare").arg(&good).arg(after).arg("--json")).expect(code);
        let json: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
        assert_eq!((&json["exit_code"], &json["headline"]), (&code.into(), &sentence.into()));
    }
    run(program().arg("compare").arg(&good).arg(&same).args(["--margin", "0.01"])).expect(125);
    let ran = run(program().arg("compare").arg(&good).arg(&same).args(["--level", "2"])).expect(2);
    assert!(ran.stderr.contains("between 0 and 1"), "{}", ran.stderr);
}

#[test]
fn git_bisect_finds_the_commit_that_made_it_worse() {
    let folder = tempfile::tempdir().unwrap();
    let good = run_folder(&folder.path().join("good"), 1, 0);
    let tree = folder.path().join("tree");
    fs::create_dir(&tree).unwrap();
    let git = |words: &[&str]| {
        let mut command = Command::new("git");
        command.current_dir(&tree).env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_SYSTEM", "/dev/null");
        command.args(["-c", "user.name=a", "-c", "user.email=a@example.org"]).args(words).output()
    };
    let git = |words: &[&str]| match git(words) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        output => Some(String::from_utf8(output.unwrap().stdout).unwrap()),
    };
    if git(&["init", "-q"]).is_none() {
        println!("SKIPPED: there is no git; apt-get install git.");
        return;
    }
    // The sixth made it worse; the third can't be told.
    for (commit, violated) in [0, 0, 2, 0, 0, 14, 15, 13, 16].into_iter().enumerate() {
        run_folder(&tree, 2 + commit as u64, violated);
        git(&["add", "."]).unwrap();
        git(&["commit", "-qm", &format!("commit {}", commit + 1)]).unwrap();
    }
    git(&["bisect", "start", "HEAD", "HEAD~8"]).unwrap();
    let said =
        git(&["bisect", "run", env!("CARGO_BIN_EXE_powerfail"), "compare", good.to_str().unwrap(), "."]).unwrap();
    let sixth = git(&["rev-parse", "HEAD"]).map(|_| git(&["rev-parse", ":/commit 6"]).unwrap()).unwrap();
    assert!(said.contains(&format!("{} is the first bad commit", sixth.trim())), "{said}");
}

#[test]
fn a_history_finds_the_night_and_makes_the_page() {
    let folder = tempfile::tempdir().unwrap();
    let nights = folder.path().join("nights");
    for day in 1..=6 {
        // A night may be in parts, and a folder that is no night is passed over.
        let violated = if day >= 4 { 9 } else { 0 };
        let night = nights.join(format!("2026-01-{day:02}"));
        run_folder(&if day == 2 { night.join("1") } else { night }, day, violated);
    }
    fs::create_dir(nights.join("logs")).unwrap();
    fs::write(nights.join("index.html"), "old").unwrap();
    let page = nights.join("index.html");
    let ran = run(program().arg("history").arg(&nights).arg("--html").arg(&page)).expect(0);
    assert!(
        ran.stdout.contains("ext4 barrier rose on 2026-01-04: 0 of 360 violated before, 27 of 360 since"),
        "{}",
        ran.stdout
    );
    let page = fs::read_to_string(&page).unwrap();
    assert!(page.contains("Over 6 nights 1 rate changed") && page.contains("9 of 120 states are violated"));
    let json = run(program().arg("history").arg(&nights).arg("--json")).expect(0).stdout;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["history"]["nights"].as_array().unwrap().len(), 6);
    // The nights one by one are the same; and any run's page can have them.
    let each: Vec<_> = (1..=6).map(|day| nights.join(format!("2026-01-{day:02}"))).collect();
    assert!(run(program().arg("history").args(&each)).expect(0).stdout == ran.stdout);
    let ran = run(program().arg("report").arg(&each[5]).arg("--history").arg(&nights)).expect(1);
    assert!(ran.stdout.contains("worse"));
    assert!(fs::read_to_string(each[5].join("page.html")).unwrap().contains("Over 6 nights"));
    let ran = run(program().arg("history").arg(nights.join("logs"))).expect(2);
    assert!(ran.stderr.contains("holds no night"), "{}", ran.stderr);
}
