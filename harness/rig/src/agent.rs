//! An agent, on this machine or in a guest: starting it, talking to it within deadlines, and its certain end.
//!
//! What must hold: whatever happens to the harness, even `kill -9`, two seconds later there is no process, mount, loop
//! device or QEMU of an agent. The agent's own program sees to that (`powerfail_agent`'s `leash`): it watches its
//! standard input, of which this side holds the only other end. Nothing here needs to run for it.
//!
//! After any [`LinkError`] the agent is dead; its device may have been cut off in the middle of anything.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command as Process, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use powerfail_agent::attach::loop_device;
use powerfail_agent::leash;
use powerfail_agent::protocol::{Attached, Command, Event, Hello};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::console::Console;
use crate::line::{Lines, NoLine};

/// What an agent is started with.
#[derive(Clone, Debug)]
pub struct AgentSetup<'a> {
    /// The program: `powerfail-agent`, or the harness's own.
    pub program: PathBuf,
    /// Arguments before the agent's own, e.g. `agent`.
    pub arguments: Vec<OsString>,
    /// An empty folder that the agent covers with a tmpfs; agents may share one.
    pub folder: PathBuf,
    /// Images that the agent may attach, e.g. memfds. They need to stay open only until `spawn` returns.
    pub images: Vec<BorrowedFd<'a>>,
}

/// Why an agent is no longer there.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// It could not be started.
    #[error("start the agent: {0}")]
    Start(#[source] io::Error),
    /// It ended by itself, or somebody killed it.
    #[error("the agent died while it was to {doing}: {said}")]
    Died {
        /// The command.
        doing: String,
        /// What it wrote to its standard error, the last part; of a guest, what was on its console.
        said: String,
    },
    /// It did not answer in time and was killed.
    #[error("the agent was to {doing}, but did not answer within {} ms and was killed: {said}", .limit.as_millis())]
    Deadline {
        /// The command.
        doing: String,
        /// The time that it had.
        limit: Duration,
        /// As in [`LinkError::Died`].
        said: String,
    },
    /// It answered something that no agent of this version answers, and was killed.
    #[error("the agent was to {doing} and answered nonsense: {answer}")]
    Protocol {
        /// The command.
        doing: String,
        /// The answer, shortened.
        answer: String,
    },
}

/// What a killed agent's devices did not give back in time. A rig that leaves this behind is not to be used further.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("after the agent's end: {0}")]
pub struct Leftover(pub String);

/// A running agent. Dropping it kills it and waits, within bounds.
#[derive(Debug)]
pub struct Agent {
    child: Child,
    ended: OwnedFd,
    commands: Option<ChildStdin>,
    events: Lines,
    said: Said,
    hello: Hello,
    attached: Option<Attached>,
    /// What [`Agent::printed`] was when [`Agent::printed_anew`] was last asked, or when the guest had booted.
    printed: u64,
    ended_clean: Option<Result<(), Leftover>>,
}

/// Where an agent's last words are.
#[derive(Debug)]
enum Said {
    /// Its standard error, a memory file.
    File(File),
    /// A guest's console, and how to end the guest.
    Console(Console, Option<PowerSwitch>),
}

/// Kills a guest's QEMU with SIGKILL: its kernel stops between two instructions, as by a power failure. Works from any
/// thread, also while a workload runs.
#[derive(Clone, Debug)]
pub struct PowerSwitch {
    process: Arc<OwnedFd>,
    pid: Pid,
}

impl PowerSwitch {
    fn of(pid: Pid) -> io::Result<PowerSwitch> {
        Ok(PowerSwitch { process: Arc::new(pidfd_open(pid, PidfdFlags::empty())?), pid })
    }

    /// Cuts the power and waits until the process is gone, so that nothing more of it reaches the drive.
    ///
    /// # Errors
    /// It is still there five seconds later.
    pub fn cut(&self) -> Result<(), Leftover> {
        match pidfd_send_signal(&self.process, Signal::KILL) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => {}
            Err(e) => return Err(Leftover(format!("process {} can't be killed: {e}", self.pid))),
        }
        if readable(&self.process, Instant::now() + END) {
            return Ok(());
        }
        Err(Leftover(format!("process {} does not end, even by SIGKILL", self.pid)))
    }

    /// QEMU's process id, for messages and tests.
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }
}

/// For the start of the program, its namespaces and its first answer.
const START: Duration = Duration::from_secs(20);
/// For the leash to end the agent and all its processes.
const END: Duration = Duration::from_secs(5);
/// For the kernel to unmount and to clear the loop device after that.
const RELEASE: Duration = Duration::from_secs(5);

impl Agent {
    /// Starts an agent in namespaces of its own and waits until it answers.
    ///
    /// # Errors
    /// It can't be started, or does not answer; then with what it said.
    pub fn spawn(setup: &AgentSetup<'_>) -> Result<Agent, LinkError> {
        let stderr = File::from(memfd_create("agent-stderr", MemfdFlags::CLOEXEC).map_err(start)?);
        let mut process = Process::new(&setup.program);
        process.args(&setup.arguments).arg("--namespaces").arg("--folder").arg(&setup.folder);
        for image in &setup.images {
            // By this path the agent opens the image itself; an inherited descriptor would need code between fork
            // and exec, and would leak into every other child that is started at the same moment.
            process.arg("--image").arg(format!("/proc/{}/fd/{}", std::process::id(), image.as_raw_fd()));
        }
        process.stderr(stderr.try_clone().map_err(LinkError::Start)?);
        let mut agent = Agent::over(process, |_| Ok(Said::File(stderr)))?;
        agent.greet(START)?;
        Ok(agent)
    }

    /// Starts the agent of a guest: `process` is a leash with a QEMU on it. Both write to `stderr`, and the guest's
    /// console does too.
    ///
    /// # Errors
    /// It can't be started, or does not answer within `boot`; with all that is kept of the console's text.
    pub(crate) fn in_guest(mut process: Process, boot: Duration) -> Result<Agent, (LinkError, String)> {
        process.stderr(Stdio::piped());
        let said = |child: &mut Child| {
            let stderr = child.stderr.take().ok_or(io::ErrorKind::BrokenPipe)?;
            Ok(Said::Console(Console::follow(stderr)?, None))
        };
        let mut agent = Agent::over(process, said).map_err(|e| (e, String::new()))?;
        let started = agent.greet(boot).and_then(|()| {
            // It has answered, so the leash's line is there and the process too.
            let found = agent.find_qemu().map_err(LinkError::Start)?;
            if let Said::Console(_, switch) = &mut agent.said {
                *switch = Some(found);
            }
            Ok(())
        });
        match started {
            Ok(()) => {
                agent.printed = agent.printed();
                Ok(agent)
            }
            Err(e) => {
                let _ = agent.end();
                Err((e, agent.console_since(0).unwrap_or_default()))
            }
        }
    }

    /// Starts `process`, whose standard input and output are the line.
    fn over(mut process: Process, said: impl FnOnce(&mut Child) -> io::Result<Said>) -> Result<Agent, LinkError> {
        process.stdin(Stdio::piped()).stdout(Stdio::piped());
        // A terminal sends Ctrl-C to the whole process group. When to stop is the harness's to decide, and an agent that
        // died of it would look like a failure of the harness.
        process.process_group(0);
        let mut child = process.spawn().map_err(LinkError::Start)?;
        let ended = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).map_err(start)?;
        let commands = child.stdin.take();
        let events = child.stdout.take().ok_or_else(|| LinkError::Start(io::ErrorKind::BrokenPipe.into()))?;
        let said = said(&mut child).map_err(LinkError::Start)?;
        let hello = Hello { kernel: String::new(), agent: String::new(), namespaced: true };
        let events = Lines::new(events);
        Ok(Agent { child, ended, commands, events, said, hello, attached: None, printed: 0, ended_clean: None })
    }

    /// Waits until an agent answers.
    fn greet(&mut self, limit: Duration) -> Result<(), LinkError> {
        match self.call(&Command::Hello, limit)? {
            Event::Hello(hello) => {
                self.hello = hello;
                Ok(())
            }
            other => Err(self.nonsense(&Command::Hello, &format!("{other:?}"))),
        }
    }

    fn find_qemu(&mut self) -> io::Result<PowerSwitch> {
        let line = match &self.said {
            Said::File(_) => None,
            Said::Console(console, _) => console.after(leash::HOLDS, END),
        };
        let pid = line.and_then(|pid| pid.trim().parse().ok()).and_then(Pid::from_raw);
        let switch = PowerSwitch::of(pid.ok_or_else(|| io::Error::other("the leash does not say what it holds"))?)?;
        // The leash waits for it and then ends; as long as it lives, the number is QEMU's.
        match self.child.try_wait()? {
            None => Ok(switch),
            Some(status) => Err(io::Error::other(format!("the guest's leash has ended: {status}"))),
        }
    }

    /// Everything on a guest's console so far, shortened in the middle if it is long; none for agents on this machine.
    pub fn console(&self) -> Option<String> {
        match &self.said {
            Said::File(_) => None,
            Said::Console(console, _) => Some(console.text()),
        }
    }

    /// Bytes that a guest has printed on its console so far; 0 for agents on this machine.
    pub fn printed(&self) -> u64 {
        match &self.said {
            Said::File(_) => 0,
            Said::Console(console, _) => console.printed(),
        }
    }

    /// Bytes that a guest has printed on its console since this was last asked; at first, since it had booted.
    pub fn printed_anew(&mut self) -> u64 {
        let printed = self.printed();
        printed - std::mem::replace(&mut self.printed, printed)
    }

    /// What a guest has printed since [`Agent::printed`] gave that number, as far as it is kept; none for agents on this
    /// machine. After the guest's end this waits a moment for the rest.
    pub fn console_since(&self, printed: u64) -> Option<String> {
        match &self.said {
            Said::File(_) => None,
            Said::Console(console, _) => Some(console.since(printed, self.ended_clean.is_some())),
        }
    }

    /// How to cut the power of a guest; none for agents on this machine.
    pub fn power_switch(&self) -> Option<PowerSwitch> {
        match &self.said {
            Said::File(_) => None,
            Said::Console(_, switch) => switch.clone(),
        }
    }

    /// Who it is.
    pub fn hello(&self) -> &Hello {
        &self.hello
    }

    /// Process id of the leash in this namespace, for messages and tests.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a command and waits for its answer; not for [`Command::Run`], whose marks want answers of their own.
    ///
    /// # Errors
    /// [`LinkError`]; the agent is dead then. [`Event::Failed`] is an answer, not an error.
    pub fn call(&mut self, command: &Command, limit: Duration) -> Result<Event, LinkError> {
        self.send(command, command)?;
        let event = self.receive(command, Instant::now() + limit, limit)?;
        match &event {
            Event::Attached(attached) => self.attached = Some(attached.clone()),
            Event::Detached { .. } => self.attached = None,
            _ => {}
        }
        Ok(event)
    }

    /// Runs a workload. `on_mark` puts a label in the recording; when it has returned the worker goes on.
    ///
    /// # Errors
    /// As [`Agent::call`]. The answer is `RunDone`, `RunFailed` or `Failed`.
    pub fn run_workload(
        &mut self,
        spec: &powerfail_workloads::Spec,
        limit: Duration,
        mut on_mark: impl FnMut(&str),
    ) -> Result<Event, LinkError> {
        let end = Instant::now() + limit;
        let run = Command::Run { spec: Box::new(spec.clone()) };
        self.send(&run, &run)?;
        loop {
            match self.receive(&run, end, limit)? {
                Event::Mark { id, label } => {
                    on_mark(&label);
                    self.send(&Command::Ack { id }, &run)?;
                }
                other => return Ok(other),
            }
        }
    }

    /// Lets the agent undo everything by itself and waits for its end.
    ///
    /// # Errors
    /// It could not; it was killed then.
    pub fn quit(mut self, limit: Duration) -> Result<(), LinkError> {
        match self.call(&Command::Quit, limit)? {
            Event::Bye => {
                self.attached = None;
                let _ = self.end();
                Ok(())
            }
            other => Err(self.nonsense(&Command::Quit, &format!("{other:?}"))),
        }
    }

    /// Kills the agent with everything that it has, and waits until the kernel has cleaned up. Bounded. To a guest this
    /// is a power failure, as [`PowerSwitch::cut`].
    ///
    /// # Errors
    /// Something is still there; its image must not be reused.
    pub fn kill(mut self) -> Result<(), Leftover> {
        self.end()
    }

    fn send(&mut self, command: &Command, doing: &Command) -> Result<(), LinkError> {
        let mut line = serde_json::to_vec(command).map_err(|e| LinkError::Protocol {
            doing: name(doing),
            answer: format!("(the command itself can't be written: {e})"),
        })?;
        line.push(b'\n');
        let sent = self.commands.as_mut().map(|pipe| pipe.write_all(&line));
        if matches!(sent, Some(Ok(()))) { Ok(()) } else { Err(self.died(doing)) }
    }

    fn receive(&mut self, doing: &Command, end: Instant, limit: Duration) -> Result<Event, LinkError> {
        let parsed = match self.events.next(end) {
            Ok(line) => serde_json::from_slice(line).map_err(|e| format!("{e}: {}", String::from_utf8_lossy(line))),
            Err(NoLine::Ended) => return Err(self.died(doing)),
            Err(NoLine::TooLate) => {
                let _ = self.end();
                return Err(LinkError::Deadline { doing: name(doing), limit, said: self.last_words() });
            }
            Err(NoLine::TooLong) => Err("a line without end".to_string()),
            Err(NoLine::Failed(e)) => Err(e.to_string()),
        };
        parsed.map_err(|answer| self.nonsense(doing, &answer))
    }

    fn died(&mut self, doing: &Command) -> LinkError {
        let _ = self.end();
        LinkError::Died { doing: name(doing), said: self.last_words() }
    }

    /// Kills it; also for the callers that put a wrong answer in words.
    pub(crate) fn nonsense(&mut self, doing: &Command, answer: &str) -> LinkError {
        let _ = self.end();
        LinkError::Protocol { doing: name(doing), answer: answer.chars().take(500).collect() }
    }

    /// Ends everything; only the first call acts.
    fn end(&mut self) -> Result<(), Leftover> {
        if self.ended_clean.is_none() {
            self.ended_clean = Some(self.end_now());
        }
        self.ended_clean.clone().unwrap_or(Ok(()))
    }

    fn end_now(&mut self) -> Result<(), Leftover> {
        // Before the pipe hangs up: a guest must not see that its harness goes.
        if let Some(switch) = self.power_switch() {
            switch.cut()?;
        }
        // The leash sees the pipe hang up, kills the agent and waits for its whole PID namespace.
        self.commands = None;
        if !self.wait(END) {
            // The agent then dies with its leash, but nobody can tell any more when.
            let _ = self.child.kill();
            if !self.wait(END) {
                return Err(Leftover(format!("process {} does not end, even by SIGKILL", self.child.id())));
            }
        }
        let _ = self.child.wait();
        let Some(attached) = &self.attached else { return Ok(()) };
        let number = attached.device.strip_prefix("/dev/loop").and_then(|number| number.parse().ok());
        if number.is_none_or(|number| loop_device::wait_released(number, &attached.tag, RELEASE)) {
            return Ok(());
        }
        Err(Leftover(format!("{} is still there {} s later", attached.device, RELEASE.as_secs())))
    }

    fn wait(&self, limit: Duration) -> bool {
        readable(&self.ended, Instant::now() + limit)
    }

    fn last_words(&mut self) -> String {
        const MOST: u64 = 4096;
        let mut text = Vec::new();
        let file = match &mut self.said {
            Said::File(file) => file,
            Said::Console(console, _) => return console.last_words(),
        };
        let mut read = || -> io::Result<()> {
            let length = file.seek(SeekFrom::End(0))?;
            file.seek(SeekFrom::Start(length.saturating_sub(MOST)))?;
            file.read_to_end(&mut text)?;
            Ok(())
        };
        match read() {
            Ok(()) if text.is_empty() => WORDLESS.to_string(),
            Ok(()) => String::from_utf8_lossy(&text).trim().to_string(),
            Err(e) => format!("(its last words can't be read: {e})"),
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        if let Err(leftover) = self.end() {
            eprintln!("powerfail: {leftover}");
        }
    }
}

/// What stands in the place of last words that were not said.
pub(crate) const WORDLESS: &str = "without a word";

fn start(e: rustix::io::Errno) -> LinkError {
    LinkError::Start(e.into())
}

/// Waits until `fd` is readable; false: not before `end`.
fn readable(fd: &OwnedFd, end: Instant) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let seconds = left.as_secs().try_into().unwrap_or(i64::MAX);
        let left = Timespec { tv_sec: seconds, tv_nsec: left.subsec_nanos().into() };
        match poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&left)) {
            Ok(0) => return false,
            Ok(_) => return true,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

/// A command in words, for errors.
pub(crate) fn name(command: &Command) -> String {
    match command {
        Command::Hello => "say hello".to_string(),
        Command::Attach { .. } => "attach a device".to_string(),
        Command::Tool { argv, .. } => format!("run {}", argv.join(" ")),
        Command::Mount { fstype, options, .. } => format!("mount {fstype} with options {options:?}"),
        Command::Run { .. } => "run a workload".to_string(),
        Command::Ack { id } => format!("take the acknowledgement of mark {id}"),
        Command::Sync => "sync".to_string(),
        Command::Observe { .. } => "observe".to_string(),
        Command::KernelLog => "read the kernel's log".to_string(),
        Command::Unmount => "unmount".to_string(),
        Command::Detach => "detach".to_string(),
        Command::Quit => "quit".to_string(),
    }
}
