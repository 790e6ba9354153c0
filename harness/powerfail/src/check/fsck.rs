//! Is `e2fsck -fn` clean after the unmount?

use powerfail_ledger::{Finding, FindingKind};
use powerfail_workloads::Oracle;

use crate::evidence::Evidence;

/// How many lines of what it says are given.
const LINES: usize = 8;

pub(super) fn check(evidence: &Evidence, _: &Oracle) -> Vec<Finding> {
    let Some(ran) = &evidence.fsck else { return Vec::new() };
    let end = match (ran.code, ran.signal) {
        (Some(0), _) => return Vec::new(),
        _ if ran.timed_out => "did not end within its deadline".into(),
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => "ended strangely".into(),
    };
    // The banner and the names of the passes say nothing about this file system.
    let dull = |line: &&str| !line.is_empty() && !line.starts_with("Pass ") && !line.starts_with("e2fsck ");
    let lines: Vec<&str> = ran.stdout.lines().chain(ran.stderr.lines()).map(str::trim).filter(dull).collect();
    let more = lines.len().saturating_sub(LINES);
    let more = if more > 0 { format!(" (and {more} lines more)") } else { String::new() };
    let said = lines.iter().take(LINES).map(|line| evidence.neutral(line)).collect::<Vec<_>>().join(" | ");
    vec![Finding { kind: FindingKind::Fsck, detail: format!("e2fsck -fn is not clean ({end}): {said}{more}") }]
}
