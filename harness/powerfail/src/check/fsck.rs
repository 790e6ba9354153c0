//! Is the file system's own check clean after the unmount?

use powerfail_ledger::{Finding, FindingKind};
use powerfail_workloads::Oracle;

use crate::evidence::Evidence;

/// How many lines of what it says are given.
const LINES: usize = 8;

pub(super) fn check(evidence: &Evidence, _: &Oracle) -> Vec<Finding> {
    let Some(fsck) = &evidence.fsck else { return Vec::new() };
    let end = match (fsck.ran.code, fsck.ran.signal) {
        (Some(0), _) => return Vec::new(),
        _ if fsck.ran.timed_out => "did not end within its deadline".into(),
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => "ended strangely".into(),
    };
    let more = fsck.said.len().saturating_sub(LINES);
    let more = if more > 0 { format!(" (and {more} lines more)") } else { String::new() };
    let said = fsck.said.iter().take(LINES).map(|line| evidence.neutral(line)).collect::<Vec<_>>().join(" | ");
    vec![Finding { kind: FindingKind::Fsck, detail: format!("{} is not clean ({end}): {said}{more}", fsck.command) }]
}
