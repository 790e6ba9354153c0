//! ext4's superblock spans two sectors, and its checksum does not survive a tear between them.
//!
//! With 4 KiB blocks the superblock is bytes 1024 to 2048 of block 0, that is its sectors 2 and 3; the checksum is in the
//! last four bytes. On a drive whose atomic unit is a sector, a power cut may keep one of them and lose the other. Here
//! that state is made by hand: a file system as mke2fs leaves it, then one write of block 0 as the kernel leaves it after a
//! mount and an unmount. The tear is the only damage, so whatever the kernel says is about it.

mod common;

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command as Process;

use common::*;
use powerfail::image::Image;
use powerfail::recording_file::FileSink;
use powerfail_drive::cache::{Cache, Description, Policy};
use powerfail_drive::crash::Recipe;
use powerfail_drive::event::Header;
use powerfail_drive::explore::{Walk, span};
use powerfail_drive::history::{MOUNTED, WORKLOAD_END};
use powerfail_drive::live::Drive;
use powerfail_drive::request::{Command, Geometry, Request};
use powerfail_drive::units::AtomicUnit;
use powerfail_drive::versions::Order;
use powerfail_rig::workdir::Workdir;
use powerfail_rig::{Agent, AgentSetup, MountOutcome, UnmountOutcome};

const SIZE: u64 = 64 << 20;
const BLOCK: u64 = 4096;
const TORN: &str = "ext4-torn-512";

/// Sectors of block 0 that survive, and whether the kernel then mounts it, with and without metadata checksums.
const STATES: &[(&[usize], bool, bool)] = &[
    (&[], true, true),
    (&[0, 1, 2, 3, 4, 5, 6, 7], true, true),
    (&[2, 3], true, true),
    (&[0, 1, 4, 5, 6, 7], true, true),
    (&[2], false, true),
    (&[3], false, true),
    (&[0, 1, 2], false, true),
    (&[3, 4, 5, 6, 7], false, true),
];

#[test]
fn a_superblock_torn_between_its_sectors_refuses_the_mount() {
    if !ready() {
        return;
    }
    for checksums in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("recording");
        record(&path, checksums);
        let recording = fs::read(&path).unwrap();
        for (survive, with, without) in STATES {
            let recipe = recipe(&recording, AtomicUnit::B512, |sector| survive.contains(&sector));
            let refusal = mount(&recording, &recipe);
            let mounts = if checksums { with } else { without };
            assert_eq!(refusal.is_none(), *mounts, "checksums {checksums}, {survive:?} survive: {refusal:?}");
            let says = |text: &String| text.contains("superblock checksum");
            assert!(refusal.as_ref().is_none_or(says), "{refusal:?}");
        }
    }
}

/// On a drive that never tears a block there is no such state: the write is one fragment.
#[test]
fn an_atomic_block_keeps_the_superblock_whole() {
    if !ready() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("recording");
    record(&path, true);
    let recording = fs::read(&path).unwrap();
    for kept in [true, false] {
        let recipe = recipe(&recording, AtomicUnit::B4096, |_| kept);
        assert_eq!(recipe.kept, [kept]);
        assert_eq!(mount(&recording, &recipe), None);
    }
}

/// The same state through the program: it is a finding, and one that the mode's expectation names.
#[test]
fn the_program_finds_the_torn_superblock_and_knows_it() {
    if !ready() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    run(&mut small("record", &out, "torn-512", 1)).expect(0);
    let path = out.join(TORN).join("recording");
    fs::remove_file(&path).unwrap();
    record(&path, true);
    let recording = fs::read(&path).unwrap();
    let replay = |survive: &[usize], code| {
        let recipe = recipe(&recording, AtomicUnit::B512, |sector| survive.contains(&sector)).to_string();
        run(program().arg("replay").arg(recipe).arg("--dir").arg(&out).args(["--times", "3", "--json"]))
            .expect(code)
            .json()
    };
    let ext4 = powerfail::filesystems::named("ext4").unwrap();
    let expectation = ext4.expectation(ext4.mode("torn-512").unwrap(), "");
    for survive in [[2], [3]] {
        let told = replay(&survive, 0);
        for outcome in told["outcomes"].as_array().unwrap() {
            let findings: Vec<powerfail_ledger::Finding> = serde_json::from_value(outcome["findings"].clone()).unwrap();
            assert!(
                matches!(&findings[..], [one] if one.kind == powerfail_ledger::FindingKind::Mounts),
                "{findings:?}"
            );
            assert!(expectation.allows(&findings[0]), "{findings:?}");
            assert_eq!(outcome, &told["outcomes"][0], "each replay says the same");
        }
    }
    let told = replay(&[2, 3], 0);
    assert!(told["outcomes"].as_array().unwrap().iter().all(|outcome| outcome["outcome"] == "held"), "{told}");
}

/// A recording of a file system as mke2fs made it, settled, and of one write of block 0 that nobody flushed.
fn record(path: &Path, checksums: bool) {
    let (image, changed) = made_and_mounted(checksums);
    let geometry = Geometry::new(SIZE).unwrap();
    let sink = FileSink::create(path, Header::honest(geometry, true)).unwrap();
    let mut drive = Drive::new(geometry, sink);
    let write = |drive: &mut Drive<FileSink>, number: u64, data: &[u8]| {
        let (command, offset, length) = (Command::Write, number * BLOCK, BLOCK);
        let request = Request { command, offset, length, fua: false, data };
        let receipt = drive.receive(&request, crc32c::crc32c(data)).unwrap();
        drive.reply(receipt).unwrap();
    };
    for (number, block) in image.chunks(BLOCK as usize).enumerate() {
        if block.iter().any(|byte| *byte != 0) {
            write(&mut drive, number as u64, block);
        }
    }
    drive.mark(MOUNTED).unwrap();
    write(&mut drive, 0, &changed);
    drive.mark(WORKLOAD_END).unwrap();
    drive.close().unwrap().finish().unwrap();
}

/// A new file system, and its block 0 after a mount and an unmount.
fn made_and_mounted(checksums: bool) -> (Vec<u8>, Vec<u8>) {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(SIZE).unwrap();
    let features = if checksums { "metadata_csum" } else { "^metadata_csum" };
    let mut mkfs = Process::new("mkfs.ext4");
    mkfs.args([
        "-q",
        "-F",
        "-b",
        "4096",
        "-J",
        "size=4",
        "-O",
        features,
        "-E",
        "lazy_itable_init=0,lazy_journal_init=0",
    ]);
    assert!(mkfs.arg(file.path()).status().unwrap().success());
    let image = fs::read(file.path()).unwrap();
    assert_eq!(with_agent(file.as_file().as_fd()), None);
    let mut changed = vec![0; BLOCK as usize];
    file.as_file().read_exact_at(&mut changed, 0).unwrap();
    let differs = |sector: usize| changed[sector * 512..][..512] != image[sector * 512..][..512];
    // Without checksums nothing in the second half changes, so there is nothing to tear.
    assert!(differs(2) && (differs(3) || !checksums), "a mount changes the superblock");
    (image, changed)
}

/// The recipe of the cut after that write.
fn recipe(recording: &[u8], unit: AtomicUnit, kept: impl Fn(usize) -> bool) -> Recipe {
    let drive = Description::honest(unit, Cache { bytes: 8 << 20, policy: Policy::Fifo });
    let cut = span(recording).unwrap().last;
    let mut walk = Walk::new(recording, drive).unwrap();
    walk.advance(cut).unwrap();
    let loose = walk.history.loose();
    assert!(loose.iter().all(|fragment| fragment.unit < 8), "only block 0 is loose");
    let kept = loose.iter().map(|fragment| kept(fragment.unit as usize)).collect();
    let name = blake3::hash(recording).to_hex()[..16].to_owned();
    Recipe { recording: name, cut, drive, kept, order: Order::Receipt }
}

/// What the kernel says when it refuses the image of a recipe; none if it mounts.
fn mount(recording: &[u8], recipe: &Recipe) -> Option<String> {
    let mut walk = Walk::new(recording, recipe.drive).unwrap();
    walk.advance(recipe.cut).unwrap();
    let mut image = Image::new(SIZE).unwrap();
    image.become_state(&walk.history, recording, &recipe.kept, recipe.order).unwrap();
    with_agent(image.fd())
}

/// Mounts an image and unmounts it again, with the mode's own options; what the kernel says if it refuses.
fn with_agent(image: std::os::fd::BorrowedFd<'_>) -> Option<String> {
    let folder = Workdir::make().unwrap();
    let setup = AgentSetup {
        program: env!("CARGO_BIN_EXE_powerfail").into(),
        arguments: vec!["agent".into()],
        folder: folder.agents(),
        images: vec![image],
    };
    let mut agent = Agent::spawn(&setup).unwrap();
    agent.attach_image(0, SIZE, LIMIT).unwrap();
    let refusal = match agent.mount("ext4", "", LIMIT, LIMIT).unwrap() {
        MountOutcome::Mounted { .. } => {
            let outcome = agent.unmount(LIMIT).unwrap();
            assert!(matches!(outcome, UnmountOutcome::Unmounted { .. }), "{outcome:?}");
            None
        }
        MountOutcome::Refused { message, log, .. } => {
            let said: Vec<_> = log.lines.iter().map(|line| line.text.as_str()).collect();
            Some(format!("{message}: {}", said.join(" | ")))
        }
    };
    agent.detach(LIMIT).unwrap();
    agent.quit(LIMIT).unwrap();
    refusal
}
