//! An agent's commands as functions, with the answers as types.

use std::path::Path;
use std::time::Duration;

use powerfail_agent::protocol::{Attached, Command, Event, Failure, Log, Source, ToolRan};
use powerfail_workloads::{Observation, Spec, Summary};

use crate::agent::{Agent, LinkError, name};

/// Why there is no answer. By itself never a verdict on a file system; what [`Asked::Stuck`] says may be the ground of one.
#[derive(Debug, thiserror::Error)]
pub enum Asked {
    /// The agent is dead.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The agent lives, but could not do it.
    #[error("the agent could not {0}")]
    Failed(Failure),
    /// The agent lives, but the kernel did not come back from mount(2) or from the walk. Such an agent is to be killed.
    #[error("the agent was to {doing}: {stuck}")]
    Stuck {
        /// The command.
        doing: String,
        /// In which way.
        stuck: Stuck,
    },
}

/// In which way the kernel did not come back.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stuck {
    /// It killed the thread: it oopsed.
    #[error("the kernel killed its thread")]
    Killed {
        /// The kernel's lines, with the oops.
        log: Log,
    },
    /// It is still at it.
    #[error("the kernel did not come back within {} ms, and the disk owes {owed} answers", .limit.as_millis())]
    Hung {
        /// The time that it had.
        limit: Duration,
        /// Answers that the disk owes; if not 0 it is the drive that hangs.
        owed: u64,
        /// Where in the kernel, one function a line; may be empty.
        stack: String,
        /// The kernel's lines.
        log: Log,
    },
}

/// How a mount ended. Too late is not here: a mount that does not return is [`Asked::Stuck`].
#[derive(Clone, Debug)]
pub enum MountOutcome {
    /// It is mounted.
    Mounted {
        /// Microseconds in mount(2).
        took_us: u64,
        /// The kernel's lines in that time.
        log: Log,
    },
    /// The kernel refused.
    Refused {
        /// What mount(2) returned.
        errno: i32,
        /// The same in words.
        message: String,
        /// The kernel's lines in that time.
        log: Log,
    },
}

/// How a workload ended.
#[derive(Clone, Debug)]
pub enum RunOutcome {
    /// By itself; single steps may have failed (see the summary).
    Done {
        /// What it did.
        summary: Box<Summary>,
        /// The kernel's lines on the device.
        log: Log,
    },
    /// It could not go on.
    Failed {
        /// Why.
        message: String,
        /// The kernel's lines on the device.
        log: Log,
    },
}

/// How an unmount ended.
#[derive(Clone, Debug)]
pub enum UnmountOutcome {
    /// It is unmounted, in every namespace.
    Unmounted {
        /// Microseconds in umount(2).
        took_us: u64,
        /// The kernel's lines on the device since the last log.
        log: Log,
    },
    /// The kernel refused; it is still mounted.
    Failed {
        /// What umount(2) returned.
        errno: i32,
        /// The same in words.
        message: String,
        /// The kernel's lines on the device since the last log.
        log: Log,
    },
}

impl Agent {
    /// Attaches an NBD export by its server's Unix socket.
    ///
    /// # Errors
    /// [`Asked`].
    pub fn attach_nbd(&mut self, socket: &Path, limit: Duration) -> Result<Attached, Asked> {
        self.attach(Source::Nbd { socket: socket.to_path_buf() }, limit)
    }

    /// Attaches an NBD export by nbd-client, over TCP. In a guest the host's loopback is [`crate::guest::HOST`].
    ///
    /// # Errors
    /// [`Asked`].
    pub fn attach_nbd_client(
        &mut self,
        host: &str,
        port: u16,
        export: &str,
        limit: Duration,
    ) -> Result<Attached, Asked> {
        self.attach(Source::NbdClient { host: host.to_string(), port, export: export.to_string() }, limit)
    }

    /// Attaches `size` bytes of the image that was handed over as number `index`.
    ///
    /// # Errors
    /// [`Asked`].
    pub fn attach_image(&mut self, index: usize, size: u64, limit: Duration) -> Result<Attached, Asked> {
        self.attach(Source::Image { index, size, read_only: false }, limit)
    }

    /// Attaches a source.
    ///
    /// # Errors
    /// [`Asked`].
    pub fn attach(&mut self, source: Source, limit: Duration) -> Result<Attached, Asked> {
        let command = Command::Attach { source };
        match self.ask(&command, limit)? {
            Event::Attached(attached) => Ok(attached),
            other => self.unexpected(&command, &other),
        }
    }

    /// Runs a tool; `{device}` in an argument is the attached device. The tool is killed after `limit`, the agent
    /// only if that does not help.
    ///
    /// # Errors
    /// [`Asked`]; a tool that fails or is too slow is none.
    pub fn tool<S: AsRef<str>>(&mut self, argv: &[S], limit: Duration) -> Result<ToolRan, Asked> {
        let argv = argv.iter().map(|word| word.as_ref().to_string()).collect();
        let deadline_ms = millis(limit);
        let command = Command::Tool { argv, deadline_ms };
        match self.ask(&command, limit + GRACE)? {
            Event::ToolRan(ran) => Ok(ran),
            other => self.unexpected(&command, &other),
        }
    }

    /// Mounts the attached device. `lock_wait` is the longest wait for other agents' mounts, `limit` is for the mount
    /// itself.
    ///
    /// # Errors
    /// [`Asked`]; a mount that the kernel refuses is none.
    pub fn mount(
        &mut self,
        fstype: &str,
        options: &str,
        lock_wait: Duration,
        limit: Duration,
    ) -> Result<MountOutcome, Asked> {
        let lock_wait_ms = millis(lock_wait);
        let limit_ms = millis(limit);
        let command =
            Command::Mount { fstype: fstype.to_string(), options: options.to_string(), lock_wait_ms, limit_ms };
        match self.ask_the_kernel(&command, lock_wait, limit)? {
            Event::Mounted { took_us, log } => Ok(MountOutcome::Mounted { took_us, log }),
            Event::Refused { errno, message, log, .. } => Ok(MountOutcome::Refused { errno, message, log }),
            other => self.unexpected(&command, &other),
        }
    }

    /// Runs a workload; see [`Agent::run_workload`].
    ///
    /// # Errors
    /// [`Asked`]; a workload that fails is none.
    pub fn run(&mut self, spec: &Spec, limit: Duration, on_mark: impl FnMut(&str)) -> Result<RunOutcome, Asked> {
        match self.run_workload(spec, limit, on_mark)? {
            Event::RunDone { summary, log } => Ok(RunOutcome::Done { summary, log }),
            Event::RunFailed { message, log } => Ok(RunOutcome::Failed { message, log }),
            Event::Failed(failure) => Err(Asked::Failed(failure)),
            other => self.unexpected(&Command::Run { spec: Box::new(spec.clone()) }, &other),
        }
    }

    /// `syncfs`; returns the kernel's lines on the device.
    ///
    /// # Errors
    /// [`Asked`].
    pub fn sync(&mut self, limit: Duration) -> Result<Log, Asked> {
        match self.ask(&Command::Sync, limit)? {
            Event::Synced { log, .. } => Ok(log),
            other => self.unexpected(&Command::Sync, &other),
        }
    }

    /// Lists and reads everything.
    ///
    /// # Errors
    /// [`Asked`]; what can't be read is in the observation.
    pub fn observe(&mut self, limit: Duration) -> Result<(Box<Observation>, Log), Asked> {
        let command = Command::Observe { limit_ms: millis(limit) };
        match self.ask_the_kernel(&command, Duration::ZERO, limit)? {
            Event::Observed { observation, log, .. } => Ok((observation, log)),
            other => self.unexpected(&command, &other),
        }
    }

    /// The kernel's lines on the device since the last log.
    ///
    /// # Errors
    /// [`Asked`].
    pub fn kernel_log(&mut self, limit: Duration) -> Result<Log, Asked> {
        match self.ask(&Command::KernelLog, limit)? {
            Event::KernelLog { log } => Ok(log),
            other => self.unexpected(&Command::KernelLog, &other),
        }
    }

    /// Unmounts.
    ///
    /// # Errors
    /// [`Asked`]; an unmount that the kernel refuses is none.
    pub fn unmount(&mut self, limit: Duration) -> Result<UnmountOutcome, Asked> {
        match self.ask(&Command::Unmount, limit)? {
            Event::Unmounted { took_us, log } => Ok(UnmountOutcome::Unmounted { took_us, log }),
            Event::UnmountFailed { errno, message, log } => Ok(UnmountOutcome::Failed { errno, message, log }),
            other => self.unexpected(&Command::Unmount, &other),
        }
    }

    /// Gives the device back; returns what nbdfuse or nbd-client printed in its life. The image may be changed after that.
    ///
    /// # Errors
    /// [`Asked`].
    pub fn detach(&mut self, limit: Duration) -> Result<String, Asked> {
        match self.ask(&Command::Detach, limit)? {
            Event::Detached { nbdfuse, .. } => Ok(nbdfuse),
            other => self.unexpected(&Command::Detach, &other),
        }
    }

    fn ask(&mut self, command: &Command, limit: Duration) -> Result<Event, Asked> {
        match self.call(command, limit)? {
            Event::Failed(failure) => Err(Asked::Failed(failure)),
            other => Ok(other),
        }
    }

    /// A command that is one call into the kernel, which may not come back. The agent says so by itself; only if it does not
    /// is it killed.
    fn ask_the_kernel(&mut self, command: &Command, before: Duration, limit: Duration) -> Result<Event, Asked> {
        let stuck = match self.ask(command, before + limit + GRACE)? {
            Event::Killed { log } => Stuck::Killed { log },
            Event::Hung { owed, stack, log } => Stuck::Hung { limit, owed, stack, log },
            other => return Ok(other),
        };
        Err(Asked::Stuck { doing: name(command), stuck })
    }

    fn unexpected<T>(&mut self, command: &Command, event: &Event) -> Result<T, Asked> {
        Err(self.nonsense(command, &format!("{event:?}")).into())
    }
}

fn millis(limit: Duration) -> u64 {
    u64::try_from(limit.as_millis()).unwrap_or(u64::MAX)
}

/// Between a deadline that the agent keeps and the end of an agent that does not answer: it looks around before it says
/// that something hangs.
const GRACE: Duration = Duration::from_secs(10);
