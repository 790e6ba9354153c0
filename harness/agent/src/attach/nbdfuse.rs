//! nbdfuse: an NBD export as a file.
//!
//! When its server goes away nbdfuse 1.14 aborts with an assertion; the loop device above then returns errors and
//! everything can be undone. A server that falls silent instead leaves writers that no signal ends; killing nbdfuse
//! frees them, which is what the end of the agent's PID namespace does.
//!
//! nbdfuse runs in a mount namespace of its own, which holds no mount but its file. It must never be in the namespace
//! in which the file system on top of it is mounted: when all are killed at once and nbdfuse is the last to leave, the
//! kernel lets *it* unmount that file system, in its exit, before it closes its FUSE connection. The unmount then
//! waits for the answers of the very process that is unmounting, without end (seen on 6.18; only aborting the
//! connection in fusectl frees it). The agent reaches the file through `/proc/PID/root`.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::mount::{MountPropagationFlags, mount_change};
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{UnshareFlags, unshare_unsafe};

use crate::protocol::Failure;
use crate::tool;

/// Longest wait for the mount to appear, or for the program to go.
const PATIENCE: Duration = Duration::from_secs(20);

/// Bytes of its output that are reported: it prints a line for each request that fails.
const SAID: u64 = 16 * 1024;

/// A running nbdfuse; dropping it kills it, and its mount goes with its namespace.
#[derive(Debug)]
pub(crate) struct NbdFuse {
    child: Child,
    /// The export, as seen from the agent.
    file: PathBuf,
    output: File,
    running: bool,
}

impl NbdFuse {
    /// Starts it on the server's socket and waits until the file is there.
    ///
    /// # Errors
    /// It is not installed, ended (then with what it printed), or made no mount in time.
    pub(crate) fn start(socket: &Path, folder: &Path) -> Result<NbdFuse, Failure> {
        let doing = "start nbdfuse (package libnbd-bin)";
        fs::create_dir_all(folder).map_err(|e| Failure::io(doing, e))?;
        let output = || -> io::Result<(File, OwnedFd, OwnedFd)> {
            let file = File::from(memfd_create("nbdfuse-output", MemfdFlags::CLOEXEC)?);
            Ok((file.try_clone()?, file.try_clone()?.into(), file.into()))
        };
        let (output, stdout, stderr) = output().map_err(|e| Failure::io(doing, e))?;
        let mut command = tool::command("nbdfuse");
        command.arg(folder.join(FILE)).arg(uri(socket)?).stdout(stdout).stderr(stderr);
        // SAFETY: two system calls and nothing else between fork and exec: no allocation, no lock.
        unsafe { command.pre_exec(own_mount_namespace) };
        let child = command.spawn().map_err(|e| Failure::io(doing, e))?;
        let relative = folder.strip_prefix("/").unwrap_or(folder);
        let file = PathBuf::from(format!("/proc/{}/root", child.id())).join(relative).join(FILE);
        let mut fuse = NbdFuse { child, file, output, running: true };
        fuse.wait_for_file().map_err(|f| Failure { reason: format!("{}{}", f.reason, fuse.said()), ..f })?;
        Ok(fuse)
    }

    /// The file that is the export.
    ///
    /// # Errors
    /// nbdfuse or its server has died.
    pub(crate) fn open(&self) -> Result<File, Failure> {
        let opened = OpenOptions::new().read(true).write(true).open(&self.file);
        opened.map_err(|e| Failure::io("open the file of nbdfuse", e))
    }

    /// What it has printed so far.
    pub(crate) fn said(&self) -> String {
        let mut text = Vec::new();
        let mut read = || -> io::Result<()> {
            // A reader of its own, for the position is shared with the writer.
            let mut file = File::open(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&self.output)))?;
            let length = file.seek(SeekFrom::End(0))?;
            file.seek(SeekFrom::Start(length.saturating_sub(SAID)))?;
            file.take(SAID).read_to_end(&mut text)?;
            Ok(())
        };
        match read() {
            Ok(()) => String::from_utf8_lossy(&text).into_owned(),
            Err(e) => format!("(its output can't be read: {e})"),
        }
    }

    /// Asks it to unmount and end, waits for that, and returns what it printed.
    ///
    /// # Errors
    /// The program does not go.
    pub(crate) fn stop(mut self) -> Result<String, Failure> {
        // Not waited for yet, so the number is still its own; dead already is fine too.
        kill_process(Pid::from_child(&self.child), Signal::TERM).map_err(|e| Failure::io("end nbdfuse", e))?;
        let status = tool::wait_until(&mut self.child, Instant::now() + PATIENCE);
        match status.map_err(|e| Failure::io("wait for nbdfuse", e))? {
            Some(_) => {
                self.running = false;
                Ok(self.said())
            }
            None => Err(Failure::new("stop nbdfuse", format!("still there after {} s", PATIENCE.as_secs()))),
        }
    }

    /// Woken by the kernel whenever the child's mounts change (poll(2) on mountinfo) and when it ends.
    fn wait_for_file(&mut self) -> Result<(), Failure> {
        let doing = "wait for nbdfuse";
        let mounts = File::open(format!("/proc/{}/mountinfo", self.child.id())).map_err(|e| Failure::io(doing, e))?;
        let end = Instant::now() + PATIENCE;
        let ended = tool::pidfd(&self.child).map_err(|e| Failure::io(doing, e))?;
        loop {
            if let Some(status) = self.child.try_wait().map_err(|e| Failure::io(doing, e))? {
                self.running = false;
                return Err(Failure::new(doing, format!("it ended ({status}): ")));
            }
            if self.file.exists() {
                return Ok(());
            }
            if Instant::now() >= end {
                return Err(Failure::new(doing, format!("no mount within {} s: ", PATIENCE.as_secs())));
            }
            let mut fds = [PollFd::new(&mounts, PollFlags::PRI), PollFd::new(&ended, PollFlags::IN)];
            tool::poll_again(&mut fds, end).map_err(|e| Failure::io(doing, e))?;
        }
    }
}

impl Drop for NbdFuse {
    fn drop(&mut self) {
        if self.running {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// The file's name in the folder that nbdfuse mounts on.
const FILE: &str = "nbd";

/// Runs in the child before exec: a mount namespace that shares nothing with the agent's, in either direction.
fn own_mount_namespace() -> io::Result<()> {
    // SAFETY: the child has one thread, and no descriptor table is unshared.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS) }?;
    Ok(mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?)
}

/// An NBD URI for a Unix socket; the path's bytes outside the URI's unreserved set are percent-encoded.
fn uri(socket: &Path) -> Result<String, Failure> {
    if !socket.is_absolute() {
        return Err(Failure::new("attach an export", format!("{} is not an absolute path", socket.display())));
    }
    let mut uri = String::from("nbd+unix:///?socket=");
    for byte in socket.as_os_str().as_encoded_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'.' | b'_' | b'~' => uri.push(char::from(*byte)),
            _ => uri.push_str(&format!("%{byte:02X}")),
        }
    }
    Ok(uri)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_with_odd_names_survive_the_uri() {
        assert_eq!(uri(Path::new("/run/a b&c.sock")).unwrap(), "nbd+unix:///?socket=/run/a%20b%26c.sock");
        assert!(uri(Path::new("relative")).is_err());
    }
}
