//! What is asked of a file system whose making was cut short.
//!
//! Nothing was promised yet: mke2fs had not ended, or the first mount had not. Such an image need not mount and need not be
//! clean. But whatever is on a disk, a mount of it ends, the kernel stays whole, and fsck ends with an exit code.

use powerfail_ledger::{Finding, FindingKind};

use crate::evidence::{Evidence, Mounting, Walking};

/// What a kernel that is broken says, whatever was on the disk.
const BROKEN: &[&str] =
    &["BUG:", "WARNING:", "Oops", "general protection fault", "blocked for more than", "unable to handle"];

/// Everything that is wrong with such a state.
pub fn unfinished(evidence: &Evidence) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(Mounting::TimedOut { seconds }) = &evidence.recovery {
        let detail = format!("the mount of a file system that was being made did not end within {seconds} s");
        findings.push(Finding { kind: FindingKind::Mounts, detail });
    }
    if let Some(Walking::TimedOut { seconds }) = &evidence.walk {
        let detail = format!("its unmount did not end within {seconds} s");
        findings.push(Finding { kind: FindingKind::Walk, detail });
    }
    if let Some(crash) = &evidence.crash {
        let detail = format!("the kernel crashed in {}: {}", crash.during, crash.what);
        findings.push(Finding { kind: FindingKind::Kernel, detail });
    }
    let lines = evidence.logs().flat_map(|log| &log.lines);
    if let Some(line) = lines.into_iter().find(|line| BROKEN.iter().any(|broken| line.text.contains(broken))) {
        let detail = format!("the kernel says: {}", evidence.neutral(&line.text));
        findings.push(Finding { kind: FindingKind::Kernel, detail });
    }
    if let Some(fsck) = &evidence.fsck {
        let end = match (fsck.ran.timed_out, fsck.ran.signal) {
            (true, _) => Some("did not end within its deadline".to_owned()),
            (false, Some(signal)) => Some(format!("was killed by signal {signal}")),
            (false, None) => None,
        };
        findings.extend(end.map(|end| Finding { kind: FindingKind::Fsck, detail: format!("{} {end}", fsck.command) }));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::Fsck;
    use powerfail_agent::protocol::{Log, LogLine, ToolRan};

    fn refused(text: &str) -> Evidence {
        let line = LogLine { level: 3, seq: 1, text: text.into(), names_device: true };
        let log = Log { lines: vec![line], lost: 0 };
        Evidence { recovery: Some(Mounting::Refused { message: "EINVAL".into(), log }), ..Evidence::default() }
    }

    fn fsck(code: Option<i32>, signal: Option<i32>, timed_out: bool) -> Fsck {
        let (stdout, stderr) = (String::new(), String::new());
        let ran = ToolRan { code, signal, timed_out, stdout, stderr, left_out: 0, took_us: 0 };
        Fsck { command: "e2fsck -fn".into(), said: Vec::new(), ran }
    }

    #[test]
    fn a_refused_mount_is_fine_and_a_broken_kernel_is_not() {
        assert_eq!(unfinished(&refused("EXT4-fs (loop0): VFS: Can't find ext4 filesystem")), []);
        let mut evidence = refused("BUG: kernel NULL pointer dereference");
        assert_eq!(unfinished(&evidence)[0].kind, FindingKind::Kernel);
        evidence.recovery = Some(Mounting::TimedOut { seconds: 60 });
        assert_eq!(unfinished(&evidence)[0].kind, FindingKind::Mounts);
    }

    #[test]
    fn fsck_may_find_anything_and_must_end() {
        for (ran, findings) in [
            (fsck(Some(0), None, false), 0),
            (fsck(Some(8), None, false), 0),
            (fsck(None, Some(11), false), 1),
            (fsck(None, Some(9), true), 1),
        ] {
            let evidence = Evidence { fsck: Some(ran), ..Evidence::default() };
            assert_eq!(unfinished(&evidence).len(), findings, "{evidence:?}");
        }
    }
}
