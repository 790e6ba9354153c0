//! The command loop: one command at a time, one answer each, everything that was made is guarded.

use std::fs::File;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::attach::Attachment;
use crate::kernel_log::KernelLog;
use crate::link::Link;
use crate::mount::{Mounted, Tried};
use crate::protocol::{Command, Event, Failure, Hello, Log, Source};
use crate::supervised::{self, Ended};
use crate::tool::{self, micros};

/// What an agent is given at its start.
#[derive(Debug)]
pub struct Setup {
    /// A folder of its own for mount points.
    pub folder: PathBuf,
    /// The images that [`Source::Image`] counts.
    pub images: Vec<File>,
    /// Whether it is PID 1 of its own namespaces, so that ending at once is a clean end.
    pub namespaced: bool,
    /// The machine is this agent's own, and ends with it.
    pub own_machine: bool,
}

/// Serves commands from standard input until `Quit` or its end.
///
/// # Errors
/// Standard input or output fail; everything is undone then too.
pub fn serve(setup: Setup) -> std::io::Result<()> {
    let link = Link::on_standard_io()?;
    let mut agent = Agent { mounted: None, log: None, attached: None, setup, link: &link };
    while let Some(heard) = link.next() {
        let answer = match heard {
            Ok(Command::Quit) => {
                let undone = agent.undo_everything();
                return link.send(&undone.map_or_else(Event::Failed, |()| Event::Bye));
            }
            Ok(command) => agent.obey(command).unwrap_or_else(Event::Failed),
            Err(reason) => Event::Failed(Failure::new("read a command", reason)),
        };
        link.send(&answer)?;
    }
    Ok(())
}

/// What there is at the moment. Fields are dropped in this order: the mount before the device.
struct Agent<'a> {
    mounted: Option<Mounted>,
    log: Option<KernelLog>,
    attached: Option<Attachment>,
    setup: Setup,
    link: &'a Link,
}

type Answer = Result<Event, Failure>;

impl Agent<'_> {
    fn obey(&mut self, command: Command) -> Answer {
        match command {
            Command::Hello => Ok(self.hello()),
            Command::Attach { source } => self.attach(&source),
            Command::Tool { argv, deadline_ms } => self.tool(&argv, Duration::from_millis(deadline_ms)),
            Command::Mount { fstype, options, lock_wait_ms, limit_ms } => {
                let [lock_wait, limit] = [lock_wait_ms, limit_ms].map(Duration::from_millis);
                self.mount(&fstype, &options, lock_wait, limit)
            }
            Command::Run { spec } => self.run(&spec),
            Command::Sync => self.sync(),
            Command::Observe { limit_ms } => self.observe(Duration::from_millis(limit_ms)),
            Command::KernelLog => Ok(Event::KernelLog { log: self.log_so_far()? }),
            Command::Unmount => self.unmount(),
            Command::Detach => self.detach(),
            Command::Ack { .. } | Command::Quit => Err(Failure::new("obey", "this command never gets here")),
        }
    }

    fn hello(&self) -> Event {
        Event::Hello(Hello {
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            agent: env!("CARGO_PKG_VERSION").to_string(),
            namespaced: self.setup.namespaced,
        })
    }

    fn attach(&mut self, source: &Source) -> Answer {
        if self.attached.is_some() {
            return Err(Failure::new("attach", "a device is attached already"));
        }
        let attachment = Attachment::make(source, &self.setup)?;
        attachment.check_unused()?;
        self.log = Some(KernelLog::from_now(&attachment.kernel_name())?);
        let described = attachment.describe()?;
        self.attached = Some(attachment);
        Ok(Event::Attached(described))
    }

    fn tool(&mut self, argv: &[String], deadline: Duration) -> Answer {
        let device = self.attached.as_ref().map(|attached| attached.device().display().to_string());
        if device.is_none() && argv.iter().any(|word| word.contains("{device}")) {
            return Err(Failure::new("run a tool", "no device is attached"));
        }
        tool::run(argv, &device.unwrap_or_default(), deadline).map(Event::ToolRan)
    }

    fn mount(&mut self, fstype: &str, options: &str, lock_wait: Duration, limit: Duration) -> Answer {
        let doing = "mount";
        if self.mounted.is_some() {
            return Err(Failure::new(doing, "a file system is mounted already"));
        }
        let (Some(attached), Some(log)) = (&self.attached, &mut self.log) else {
            return Err(Failure::new(doing, "no device is attached"));
        };
        let at = self.setup.folder.join("mnt");
        match Mounted::try_mount(&attached.device(), &at, (fstype, options), (lock_wait, limit), log)? {
            Tried::Ended(event, guard) => {
                self.mounted = guard;
                Ok(event)
            }
            Tried::Running { stack, log } => Ok(Event::Hung { owed: attached.owes(), stack, log }),
        }
    }

    fn run(&mut self, spec: &powerfail_workloads::Spec) -> Answer {
        let root = self.root("run a workload")?;
        self.link.start_run();
        let result = powerfail_workloads::run(&root, spec, self.link);
        let log = self.log_so_far()?;
        Ok(match result {
            Ok(summary) => Event::RunDone { summary: Box::new(summary), log },
            Err(e) => Event::RunFailed { message: e.to_string(), log },
        })
    }

    fn sync(&mut self) -> Answer {
        let doing = "sync";
        let root = File::open(self.root(doing)?).map_err(|e| Failure::io(doing, e))?;
        let started = Instant::now();
        rustix::fs::syncfs(&root).map_err(|e| Failure::io(doing, e))?;
        Ok(Event::Synced { took_us: micros(started), log: self.log_so_far()? })
    }

    fn observe(&mut self, limit: Duration) -> Answer {
        let root = self.root("observe")?;
        let started = Instant::now();
        let walked = supervised::call(supervised::WALKER, limit, move || powerfail_workloads::walk(&root))?;
        let took_us = micros(started);
        let owed = match (&walked, &self.attached) {
            (Ended::Running { .. }, Some(attached)) => attached.owes(),
            _ => 0,
        };
        let log = self.log_so_far()?;
        Ok(match walked {
            Ended::Returned(observation) => Event::Observed { observation: Box::new(observation), took_us, log },
            Ended::Killed => Event::Killed { log },
            Ended::Running { stack } => Event::Hung { owed, stack, log },
        })
    }

    fn unmount(&mut self) -> Answer {
        let Some(mounted) = &mut self.mounted else {
            return Err(Failure::new("unmount", "nothing is mounted"));
        };
        match mounted.unmount() {
            Ok(took_us) => {
                self.mounted = None;
                // The trap: a copy of the mount in a foreign namespace would go on writing to the device.
                if let Some(attached) = &self.attached {
                    attached.check_unused()?;
                }
                Ok(Event::Unmounted { took_us, log: self.log_so_far()? })
            }
            Err(e) => Ok(Event::UnmountFailed {
                errno: e.raw_os_error().unwrap_or_default(),
                message: e.to_string(),
                log: self.log_so_far()?,
            }),
        }
    }

    fn detach(&mut self) -> Answer {
        if self.mounted.is_some() {
            return Err(Failure::new("detach", "a file system is still mounted"));
        }
        let attached = self.attached.take().ok_or_else(|| Failure::new("detach", "no device is attached"))?;
        self.log = None;
        let started = Instant::now();
        let nbdfuse = attached.detach()?;
        Ok(Event::Detached { took_us: micros(started), nbdfuse })
    }

    fn undo_everything(&mut self) -> Result<(), Failure> {
        if let Some(mut mounted) = self.mounted.take() {
            mounted.unmount().map_err(|e| Failure::io("unmount", e))?;
        }
        self.attached.take().map_or(Ok(()), |attached| attached.detach().map(drop))
    }

    fn root(&self, doing: &str) -> Result<PathBuf, Failure> {
        let mounted = self.mounted.as_ref().ok_or_else(|| Failure::new(doing, "nothing is mounted"))?;
        Ok(mounted.at().to_path_buf())
    }

    fn log_so_far(&mut self) -> Result<Log, Failure> {
        self.log.as_mut().map_or_else(|| Ok(Log::default()), KernelLog::hand_over)
    }
}
