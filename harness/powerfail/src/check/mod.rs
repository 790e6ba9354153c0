//! The checks: one question each, put to the evidence of one state. A new check is one file and one line here.

mod fsck;
pub mod kernel;
mod mounts;
mod promises;
mod quiet;
mod unfinished;
mod walk;

use powerfail_ledger::Finding;
use powerfail_workloads::Oracle;

use crate::evidence::Evidence;

pub use unfinished::unfinished;

/// A check.
type Check = fn(&Evidence, &Oracle) -> Vec<Finding>;

/// All of them, in the order in which their findings are reported.
const CHECKS: &[Check] = &[mounts::check, kernel::check, walk::check, promises::check, fsck::check, quiet::check];

/// Longest text of one finding, in bytes: enough for what a person reads, while a ledger of many stays small.
const MAX_DETAIL: usize = 1200;

/// Everything that is wrong with a state. `oracle` has been told the marks before the cut.
pub fn findings(evidence: &Evidence, oracle: &Oracle) -> Vec<Finding> {
    let mut findings: Vec<Finding> = CHECKS.iter().flat_map(|check| check(evidence, oracle)).collect();
    for finding in &mut findings {
        shorten(&mut finding.detail);
    }
    findings
}

fn shorten(detail: &mut String) {
    if detail.len() > MAX_DETAIL {
        let mut end = MAX_DETAIL;
        while !detail.is_char_boundary(end) {
            end -= 1;
        }
        let more = detail.len() - end;
        detail.truncate(end);
        detail.push_str(&format!(" … ({more} bytes more)"));
    }
}
