//! What the harness may ask of an agent and what it hears back.
//!
//! One JSON object a line: commands on the agent's standard input, events on its standard output. Every command but
//! [`Command::Ack`] is answered by exactly one event, in order. [`Event::Mark`] is the exception in the other
//! direction: during a [`Command::Run`] the agent sends marks unasked, and each waits for its `Ack`.
//!
//! Commands are primitive on purpose: the agent knows no crash states, modes or verdicts, so the same program serves
//! a host rig, a guest and a person with a terminal. What belongs together is composed by the harness.

use std::path::PathBuf;

use powerfail_workloads::{Observation, Spec, Summary};
use serde::{Deserialize, Serialize};

/// What the harness asks.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Command {
    /// Say who you are: [`Event::Hello`].
    Hello,
    /// Make a block device of the source: [`Event::Attached`].
    Attach {
        /// Where the blocks are.
        source: Source,
    },
    /// Run a tool (mkfs, fsck, dumpe2fs, ...) to its end: [`Event::ToolRan`].
    Tool {
        /// The program and its arguments; `{device}` in any of them becomes the attached device's path.
        argv: Vec<String>,
        /// Killed when it has run this long.
        deadline_ms: u64,
    },
    /// Mount the attached device: [`Event::Mounted`], [`Event::Refused`], [`Event::Killed`] or [`Event::Hung`].
    Mount {
        /// As in `/proc/filesystems`.
        fstype: String,
        /// As after `mount -o`: generic flags become flags, everything else goes to the file system. May be empty.
        options: String,
        /// Longest wait for other agents' mounts. Too long is [`Event::Failed`], never a refused mount.
        lock_wait_ms: u64,
        /// Longest time in mount(2); then [`Event::Hung`].
        limit_ms: u64,
    },
    /// Run a workload in the mounted file system: marks, then [`Event::RunDone`] or [`Event::RunFailed`].
    Run {
        /// The workload.
        spec: Box<Spec>,
    },
    /// The mark `id` is in the recording; its worker may go on. Not answered.
    Ack {
        /// As in [`Event::Mark`].
        id: u64,
    },
    /// `syncfs` on the mounted file system: [`Event::Synced`].
    Sync,
    /// List and read everything that is mounted: [`Event::Observed`], [`Event::Killed`] or [`Event::Hung`].
    Observe {
        /// Longest time of the walk.
        limit_ms: u64,
    },
    /// Hand over the kernel's lines on this device since the last event that carried a log: [`Event::KernelLog`].
    KernelLog,
    /// Unmount: [`Event::Unmounted`] or [`Event::UnmountFailed`].
    Unmount,
    /// Give the device back: [`Event::Detached`].
    Detach,
    /// Undo everything and leave: [`Event::Bye`].
    Quit,
}

/// Where the blocks of a device are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// An NBD export: nbdfuse makes a file of it, a loop device with direct I/O makes a disk of the file, so that a
    /// flush of the disk is a flush of the export.
    Nbd {
        /// The server's Unix socket.
        socket: PathBuf,
    },
    /// An NBD export, attached by `nbd-client` to a `/dev/nbdN` of the kernel's own NBD driver: FLUSH, FUA and TRIM arrive
    /// as such.
    NbdClient {
        /// The server, as the machine of the agent reaches it: a name or an address.
        host: String,
        /// Its TCP port.
        port: u16,
        /// The name of the export; the default one is empty.
        export: String,
    },
    /// An image that the agent was handed at its start: a plain loop device, buffered. For honest recovery, where
    /// nobody watches the requests.
    Image {
        /// Which of the images that were handed over, from 0.
        index: usize,
        /// Bytes of it that are the disk.
        size: u64,
        /// The kernel gets a disk that refuses writes.
        read_only: bool,
    },
}

/// What the kernel and the tools said. All of these are facts; whether one is a complaint is for the harness.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Event {
    /// Answers [`Command::Hello`].
    Hello(Hello),
    /// The device is there.
    Attached(Attached),
    /// The tool ended or was ended.
    ToolRan(ToolRan),
    /// The file system is mounted.
    Mounted {
        /// Time in mount(2), microseconds; waiting for other agents' mounts is not in it.
        took_us: u64,
        /// The kernel's lines in that time.
        log: Log,
    },
    /// The kernel would not mount it.
    Refused {
        /// What mount(2) returned.
        errno: i32,
        /// The same in words.
        message: String,
        /// Time in mount(2), microseconds.
        took_us: u64,
        /// The kernel's lines in that time.
        log: Log,
    },
    /// A worker has returned from a step; it waits for [`Command::Ack`].
    Mark {
        /// For the `Ack`; counts from 0 in each run.
        id: u64,
        /// What goes into the recording.
        label: String,
    },
    /// The workload ended by itself.
    RunDone {
        /// What it did.
        summary: Box<Summary>,
        /// The kernel's lines on this device since the last log.
        log: Log,
    },
    /// The workload could not go on.
    RunFailed {
        /// Why.
        message: String,
        /// The kernel's lines on this device since the last log.
        log: Log,
    },
    /// `syncfs` returned success.
    Synced {
        /// Time in syncfs(2), microseconds.
        took_us: u64,
        /// The kernel's lines on this device since the last log.
        log: Log,
    },
    /// What is in the file system.
    Observed {
        /// Everything that was listed and read.
        observation: Box<Observation>,
        /// Time of the walk, microseconds.
        took_us: u64,
        /// The kernel's lines on this device since the last log.
        log: Log,
    },
    /// The kernel killed the thread that was in mount(2) or in the walk: it oopsed. Locks are held for ever; of this
    /// machine only the log is worth anything.
    Killed {
        /// The kernel's lines on this device since the last log, with the oops.
        log: Log,
    },
    /// mount(2) or the walk did not come back in time, and its thread still is in it.
    Hung {
        /// Requests that the disk has had for two seconds in which it answered none. If it owes anything, it is the drive
        /// that hangs.
        owed: u64,
        /// Where in the kernel the thread is, one function a line; empty if the kernel does not say.
        stack: String,
        /// The kernel's lines on this device since the last log.
        log: Log,
    },
    /// Answers [`Command::KernelLog`].
    KernelLog {
        /// The lines.
        log: Log,
    },
    /// The file system is unmounted and nobody else holds the device.
    Unmounted {
        /// Time in umount(2), microseconds.
        took_us: u64,
        /// The kernel's lines on this device since the last log.
        log: Log,
    },
    /// The kernel would not unmount; the file system is still mounted.
    UnmountFailed {
        /// What umount(2) returned.
        errno: i32,
        /// The same in words.
        message: String,
        /// The kernel's lines on this device since the last log.
        log: Log,
    },
    /// The device is gone and its backing can be reused.
    Detached {
        /// Time, microseconds.
        took_us: u64,
        /// Everything that nbdfuse or nbd-client printed, for an NBD source.
        nbdfuse: String,
    },
    /// The agent could not do what it was asked to: a fault of the rig or of the caller, never a verdict.
    Failed(Failure),
    /// Answers [`Command::Quit`], when nothing is left.
    Bye,
}

/// Who the agent is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// `uname -r`.
    pub kernel: String,
    /// Version of the agent; the harness and a guest's initramfs may be of different builds.
    pub agent: String,
    /// Runs in mount and PID namespaces of its own, so that its end takes everything along.
    pub namespaced: bool,
}

/// A device that is there, and what of FLUSH, FUA and TRIM survives the path to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attached {
    /// `/dev/loop3`, `/dev/nbd0`.
    pub device: String,
    /// The name by which the loop device says whose it is, in its status; unique on the machine. Numbers are reused
    /// as soon as they are free, names never. For nbd-client: what is attached.
    pub tag: String,
    /// `queue/write_cache`: "write back" or "write through". With the latter the kernel sends no flush at all.
    pub write_cache: String,
    /// `queue/fua`: whether FUA arrives as FUA (else as a write and a flush).
    pub fua: bool,
    /// `queue/discard_max_bytes`; 0: TRIM never arrives.
    pub discard_max_bytes: u64,
    /// `queue/logical_block_size`, bytes.
    pub logical_block: u32,
    /// Nothing between the device and its backing keeps data of its own, as an NBD source must have it: direct I/O to
    /// the file of nbdfuse, or the kernel's NBD driver, which keeps none.
    pub direct_io: bool,
    /// What nbdfuse or nbd-client has printed so far, for an NBD source.
    pub nbdfuse: String,
    /// Time, microseconds.
    pub took_us: u64,
}

/// A tool's end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolRan {
    /// Exit code; none: a signal ended it.
    pub code: Option<i32>,
    /// The signal.
    pub signal: Option<i32>,
    /// It was killed because its deadline had passed.
    pub timed_out: bool,
    /// Standard output, its first part if it is very long.
    pub stdout: String,
    /// Standard error, likewise.
    pub stderr: String,
    /// Bytes of both that were left out.
    pub left_out: u64,
    /// Time, microseconds.
    pub took_us: u64,
}

/// Lines of the kernel's log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Log {
    /// In the kernel's order.
    pub lines: Vec<LogLine>,
    /// Records that the kernel's ring overwrote before they were read: not zero means that silence proves nothing.
    pub lost: u64,
}

/// One record of the kernel's log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLine {
    /// 0 emergency to 7 debug.
    pub level: u8,
    /// The kernel's sequence number.
    pub seq: u64,
    /// The text as in dmesg.
    pub text: String,
    /// The line names this agent's device. If not, it was taken because of where or what it is (see `attribution`).
    pub names_device: bool,
}

/// Why the agent could not do what it was asked to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{doing}: {reason}")]
pub struct Failure {
    /// The step, e.g. "start nbdfuse".
    pub doing: String,
    /// What went wrong, in words.
    pub reason: String,
    /// The system's error number, if it was the system that refused.
    pub errno: Option<i32>,
}

impl Failure {
    /// A failure that no system call stands behind.
    pub fn new(doing: impl Into<String>, reason: impl Into<String>) -> Failure {
        Failure { doing: doing.into(), reason: reason.into(), errno: None }
    }

    /// A system call failed.
    pub fn io(doing: impl Into<String>, error: impl Into<std::io::Error>) -> Failure {
        let error = error.into();
        Failure { doing: doing.into(), reason: error.to_string(), errno: error.raw_os_error() }
    }
}
