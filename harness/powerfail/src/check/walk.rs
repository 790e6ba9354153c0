//! Can everything be listed and read?

use powerfail_ledger::{Finding, FindingKind};
use powerfail_workloads::Oracle;

use crate::evidence::{Evidence, Walking};

/// How many of the things that can't be read are named.
const NAMED: usize = 3;

pub(super) fn check(evidence: &Evidence, _: &Oracle) -> Vec<Finding> {
    let detail = match &evidence.walk {
        Some(Walking::TimedOut { seconds }) => format!("listing and reading did not end within {seconds} s"),
        Some(Walking::Seen { observation, .. }) if !observation.errors.is_empty() => {
            let errors = &observation.errors;
            let say = |error: &powerfail_workloads::observation::WalkError| {
                format!("{} of /{} fails: {}", error.operation, error.path, error.error)
            };
            let first: Vec<_> = errors.iter().take(NAMED).map(say).collect();
            let more = errors.len().saturating_sub(NAMED);
            let more = if more > 0 { format!(" (and {more} more)") } else { String::new() };
            format!("{}{more}", first.join("; "))
        }
        Some(Walking::Seen { .. }) | None => return Vec::new(),
    };
    vec![Finding { kind: FindingKind::Walk, detail }]
}
