//! Running a tool to its end, within a deadline, with bounded output.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::protocol::{Failure, ToolRan};

/// Where tools are looked for, whatever the harness's environment says: a run must not depend on it.
pub(crate) const TOOL_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Bytes kept of each of the two outputs. The first ones: e2fsck names the cause first and repeats itself afterwards.
const KEPT: usize = 256 * 1024;

/// A command with the environment that every tool gets: C locale, fixed path, nothing else.
pub(crate) fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("PATH", TOOL_PATH).env("LC_ALL", "C").env("HOME", "/").current_dir("/");
    command.stdin(Stdio::null());
    command
}

/// Runs `argv` with `{device}` replaced.
///
/// # Errors
/// It can't be started. A tool that fails is not an error but a result.
pub(crate) fn run(argv: &[String], device: &str, deadline: Duration) -> Result<ToolRan, Failure> {
    let argv: Vec<String> = argv.iter().map(|word| word.replace("{device}", device)).collect();
    let (program, arguments) = argv.split_first().ok_or_else(|| Failure::new("run a tool", "no program was named"))?;
    let started = Instant::now();
    let mut child = command(program)
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map(Reaped)
        .map_err(|e| Failure::io(format!("start {program}"), e))?;
    let mut outputs = [Output::new(child.0.stdout.take()), Output::new(child.0.stderr.take())];
    let (status, timed_out) =
        follow(&mut child.0, &mut outputs, started + deadline).map_err(|e| Failure::io(format!("run {program}"), e))?;
    let [stdout, stderr] = outputs;
    Ok(ToolRan {
        code: status.code(),
        signal: status.signal(),
        timed_out,
        left_out: stdout.left_out + stderr.left_out,
        stdout: String::from_utf8_lossy(&stdout.kept).into_owned(),
        stderr: String::from_utf8_lossy(&stderr.kept).into_owned(),
        took_us: micros(started),
    })
}

/// Microseconds since `started`.
pub(crate) fn micros(started: Instant) -> u64 {
    u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX)
}

/// The pidfd of a child that has not been waited for.
///
/// # Errors
/// The system is out of descriptors, or older than Linux 5.3.
pub(crate) fn pidfd(child: &Child) -> io::Result<OwnedFd> {
    let pid = Pid::from_child(child);
    Ok(pidfd_open(pid, PidfdFlags::empty())?)
}

/// What is left until `end`, for poll(2).
pub(crate) fn remaining(end: Instant) -> Timespec {
    let left = end.saturating_duration_since(Instant::now());
    Timespec { tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX), tv_nsec: left.subsec_nanos().into() }
}

/// Waits until the child has ended, or kills it at `end`.
///
/// # Errors
/// poll(2) or waitpid(2) failed.
pub(crate) fn wait_until(child: &mut Child, end: Instant) -> io::Result<Option<ExitStatus>> {
    let ended = pidfd(child)?;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= end {
            return Ok(None);
        }
        poll_again(&mut [PollFd::new(&ended, PollFlags::IN)], end)?;
    }
}

/// poll(2) that takes a signal for "look again".
///
/// # Errors
/// As poll(2).
pub(crate) fn poll_again(fds: &mut [PollFd<'_>], end: Instant) -> io::Result<()> {
    match poll(fds, Some(&remaining(end))) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

/// A child that is killed and waited for, whatever happens.
struct Reaped(Child);

impl Drop for Reaped {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Reads both outputs until the child has ended; true: the deadline ended it.
fn follow(child: &mut Child, outputs: &mut [Output; 2], end: Instant) -> io::Result<(ExitStatus, bool)> {
    let ended = pidfd(child)?;
    let mut timed_out = false;
    loop {
        let status = child.try_wait()?;
        for output in outputs.iter_mut() {
            output.drain()?;
        }
        // Only what was in the pipes at its end counts: a grandchild may hold them open for ever.
        if let Some(status) = status {
            return Ok((status, timed_out));
        }
        if Instant::now() >= end && !timed_out {
            timed_out = true;
            child.kill()?;
        }
        let mut fds: Vec<PollFd<'_>> = vec![PollFd::new(&ended, PollFlags::IN)];
        fds.extend(outputs.iter().filter_map(Output::fd).map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        if timed_out {
            // Killed: it ends when the kernel lets go of it. If that never happens, the harness's own deadline acts.
            poll_again(&mut fds, Instant::now() + Duration::from_secs(3600))?;
        } else {
            poll_again(&mut fds, end)?;
        }
    }
}

/// One output of a tool.
struct Output {
    pipe: Option<File>,
    kept: Vec<u8>,
    left_out: u64,
}

impl Output {
    fn new(pipe: Option<impl Into<OwnedFd>>) -> Output {
        let pipe: Option<File> = pipe.map(|p| File::from(p.into()));
        if let Some(pipe) = &pipe {
            // Can't fail on a pipe that we have just made.
            let _ = rustix::io::ioctl_fionbio(pipe, true);
        }
        Output { pipe, kept: Vec::new(), left_out: 0 }
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.pipe.as_ref().map(AsFd::as_fd)
    }

    fn drain(&mut self) -> io::Result<()> {
        let Some(pipe) = &mut self.pipe else { return Ok(()) };
        let mut buffer = [0_u8; 16384];
        loop {
            match pipe.read(&mut buffer) {
                Ok(0) => {
                    self.pipe = None;
                    return Ok(());
                }
                Ok(length) => {
                    let kept = length.min(KEPT - self.kept.len());
                    self.kept.extend_from_slice(&buffer[..kept]);
                    self.left_out += (length - kept) as u64;
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn argv(words: &[&str]) -> Vec<String> {
        words.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn outputs_code_and_device_are_reported() {
        let words = argv(&["sh", "-c", "echo out {device} $LC_ALL; echo err >&2; exit 3"]);
        let ran = run(&words, "/dev/loop7", Duration::from_secs(20)).unwrap();
        assert_eq!((ran.code, ran.signal, ran.timed_out), (Some(3), None, false));
        assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("out /dev/loop7 C\n", "err\n"));
    }

    #[test]
    fn the_deadline_kills() {
        let ran = run(&argv(&["sleep", "1000"]), "", Duration::from_millis(50)).unwrap();
        assert_eq!((ran.code, ran.signal, ran.timed_out), (None, Some(9), true));
        assert!(ran.took_us < 10_000_000, "{}", ran.took_us);
    }

    #[test]
    fn long_output_is_bounded_and_counted() {
        let words = argv(&["head", "-c", "1000000", "/dev/zero"]);
        let ran = run(&words, "", Duration::from_secs(20)).unwrap();
        assert_eq!(ran.code, Some(0));
        assert_eq!((ran.stdout.len(), ran.left_out), (KEPT, 1_000_000 - KEPT as u64));
    }

    #[test]
    fn a_grandchild_that_holds_the_pipe_is_not_waited_for() {
        let words = argv(&["sh", "-c", "sleep 1000 & echo $!"]);
        let ran = run(&words, "", Duration::from_secs(20)).unwrap();
        assert_eq!((ran.code, ran.timed_out), (Some(0), false));
        let pid = ran.stdout.trim().parse().unwrap();
        rustix::process::kill_process(Pid::from_raw(pid).unwrap(), rustix::process::Signal::KILL).unwrap();
    }

    #[test]
    fn a_missing_program_is_a_failure_with_its_name() {
        let failure = run(&argv(&["no-such-tool"]), "", Duration::from_secs(1)).unwrap_err();
        assert_eq!(failure.errno, Some(libc::ENOENT));
        assert!(failure.to_string().contains("no-such-tool"), "{failure}");
    }
}
