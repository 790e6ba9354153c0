//! A synthetic ledger that looks like a night's run of ext4 and XFS; the same for tests and for the sample page.

#![allow(dead_code, missing_docs, unreachable_pub)]

use powerfail_ledger::{
    Area, Case, CaseEnd, Contents, Expectation, Finding, FindingKind, Header, KnownFinding, Line, Measured, Outcome,
    PathKeeps, Recording, SCHEMA, State, Timeline, TimelineWrite,
};
use powerfail_reports::Tally;
use powerfail_reports::history::Night;

/// SplitMix64: enough to look like a run, and the same each time.
pub struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % below
    }
}

pub fn header() -> Header {
    Header {
        schema: SCHEMA,
        tool: "powerfail 0.1.0".into(),
        seed: 1,
        command: "powerfail matrix scripts/nightly.toml --out nightly/2026-01-05".into(),
        started: "2026-01-05T02:00:07Z".into(),
        machine: "Linux 6.18.44 x86_64, 2 processors, 23.4 GiB of memory".into(),
        shard: None,
    }
}

pub fn case(fs: &str, mkfs: &str, mode: &str, expectation: Expectation) -> Case {
    let cached = !mode.contains("w0");
    Case {
        fs: fs.into(),
        mkfs: mkfs.into(),
        mode: mode.into(),
        mount: match mode {
            "nobarrier-w0" | "nobarrier-w1" if fs == "ext4" => "barrier=0".into(),
            "async-commit" => "journal_async_commit,data=writeback".into(),
            "async-commit-w0" | "async-commit-nobarrier" => "journal_async_commit,data=writeback,barrier=0".into(),
            "data-journal" => "data=journal".into(),
            _ => String::new(),
        },
        workload: "mason workers=4 seconds=4".into(),
        drive: match (cached, mode) {
            (false, _) => "512M no-cache atomic=4096 hold=8".into(),
            (true, "torn-512") => "512M cache=8M fifo atomic=512".into(),
            (true, _) => "512M cache=8M fifo atomic=4096".into(),
        },
        rig: "host-loop".into(),
        kernel: "6.18.44".into(),
        seed: 1,
        expectation,
    }
}

pub fn known(kinds: &[FindingKind], reference: &str) -> Expectation {
    let findings = kinds.iter().map(|&kind| KnownFinding { kind, says: String::new() }).collect();
    Expectation::Known { findings, reference: reference.into(), at_most_ppm: None }
}

fn finding(kind: FindingKind, dice: &mut Dice) -> Finding {
    let block = dice.roll(130_000);
    let device = dice.roll(8);
    let detail = match (kind, dice.roll(3)) {
        (FindingKind::Mounts, 0) => format!(
            "mount refused: JBD2: journal checksum error; EXT4-fs (loop{device}): error loading journal; mount(2) says \"Structure needs cleaning\""
        ),
        (FindingKind::Mounts, _) => format!(
            "mount refused: JBD2: Invalid checksum recovering data block {block} in journal block {}; EXT4-fs (loop{device}): error loading journal",
            block % 1024
        ),
        (FindingKind::Kernel, 0) => format!(
            "EXT4-fs error (device loop{device}): htree_dirblock_to_tree:1051: inode #{block}: comm powerfail: Directory block failed checksum"
        ),
        (FindingKind::Kernel, _) => {
            format!(
                "EXT4-fs error (device loop{device}): ext4_lookup:1787: inode #{block}: comm powerfail: iget: checksum invalid"
            )
        }
        (FindingKind::Walk, _) => format!("/barrier-test/d{}/<long & \"quoted\"> can't be read: EUCLEAN", block % 40),
        (FindingKind::Promises, 0) => {
            format!(
                "worker {} had fsync return at step {block}, and the file's bytes {} to {} are zero",
                device % 4,
                block,
                block + 4096
            )
        }
        (FindingKind::Promises, _) => {
            format!(
                "worker {} renamed 'a' over 'b' after fsync of 'a' at step {block}; neither name is there",
                device % 4
            )
        }
        (FindingKind::Fsck, 0) => format!(
            "e2fsck -fn: Inode {block}, i_blocks is {}, should be 8.  Fix? no\nFree blocks count wrong ({block}, counted={}).  Fix? no",
            block % 77,
            block + 1
        ),
        (FindingKind::Fsck, 1) => format!("e2fsck -fn: Unattached inode {block}. Connect to /lost+found? no"),
        (FindingKind::Fsck, _) => {
            format!(
                "e2fsck -fn: Problem in HTREE directory inode {block}: block #{} has bad max hash. Clear HTree index? no",
                block % 9
            )
        }
        (FindingKind::Quiet, _) => {
            format!("the second mount recovered again: EXT4-fs (loop{device}): recovery complete")
        }
        (FindingKind::Witness, _) => format!("write A at {block} was lost though FLUSH had returned"),
        (FindingKind::ReplayDiffers, _) => format!("block {block} (block bitmap of group 3): e2fsck stands alone"),
    };
    Finding { kind, detail }
}

/// Some violated states as they look once they were explained, and some states of depth two.
fn explain(lines: &mut [Line], plan: &Plan<'_>, dice: &mut Dice) {
    const ROLES: [&str; 5] = ["commit block", "log block", "superblock", "inode table", "directory block"];
    for line in lines {
        let Line::State(state) = line else { continue };
        if plan.case.mode == "barrier" && dice.roll(5) == 0 {
            state.depth = Some(2);
        }
        if matches!(state.outcome, Outcome::Violated { .. }) && dice.roll(3) > 0 {
            let role = ROLES[(dice.roll(5) * dice.roll(5) / 5) as usize];
            state.role = Some(role.into());
            state.explanation = Some(format!(
                "Of {} lost fragments one is enough: the {role} that transaction 41 wrote. The commit block after it arrived, and its checksum does not cover it.",
                state.lost
            ));
        }
    }
}

/// A state of a case, the same for the same number.
pub fn state(case: &Case, recipe: u64, outcome: Outcome) -> State {
    State {
        case: case.clone(),
        state: format!("recipe {recipe}"),
        image: format!("{recipe:032x}"),
        explorer: "sampled".into(),
        cut: recipe,
        loose: 4,
        lost: 2,
        in_flight: 0,
        outcome,
        replay: None,
        depth: None,
        role: None,
        explanation: None,
        took_ms: 10 + recipe,
    }
}

/// How a cell turns out.
pub struct Plan<'a> {
    pub case: Case,
    pub states: u64,
    pub violated: u64,
    pub kinds: &'a [FindingKind],
    pub loose_percent: u64,
    pub timeline: bool,
}

pub fn states(plan: &Plan<'_>, dice: &mut Dice) -> Vec<Line> {
    let explorers = ["sampled", "sampled", "sampled", "all-lost", "all-kept"];
    let mut lines = Vec::new();
    for index in 0..plan.states {
        // Violations spread over the states.
        let violated = (index + 1) * plan.violated / plan.states > index * plan.violated / plan.states;
        let loose = if dice.roll(100) < plan.loose_percent { 1 + dice.roll(900) } else { 0 };
        let lost = dice.roll(loose + 1);
        let cut = 4_000 + dice.roll(36_000);
        let recipe = format!("rec=9f31c2 cut={cut} lose={lost}/{loose} atomic=4096 draw={:016x}", dice.roll(u64::MAX));
        let findings = |dice: &mut Dice| {
            let first = dice.roll(plan.kinds.len() as u64 * 2) as usize % plan.kinds.len();
            let more = if plan.kinds[first] == FindingKind::Mounts { 0 } else { dice.roll(3) as usize };
            plan.kinds.iter().skip(first).take(1 + more).map(|&kind| finding(kind, dice)).collect::<Vec<_>>()
        };
        let outcome = if violated { Outcome::Violated { findings: findings(dice) } } else { Outcome::Held };
        lines.push(Line::State(Box::new(State {
            case: plan.case.clone(),
            replay: violated.then(|| format!("powerfail replay --dir nightly/2026-01-05 '{recipe}'")),
            state: recipe,
            image: format!("{:016x}{:016x}", dice.roll(u64::MAX), dice.roll(u64::MAX)),
            explorer: explorers[dice.roll(5) as usize].into(),
            cut,
            loose,
            lost,
            in_flight: dice.roll(4),
            outcome,
            depth: None,
            role: None,
            explanation: None,
            took_ms: 80 + dice.roll(120),
        })));
    }
    lines
}

pub fn recording(case: &Case, planned: u64) -> Line {
    Line::Recording(Box::new(Recording {
        case: case.clone(),
        path: format!("{}-{}/recording", case.fs, case.mode),
        digest: "9f31c2d0a4be77e1".into(),
        events: 40_512,
        writes: 18_201,
        written_bytes: 151_203_840,
        flushes: 1_204,
        fua: if case.mode == "barrier" { 602 } else { 0 },
        trims: 0,
        steps: 2_418,
        first_cut: 3_988,
        last_cut: 40_102,
        planned,
        loose_permille: 914,
        path_keeps: PathKeeps { flush: "native".into(), fua: "as-flush".into(), trim: "not seen".into() },
        took_ms: 4_713,
    }))
}

pub fn timeline(case: &Case, writes: u64, dice: &mut Dice) -> Line {
    let mut shown = Vec::new();
    let mut event = 20_000;
    let mut journal = 0;
    let (mut flushes, mut fua) = (Vec::new(), Vec::new());
    let step = 12_000 / writes.max(1) + 1;
    while (shown.len() as u64) < writes {
        // A burst into the journal, its commit, then some blocks go home.
        for _ in 0..dice.roll(14) + 3 {
            event += 1 + dice.roll(step);
            journal = (journal + 8) % 8192;
            shown.push(TimelineWrite { event, lba: 262_144 + journal, sectors: 8, area: Area::Journal, lost: false });
        }
        event += 1;
        flushes.push(event);
        event += 1;
        fua.push(event);
        for _ in 0..dice.roll(10) {
            event += 1 + dice.roll(step);
            let group = dice.roll(4) * 262_144;
            let sectors = [8, 8, 8, 64, 256][dice.roll(5) as usize];
            let reach = if dice.roll(3) == 0 { 200_000 } else { 3_000 };
            let lba = 2_048 + group + dice.roll(reach);
            shown.push(TimelineWrite { event, lba, sectors, area: Area::Home, lost: false });
        }
    }
    // What came shortly before the cut may be lost.
    let cut = shown[shown.len() * 9 / 10].event;
    for write in shown.iter_mut().filter(|write| write.event + 700 > cut && write.event < cut) {
        write.lost = dice.roll(3) == 0;
    }
    Line::Timeline(Box::new(Timeline {
        case: case.clone(),
        state: format!("rec=9f31c2 cut={cut} lose=61/190 atomic=4096 draw=00c0ffee00c0ffee"),
        cut,
        drive_sectors: 1_048_576,
        first_event: 20_000,
        last_event: event,
        of_writes: shown.len() as u64 * 3,
        writes: shown,
        commits: fua.clone(),
        flushes,
        fua,
    }))
}

/// A matrix of 324 cells and 100,116 states: three file systems with three mkfs each, on four kernels, in nine modes. One
/// in nine cells is violated.
pub fn matrix() -> Contents {
    use FindingKind::{Fsck, Kernel, Mounts, Promises, Walk};
    const KINDS: &[FindingKind] = &[Mounts, Kernel, Walk, Promises, Fsck];
    let modes = [
        "barrier",
        "nobarrier-w0",
        "nobarrier-w1",
        "async-commit",
        "async-commit-w0",
        "async-commit-nobarrier",
        "torn-512",
        "data-journal",
        "fast-commit",
    ];
    let dice = &mut Dice(5);
    let mut lines = Vec::new();
    for fs in ["ext4", "xfs", "btrfs"] {
        for mkfs in ["-b 4096", "-b 1024", "-b 4096 -O ^metadata_csum"] {
            for kernel in ["6.1.192", "6.12.117", "6.18.44", "7.0.1"] {
                for mode in modes {
                    let control = mode.contains("w1") || mode.contains("nobarrier") && !mode.contains("w0");
                    let expectation = if control { Expectation::Unsafe } else { Expectation::Safe };
                    let mut case = case(fs, mkfs, mode, expectation);
                    case.kernel = kernel.into();
                    let violated = if control { 40 + dice.roll(260) } else { 0 };
                    let plan = Plan { case, states: 309, violated, kinds: KINDS, loose_percent: 90, timeline: false };
                    lines.push(recording(&plan.case, 309));
                    lines.extend(states(&plan, dice));
                    lines.push(timeline(&plan.case, 2_400, dice));
                }
            }
        }
    }
    Contents { header: header(), lines, torn_bytes: 0 }
}

/// Fourteen nights of seven cells; one gets worse on the eighth, one better on the eleventh with a new kernel, and one
/// scatters.
pub fn nights() -> Vec<Night> {
    let night = |index: u64| {
        let dice = &mut Dice(100 + index);
        let jitter = |dice: &mut Dice, around: u64| around * (70 + dice.roll(60)) / 100;
        let refusal = || known(&[FindingKind::Mounts], "Ts'o 2009");
        let cells = [
            ("barrier", Expectation::Safe, 0),
            ("nobarrier-w0", Expectation::Safe, 0),
            ("nobarrier-w1", Expectation::Unsafe, jitter(dice, 280)),
            ("async-commit", refusal(), jitter(dice, 9)),
            ("torn-512", refusal(), if index >= 10 { 0 } else { jitter(dice, 24) }),
            ("data-journal", Expectation::Safe, if index >= 7 { jitter(dice, 8) } else { 0 }),
            ("fast-commit", refusal(), [20, 90, 45, 12][index as usize % 4]),
        ];
        let mut lines = Vec::new();
        for (mode, expectation, violated) in cells {
            // A night on which a cell was not tested.
            if (mode, index) == ("torn-512", 4) {
                continue;
            }
            let mut case = case("ext4", "-b 4096 -J size=4", mode, expectation);
            (case.seed, case.kernel) = (index, if index >= 10 { "6.18.45".into() } else { "6.18.44".into() });
            let kinds = &[FindingKind::Mounts];
            lines
                .extend(states(&Plan { case, states: 400, violated, kinds, loose_percent: 90, timeline: false }, dice));
        }
        let started = format!("2026-01-{:02}T02:00:07Z", index + 5);
        let header = Header { started: started.clone(), seed: index, ..header() };
        let tally = Tally::from_ledgers(&[Contents { header, lines, torn_bytes: 0 }]);
        Night { name: format!("2026-01-{:02}", index + 5), started, tally }
    };
    (0..14).map(night).collect()
}

/// A night: ext4 with both kinds of journal checksum in nine modes, and some XFS.
pub fn night() -> Contents {
    use FindingKind::{Fsck, Kernel, Mounts, Promises, Walk};
    let dice = &mut Dice(1);
    let v3 = "-b 4096 -J size=4";
    let v1 = "-b 4096 -J size=4 -O ^metadata_csum";
    let refusal = || known(&[Mounts], "Ts'o 2009; checksum v3 covers the commit block only");
    let all: &[FindingKind] = &[Mounts, Kernel, Walk, Promises, Fsck];
    let plan = |case: Case, states, violated, kinds: &'static [FindingKind]| {
        let w0 = case.mode.contains("w0");
        Plan { timeline: violated > 0, case, states, violated, kinds, loose_percent: if w0 { 55 } else { 92 } }
    };
    let all: &'static [FindingKind] = Box::leak(all.to_vec().into_boxed_slice());
    let mut plans = vec![
        plan(case("ext4", v3, "barrier", Expectation::Safe), 1000, 0, all),
        plan(case("ext4", v3, "nobarrier-w0", Expectation::Safe), 1000, 0, all),
        plan(case("ext4", v3, "nobarrier-w1", Expectation::Unsafe), 1000, 871, all),
        plan(case("ext4", v3, "async-commit", refusal()), 1000, 23, &[Mounts]),
        plan(case("ext4", v3, "async-commit-w0", refusal()), 1000, 4, &[Mounts]),
        plan(case("ext4", v3, "async-commit-nobarrier", Expectation::Unsafe), 1000, 1000, all),
        plan(case("ext4", v3, "torn-512", known(&[Mounts], "superblock spans two sectors")), 1000, 61, &[Mounts]),
        plan(case("ext4", v3, "data-journal", Expectation::Safe), 1000, 0, all),
        plan(
            case("ext4", v3, "fast-commit", known(&[Mounts], "to be understood")),
            1000,
            410,
            &[Mounts, Promises, Fsck],
        ),
        plan(case("ext4", v1, "barrier", Expectation::Safe), 1000, 3, &[Promises, Fsck]),
        plan(case("ext4", v1, "nobarrier-w0", Expectation::Safe), 1000, 0, all),
        plan(case("ext4", v1, "nobarrier-w1", Expectation::Unsafe), 1000, 640, all),
        plan(case("ext4", v1, "async-commit", Expectation::Safe), 1000, 0, all),
        plan(case("ext4", v1, "async-commit-nobarrier", Expectation::Unsafe), 40, 0, all),
        plan(case("ext4", v1, "torn-512", Expectation::Open), 1000, 9, &[Mounts, Kernel, Fsck]),
        plan(case("xfs", "", "barrier", Expectation::Safe), 1000, 0, all),
        plan(case("xfs", "", "nobarrier-w1", Expectation::Unsafe), 1000, 417, &[Mounts, Kernel, Fsck]),
    ];
    plans[10].loose_percent = 12;
    plans[7].violated = 2;
    plans.push(plan(case("xfs", "", "async-commit-nobarrier", Expectation::Unsafe), 1000, 0, all));
    let mut lines = Vec::new();
    for plan in &plans {
        lines.push(recording(&plan.case, plan.states));
        let mut judged = states(plan, dice);
        explain(&mut judged, plan, dice);
        lines.extend(judged);
        if plan.timeline {
            lines.push(timeline(&plan.case, 2_400, dice));
        }
    }
    let skipped = Outcome::Skipped { reason: "the kernel has no data=journal here; boot one with it".into() };
    lines.push(Line::Case(CaseEnd { case: case("ext4", v1, "data-journal", Expectation::Safe), outcome: skipped }));
    let broken = Outcome::Broken { reason: "nbdfuse ended with signal 9 in the middle of the recording".into() };
    lines.push(Line::Case(CaseEnd { case: case("xfs", "", "nobarrier-w0", Expectation::Safe), outcome: broken }));
    for (what, value, unit) in [("states a second", 16.42, "1/s"), ("the whole run", 1071.0, "s")] {
        lines.push(Line::Measured(Measured { what: what.into(), value, unit: unit.into() }));
    }
    Contents { header: header(), lines, torn_bytes: 0 }
}
