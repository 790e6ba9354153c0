//! A selftest in words.

use powerfail_ledger::{Ending, Selftest, Trial, TrialKind};

use crate::tally::Run;
use crate::text::{count, listed};

/// That many failures are named; of more it is said how many.
const NAMED: usize = 3;

/// What failed in the selftests of these runs, in one sentence; none if nothing did.
pub fn failure(runs: &[Run]) -> Option<String> {
    let selftests = runs.iter().filter_map(|run| run.selftest.as_ref());
    let mut failures: Vec<String> = selftests.flat_map(Selftest::failures).map(name).collect();
    failures.sort();
    failures.dedup();
    if failures.len() > NAMED {
        let more = failures.split_off(NAMED).len();
        failures.push(format!("{more} more"));
    }
    (!failures.is_empty()).then(|| format!("the selftest failed, so a pass says nothing: {}", listed(&failures)))
}

fn name(trial: &Trial) -> String {
    let what = match trial.kind {
        TrialKind::Honest => "the honest drive was accused".to_owned(),
        TrialKind::Lie => format!("the lie {} was not caught", trial.name),
        TrialKind::Canary => format!("the canary {} ended otherwise", trial.name),
    };
    format!("{what} by {}", trial.witness)
}

/// The trials as a table for a terminal, one a line.
pub fn table(selftest: &Selftest) -> String {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::NOTHING).set_header(["drive", "witness", "states", "", "seen"]);
    for trial in &selftest.trials {
        let name = match trial.kind {
            TrialKind::Honest | TrialKind::Lie => trial.name.clone(),
            TrialKind::Canary => format!("canary: {}", trial.name),
        };
        let (sign, said) = match &trial.ending {
            Ending::Passed { seen } => ("✓", seen),
            Ending::Failed { seen } => ("×", seen),
            Ending::NotTried { reason } => ("–", reason),
        };
        table.add_row([&name, &trial.witness, &count(trial.states), sign, said]);
    }
    table.trim_fmt() + "\n"
}

#[cfg(test)]
mod tests {
    use powerfail_ledger::{Header, SCHEMA};

    use super::*;

    fn run(trials: Vec<Trial>) -> Run {
        let header = Header {
            schema: SCHEMA,
            tool: "powerfail test".into(),
            seed: 1,
            command: "powerfail run".into(),
            started: "2026-01-01T00:00:00Z".into(),
            machine: "a test".into(),
            shard: None,
        };
        Run { header, measured: Vec::new(), selftest: Some(Selftest { trials, took_ms: 1 }), torn_bytes: 0 }
    }

    fn lie(name: &str, ending: Ending) -> Trial {
        Trial { kind: TrialKind::Lie, name: name.into(), witness: "raw NBD client".into(), states: 9, ending }
    }

    #[test]
    fn only_what_failed_is_named_and_no_more_than_three_of_it() {
        let passed = || Ending::Passed { seen: "a block that was flushed is gone".into() };
        let failed = || Ending::Failed { seen: "no promise was broken".into() };
        let missing = || Ending::NotTried { reason: "no rig".into() };
        assert_eq!(failure(&[run(vec![lie("a", passed()), lie("b", missing())])]), None);
        let one = failure(&[run(vec![lie("a", passed()), lie("b", failed())])]).unwrap();
        assert_eq!(one, "the selftest failed, so a pass says nothing: the lie b was not caught by raw NBD client");
        let many = failure(&[run(["a", "b", "c", "d", "e"].map(|name| lie(name, failed())).into())]).unwrap();
        assert!(many.ends_with("the lie c was not caught by raw NBD client and 2 more"), "{many}");
        let table = table(run(vec![lie("a", failed())]).selftest.as_ref().unwrap());
        assert!(table.contains("no promise was broken"), "{table}");
    }
}
