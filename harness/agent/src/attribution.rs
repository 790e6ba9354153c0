//! Whose is a line of the kernel's log? All rules are here, each with its reason.
//!
//! The log is one for the machine, and other agents, other harnesses and other people's disks write to it at the same
//! time. Nobody clears it; lines are taken by sequence number. A line that is taken wrongly becomes a false finding
//! against a file system, one that is left out wrongly a missed one. The rules, the first that fits decides:
//!
//! 1. Written by a program (facility other than kernel): never ours. `echo > /dev/kmsg` is no kernel complaint.
//! 2. Names our device: ours. File systems and the block layer name it in nearly every line: "EXT4-fs (loop3): ...",
//!    "XFS (loop3): ...", "BTRFS error (device loop3): ...", "I/O error, dev loop3, ...", "... journal on device
//!    loop3-8".
//! 3. Names another block device and is not of an oops: somebody else's, left out.
//! 4. Is of an oops, a warning, a hung task, a stall or its call trace, from the header to the end marker: taken by
//!    everybody who reads it. It names no device; after an oops nothing on this machine is above suspicion.
//! 5. Names no device, and a mount of ours was going on under the machine's mount lock: taken. This is for "JBD2: ..."
//!    ("Invalid checksum recovering data block"), which is what recovery says, and which names nobody. The lock keeps
//!    other agents' recoveries out of the window. Lines of other drivers may slip in here; they are no complaints.
//! 6. Names no device at any other time: left out, for it can't be told whose it is.

use crate::protocol::LogLine;

/// One record as `/dev/kmsg` gave it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// syslog facility; 0 is the kernel.
    pub(crate) facility: u32,
    /// 0 emergency to 7 debug.
    pub(crate) level: u8,
    /// Sequence number.
    pub(crate) seq: u64,
    /// The text of the message.
    pub(crate) text: String,
}

impl Record {
    /// Parses "prefix,seq,usec,flags[,...];text", followed by lines of " KEY=value" that are not used
    /// (Documentation/ABI/testing/dev-kmsg in the kernel's tree).
    pub(crate) fn parse(raw: &str) -> Option<Record> {
        let (head, rest) = raw.split_once(';')?;
        let mut fields = head.split(',');
        let prefix: u32 = fields.next()?.parse().ok()?;
        let seq = fields.next()?.parse().ok()?;
        let text = rest.split('\n').next().unwrap_or_default().to_string();
        Some(Record { facility: prefix >> 3, level: (prefix & 7) as u8, seq, text })
    }
}

/// When a record was written, in the agent's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// Between the start and the end of a mount(2) of ours, under the machine's mount lock.
    OurMount,
    /// At any other time.
    Elsewhen,
}

/// Applies the rules for one device. It has a memory, because an oops is many lines.
#[derive(Debug)]
pub(crate) struct Attribution {
    device: String,
    /// Lines of a trace that may still follow; a bound, for a trace may lack its end marker.
    trace_left: u32,
}

/// An oops with all its registers, modules and several stacks has about this many lines at most.
const TRACE_LINES: u32 = 300;

impl Attribution {
    /// For the device of this kernel name (`loop3`).
    pub(crate) fn new(device: impl Into<String>) -> Attribution {
        Attribution { device: device.into(), trace_left: 0 }
    }

    /// The line, if it is ours to report.
    pub(crate) fn take(&mut self, record: Record, when: When) -> Option<LogLine> {
        if record.facility != 0 {
            return None;
        }
        let named = devices(&record.text);
        let names_device = named.iter().any(|name| *name == self.device);
        let of_trace = self.of_trace(&record.text, !named.is_empty());
        let taken = names_device || of_trace || (named.is_empty() && when == When::OurMount);
        taken.then_some(LogLine { level: record.level, seq: record.seq, text: record.text, names_device })
    }

    /// Whether the line starts, continues or ends something that is general trouble.
    fn of_trace(&mut self, text: &str, names_any: bool) -> bool {
        if is_trouble(text) {
            self.trace_left = TRACE_LINES;
            return true;
        }
        // A line on a device between the lines of a trace is another processor's, unless it says who was running.
        if names_any && !(self.trace_left > 0 && is_who(text)) {
            return false;
        }
        if self.trace_left > 0 {
            self.trace_left = if is_trace_end(text) { 0 } else { self.trace_left - 1 };
            return true;
        }
        is_frame(text)
    }
}

/// What general trouble begins with.
const TROUBLE: &[&str] = &[
    "BUG:",                   // NULL pointers, KASAN, soft lockups, atomic sleeps, bad page state
    "kernel BUG at",          // BUG_ON
    "WARNING:",               // WARN_ON, lockdep
    "------------[ cut here", // the line before either
    "Oops",                   // the fault's own header
    "general protection fault",
    "Internal error:",         // arm64's Oops
    "Unable to handle kernel", // arm64's NULL pointer
    "INFO: task ",             // a task blocked for more than N seconds
    "INFO: rcu",               // a stall
    "rcu: INFO:",
    "INFO: possible", // lockdep
    "watchdog:",      // lockups
    "UBSAN:",
    "KCSAN:",
    "KFENCE:",
    "refcount_t:",
    "list_add corruption",
    "list_del corruption",
    "Kernel panic",
    "page allocation failure", // a file system that can't allocate takes its rarest path
    "Out of memory:",          // the workload's hog was too large; a fact the reader needs
];

fn is_trouble(text: &str) -> bool {
    TROUBLE.iter().any(|start| text.starts_with(start)) || text.contains("page allocation failure")
}

fn is_trace_end(text: &str) -> bool {
    text.starts_with("---[ end trace") || text.trim() == "</TASK>"
}

/// The lines of a trace that name the running task, which may be called after a disk: "Comm: jbd2/loop3-8".
fn is_who(text: &str) -> bool {
    ["CPU:", "task:", "Workqueue:"].iter().any(|start| text.starts_with(start)) || text.contains(" Comm: ")
}

/// A line of a stack: `Call Trace:`, ` <TASK>`, `RIP: 0010:f+0x1/0x2`, ` ? f+0x1/0x2 [ext4]`.
fn is_frame(text: &str) -> bool {
    let line = text.trim_start();
    line.starts_with("Call Trace:")
        || line.starts_with("<TASK>")
        || line.starts_with("RIP:")
        || line.split_whitespace().any(|word| {
            word.split_once("+0x")
                .and_then(|(_, offsets)| offsets.split_once("/0x"))
                .is_some_and(|(at, of)| !at.is_empty() && at.chars().chain(of.chars()).all(|c| c.is_ascii_hexdigit()))
        })
}

/// A line of a dump of stack and registers: it says where the kernel was, with addresses that differ each time, and
/// nothing of what is wrong.
pub fn is_dump(text: &str) -> bool {
    const REGISTERS: &[&str] = &[
        "RAX:",
        "RBX:",
        "RCX:",
        "RDX:",
        "RSI:",
        "RDI:",
        "RBP:",
        "RSP:",
        "R08:",
        "R09:",
        "R10:",
        "R11:",
        "R12:",
        "R13:",
        "R14:",
        "R15:",
        "ORIG_RAX:",
        "EFLAGS:",
        "FS:",
        "CS:",
        "CR2:",
        "DR0:",
        "DR3:",
        "PKRU:",
        "Code:",
        "</TASK>",
    ];
    let line = text.trim_start();
    // XFS shows the first bytes of what it found corrupt: "00000000: 58 41 47 46 ...".
    let hexadecimal = line.split_once(": ").is_some_and(|(place, bytes)| {
        place.len() == 8 && place.chars().all(|c| c.is_ascii_hexdigit()) && bytes.as_bytes().get(2) == Some(&b' ')
    });
    let header = line.is_empty() || line.starts_with("Hardware name:") || line.starts_with("Modules linked in:");
    // btrfs prints the items of a leaf, each after tabs, which /dev/kmsg writes as `\x09`.
    let item = text.starts_with('\t') || text.starts_with("\\x09");
    is_frame(text)
        || is_who(text)
        || header
        || item
        || hexadecimal
        || REGISTERS.iter().any(|register| line.starts_with(register))
}

/// Prefixes of the kernel names of disks, with what follows: digits (`loop3`) or letters (`sda1`).
const DISKS: &[(&str, After)] = &[
    ("loop", After::Digits),
    ("nbd", After::Digits),
    ("ram", After::Digits),
    ("zram", After::Digits),
    ("dm-", After::Digits),
    ("md", After::Digits),
    ("sr", After::Digits),
    ("nullb", After::Digits),
    ("ublkb", After::Digits),
    ("pmem", After::Digits),
    ("nvme", After::Digits),
    ("mmcblk", After::Digits),
    ("rbd", After::Digits),
    ("sd", After::Letters),
    ("vd", After::Letters),
    ("xvd", After::Letters),
    ("hd", After::Letters),
    ("ubd", After::Letters),
];

#[derive(Clone, Copy)]
enum After {
    Digits,
    Letters,
}

/// The disks that a line names, without partitions' and journals' suffixes: `loop3` in "loop3p1" and "loop3-8".
fn devices(text: &str) -> Vec<&str> {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-' || c == '_')).filter_map(disk_of).collect()
}

fn disk_of(word: &str) -> Option<&str> {
    DISKS.iter().find_map(|(prefix, after)| {
        let rest = word.strip_prefix(prefix)?;
        let length = match after {
            After::Digits => rest.bytes().take_while(u8::is_ascii_digit).count(),
            After::Letters => rest.bytes().take_while(u8::is_ascii_lowercase).count(),
        };
        let is_name = match after {
            After::Digits => (1..=6).contains(&length),
            // sda to sdz, sdaa to sdaz: more letters would make disks of "vdso" and "sdhci".
            After::Letters => length == 1 || (length == 2 && rest.starts_with('a')),
        };
        let suffix = &rest[length..];
        let fits = is_name && is_suffix(suffix, *after);
        fits.then(|| &word[..prefix.len() + length])
    })
}

/// What may follow a disk's name: nothing, a partition (`p1`, `n1`, `n1p2`, or digits after letters), a journal (`-8`).
fn is_suffix(suffix: &str, after: After) -> bool {
    let digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    let partition = match after {
        After::Digits => {
            let rest = suffix.trim_start_matches(['n', 'p', '-']);
            suffix.is_empty() || digits(rest) || rest.split_once('p').is_some_and(|(a, b)| digits(a) && digits(b))
        }
        After::Letters => suffix.is_empty() || digits(suffix),
    };
    partition || suffix.strip_prefix('-').is_some_and(digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(text: &str) -> Record {
        Record { facility: 0, level: 4, seq: 1, text: text.to_string() }
    }

    fn taken(text: &str, when: When) -> Option<bool> {
        Attribution::new("loop3").take(kernel(text), when).map(|line| line.names_device)
    }

    #[test]
    fn dumps_are_told_from_what_is_said() {
        let dump = [
            "Call Trace:",
            "RIP: 0033:0x5600604c5b55",
            "RDX: 00007ffec3305c70 RSI: 00007ffec3305ee0 RDI: 00007ffec3305de0",
            " ? xlog_valid_rec_header+0xee/0x180",
            "Code: cc cc 50 48",
            " </TASK>",
        ];
        assert!(dump.iter().all(|line| is_dump(line)));
        assert!(is_dump("00000000: fe ed ba be 00 00"));
        assert!(is_dump("CPU: 1 UID: 0 PID: 77 Comm: pf-mount Not tainted 6.18.44 #1") && is_dump(""));
        assert!(is_dump("\titem 307 key (265 DIR_LOG_INDEX 105) itemoff 10981 itemsize 8"));
        let said = ["XFS (loop0): Metadata corruption detected at xlog_recover, 5", "deadbeef: not a dump"];
        assert!(!said.iter().any(|line| is_dump(line)));
    }

    #[test]
    fn lines_that_name_our_device_are_ours_at_any_time() {
        for text in [
            "EXT4-fs (loop3): mounted filesystem 0f with ordered data mode. Quota mode: none.",
            "EXT4-fs error (device loop3): ext4_lookup:1857: inode #2: comm cat: deleted inode",
            "EXT4-fs error (device loop3) in ext4_reserve_inode_write:6137: Journal has aborted",
            "XFS (loop3): Metadata corruption detected",
            "BTRFS error (device loop3 state EA): parent transid verify failed",
            "BTRFS: device fsid 3b devid 1 transid 6 /dev/loop3 (7:3) scanned by mount (1)",
            "Buffer I/O error on dev loop3, logical block 1, lost async page write",
            "I/O error, dev loop3, sector 80 op 0x1:(WRITE) flags 0x800 phys_seg 1 prio class 2",
            "Aborting journal on device loop3-8.",
            "JBD2: Error -5 detected when updating journal superblock for loop3-8.",
            "loop3: detected capacity change from 0 to 524288",
            " loop3: p1 p2",
            "loop3p1: something",
        ] {
            assert_eq!(taken(text, When::Elsewhen), Some(true), "{text}");
            assert_eq!(taken(text, When::OurMount), Some(true), "{text}");
        }
    }

    #[test]
    fn lines_that_name_another_device_are_never_ours() {
        for text in [
            "EXT4-fs (loop30): mounted filesystem",
            "EXT4-fs (loop1): mounted filesystem",
            "Aborting journal on device loop13-8.",
            "XFS (sda1): Ending clean mount",
            "XFS (nvme0n1p2): Ending clean mount",
            "EXT4-fs (dm-3): re-mounted",
            "EXT4-fs (vda): error",
            "block nbd0: Connection timed out",
            "XFS (loop0): Log I/O Error (0x6) detected at xfs_fs_goingdown+0x63/0xb0 (fs/xfs/xfs_fsops.c:475).",
        ] {
            assert_eq!(taken(text, When::OurMount), None, "{text}");
            assert_eq!(taken(text, When::Elsewhen), None, "{text}");
        }
    }

    #[test]
    fn lines_without_a_device_belong_to_the_mount_that_holds_the_lock() {
        for text in [
            "JBD2: Invalid checksum recovering data block 1234 in journal",
            "JBD2: recovery failed",
            "JBD2: Find incomplete commit block in transaction 5 at block 1",
            "BTRFS: selftest failed",
        ] {
            assert_eq!(taken(text, When::OurMount), Some(false), "{text}");
            assert_eq!(taken(text, When::Elsewhen), None, "{text}");
        }
    }

    #[test]
    fn programs_do_not_speak_for_the_kernel() {
        let record = Record { facility: 1, ..kernel("BUG: written by hand, loop3") };
        assert_eq!(Attribution::new("loop3").take(record, When::OurMount), None);
    }

    #[test]
    fn an_oops_is_taken_whole_and_nothing_after_it() {
        let mut rules = Attribution::new("loop3");
        let oops = [
            "------------[ cut here ]------------",
            "kernel BUG at fs/jbd2/commit.c:33!",
            "Oops: invalid opcode: 0000 [#1] SMP",
            "CPU: 1 UID: 0 PID: 77 Comm: jbd2/loop0-8",
            "RIP: 0010:jbd2_journal_commit_transaction+0x1/0x2 [jbd2]",
            "Code: 00 01",
            "Call Trace:",
            " <TASK>",
            " ? kjournald2+0xa5/0x260",
            "---[ end trace 0000000000000000 ]---",
        ];
        for text in oops {
            assert!(rules.take(kernel(text), When::Elsewhen).is_some(), "{text}");
        }
        assert!(rules.take(kernel("audit: type=1400"), When::Elsewhen).is_none());
    }

    #[test]
    fn a_hung_task_is_taken_up_to_its_stack() {
        let mut rules = Attribution::new("loop3");
        for text in [
            "INFO: task fsync:77 blocked for more than 120 seconds.",
            "      Not tainted 6.18.0 #1",
            "\"echo 0 > /proc/sys/kernel/hung_task_timeout_secs\" disables this message.",
            "task:fsync state:D stack:0 pid:77",
            "Call Trace:",
            " <TASK>",
            " __schedule+0x1/0x2",
            " </TASK>",
        ] {
            assert!(rules.take(kernel(text), When::Elsewhen).is_some(), "{text}");
        }
        assert!(rules.take(kernel("IPv6: ADDRCONF"), When::Elsewhen).is_none());
    }

    #[test]
    fn words_that_only_look_like_disks_are_none() {
        for text in ["sdhci: x", "loopback: y", "vdso: z", "the sd card", "md5sum", "JBD2: no", "hdmi", "ramdisk"] {
            assert!(devices(text).is_empty(), "{text}: {:?}", devices(text));
        }
    }

    #[test]
    fn records_are_parsed_as_the_kernel_documents_them() {
        let raw = "4,339,5140900,-;EXT4-fs (loop3): x; y\n SUBSYSTEM=block\n DEVICE=b7:3\n";
        let record = Record::parse(raw).unwrap();
        assert_eq!(record, Record { facility: 0, level: 4, seq: 339, text: "EXT4-fs (loop3): x; y".into() });
        assert_eq!(Record::parse("12,1,1,c,caller=T9;by hand").unwrap().facility, 1);
        assert_eq!(Record::parse("garbage"), None);
    }
}
