//! What can't be done is refused with a sentence and an exit code, and nothing is left or changed by it.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::*;

#[test]
fn options_that_cannot_be_are_refused_before_anything_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let cases: &[(&[&str], &str)] = &[
        (&["--fs", "ntfs"], "there is no file system `ntfs`"),
        (&["--mode", "nobarrier"], "there is no mode `nobarrier`"),
        (&["--mode", "barrier,nosuch"], "there is no mode `nosuch`"),
        (&["--workload", "nosuch"], "there is no workload `nosuch`"),
        (&["--rig", "nosuch"], "there is no rig `nosuch`"),
        (&["--size", "67108865"], "no whole number of 512-byte sectors"),
        (&["--size", "0"], "no whole number of 512-byte sectors"),
        (&["--size", "1M"], "too small"),
        (&["--size", "large"], "is no size"),
        (&["--states", "0"], "judges nothing"),
        (&["--states", "many"], "invalid value"),
        (&["--atomic", "1024"], "512 or 4096"),
        (&["--cache", "100"], "at least one block"),
        (&["--cache-policy", "lru"], "no cache policy `lru`"),
        (&["--seconds", "0"], "promises nothing"),
        (&["--steps", "0"], "promises nothing"),
        (&["--nosuch"], "unexpected argument"),
    ];
    for (options, sentence) in cases {
        for verb in ["run", "record"] {
            let ran = run(program().arg(verb).args(*options).arg("--out").arg(&out));
            assert_eq!(ran.code(), Some(2), "{options:?}: {}", ran.stderr);
            assert!(ran.stderr.contains(sentence), "{options:?}: {}", ran.stderr);
            assert!(!out.exists(), "{options:?} left a folder");
        }
    }
}

#[test]
fn folders_that_hold_something_else_are_left_as_they_are() {
    if !ready() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let run_folder = folder.path().join("run");
    run(&mut small("run", &run_folder, "barrier", 8)).expect(0);
    let foreign = folder.path().join("foreign");
    fs::create_dir(&foreign).unwrap();
    fs::write(foreign.join("notes.txt"), "mine").unwrap();
    fs::write(foreign.join("run.json.part"), "mine too").unwrap();
    let empty = folder.path().join("empty");
    fs::create_dir(&empty).unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "mine").unwrap();
    let missing = folder.path().join("missing");

    let before = snapshot(folder.path());
    let refused = |out: &Path, options: &[&str], sentence: &str| {
        refuse(small("run", out, "barrier", 8).args(options), sentence);
        assert_eq!(snapshot(folder.path()), before, "{} {options:?}", out.display());
    };
    refused(&run_folder, &[], "holds a run already; go on with --resume");
    refused(&run_folder, &["--seed", "2"], "holds a run already");
    refused(&run_folder, &["--resume", "--seed", "2"], "holds another run (seed 1, modes barrier)");
    refused(&run_folder, &["--resume", "--mkfs-opts=-I 512"], "holds another run");
    refused(&foreign, &[], "is not empty and holds no run");
    refused(&foreign, &["--resume"], "holds no run to resume");
    refused(&empty, &["--resume"], "holds no run to resume");
    refused(&missing, &["--resume"], "holds no run to resume");
    refused(&file, &[], "is no folder");
    refused(&file.join("below"), &[], "can't make");
    for verb in ["plan", "verify"] {
        for place in [&foreign, &empty, &file, &missing] {
            refuse(program().arg(verb).arg(place), "holds no run");
        }
    }
    for place in [&foreign, &empty, &file, &missing] {
        refuse(program().arg("report").arg(place), "ledger.jsonl");
        refuse(program().args(["recording", "show"]).arg(place), &place.display().to_string());
    }
    assert_eq!(snapshot(folder.path()), before);
}

/// Damage of a recording: what was done to it, in words, and how.
type Damage = (&'static str, fn(&mut Vec<u8>));

const RECORDINGS: &[Damage] = &[
    ("emptied", |bytes| bytes.clear()),
    ("cut within its header", |bytes| bytes.truncate(10)),
    ("cut behind its header", |bytes| bytes.truncate(64)),
    ("cut in the middle", |bytes| bytes.truncate(bytes.len() / 2)),
    ("without its last byte", |bytes| bytes.truncate(bytes.len() - 1)),
    ("without its last record", |bytes| bytes.truncate(bytes.len() - 48)),
    ("flipped in its header", |bytes| bytes[16] ^= 1),
    ("flipped at its start", |bytes| bytes[0] ^= 1),
    ("flipped in the middle", |bytes| flip(bytes, |length| length / 2)),
    ("flipped near its end", |bytes| flip(bytes, |length| length - 30)),
    ("followed by something", |bytes| bytes.extend_from_slice(b"more")),
];

fn flip(bytes: &mut [u8], at: fn(usize) -> usize) {
    bytes[at(bytes.len())] ^= 0x10;
}

#[test]
fn a_damaged_recording_is_refused_by_every_verb() {
    if !ready() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (judged, recorded) = (folder.path().join("judged"), folder.path().join("recorded"));
    run(&mut small("record", &recorded, "barrier", 8)).expect(0);
    copy(&recorded, &judged);
    run(small("run", &judged, "barrier", 8).arg("--resume")).expect(0);
    let recipe = states(&judged)[4].state.clone();
    let whole = fs::read(recorded.join(BARRIER).join("recording")).unwrap();
    for (what, damage) in RECORDINGS {
        let mut bytes = whole.clone();
        damage(&mut bytes);
        for out in [&judged, &recorded] {
            fs::write(out.join(BARRIER).join("recording"), &bytes).unwrap();
        }
        let before = snapshot(folder.path());
        let image = folder.path().join("image");
        for out in [&judged, &recorded] {
            let refused = |command: &mut Command| {
                let stderr = refuse(command, "");
                assert!(!stderr.is_empty(), "{what}: no sentence");
                assert_eq!(snapshot(folder.path()), before, "{what}: something was left or changed: {stderr}");
            };
            refused(program().arg("plan").arg(out));
            refused(program().arg("verify").arg(out));
            refused(small("run", out, "barrier", 8).arg("--resume"));
            refused(program().args(["recording", "show"]).arg(out));
            refused(program().args(["recording", "export", "--format", "log-writes", "-o"]).arg(&image).arg(out));
            refused(program().arg("replay").arg(&recipe).arg("--dir").arg(out));
            refused(program().arg("materialise").arg(&recipe).arg("-o").arg(&image).arg("--dir").arg(out));
        }
    }
    // And the whole one is whole.
    fs::write(judged.join(BARRIER).join("recording"), &whole).unwrap();
    run(program().arg("verify").arg(&judged)).expect(0);
}

#[test]
fn an_altered_plan_is_refused() {
    if !ready() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    run(&mut small("record", &out, "barrier", 8)).expect(0);
    run(program().arg("plan").arg(&out)).expect(0);
    let file = out.join(BARRIER).join("plan.jsonl");
    let whole = fs::read_to_string(&file).unwrap();
    let lines: Vec<&str> = whole.lines().collect();
    let lossy = lines.iter().position(|line| line.contains("keep=none")).expect("a state that keeps nothing");
    let image = lines[3].split("\"image\":\"").nth(1).unwrap()[..64].to_owned();
    let without = |index: usize| [&lines[..index], &lines[index + 1..]].concat().join("\n") + "\n";
    let altered = [
        ("emptied", String::new()),
        ("a line is none", whole.replacen(lines[3], "hello", 1)),
        ("a line is gone", without(3)),
        ("the last line is gone", without(lines.len() - 1)),
        ("the last line is torn", whole[..whole.len() - 30].to_owned()),
        ("a line stands twice", whole.replacen(lines[4], lines[3], 1)),
        ("a recipe is another", whole.replacen(lines[lossy], &lines[lossy].replace("keep=none", "keep=r:0"), 1)),
        ("an image is another", whole.replacen(&image, &"0".repeat(64), 1)),
        ("an explorer is another", whole.replacen("every-cut", "sampled", 1)),
    ];
    for (what, text) in altered {
        assert_ne!(text, whole, "{what}");
        fs::write(&file, text).unwrap();
        let before = snapshot(&out);
        for verb in ["plan", "verify"] {
            let stderr = refuse(program().arg(verb).arg(&out), "plan.jsonl");
            assert!(stderr.contains("remove it"), "{what}: it says what to do: {stderr}");
        }
        refuse(small("run", &out, "barrier", 8).arg("--resume"), "plan.jsonl");
        assert_eq!(snapshot(&out), before, "{what}");
    }
    // What it says to do helps, and the plan comes back as it was.
    fs::remove_file(&file).unwrap();
    run(program().arg("plan").arg(&out)).expect(0);
    assert_eq!(fs::read_to_string(&file).unwrap(), whole);
}

#[test]
fn a_ledger_that_is_newer_or_damaged_is_refused() {
    if !ready() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    run(&mut small("run", &out, "barrier", 8)).expect(0);
    let file = out.join("ledger.jsonl");
    let whole = fs::read_to_string(&file).unwrap();
    let lines: Vec<&str> = whole.lines().collect();
    let altered = [
        ("newer", whole.replacen("\"schema\":1", "\"schema\":2", 1), "schema 2"),
        ("a line is damaged", whole.replacen(lines[4], &lines[4][..lines[4].len() / 2], 1), "ledger.jsonl:5"),
        ("a line is none", whole.replacen(lines[4], "hello", 1), "ledger.jsonl:5"),
        ("without its header", lines[1..].join("\n") + "\n", "header"),
        ("something else", "hello\nworld\n".to_owned(), "ledger.jsonl:1"),
    ];
    for (what, text, sentence) in altered {
        assert_ne!(text, whole, "{what}");
        fs::write(&file, text).unwrap();
        let before = snapshot(&out);
        refuse(program().arg("report").arg(&out), sentence);
        refuse(program().arg("plan").arg(&out), sentence);
        refuse(program().arg("verify").arg(&out), sentence);
        refuse(small("run", &out, "barrier", 8).arg("--resume"), sentence);
        assert_eq!(snapshot(&out), before, "{what}");
    }
}

#[test]
fn a_configuration_that_is_newer_or_altered_is_refused() {
    if !ready() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    run(&mut small("run", &out, "barrier", 8)).expect(0);
    let recipe = states(&out)[4].state.clone();
    let file = out.join("run.json");
    let whole = fs::read_to_string(&file).unwrap();
    let altered = [
        ("newer", whole.replacen("\"format\": 1", "\"format\": 2", 1), "format 2"),
        ("no JSON", "hello".to_owned(), "configuration"),
        ("an unknown field", whole.replacen("\"seed\"", "\"seeds\"", 1), "configuration"),
        ("an unknown mode", whole.replacen("\"barrier\"", "\"nosuch\"", 1), "nosuch"),
        ("an unknown file system", whole.replacen("\"ext4\"", "\"ntfs\"", 1), "ntfs"),
        ("an impossible size", whole.replacen("67108864", "67108865", 1), "512-byte sectors"),
    ];
    for (what, text, sentence) in altered {
        assert_ne!(text, whole, "{what}");
        fs::write(&file, text).unwrap();
        let before = snapshot(&out);
        refuse(program().arg("plan").arg(&out), sentence);
        refuse(program().arg("verify").arg(&out), sentence);
        refuse(small("run", &out, "barrier", 8).arg("--resume"), sentence);
        refuse(program().arg("replay").arg(&recipe).arg("--dir").arg(&out), sentence);
        assert_eq!(snapshot(&out), before, "{what}");
    }
}

#[test]
fn recipes_and_casebooks_that_are_none_are_refused() {
    if !ready() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    run(&mut small("run", &out, "barrier", 8)).expect(0);
    let state = states(&out).into_iter().find(|state| state.loose > 0).unwrap();
    let recipe = state.state.as_str();
    let word = |name: &str| recipe.split(' ').find(|word| word.starts_with(name)).unwrap().to_owned();
    let with = |name: &str, value: &str| recipe.replacen(&word(name), &format!("{name}{value}"), 1);
    let recipes = [
        ("pf1", "not a crash state"),
        ("pf1 nonsense", "not a crash state"),
        ("pf2 rec=0123456789abcdef", "is no casebook"),
        (&with("rec=", "0123456789abcdef"), "no recording below"),
        (&with("rec=", "xyz"), "hexadecimal"),
        (&with("cut=", "0"), "event"),
        (&with("cut=", "99999999"), "event"),
        (&with("cut=", "-1"), "no number"),
        (&with("unit=", "1024"), "512 or 4096"),
        (&with("cache=", "8388608,lru"), "lru"),
        (&with("loose=", "99999999999"), "not a crash state"),
        (&with("keep=", "r:0-99999999"), "not a crash state"),
        (&with("order=", "none"), "not a crash state"),
        (&format!("{recipe} more"), "too much"),
        (&with("cut=", &(state.cut - 1).to_string()).replacen(&word("loose="), "loose=0", 1), ""),
    ];
    let image = folder.path().join("image");
    let before = snapshot(folder.path());
    let refused = |what: &str, dir: Option<&Path>, sentence: &str| {
        for verb in ["replay", "materialise"] {
            let mut command = program();
            command.arg(verb).arg(what);
            if let Some(dir) = dir {
                command.arg("--dir").arg(dir);
            }
            if verb == "materialise" {
                command.arg("-o").arg(&image);
            }
            refuse(&mut command, sentence);
            assert_eq!(snapshot(folder.path()), before, "{verb} {what}");
        }
    };
    for (recipe, sentence) in recipes {
        refused(recipe, Some(&out), sentence);
    }
    refused(recipe, None, "--dir");
    refused(recipe, Some(&folder.path().join("missing")), "holds no run");
    let paths: [PathBuf; 4] = [folder.path().into(), out.clone(), out.join(BARRIER), folder.path().join("missing")];
    for path in paths {
        refused(path.to_str().unwrap(), None, "is no casebook");
    }
}

#[test]
fn a_second_program_in_the_same_folder_is_refused() {
    if !ready() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let mut first = Running::start(&mut small_for(3, "run", &out, "barrier", 8));
    first.until("it records", || out.join(BARRIER).join("recording.part").exists().then_some(()));
    for verb in ["plan", "verify"] {
        refuse(program().arg(verb).arg(&out), "another powerfail is at work");
    }
    for resume in [None, Some("--resume")] {
        refuse(small_for(3, "run", &out, "barrier", 8).args(resume), "another powerfail is at work");
    }
    assert!(out.join(BARRIER).join("recording.part").exists(), "the first was still at it");
    first.wait(LIMIT).expect(0);
    assert_judged_once(&out, BARRIER);
}

#[test]
fn without_root_nothing_can_be_tested_and_it_says_so() {
    if !ready() {
        return;
    }
    // A folder that everybody may enter: the one of the build may be root's alone.
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let copy = folder.path().join("powerfail");
    fs::copy(env!("CARGO_BIN_EXE_powerfail"), &copy).unwrap();
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).unwrap();
    let before = snapshot(folder.path());
    let nobody = || {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&copy).current_dir(folder.path());
        command
    };
    let doctor = run(nobody().arg("doctor")).expect(4);
    assert!(doctor.stdout.contains("root"), "{}", doctor.stdout);
    let told = run(nobody().args(["doctor", "--json"])).expect(4).json();
    assert_eq!(told["host-loop"]["usable"], false);
    for verb in ["run", "record"] {
        let ran = run(nobody().arg(verb).args(["--states", "8", "--out", "run"])).expect(4);
        assert!(ran.stderr.contains("root"), "{}", ran.stderr);
        assert_eq!(snapshot(folder.path()), before);
    }
    // What is wrong with the question is said first, whoever asks.
    run(nobody().args(["run", "--fs", "ntfs", "--out", "run"])).expect(2);
}

#[test]
fn without_nbdfuse_nothing_can_be_tested_and_it_names_the_package() {
    if !ready() {
        return;
    }
    let nbdfuse =
        ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin"].map(|at| Path::new(at).join("nbdfuse"));
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let unusable = folder.path().join("not-executable");
    fs::write(&unusable, "").unwrap();
    // In a mount namespace of its own something that can't be run lies over the program: a file, or no file at all.
    for over in [unusable.as_path(), Path::new("/dev/null")] {
        let hidden = || {
            let covers: Vec<_> = nbdfuse
                .iter()
                .filter(|path| path.exists())
                .map(|path| format!("mount --bind {} {} && ", over.display(), path.display()))
                .collect();
            let mut command = Command::new("unshare");
            command.args(["-m", "--propagation", "private", "sh", "-c"]);
            command.arg(format!("{}exec \"$@\"", covers.concat())).arg("sh").arg(env!("CARGO_BIN_EXE_powerfail"));
            command
        };
        let doctor = run(hidden().arg("doctor")).expect(4);
        assert!(doctor.stdout.contains("apt-get install libnbd-bin"), "{}", doctor.stdout);
        let ran = run(hidden().args(["run", "--states", "8", "--out"]).arg(&out)).expect(4);
        assert!(ran.stderr.contains("apt-get install libnbd-bin"), "{}", ran.stderr);
        assert!(!out.exists());
    }
}

/// Exit code 2 with a sentence; gives it.
fn refuse(command: &mut Command, sentence: &str) -> String {
    let ran = run(command).expect(2);
    assert!(ran.stderr.contains(sentence), "{command:?}: `{sentence}` is not in: {}", ran.stderr);
    assert!(
        ran.stderr.starts_with("powerfail: ") || ran.stderr.starts_with("rig ") || ran.stderr.starts_with("seed "),
        "{}",
        ran.stderr
    );
    assert!(!ran.stderr.contains("panicked"), "{}", ran.stderr);
    ran.stderr
}
