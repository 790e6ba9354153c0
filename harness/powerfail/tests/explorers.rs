//! Explorers on real recordings: what is known of a journal's writes is true, and every explorer's states are judged.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use common::*;
use powerfail::record::About;
use powerfail::roles::roles;
use powerfail_drive::cache::{Cache, Description, Policy};
use powerfail_drive::explore::{Block, Journal, Outline, Role, Roles};
use powerfail_drive::units::AtomicUnit;
use powerfail_ledger::{Line, Outcome};

const ASYNC: &str = "ext4-async-commit";
const BLOCK: usize = 4096;

/// A real journal that went around its end: the tags of each descriptor have a checksum (v3) over the log block that is
/// taken for theirs, so a role that is wrong shows.
#[test]
fn the_roles_of_a_real_journal_agree_with_its_checksums() {
    if !ready() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    run(&mut small("record", &out, "async-commit", 1)).expect(0);
    let recording = fs::read(out.join(ASYNC).join("recording")).unwrap();
    let about: About = serde_json::from_slice(&fs::read(out.join(ASYNC).join("about.json")).unwrap()).unwrap();
    let drive = Description::honest(AtomicUnit::B4096, Cache { bytes: 8 << 20, policy: Policy::Fifo });
    let outline = Outline::of(&recording, drive).unwrap();
    let roles = roles(&recording, &outline, &about.journal);
    let journal = Journal::of(&roles);
    assert!(journal.transactions.len() > 50, "{} transactions", journal.transactions.len());
    assert!(journal.transactions.iter().any(|transaction| transaction.wraps), "it went around");
    let sequences: Vec<u32> = journal.transactions.iter().map(|transaction| transaction.sequence).collect();
    assert!(sequences.windows(2).all(|two| two[1] == two[0] + 1), "one after the other: {sequences:?}");
    let contents = |block: &Block| {
        let op = outline.op(block.write).unwrap();
        let at = op.data_at as usize + block.block as usize * BLOCK - op.lba.0 as usize * 512;
        &recording[at..at + BLOCK]
    };
    let uuid = journal.superblocks.last().map(|block| contents(block)[0x30..0x40].to_vec()).unwrap();
    let seed = crc(!0, &uuid);
    let mut tags = 0;
    for transaction in &journal.transactions {
        let blocks: BTreeMap<u64, &Block> = transaction.log.iter().map(|block| (block.block, block)).collect();
        for descriptor in transaction.log.iter().filter(|block| word(contents(block), 0) == 0xc03b_3998) {
            for (number, checksum) in (1..).zip(tags_v3(contents(descriptor))) {
                let log = blocks[&around(&about, descriptor.block, number)];
                let found = crc(crc(seed, &transaction.sequence.to_be_bytes()), contents(log));
                assert_eq!(found, checksum, "transaction {}, tag {number}", transaction.sequence);
                tags += 1;
            }
        }
    }
    let log_data = roles.sorted().iter().filter(|(_, _, role)| matches!(role, Role::LogData(_))).count();
    assert_eq!(tags, log_data, "each log block is named by one tag");
    unknown_is_only_mkfs(&outline, &roles);
}

/// The block `number` behind another, around the end of a journal whose first block is the superblock.
fn around(about: &About, block: u64, number: u64) -> u64 {
    let ring: Vec<u64> = about.journal.iter().flat_map(|(first, last)| *first..=*last).skip(1).collect();
    let at = ring.iter().position(|one| *one == block).unwrap();
    ring[(at + number as usize) % ring.len()]
}

fn tags_v3(descriptor: &[u8]) -> Vec<u32> {
    let (mut at, mut checksums) = (12, Vec::new());
    loop {
        let flags = word(descriptor, at + 4);
        checksums.push(word(descriptor, at + 12));
        at += if flags & 2 == 0 { 32 } else { 16 };
        if flags & 8 != 0 {
            return checksums;
        }
    }
}

/// The workload's writes to the journal are all understood.
fn unknown_is_only_mkfs(outline: &Outline, roles: &Roles) {
    let span = outline.span();
    let unknown = |(write, _, role): &(u64, u64, Role)| *role == Role::Unknown && *write >= span.first;
    let unknown: Vec<_> = roles.sorted().into_iter().filter(unknown).collect();
    assert!(unknown.iter().all(|(write, ..)| *write > span.last), "{unknown:?}");
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
}

/// CRC32C without the final inversion, as the kernel uses it.
fn crc(seed: u32, bytes: &[u8]) -> u32 {
    !crc32c::crc32c_append(!seed, bytes)
}

/// All explorers share the states of a safe mode, in the workload and outside it, and nothing is found.
#[test]
fn every_explorer_has_its_share_and_barriers_hold() {
    if !ready() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let explorers = ["--explorers", "all,mkfs,unmount"];
    let ran = run(small("run", &out, "barrier", 64).args(explorers)).expect(0);
    assert!(ran.stdout.contains("by explorer: edges 0/"), "{}", ran.stdout);
    let mut made: BTreeMap<String, u64> = BTreeMap::new();
    for state in states(&out) {
        assert_eq!(state.outcome, Outcome::Held, "{state:?}");
        *made.entry(state.explorer).or_default() += 1;
    }
    let names = ["edges", "every-cut", "exhaustive", "journal-aware", "mkfs", "sampled", "torn", "unmount"];
    assert_eq!(made.keys().map(String::as_str).collect::<Vec<_>>(), names);
    assert_eq!(made.values().sum::<u64>(), 64);
    assert!(made.iter().all(|(name, made)| *made >= 8 || name == "mkfs"), "an eighth each: {made:?}");
    // A state outside the workload can be made again like any other.
    for outside in ["mkfs", "unmount"] {
        let state = states(&out).into_iter().find(|state| state.explorer == outside).unwrap();
        run(program().arg("replay").arg(&state.state).arg("--dir").arg(&out)).expect(0);
    }
}

/// One recording, other explorers: in a new folder, or in the same one as long as it has no verdict.
#[test]
fn a_recording_is_planned_again_without_mixing_verdicts() {
    if !ready() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (out, again, replayed) =
        (folder.path().join("run"), folder.path().join("again"), folder.path().join("replayed"));
    run(&mut small("record", &out, "async-commit", 6)).expect(0);
    run(program().arg("plan").arg(&out).args(["--explorers", "sampled", "--states", "4"])).expect(0);
    assert_eq!(explorers_of(&out, ASYNC), BTreeSet::from(["sampled".to_owned()]));
    assert_eq!(planned(&out, ASYNC).len(), 4);
    run(program()
        .arg("plan")
        .arg(&out)
        .args(["--explorers", "journal-aware", "--states", "10"])
        .arg("--into")
        .arg(&again))
    .expect(0);
    assert_eq!(explorers_of(&again, ASYNC), BTreeSet::from(["journal-aware".to_owned()]));
    assert_eq!(planned(&out, ASYNC).len(), 4, "the first folder is as it was");
    run(program().arg("verify").arg(&again)).expect(0);
    assert!(states(&again).iter().any(|state| matches!(state.outcome, Outcome::Violated { .. })), "it aims at commits");
    refuse(program().arg("plan").arg(&again).args(["--states", "3"]), "verdicts of another plan; say --into");
    // The recipes of the states that were judged, as the states of a third plan.
    let recipes = folder.path().join("recipes");
    let text: Vec<String> = states(&again).into_iter().map(|state| state.state).collect();
    fs::write(&recipes, format!("# given\n\n{}\n", text.join("\n"))).unwrap();
    let given = |dir: &Path, into: &Path| {
        let mut command = program();
        command.arg("plan").arg(dir).arg("--recipes").arg(&recipes).arg("--into").arg(into);
        command
    };
    run(&mut given(&again, &replayed)).expect(0);
    let of_plan: BTreeSet<String> = planned(&replayed, ASYNC).into_iter().collect();
    assert_eq!(of_plan, text.iter().cloned().collect());
    // A recipe of this recording that does not fit it.
    fs::write(&recipes, text[0].replace("cut=", "cut=9")).unwrap();
    refuse(&mut given(&again, &folder.path().join("foreign")), "a recipe is of another recording");
    fs::write(&recipes, "pf1 rec=0\n").unwrap();
    refuse(&mut given(&again, &folder.path().join("bad")), "not a crash state");
    refuse(small("run", &folder.path().join("x"), "barrier", 1).args(["--explorers", "magic"]), "no explorer `magic`");
    refuse(small("run", &folder.path().join("x"), "barrier", 1).args(["--explorers", "replay"]), "say --recipes FILE");
    assert!(!folder.path().join("x").exists(), "nothing is left behind");
}

fn explorers_of(out: &Path, cell: &str) -> BTreeSet<String> {
    let text = fs::read_to_string(out.join(cell).join("plan.jsonl")).unwrap();
    let explorer =
        |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["explorer"].as_str().unwrap().to_owned();
    text.lines().skip(1).map(explorer).collect()
}

/// The recording's line of the ledger counts the plan that is there.
#[test]
fn the_ledger_counts_the_plan_that_is_there() {
    if !ready() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    run(&mut tiny("record", &out, "barrier", 6)).expect(0);
    for states in [5, 7] {
        run(program().arg("plan").arg(&out).args(["--states", &states.to_string()])).expect(0);
        let lines = powerfail_ledger::read(&out.join("ledger.jsonl")).unwrap().lines;
        let counted: Vec<u64> = lines
            .iter()
            .filter_map(|line| if let Line::Recording(one) = line { Some(one.planned) } else { None })
            .collect();
        assert_eq!(counted, [states]);
    }
}
