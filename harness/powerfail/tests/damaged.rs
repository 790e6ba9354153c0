//! Files of a run that were damaged or altered: each is refused with a sentence and exit code 2, and nothing is changed.

mod common;

use std::fs;
use std::process::Command;

use common::*;

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
    run(&mut tiny("record", &recorded, "barrier", 8)).expect(0);
    copy(&recorded, &judged);
    run(tiny("run", &judged, "barrier", 8).arg("--resume")).expect(0);
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
            refused(tiny("run", out, "barrier", 8).arg("--resume"));
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

/// A whole recording, but none that this cell's drive could have made.
#[test]
fn a_recording_of_another_drive_is_refused() {
    if !ready() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    run(&mut tiny("record", &out, "barrier", 8)).expect(0);
    let (larger, other) = (folder.path().join("larger"), folder.path().join("other"));
    run(program().args(["record", "--size", "128M", "--steps", "100", "--hog", "0", "--out"]).arg(&larger)).expect(0);
    run(&mut tiny("record", &other, "nobarrier-w0", 8)).expect(0);
    for foreign in [larger.join(BARRIER), other.join("ext4-nobarrier-w0")] {
        let recording = fs::read(foreign.join("recording")).unwrap();
        fs::write(out.join(BARRIER).join("recording"), &recording).unwrap();
        let before = snapshot(&out);
        let name = &blake3::hash(&recording).to_hex()[..16];
        let recipe = format!("pf1 rec={name} cut=9 unit=4096 cache=8388608,fifo loose=0 keep=all order=receipt");
        for verb in ["plan", "verify"] {
            refuse(program().arg(verb).arg(&out), "another drive");
        }
        refuse(program().arg("replay").arg(recipe).arg("--dir").arg(&out), "another drive");
        assert_eq!(snapshot(&out), before);
    }
}

#[test]
fn an_altered_plan_is_refused() {
    if !ready() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    run(&mut tiny("record", &out, "barrier", 8)).expect(0);
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
        refuse(tiny("run", &out, "barrier", 8).arg("--resume"), "plan.jsonl");
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
    run(&mut tiny("run", &out, "barrier", 8)).expect(0);
    let file = out.join("ledger.jsonl");
    let whole = fs::read_to_string(&file).unwrap();
    let lines: Vec<&str> = whole.lines().collect();
    let altered = [
        ("newer", whole.replacen("\"schema\":2", "\"schema\":3", 1), "schema 3"),
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
        refuse(tiny("run", &out, "barrier", 8).arg("--resume"), sentence);
        assert_eq!(snapshot(&out), before, "{what}");
    }
}

#[test]
fn what_the_rig_said_must_be_there_and_whole() {
    if !ready() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    run(&mut tiny("run", &out, "barrier", 8)).expect(0);
    let recipe = states(&out)[4].state.clone();
    let file = out.join(BARRIER).join("about.json");
    let whole = fs::read_to_string(&file).unwrap();
    for text in [None, Some(String::new()), Some(whole[..whole.len() / 2].to_owned()), Some("{}".to_owned())] {
        match text {
            Some(text) => fs::write(&file, text).unwrap(),
            None => fs::remove_file(&file).unwrap(),
        }
        let before = snapshot(&out);
        for verb in ["plan", "verify"] {
            refuse(program().arg(verb).arg(&out), "about.json");
        }
        refuse(tiny("run", &out, "barrier", 8).arg("--resume"), "about.json");
        refuse(program().arg("replay").arg(&recipe).arg("--dir").arg(&out), "about.json");
        assert_eq!(snapshot(&out), before);
    }
}

#[test]
fn a_configuration_that_is_newer_or_altered_is_refused() {
    if !ready() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    run(&mut tiny("run", &out, "barrier", 8)).expect(0);
    let recipe = states(&out)[4].state.clone();
    let file = out.join("run.json");
    let whole = fs::read_to_string(&file).unwrap();
    let altered = [
        ("newer", whole.replacen("\"format\": 2", "\"format\": 3", 1), "format 3"),
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
        refuse(tiny("run", &out, "barrier", 8).arg("--resume"), sentence);
        refuse(program().arg("replay").arg(&recipe).arg("--dir").arg(&out), sentence);
        assert_eq!(snapshot(&out), before, "{what}");
    }
}
