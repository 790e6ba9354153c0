//! Does the kernel's recovery succeed, within its deadline?

use powerfail_agent::is_dump;
use powerfail_ledger::{Finding, FindingKind};
use powerfail_workloads::Oracle;

use crate::evidence::{Evidence, Mounting};

pub(super) fn check(evidence: &Evidence, _: &Oracle) -> Vec<Finding> {
    let detail = match &evidence.recovery {
        Some(Mounting::Refused { message, log }) => {
            let said: Vec<_> =
                log.lines.iter().filter(|line| !is_dump(&line.text)).map(|line| evidence.neutral(&line.text)).collect();
            let said = if said.is_empty() { "nothing".into() } else { said.join(" | ") };
            format!("the mount is refused ({message}); the kernel says: {said}")
        }
        Some(Mounting::TimedOut { seconds }) => format!("recovery did not end within {seconds} s"),
        Some(Mounting::Mounted { .. }) | None => return Vec::new(),
    };
    vec![Finding { kind: FindingKind::Mounts, detail }]
}
