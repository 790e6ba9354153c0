//! Does a second mount find nothing left to recover?

use powerfail_ledger::{Finding, FindingKind};
use powerfail_workloads::Oracle;

use crate::evidence::{Evidence, Mounting};

/// What the kernel says when it recovers something, each time with the device's name.
const RECOVERS: &[&str] = &[
    "recovery complete",
    "recovery required",
    "orphan inode",
    "orphan cleanup",
    "truncate cleaned up",
    // XFS, btrfs
    "Starting recovery",
    "start tree-log replay",
];

pub(super) fn check(evidence: &Evidence, _: &Oracle) -> Vec<Finding> {
    let detail = match &evidence.again {
        Some(Mounting::Mounted { log }) => {
            let recovers = |text: &str| RECOVERS.iter().any(|says| text.contains(says));
            let Some(line) = log.lines.iter().find(|line| recovers(&line.text)) else { return Vec::new() };
            format!("a second mount recovers again; the kernel says: {}", evidence.neutral(&line.text))
        }
        Some(Mounting::Refused { message, .. }) => format!("a second mount is refused ({message})"),
        Some(Mounting::TimedOut { seconds }) => format!("a second mount did not end within {seconds} s"),
        None => return Vec::new(),
    };
    vec![Finding { kind: FindingKind::Quiet, detail }]
}
