//! Is everything there that fsync, fdatasync and rename promised, and nothing that never was?
//!
//! The promises themselves are in the crate of the workloads; here they become findings.

use powerfail_ledger::{Finding, FindingKind};
use powerfail_workloads::Oracle;

use crate::evidence::{Evidence, Walking};

/// How many breaches of one state are named.
const NAMED: usize = 8;

pub(super) fn check(evidence: &Evidence, oracle: &Oracle) -> Vec<Finding> {
    let Some(Walking::Seen { observation, .. }) = &evidence.walk else { return Vec::new() };
    let breaches = oracle.judge(observation);
    let more = breaches.len().saturating_sub(NAMED);
    let mut findings: Vec<_> = breaches
        .into_iter()
        .take(NAMED)
        .map(|breach| Finding { kind: FindingKind::Promises, detail: breach.detail })
        .collect();
    if more > 0 {
        findings.push(Finding { kind: FindingKind::Promises, detail: format!("and {more} more promises are broken") });
    }
    findings
}
