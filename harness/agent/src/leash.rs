//! A leash: a process that only waits, for the end of the harness or of what it holds.
//!
//! It sees the harness's end when the pipe on its standard input hangs up, or by the harness's pidfd, and then kills what
//! it holds. What it holds dies with it too (PDEATHSIG), however the leash ends. PDEATHSIG is not used between harness
//! and leash: the kernel sends it when the *thread* that made the child ends, and the harness's threads come and go.
//!
//! [`run`] holds any program this way, e.g. a QEMU; the agent's own namespaces are held by `hold`.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, kill_process, pidfd_open, waitpid};

use crate::protocol::Failure;

/// What stands before the process id in the first line that [`run`] writes to standard error.
pub const HOLDS: &str = "powerfail-leash holds process ";

/// Becomes a leash with `program` on it; never returns if the program could be started.
///
/// The program gets standard input and output; the leash only watches them. Before the program runs, one line says its
/// process id on standard error ([`HOLDS`]): whoever wants to kill it without delay needs that.
///
/// # Errors
/// The process has threads, or can't be forked.
pub fn run(program: &[OsString]) -> Result<(), Failure> {
    let (name, arguments) =
        program.split_first().ok_or_else(|| Failure::new("hold a program on a leash", "no program was named"))?;
    require_single_thread()?;
    let harness = watch_parent()?;
    // SAFETY: no thread but this one, so the child is as whole as the parent.
    match unsafe { libc::fork() } {
        -1 => Err(Failure::io("fork", io::Error::last_os_error())),
        0 => {
            let dies_along = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
            eprintln!("{HOLDS}{}", std::process::id());
            let error = match dies_along {
                Ok(()) => Command::new(name).args(arguments).exec(),
                Err(e) => e.into(),
            };
            eprintln!("start {}: {error}", name.display());
            std::process::exit(127)
        }
        child => hold(child, harness.as_ref()),
    }
}

/// A pidfd of the harness, which is the parent as long as it lives.
///
/// # Errors
/// The system is out of descriptors.
pub(crate) fn watch_parent() -> Result<Option<OwnedFd>, Failure> {
    let harness = rustix::process::getppid().map(|pid| pidfd_open(pid, PidfdFlags::empty()));
    harness.transpose().map_err(|e| Failure::io("watch the harness", e))
}

/// Threads would be lost by the fork, and with them whatever locks they held.
///
/// # Errors
/// There are others.
pub(crate) fn require_single_thread() -> Result<(), Failure> {
    let doing = "fork";
    let threads = fs::read_dir("/proc/self/task").map_err(|e| Failure::io(doing, e))?.count();
    if threads == 1 {
        return Ok(());
    }
    Err(Failure::new(doing, format!("the process has {threads} threads already; this must come before any is made")))
}

/// Waits for the end of either side; never returns.
pub(crate) fn hold(child: i32, harness: Option<&OwnedFd>) -> ! {
    release_output();
    let child = Pid::from_raw(child).unwrap_or_else(|| std::process::exit(ABNORMAL));
    let ended = pidfd_open(child, PidfdFlags::empty());
    let stdin = io::stdin();
    if let Ok(ended) = &ended {
        let mut fds =
            vec![PollFd::new(ended, PollFlags::IN), PollFd::from_borrowed_fd(stdin.as_fd(), PollFlags::empty())];
        fds.extend(harness.map(|harness| PollFd::new(harness, PollFlags::IN)));
        while poll(&mut fds, None) == Err(rustix::io::Errno::INTR) {}
    }
    // Harmless if it has ended already: it was not waited for, so the number is still its own.
    let _ = kill_process(child, Signal::KILL);
    loop {
        match waitpid(Some(child), WaitOptions::empty()) {
            Ok(Some((_, status))) => std::process::exit(status.exit_status().unwrap_or(ABNORMAL)),
            Ok(None) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => std::process::exit(ABNORMAL),
        }
    }
}

/// Exit code when what it held was killed.
const ABNORMAL: i32 = 125;

/// The leash gives up its copy of standard output, or the harness would not see its end when the other process dies.
fn release_output() {
    if let Ok(null) = fs::OpenOptions::new().write(true).open("/dev/null") {
        // SAFETY: descriptor 1 is nobody's object here; `ManuallyDrop` keeps it open.
        let mut stdout = std::mem::ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(libc::STDOUT_FILENO) });
        let _ = rustix::io::dup2(&null, &mut stdout);
    }
}
