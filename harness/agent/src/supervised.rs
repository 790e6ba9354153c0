//! A call into the kernel that may never come back, made by a thread of its own while the command loop watches.
//!
//! Recovery is the code under test. If it oopses, the kernel kills the thread that was in it, and no other; if it hangs,
//! that thread hangs. Either way the agent goes on, reads the kernel's log and says which of the two it was. An agent
//! that made the call itself would be dead or silent, and nobody could tell that from a machine that broke by itself.

use std::io;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::protocol::Failure;

/// Names of the threads, at most 15 bytes: a trace in the kernel's log names who was running.
pub(crate) const MOUNTER: &str = "pf-mount";
/// See [`MOUNTER`].
pub(crate) const WALKER: &str = "pf-walk";

/// How the call ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Ended<T> {
    /// It came back.
    Returned(T),
    /// The kernel killed the thread within it.
    Killed,
    /// It is still in it. What it holds, it holds for as long as the agent lives.
    Running {
        /// Where in the kernel, one function a line; empty if the kernel does not say.
        stack: String,
    },
}

/// The distance between looks whether the thread still is there. A call that comes back is not delayed by it.
const LOOK: Duration = Duration::from_millis(100);

/// Makes a call and waits for it, but no longer than `limit`.
///
/// # Errors
/// There is no thread to be had, or it panicked.
pub(crate) fn call<T: Send + 'static>(
    name: &str,
    limit: Duration,
    make: impl FnOnce() -> T + Send + 'static,
) -> Result<Ended<T>, Failure> {
    let doing = || format!("make a call in the thread {name}");
    let end = Instant::now() + limit;
    let (began, beginning) = sync_channel(1);
    let (returned, result) = sync_channel(1);
    let thread = thread::Builder::new().name(name.to_string()).spawn(move || {
        let _ = began.send(rustix::thread::gettid());
        let _ = returned.send(make());
    });
    // Not joined: a thread that the kernel has killed would be waited for in vain.
    drop(thread.map_err(|e| Failure::io(doing(), e))?);
    let panicked = || Failure::new(doing(), "it panicked");
    let id = beginning.recv().map_err(|_| panicked())?;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        match result.recv_timeout(left.min(LOOK)) {
            Ok(value) => return Ok(Ended::Returned(value)),
            Err(RecvTimeoutError::Disconnected) => return Err(panicked()),
            Err(RecvTimeoutError::Timeout) if !lives(id) => {
                // It may have come back and ended between the two looks.
                return Ok(result.try_recv().map_or(Ended::Killed, Ended::Returned));
            }
            Err(RecvTimeoutError::Timeout) if left.is_zero() => return Ok(Ended::Running { stack: stack(id) }),
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

fn lives(thread: rustix::process::Pid) -> bool {
    // SAFETY: signal 0 is never delivered; the kernel only looks whether the thread is there.
    let sent = unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread.as_raw_nonzero().get(), 0) };
    sent == 0 || io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH)
}

fn stack(thread: rustix::process::Pid) -> String {
    std::fs::read_to_string(format!("/proc/self/task/{}/stack", thread.as_raw_nonzero())).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    const LIMIT: Duration = Duration::from_secs(20);

    #[test]
    fn what_a_call_returns_comes_back() {
        let name = || thread::current().name().map(str::to_string);
        assert_eq!(call(MOUNTER, LIMIT, name).unwrap(), Ended::Returned(Some(MOUNTER.to_string())));
    }

    #[test]
    fn a_call_that_does_not_come_back_is_running() {
        let (_never, wait) = channel::<()>();
        let ended = call(WALKER, Duration::from_millis(250), move || wait.recv()).unwrap();
        assert!(matches!(ended, Ended::Running { .. }), "{ended:?}");
    }

    #[test]
    fn a_thread_that_is_gone_without_an_answer_was_killed() {
        // As an oops does it: this thread ends, no other, and nothing of it is unwound.
        // SAFETY: the thread owns nothing that anybody waits for.
        let end = || unsafe { libc::syscall(libc::SYS_exit, 0) };
        assert_eq!(call(MOUNTER, LIMIT, end).unwrap(), Ended::Killed);
    }

    #[test]
    fn a_panic_is_a_failure_of_ours() {
        let failure = call(MOUNTER, LIMIT, || panic!("on purpose")).unwrap_err();
        assert!(failure.reason.contains("panicked"), "{failure}");
    }
}
