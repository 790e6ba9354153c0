//! Three recoveries, one answer; and the table of a journal.

mod common;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use common::*;

#[test]
fn three_recoveries_of_barrier_states_are_alike() {
    if !ready() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    run(small("record", &out, "barrier", 24).args(["--fs", "ext4,ext4-1k,ext3"])).expect(0);
    run(program().arg("plan").arg(&out)).expect(0);
    let before = snapshot(&out);
    let ran = run(program().arg("recoveries").arg(&out).args(["--states", "24", "--json"])).expect(0);
    let cells = ran.json();
    for cell in cells.as_array().unwrap() {
        assert!(cell["compared"].as_u64().unwrap() >= 20, "{cell}");
        assert_eq!(cell["compared"], cell["agree"], "{cell}");
        assert!(cell["transactions"].as_u64() > cell["compared"].as_u64(), "nothing was replayed: {cell}");
    }
    assert_eq!(cells.as_array().unwrap().len(), 3);
    assert_eq!(snapshot(&out), before, "it only looks");

    // One of them again, by its recipe, and its journal.
    let recipe = planned(&out, BARRIER).pop().unwrap();
    run(program().args(["recoveries", &recipe, "--dir"]).arg(&out)).expect(0);
    let image = folder.path().join("image");
    run(program().args(["materialise", &recipe, "--dir"]).arg(&out).arg("-o").arg(&image)).expect(0);
    let text = run(program().arg("journal").arg(&image)).expect(0).stdout;
    assert!(text.contains("journal commit of transaction") && text.contains("replayed"), "{text}");
    let json = run(program().arg("journal").arg(&image).arg("--json")).expect(0).json();
    assert_eq!(json["superblock"]["block_size"], 4096, "{json}");
    assert!(json["rows"].as_array().unwrap().len() > 10 && json["refused"] == false, "{json}");
}

/// debugfs makes journals of checksum v2, which no kernel writes any more.
#[test]
fn three_recoveries_of_journals_that_debugfs_made() {
    if !ready() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    for (open, mkfs) in [("jo -c -v 2", ""), ("jo -c -v 2", "^64bit"), ("jo -c -v 3", ""), ("jo -c", "^metadata_csum")]
    {
        for size in ["1024", "4096"] {
            make(&image, size, mkfs, open);
            let ran = run(program().arg("recoveries").arg(&image).arg("--json")).expect(0);
            let cell = &ran.json()[0];
            assert_eq!((&cell["agree"], &cell["transactions"]), (&1.into(), &3.into()), "{cell}");
            // A data block of the second transaction is damaged: with v2 and v3 all three refuse, having written the rest.
            if open == "jo -c" {
                continue;
            }
            let journal = run(program().arg("journal").arg(&image).arg("--json")).expect(0).json();
            let data = journal["rows"].as_array().unwrap().iter().rfind(|row| row["type"] == "data").unwrap().clone();
            let at = data["place"].as_u64().unwrap() * size.parse::<u64>().unwrap() + 99;
            let mut bytes = fs::read(&image).unwrap();
            bytes[at as usize] ^= 1;
            fs::write(&image, bytes).unwrap();
            let ran = run(program().arg("recoveries").arg(&image).arg("--json")).expect(0);
            assert_eq!(ran.json()[0]["refused_alike"], 1, "{}", ran.stdout);
        }
    }
}

fn make(image: &Path, size: &str, features: &str, open: &str) {
    let _ = fs::remove_file(image);
    fs::File::create(image).unwrap().set_len(32 << 20).unwrap();
    let script = image.with_extension("script");
    let data = image.with_extension("data");
    fs::write(&data, vec![0x77; 4 * 4096]).unwrap();
    let data = data.display();
    fs::write(&script, format!("{open}\njw -b 7000-7002 {data}\njw -b 7001 {data}\njw -b 7003 {data}\njc\n")).unwrap();
    let mut mkfs = Command::new("mkfs.ext4");
    mkfs.args(["-q", "-F", "-b", size, "-J", "size=4", "-O", if features.is_empty() { "extent" } else { features }]);
    for command in [mkfs.arg(image), Command::new("debugfs").arg("-w").arg("-f").arg(&script).arg(image)] {
        let output = command.stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn what_has_no_journal_is_refused_in_words() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    fs::write(&image, vec![0; 1 << 16]).unwrap();
    refuse(program().arg("journal").arg(&image), "no image of ext2, ext3 or ext4");
    refuse(program().arg("journal").arg(folder.path()), "is a folder");
    refuse(program().arg("journal").arg(folder.path().join("none")), "No such file");
    refuse(program().args(["recoveries", "/nowhere"]), "/nowhere");
    refuse(program().args(["recoveries", "pf1 rec=0"]), "--dir");
}
