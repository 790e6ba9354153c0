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
        (&["--mode", "nobarrier"], "ext4 has no mode `nobarrier`"),
        (&["--mode", "barrier,nosuch"], "ext4 has no mode `nosuch`"),
        (&["--workload", "nosuch"], "there is no workload `nosuch`"),
        (&["--rig", "nosuch"], "there is no rig `nosuch`"),
        (&["--fs", "xfs", "--mode", "torn-512"], "xfs has no mode `torn-512`"),
        (&["--fs", "xfs", "--size", "64M"], "too small for xfs; at least 300M"),
        (&["--mode", "barrier,barrier"], "two cells are called ext4-barrier"),
        (&["--kernel", "6.1"], "there is no kernel `6.1`"),
        (&["--kernel", "./nosuch"], "there is no kernel at ./nosuch"),
        (&["--kernel", "host", "--modules", "/"], "--modules is for a kernel of your own"),
        (&["--kernel", "debian-6.1", "--rig", "host-loop"], "is for --rig guest"),
        (&["--kernel", "host", "--rig", "guest"], "a guest has a kernel of its own"),
        (&["--workload-opts", "fils=3"], "the workload mason has no option `fils`"),
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
    run(&mut tiny("run", &run_folder, "barrier", 8)).expect(0);
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
        refuse(tiny("run", out, "barrier", 8).args(options), sentence);
        assert_eq!(snapshot(folder.path()), before, "{} {options:?}", out.display());
    };
    refused(&run_folder, &[], "holds a run already; go on with --resume");
    refused(&run_folder, &["--seed", "2"], "holds a run already");
    refused(&run_folder, &["--resume", "--seed", "2"], "holds another run (seed 1, cells ext4-barrier)");
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

#[test]
fn a_log_that_is_none_is_refused_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let sector = |words: [u64; 4]| {
        let mut sector = vec![0; 512];
        words.iter().enumerate().for_each(|(at, word)| sector[at * 8..][..8].copy_from_slice(&word.to_le_bytes()));
        sector
    };
    const MAGIC: u64 = 0x006a_7366_7773_6872;
    let first = |entries| sector([MAGIC, 1, entries, 512]);
    let with = |entry: [u64; 4], data: usize| [first(1), sector(entry), vec![1; data]].concat();
    let logs = [
        (Vec::new(), "shorter than a sector"),
        (b"hello".to_vec(), "shorter than a sector"),
        (sector([MAGIC + 1, 1, 0, 512]), "magic"),
        (sector([MAGIC, 2, 0, 512]), "version"),
        (sector([MAGIC, 1, 0, 4096]), "sectors"),
        (first(1), "ends within entry 0 of 1"),
        (with([0, 8, 0, 0], 4095), "ends within entry 0 of 1"),
        (with([131_072, 8, 0, 0], 4096), "entry 0"),
        (with([u64::MAX, 8, 0, 0], 4096), "entry 0"),
        (with([0, u64::MAX, 0, 0], 4096), "entry 0"),
        (with([0, u64::MAX, 4, 0], 0), "entry 0"),
    ];
    let (log, out) = (folder.path().join("log"), folder.path().join("out"));
    for (bytes, sentence) in logs {
        fs::write(&log, bytes).unwrap();
        let mut import = program();
        import.args(["recording", "import", "--format", "log-writes", "--size", "64M"]).arg(&log).arg("-o").arg(&out);
        refuse(&mut import, sentence);
        assert!(!out.exists(), "{sentence}");
    }
}

#[test]
fn recipes_and_casebooks_that_are_none_are_refused() {
    if !ready() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    run(&mut tiny("run", &out, "barrier", 8)).expect(0);
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
        (&with("loose=", &(state.loose + 1).to_string()).replacen(&word("keep="), "keep=none", 1), "another recording"),
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
    let mut first = Running::start(&mut sized(3000, "run", &out, "barrier", 8));
    first.until("it records", || out.join(BARRIER).join("recording.part").exists().then_some(()));
    for verb in ["plan", "verify"] {
        refuse(program().arg(verb).arg(&out), "another powerfail is at work");
    }
    for resume in [None, Some("--resume")] {
        refuse(sized(3000, "run", &out, "barrier", 8).args(resume), "another powerfail is at work");
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
        // No guests either.
        command.env("POWERFAIL_GUEST_AGENT", "/nonexistent");
        command
    };
    let doctor = run(nobody().arg("doctor")).expect(4);
    assert!(doctor.stdout.contains("Run as root"), "{}", doctor.stdout);
    let told = run(nobody().args(["doctor", "--json"])).expect(4).json();
    for rig in ["host-loop", "host-nbd", "guest"] {
        assert_eq!(told[rig]["usable"], false, "{rig}: {told}");
    }
    let agent = told["guest"]["probes"].as_array().unwrap().iter().find(|probe| probe["name"] == "static agent");
    assert!(agent.unwrap()["detail"].as_str().unwrap().contains("/nonexistent"), "{told}");
    for verb in ["run", "record"] {
        let ran = run(nobody().arg(verb).args(["--states", "8", "--out", "run"])).expect(4);
        assert!(ran.stderr.contains("Run as root"), "{}", ran.stderr);
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
            // No guests either.
            command.env("POWERFAIL_GUEST_AGENT", "/nonexistent");
            command
        };
        let doctor = run(hidden().arg("doctor")).expect(4);
        assert!(doctor.stdout.contains("apt-get install libnbd-bin"), "{}", doctor.stdout);
        let ran = run(hidden().args(["run", "--states", "8", "--out"]).arg(&out)).expect(4);
        assert!(ran.stderr.contains("apt-get install libnbd-bin"), "{}", ran.stderr);
        assert!(!out.exists());
    }
}
