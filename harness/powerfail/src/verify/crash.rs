//! Is what the kernel printed a crash of the file system's, or did the machine break by itself?
//!
//! A crash counts against the file system only if it was printed while a call into it was running (the caller sees to
//! that), and one of these holds:
//!
//! - the first line of it names the device of the state: "panic: EXT4-fs (device nbd0): ...";
//! - the instruction that failed (`RIP`) is in the file system or its journal;
//! - a function of theirs is on the stack, and no interrupt is: what an interrupt does it does to whoever was running;
//! - it is a lockup, and the thread that is stuck is the mount's, the walk's or the journal's.
//!
//! A crash that somebody asked for (sysrq, NMI) or that is for lack of memory never counts. Stack entries with a `?` are
//! what happened to lie on the stack; they prove nothing.

/// How a crash begins.
const BEGINS: &[&str] = &[
    "BUG:",
    "kernel BUG at",
    "Oops",
    "general protection fault",
    "Kernel panic",
    "watchdog: BUG:",
    "watchdog: Watchdog detected",
    "INFO: task ",
    "rcu: INFO:",
    "Unable to handle kernel",
    "Internal error:",
];

/// What is nobody's fault but the machine's, or ours.
const FOREIGN: &[&str] = &["sysrq", "NMI", "Out of memory", "out of memory"];

/// Lines that belong to one crash at most.
const LINES: usize = 200;

/// Who is stuck, in the first line of a lockup.
const STUCK: &[&str] = &["[pf-mount:", "[pf-walk:", "[jbd2/", "task pf-mount:", "task pf-walk:", "task jbd2/"];

/// The crash of the file system in these lines, in words that are the same at each try; none if there is none. `device`
/// is the kernel's name of the state's disk, `fs` the file system's.
pub(super) fn find<'a>(lines: impl Iterator<Item = &'a str>, device: &str, fs: &str) -> Option<String> {
    let lines: Vec<&str> = lines.map(without_time).collect();
    let begins = |line: &&str| BEGINS.iter().any(|begin| line.starts_with(begin));
    lines.iter().enumerate().filter(|(_, line)| begins(line)).find_map(|(at, first)| {
        let rest = &lines[at + 1..lines.len().min(at + LINES)];
        let end = rest.iter().position(|line| line.starts_with("---[ end")).unwrap_or(rest.len());
        describe(first, &rest[..end], device, fs)
    })
}

fn describe(first: &str, rest: &[&str], device: &str, fs: &str) -> Option<String> {
    if FOREIGN.iter().any(|word| first.contains(word)) {
        return None;
    }
    let at = rest.iter().filter_map(|line| line.strip_prefix("RIP: 0010:")).find_map(|line| function_of(line, fs));
    let interrupted = rest.iter().any(|line| line.contains("<IRQ>") || line.contains("<NMI>"));
    let on_stack =
        || rest.iter().filter(|line| !interrupted && !line.starts_with("RIP:")).find_map(|l| function_of(l, fs));
    let function = at.or_else(on_stack);
    let stuck = STUCK.iter().any(|who| first.contains(who));
    (names(first, device) || stuck || function.is_some()).then(|| {
        let first = neutral(&if device.is_empty() { first.to_string() } else { first.replace(device, "DEVICE") });
        function.map_or(first.clone(), |function| format!("{first}, in {function}"))
    })
}

/// `[   12.345678] text` and `[   12.345678][    T1] text` as `text`.
fn without_time(line: &str) -> &str {
    let mut rest = line.trim();
    while let Some((inside, after)) = rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        if !inside.trim().trim_start_matches(['T', 'C']).chars().all(|c| c.is_ascii_digit() || c == '.') {
            break;
        }
        rest = after.trim_start();
    }
    rest
}

/// Whether the device is named, and not one whose name only begins so.
fn names(text: &str, device: &str) -> bool {
    !device.is_empty()
        && text
            .match_indices(device)
            .any(|(at, _)| !text[at + device.len()..].starts_with(|c: char| c.is_ascii_digit()))
}

/// The function of a stack's line, if it is the file system's: `ext4_fill_super+0x12/0x345 [ext4]`.
fn function_of<'a>(line: &'a str, fs: &str) -> Option<&'a str> {
    let line = line.trim();
    if line.starts_with('?') {
        return None;
    }
    let (name, offset) = line.split_whitespace().find_map(|word| word.split_once("+0x"))?;
    offset.contains("/0x").then_some(())?;
    let ext: &[&str] = &["ext4", "jbd2", "mbcache"];
    let modules = if fs.starts_with("ext") { ext } else { &[fs] };
    let of = |module: &&str| {
        line.contains(&format!("[{module}]")) || name.trim_start_matches('_').starts_with(&format!("{module}_"))
    };
    modules.iter().any(of).then_some(name)
}

/// Addresses, processors and times differ at each try; the number of a line in a source file does not.
fn neutral(text: &str) -> String {
    let word = |word: &str| {
        if word.contains(".c:") || word.contains(".h:") {
            return word.to_string();
        }
        let (mut out, mut within) = (String::new(), false);
        for c in word.chars() {
            let begins = c.is_ascii_digit() && !out.ends_with(|last: char| last.is_alphabetic());
            if begins && !within {
                out.push('N');
            }
            within = begins || (within && c.is_ascii_hexdigit());
            if !within {
                out.push(c);
            }
        }
        out
    };
    text.split_whitespace().map(word).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Option<String> {
        find(text.lines(), "nbd1", "ext4")
    }

    const OOPS: &str = "\
[    7.100000] EXT4-fs (nbd1): recovery complete
[    7.111111] BUG: kernel NULL pointer dereference, address: 0000000000000028
[    7.111112] CPU: 1 PID: 88 Comm: pf-mount Not tainted 6.1.0
[    7.111113] RIP: 0010:ext4_orphan_cleanup+0x12/0x345 [ext4]
[    7.111114] Call Trace:
[    7.111115]  <TASK>
[    7.111116]  ext4_fill_super+0x2e6b/0x3320 [ext4]
[    7.111117] ---[ end trace 0000000000000000 ]---";

    #[test]
    fn an_oops_in_the_file_system_is_its_own_and_says_the_same_each_time() {
        let said = "BUG: kernel NULL pointer dereference, address: N, in ext4_orphan_cleanup";
        assert_eq!(found(OOPS).as_deref(), Some(said));
        let built_in = OOPS.replace(" [ext4]", "").replace("28\n", "ffee\n").replace("[    7.", "[    9.");
        assert_eq!(found(&built_in).as_deref(), Some(said));
    }

    #[test]
    fn a_panic_that_names_the_device_is_its_own() {
        let panic = "[    3.2] Kernel panic - not syncing: EXT4-fs (device nbd1): panic forced after error";
        let said = "Kernel panic - not syncing: EXT4-fs (device DEVICE): panic forced after error";
        assert_eq!(found(panic).as_deref(), Some(said));
        assert_eq!(found(&panic.replace("nbd1", "nbd12")), None, "another's");
    }

    #[test]
    fn what_somebody_asked_for_is_not() {
        let asked = OOPS.replace(
            "BUG: kernel NULL pointer dereference, address: 0000000000000028",
            "Kernel panic - not syncing: sysrq triggered crash",
        );
        assert_eq!(found(&asked), None);
        let memory = OOPS.replace(
            "BUG: kernel NULL pointer dereference, address: 0000000000000028",
            "Kernel panic - not syncing: Out of memory: compulsory panic_on_oom is enabled",
        );
        assert_eq!(found(&memory), None);
    }

    #[test]
    fn what_an_interrupt_did_on_top_of_it_is_not() {
        let interrupt = OOPS
            .replace("ext4_orphan_cleanup+0x12/0x345 [ext4]", "virtnet_poll+0x1/0x2 [virtio_net]")
            .replace(" <TASK>", " <IRQ>\n net_rx_action+0x1/0x2\n </IRQ>\n <TASK>");
        assert_eq!(found(&interrupt), None);
        let elsewhere =
            interrupt.replace(" <IRQ>", "").replace("ext4_fill_super+0x2e6b/0x3320 [ext4]", "? ext4_x+0x1/0x2");
        assert_eq!(found(&elsewhere), None, "a stale entry proves nothing");
    }

    #[test]
    fn a_lockup_is_whose_thread_is_stuck() {
        let lockup = "[   40.0] watchdog: BUG: soft lockup - CPU#1 stuck for 22s! [pf-mount:99]";
        assert_eq!(found(lockup).as_deref(), Some("watchdog: BUG: soft lockup - CPU#N stuck for Ns! [pf-mount:N]"));
        assert_eq!(found(&lockup.replace("pf-mount", "kworker/1:2")), None);
        let task = "INFO: task jbd2/nbd1-8:77 blocked for more than 120 seconds.";
        assert!(found(task).is_some());
    }

    #[test]
    fn silence_and_ordinary_lines_are_none() {
        assert_eq!(found(""), None);
        assert_eq!(found("EXT4-fs (nbd1): mounted filesystem\nsomething about a BUG: in the middle"), None);
    }
}
