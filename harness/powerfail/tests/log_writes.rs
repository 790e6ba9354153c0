//! The exported log of a real run, replayed by a reader that knows nothing but the kernel's layout of the format.
//!
//! The reader below is written from `drivers/md/dm-log-writes.c` and shares no code with the crate that exports:
//!
//! ```text
//! sector 0      struct log_write_super { le64 magic; le64 version; le64 nr_entries; le32 sectorsize; }
//! each entry    struct log_write_entry { le64 sector; le64 nr_sectors; le64 flags; le64 data_len; }, one sector long;
//!               a mark's label stands in it, a write's data (nr_sectors) follows it; a discard has no data
//! ```

mod common;

use std::fs;
use std::path::Path;

use common::*;
use powerfail_drive::event::What;
use powerfail_drive::pages::Pages;
use powerfail_drive::recording::{Reader, Tail};
use powerfail_drive::request::Command as Request;

const SIZE: usize = 64 << 20;

#[test]
fn an_exported_log_gives_the_drives_final_image_and_comes_back() {
    if !ready() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    run(&mut small("record", &out, "barrier", 8)).expect(0);
    let (log, back, again) = (folder.path().join("log"), folder.path().join("imported"), folder.path().join("again"));
    let recording = fs::read(out.join(BARRIER).join("recording")).unwrap();
    let image = final_image(&recording);
    export(&out, &log);

    let replayed = replay(&fs::read(&log).unwrap());
    assert!(replayed.writes > 100 && replayed.flushes > 10, "{} writes, {} flushes", replayed.writes, replayed.flushes);
    assert!(replayed.image == image, "the log's final image is another than the drive's");
    for mark in ["mkfs-end", "mounted", "workload-end"] {
        assert!(replayed.marks.iter().any(|seen| seen == mark), "no mark {mark}");
    }
    assert_eq!(replayed.marks, marks(&recording), "every mark with its label, in its order");

    let mut import = program();
    import.args(["recording", "import", "--format", "log-writes"]).arg(&log).arg("-o").arg(&back);
    run(import.args(["--size", "64M"])).expect(0);
    let imported = fs::read(back.join("recording")).unwrap();
    assert!(final_image(&imported) == image, "what comes back has another final image");
    assert_eq!(marks(&imported), marks(&recording));
    run(program().arg("recording").arg("show").arg(&back)).expect(0);
    export(&back, &again);
    assert!(replay(&fs::read(&again).unwrap()).image == image);

    let mut small = program();
    small.args(["recording", "import", "--format", "log-writes"]).arg(&log).arg("-o").arg(folder.path().join("none"));
    run(small.args(["--size", "1M"])).expect(2);
    assert!(!folder.path().join("none").exists(), "a log that does not fit leaves nothing");
}

/// The image at each flush of the log is one that the drive had at that flush too, not only the last one.
#[test]
fn prefixes_of_the_log_are_prefixes_of_the_recording() {
    if !ready() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    run(&mut small("record", &out, "barrier", 8)).expect(0);
    let log = folder.path().join("log");
    export(&out, &log);
    let log = fs::read(log).unwrap();
    let recording = fs::read(out.join(BARRIER).join("recording")).unwrap();
    let at_mark = |label: &str| {
        let mut image = vec![0; SIZE];
        assert!(replay_until(&log, &mut image, |entry| entry.mark.as_deref() == Some(label)));
        image
    };
    // Nothing is in flight when the harness puts these.
    for label in ["mkfs-end", "mounted"] {
        assert!(at_mark(label) == image_at(&recording, Some(label)), "at the mark {label}");
    }
}

fn export(from: &Path, to: &Path) {
    run(program().args(["recording", "export", "--format", "log-writes"]).arg(from).arg("-o").arg(to)).expect(0);
}

/// What the drive held at the end, event by event.
fn final_image(recording: &[u8]) -> Vec<u8> {
    image_at(recording, None)
}

fn image_at(recording: &[u8], mark: Option<&str>) -> Vec<u8> {
    let mut pages = Pages::default();
    let mut reader = Reader::new(recording, true).unwrap();
    while let Some(entry) = reader.next().unwrap() {
        match entry.head.what {
            What::Received { command: Request::Write, lba, .. } => pages.write(lba.bytes(), reader.data()),
            What::Received { command: Request::Trim | Request::WriteZeroes, lba, sectors, .. } => {
                pages.zero(lba.bytes(), sectors.bytes());
            }
            What::Mark if mark.is_some_and(|mark| mark.as_bytes() == reader.data()) => break,
            _ => {}
        }
    }
    assert!(mark.is_some() || reader.tail() == Some(Tail::Closed));
    let mut image = vec![0; SIZE];
    pages.read(0, &mut image);
    image
}

fn marks(recording: &[u8]) -> Vec<String> {
    let mut reader = Reader::new(recording, true).unwrap();
    let mut marks = Vec::new();
    while let Some(entry) = reader.next().unwrap() {
        if entry.head.what == What::Mark {
            marks.push(String::from_utf8(reader.data().to_vec()).unwrap());
        }
    }
    marks
}

/// What another reader makes of a log.
struct Replayed {
    image: Vec<u8>,
    marks: Vec<String>,
    writes: u64,
    flushes: u64,
}

/// One entry as that reader sees it.
struct Entry {
    flags: u64,
    mark: Option<String>,
    wrote: bool,
}

fn replay(log: &[u8]) -> Replayed {
    let mut replayed = Replayed { image: vec![0; SIZE], marks: Vec::new(), writes: 0, flushes: 0 };
    let mut image = std::mem::take(&mut replayed.image);
    replay_until(log, &mut image, |entry| {
        replayed.marks.extend(entry.mark.clone());
        replayed.writes += u64::from(entry.wrote);
        replayed.flushes += entry.flags & 1;
        false
    });
    replayed.image = image;
    replayed
}

/// Replays into `image` until `stop` says so; false: it never did, and the log was read to its last byte.
fn replay_until(log: &[u8], image: &mut [u8], mut stop: impl FnMut(&Entry) -> bool) -> bool {
    let number = |at: usize| u64::from_le_bytes(log[at..at + 8].try_into().unwrap());
    assert_eq!(number(0), 0x006a_7366_7773_6872, "magic");
    assert_eq!(number(8), 1, "version");
    assert_eq!(log[24..28], 512u32.to_le_bytes(), "sector size");
    let mut at = 512;
    for _ in 0..number(16) {
        let (sector, sectors) = (number(at) as usize, number(at + 8) as usize);
        let (flags, length) = (number(at + 16), number(at + 24) as usize);
        assert_eq!(flags & !0xf, 0, "the kernel's flags are FLUSH 1, FUA 2, DISCARD 4, MARK 8");
        let mark = (flags & 8 != 0).then(|| String::from_utf8(log[at + 32..at + 32 + length].to_vec()).unwrap());
        at += 512;
        let place = sector * 512..(sector + sectors) * 512;
        let wrote = mark.is_none() && flags & 4 == 0 && sectors > 0;
        if wrote {
            image[place].copy_from_slice(&log[at..at + sectors * 512]);
            at += sectors * 512;
        }
        // A reader that skips discards must come to the same image, so this one does.
        if stop(&Entry { flags, mark, wrote }) {
            return true;
        }
    }
    assert_eq!(at, log.len(), "nothing follows the last entry");
    false
}
