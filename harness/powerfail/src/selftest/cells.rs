//! The cells of a selftest: an honest one, the same with each lie told over its recording, and canaries. They run as any
//! others do; what came of them is read from their ledger.

use powerfail_drive::lies::{self, Lie};
use powerfail_ledger::{CaseEnd, Contents, Ending, Expectation, FindingKind, Line, Outcome, State, Trial, TrialKind};
use powerfail_seed::Seed;
use powerfail_workloads::Spec;

use super::Extent;
use crate::cell::Cell;
use crate::config::{CellConfig, Config, DriveConfig, FORMAT, LieConfig};
use crate::exploring::Exploring;
use crate::kernels::Kernel;

/// The honest cell.
pub(super) const HONEST: &str = "honest";
const PLANTED: &str = "canary-violated";
const SKIPPED: &str = "canary-skipped";

/// All cells, the honest one first: the others' recordings are told over its own.
pub(super) fn config(extent: &Extent, seed: u64, rig: &str, kernel: &Kernel, nowhere: &std::path::Path) -> Config {
    let root = Seed(seed).at("selftest", &[]);
    let honest = honest(extent, root, rig, kernel);
    let lying = |name: String, lie: &dyn Lie, states: u64| CellConfig {
        name,
        states,
        expectation: Some(Expectation::Unsafe),
        lie: Some(LieConfig { name: lie.name().into(), over: HONEST.into() }),
        ..honest.clone()
    };
    let mut cells = vec![honest.clone()];
    cells.extend(noticed(extent).map(|lie| lying(of_lie(lie), lie, extent.states)));
    cells.push(lying(PLANTED.into(), lies::PLANTED, 1));
    // A kernel that is not there: whoever asks for it is told what is missing.
    cells.push(CellConfig {
        name: SKIPPED.into(),
        seed: skip_seed(root),
        rig: "guest".into(),
        kernel: Kernel::Own { image: nowhere.join("there-is-no-such-kernel"), modules: None },
        ..honest
    });
    Config { format: FORMAT, seed, cells, shard: None }
}

/// The lies that this file system must notice.
fn noticed(extent: &Extent) -> impl Iterator<Item = &'static dyn Lie> {
    lies::ALL.iter().copied().filter(|lie| extent.lies.contains(&lie.name()))
}

fn of_lie(lie: &dyn Lie) -> String {
    format!("lie-{}", lie.name())
}

fn skip_seed(root: Seed) -> Seed {
    root.at("skip", &[])
}

fn honest(extent: &Extent, seed: Seed, rig: &str, kernel: &Kernel) -> CellConfig {
    let Some(Spec::Mason(mut mason)) = Spec::named("mason") else { unreachable!("it is the first workload") };
    mason.seed = seed;
    if extent.small {
        (mason.workers, mason.files, mason.hog_mib) = (2, 120, 0);
    }
    mason.steps = Some(extent.steps);
    mason.seconds = 60;
    CellConfig {
        name: HONEST.into(),
        fs: "ext4".into(),
        mode: "barrier".into(),
        mkfs_opts: String::new(),
        mount_opts: String::new(),
        drive: DriveConfig { size: 64 << 20, ..DriveConfig::default() },
        workload: Spec::Mason(mason),
        seed,
        states: extent.honest,
        limit_s: None,
        live: false,
        depth: 1,
        exploring: Exploring::default(),
        rig: rig.into(),
        kernel: kernel.clone(),
        expectation: None,
        lie: None,
    }
}

/// What came of the cells.
pub(super) fn trials(config: &Config, extent: &Extent, ledger: &Contents) -> Vec<Trial> {
    let cells = Cell::all(config);
    let honest = &cells[0];
    let witness = format!("{} {} {} on {}", honest.fs.name(), honest.mode.name, honest.spec.name(), honest.rig);
    let trial = |kind, name: &str, (states, ending): (u64, Ending)| Trial {
        kind,
        name: name.into(),
        witness: witness.clone(),
        states,
        ending,
    };
    let of_honest = Seen::of(ledger, HONEST);
    let of_planted = Seen::of(ledger, PLANTED);
    let mut trials = vec![trial(TrialKind::Honest, HONEST, of_honest.nothing())];
    trials.extend(noticed(extent).map(|lie| {
        let seen = Seen::of(ledger, &of_lie(lie));
        trial(TrialKind::Lie, lie.name(), seen.something(None))
    }));
    trials.push(trial(TrialKind::Canary, "held", of_honest.held()));
    trials.push(trial(TrialKind::Canary, "violated", of_planted.something(Some(FindingKind::Mounts))));
    trials.push(trial(TrialKind::Canary, "skipped", (0, skipped(config, ledger))));
    trials
}

/// What each trial is called that [`trials`] would give, where no cell can run.
pub(super) fn not_tried(extent: &Extent, reason: &str) -> Vec<Trial> {
    let trial = |kind, name: &str| Trial {
        kind,
        name: name.into(),
        witness: "ext4 barrier mason".into(),
        states: 0,
        ending: Ending::NotTried { reason: reason.into() },
    };
    let mut trials = vec![trial(TrialKind::Honest, HONEST)];
    trials.extend(noticed(extent).map(|lie| trial(TrialKind::Lie, lie.name())));
    trials.extend(["held", "violated", "skipped", "hangs"].map(|name| trial(TrialKind::Canary, name)));
    trials
}

/// What the ledger says of one cell.
struct Seen<'a> {
    states: Vec<&'a State>,
    end: Option<&'a CaseEnd>,
}

impl<'a> Seen<'a> {
    fn of(ledger: &'a Contents, cell: &str) -> Seen<'a> {
        let path = format!("{cell}/recording");
        let case = ledger.lines.iter().find_map(|line| match line {
            Line::Recording(recording) if recording.path == path => Some(&recording.case),
            _ => None,
        });
        let mut seen = Seen { states: Vec::new(), end: None };
        for line in &ledger.lines {
            match line {
                Line::State(state) if Some(&state.case) == case => seen.states.push(state),
                // Without a recording there is no case to compare with; then whatever broke says why.
                Line::Case(end) if case.map_or(broke(end), |case| *case == end.case) => seen.end = Some(end),
                _ => {}
            }
        }
        seen
    }

    /// Every state must have held.
    fn nothing(&self) -> (u64, Ending) {
        let other = self.states.iter().find(|state| state.outcome != Outcome::Held);
        let ending = match (other, self.states.len()) {
            (Some(state), _) => Ending::Failed { seen: words(&state.outcome) },
            (None, 0) => Ending::Failed { seen: self.unjudged() },
            (None, _) => Ending::Passed { seen: "every state held".into() },
        };
        (self.states.len() as u64, ending)
    }

    /// One state must have held.
    fn held(&self) -> (u64, Ending) {
        match self.states.iter().position(|state| state.outcome == Outcome::Held) {
            Some(at) => (at as u64 + 1, Ending::Passed { seen: "held".into() }),
            None => (self.states.len() as u64, Ending::Failed { seen: self.unjudged() }),
        }
    }

    /// One state must be violated, with a finding of that kind if one is named.
    fn something(&self, kind: Option<FindingKind>) -> (u64, Ending) {
        for (at, state) in self.states.iter().enumerate() {
            let Outcome::Violated { findings } = &state.outcome else { continue };
            if let Some(finding) = findings.iter().find(|finding| kind.is_none_or(|kind| kind == finding.kind)) {
                let seen = format!("{}: {}", finding.kind.name(), finding.detail);
                return (at as u64 + 1, Ending::Passed { seen });
            }
        }
        let seen = match self.states.iter().find(|state| state.outcome != Outcome::Held) {
            Some(state) => words(&state.outcome),
            None if self.states.is_empty() => self.unjudged(),
            None => "every state held".into(),
        };
        (self.states.len() as u64, Ending::Failed { seen })
    }

    fn unjudged(&self) -> String {
        self.end.map_or_else(|| "no state was judged".into(), |end| words(&end.outcome))
    }
}

fn skipped(config: &Config, ledger: &Contents) -> Ending {
    let seed = config.cells.iter().find(|cell| cell.name == SKIPPED).map(|cell| cell.seed.0);
    let end = ledger.lines.iter().find_map(|line| match line {
        Line::Case(end) if Some(end.case.seed) == seed => Some(&end.outcome),
        _ => None,
    });
    match end {
        Some(Outcome::Skipped { reason }) => Ending::Passed { seen: format!("skipped: {reason}") },
        Some(other) => Ending::Failed { seen: words(other) },
        None => Ending::Failed { seen: "it did not end".into() },
    }
}

fn broke(end: &CaseEnd) -> bool {
    matches!(end.outcome, Outcome::Broken { .. })
}

fn words(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Held => "held".into(),
        Outcome::Violated { findings } => match findings.first() {
            Some(finding) => format!("violated: {}: {}", finding.kind.name(), finding.detail),
            None => "violated".into(),
        },
        Outcome::Skipped { reason } => format!("skipped: {reason}"),
        Outcome::Broken { reason } => format!("broken: {reason}"),
    }
}
