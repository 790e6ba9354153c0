//! What was seen of one crash state: the answers of kernel, walk and fsck, without any opinion.
//!
//! Checks are functions of this value alone, so a verdict can be worked out again, and tested, without a kernel.

use powerfail_agent::is_dump;
use powerfail_agent::protocol::{Log, ToolRan};
use powerfail_workloads::Observation;

use crate::filesystems::FileSystem;

/// All that was seen, as far as it went: after a refused mount there is nothing to walk.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    /// The kernel's name of the device, such as `loop3`; another at each try.
    pub device: String,
    /// The first mount, which recovers.
    pub recovery: Option<Mounting>,
    /// The walk.
    pub walk: Option<Walking>,
    /// The kernel's lines from the unmount.
    pub unmount: Option<Log>,
    /// fsck after it.
    pub fsck: Option<Fsck>,
    /// The second mount, which must have nothing to recover.
    pub again: Option<Mounting>,
    /// The kernel crashed in a call into the file system.
    pub crash: Option<Crash>,
    /// What is known of a call that did not come back.
    pub stopped: Stopped,
}

/// A crash of the kernel that is the file system's.
#[derive(Clone, Debug)]
pub struct Crash {
    /// In which call.
    pub during: &'static str,
    /// Its first line and its place, without what differs at each try.
    pub what: String,
}

/// What is known of a call into the kernel that did not come back; for people, no check looks at it.
#[derive(Clone, Debug, Default)]
pub struct Stopped {
    /// The kernel's lines since the call began.
    pub log: Option<Log>,
    /// Where in the kernel it was.
    pub stack: String,
    /// What the guest had printed on its console.
    pub console: Option<String>,
}

/// What fsck said.
#[derive(Clone, Debug)]
pub struct Fsck {
    /// The command, without the device.
    pub command: String,
    /// What it said of this very file system, line by line; the names of passes and the like are left out.
    pub said: Vec<String>,
    /// How it ended, with all that it said.
    pub ran: ToolRan,
}

impl Fsck {
    /// What a file system's check said.
    pub fn of(fs: &dyn FileSystem, ran: ToolRan) -> Fsck {
        let words: Vec<_> = fs.fsck().iter().filter(|word| **word != "{device}").copied().collect();
        let lines = ran.stdout.lines().chain(ran.stderr.lines()).map(str::trim);
        let said = lines.filter(|line| !line.is_empty() && !fs.fsck_chats(line)).map(String::from).collect();
        Fsck { command: words.join(" "), said, ran }
    }
}

/// How a mount went.
#[derive(Clone, Debug)]
pub enum Mounting {
    /// It is mounted.
    Mounted {
        /// The kernel's lines.
        log: Log,
    },
    /// The kernel refused.
    Refused {
        /// In words.
        message: String,
        /// The kernel's lines.
        log: Log,
    },
    /// It did not end.
    TimedOut {
        /// After so many seconds.
        seconds: u64,
    },
}

/// How the walk went.
#[derive(Clone, Debug)]
pub enum Walking {
    /// It came to its end.
    Seen {
        /// What is there, and what could not be read.
        observation: Box<Observation>,
        /// The kernel's lines.
        log: Log,
    },
    /// It did not end.
    TimedOut {
        /// After so many seconds.
        seconds: u64,
    },
}

impl Evidence {
    /// Every log that was taken, in order.
    pub fn logs(&self) -> impl Iterator<Item = &Log> {
        let walk = match &self.walk {
            Some(Walking::Seen { log, .. }) => Some(log),
            Some(Walking::TimedOut { .. }) | None => None,
        };
        let first = self.recovery.as_ref().and_then(Mounting::log);
        let again = self.again.as_ref().and_then(Mounting::log);
        [first, walk, self.unmount.as_ref(), again].into_iter().flatten()
    }

    /// Whether some line names no device: it is taken for ours because of when it came. Dumps belong to a line that does.
    pub fn has_nameless_lines(&self) -> bool {
        self.logs().flat_map(|log| &log.lines).any(|line| !line.names_device && !is_dump(&line.text))
    }

    /// The same without those lines.
    #[must_use]
    pub fn without_nameless_lines(&self) -> Evidence {
        let mut evidence = self.clone();
        let walk = match &mut evidence.walk {
            Some(Walking::Seen { log, .. }) => Some(log),
            Some(Walking::TimedOut { .. }) | None => None,
        };
        let mounts = [&mut evidence.recovery, &mut evidence.again].into_iter().flatten().filter_map(Mounting::log_mut);
        for log in mounts.chain(walk).chain(&mut evidence.unmount) {
            log.lines.retain(|line| line.names_device);
        }
        evidence
    }

    /// A line of the kernel's without the device's number, so that two tries of one state say the same.
    pub fn neutral(&self, text: &str) -> String {
        if self.device.is_empty() { text.to_owned() } else { text.replace(&self.device, "DEVICE") }
    }
}

impl Mounting {
    /// The kernel's lines, if the mount ended.
    pub fn log(&self) -> Option<&Log> {
        match self {
            Mounting::Mounted { log } | Mounting::Refused { log, .. } => Some(log),
            Mounting::TimedOut { .. } => None,
        }
    }

    fn log_mut(&mut self) -> Option<&mut Log> {
        match self {
            Mounting::Mounted { log } | Mounting::Refused { log, .. } => Some(log),
            Mounting::TimedOut { .. } => None,
        }
    }
}
