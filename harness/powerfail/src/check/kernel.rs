//! Did the kernel complain, about this very device, from the mount to the unmount?
//!
//! What counts as a complaint is decided here and nowhere else: every line of level "warning" or worse that is not in
//! [`BENIGN`], and every line that says one of [`ALWAYS`], whatever its level. So a line that nobody has thought of is
//! a finding until somebody writes down why it is none.

use powerfail_agent::is_dump;
use powerfail_agent::protocol::LogLine;
use powerfail_ledger::{Finding, FindingKind};
use powerfail_workloads::Oracle;

use crate::evidence::{Evidence, Mounting};

/// Level "warning" of `syslog(2)`.
const WARNING: u8 = 4;

/// Lines that are information, each with its reason.
pub const BENIGN: &[(&str, &str)] = &[
    ("mounted filesystem", "the line of a mount that succeeded"),
    ("unmounting filesystem", "the line of an unmount"),
    ("recovery complete", "a journal was replayed, which is what a power cut asks for"),
    ("orphan inode", "files that were unlinked while open, or truncated, are finished after a cut by design"),
    ("orphan cleanup", "the same"),
    ("JBD2: Find incomplete commit block in transaction", "the last commit was torn and is rightly taken as absent"),
    (
        "callbacks suppressed",
        "counts what was suppressed some time before, for any device; what is said now follows it",
    ),
    ("detected capacity change", "the loop device was set up"),
];

/// What is a complaint at any level.
pub const ALWAYS: &[(&str, &str)] = &[
    ("EXT4-fs error", "the file system found itself inconsistent"),
    ("Aborting journal", "the journal was given up"),
    ("Remounting filesystem read-only", "the file system was given up"),
    ("I/O error", "the device failed, or the file system asked for what is not there"),
    ("BUG:", "a bug of the kernel"),
    ("WARNING:", "an assertion of the kernel"),
    ("Oops", "a bug of the kernel"),
    ("blocked for more than", "a hung task"),
    ("orruption", "some code saw corruption"),
];

pub(super) fn check(evidence: &Evidence, _: &Oracle) -> Vec<Finding> {
    let crash = evidence.crash.as_ref().map(|crash| Finding {
        kind: FindingKind::Kernel,
        detail: format!("the kernel crashed in {}: {}", crash.during, crash.what),
    });
    crash.into_iter().chain(complaint(evidence)).collect()
}

fn complaint(evidence: &Evidence) -> Option<Finding> {
    // What is said during a refused mount belongs to that finding.
    let refused = matches!(evidence.recovery, Some(Mounting::Refused { .. }));
    let logs = evidence.logs().skip(usize::from(refused));
    let complaints: Vec<_> = logs
        .flat_map(|log| &log.lines)
        .filter(|line| complains(line) && !is_dump(&line.text))
        .map(|line| evidence.neutral(&line.text))
        .collect();
    let first = complaints.first()?;
    let more = match complaints.len() {
        1 => String::new(),
        count => format!(" (and {} lines more: {})", count - 1, complaints[1..].join(" | ")),
    };
    Some(Finding { kind: FindingKind::Kernel, detail: format!("the kernel says: {first}{more}") })
}

/// Whether a line is a complaint.
pub fn complains(line: &LogLine) -> bool {
    let says = |list: &[(&str, &str)]| list.iter().any(|(text, _)| line.text.contains(text));
    says(ALWAYS) || (line.level <= WARNING && !says(BENIGN))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(level: u8, text: &str) -> LogLine {
        LogLine { level, seq: 1, text: text.into(), names_device: true }
    }

    #[test]
    fn only_what_is_written_down_is_harmless() {
        for (text, level, complaint) in [
            ("EXT4-fs (loop0): mounted filesystem 1 r/w with ordered data mode.", 6, false),
            ("JBD2: Find incomplete commit block in transaction 12 block 30", 3, false),
            ("EXT4-fs (loop0): 2 orphan inodes deleted", 6, false),
            ("EXT4-fs (loop0): something nobody has seen", 4, true),
            ("EXT4-fs (loop0): something nobody has seen", 6, false),
            ("EXT4-fs error (device loop0): ext4_lookup:1777: inode #12: deleted inode referenced: 77", 2, true),
            ("Buffer I/O error on dev loop0, logical block 0, lost sync page write", 6, true),
        ] {
            assert_eq!(complains(&line(level, text)), complaint, "{text}");
        }
    }
}
