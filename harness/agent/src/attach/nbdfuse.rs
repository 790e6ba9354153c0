//! nbdfuse: an NBD export as a file.
//!
//! When its server goes away nbdfuse 1.14 aborts with an assertion; the loop device above then returns errors and
//! everything can be undone. A server that falls silent instead leaves writers that no signal ends; killing nbdfuse
//! frees them, which is what the end of the agent's PID namespace does.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::mount::{UnmountFlags, unmount};

use crate::protocol::Failure;
use crate::tool;

/// Longest wait for the mount to appear, or for the program to go.
const PATIENCE: Duration = Duration::from_secs(20);

/// Bytes of its output that are reported: it prints a line for each request that fails.
const SAID: u64 = 16 * 1024;

/// A running nbdfuse; dropping it unmounts and kills.
#[derive(Debug)]
pub(crate) struct NbdFuse {
    child: Child,
    folder: PathBuf,
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
        let mounts = File::open("/proc/self/mountinfo").map_err(|e| Failure::io(doing, e))?;
        let output = || -> io::Result<(File, OwnedFd, OwnedFd)> {
            let file = File::from(memfd_create("nbdfuse-output", MemfdFlags::CLOEXEC)?);
            Ok((file.try_clone()?, file.try_clone()?.into(), file.into()))
        };
        let (output, stdout, stderr) = output().map_err(|e| Failure::io(doing, e))?;
        let child = tool::command("nbdfuse")
            .arg(folder.join("nbd"))
            .arg(uri(socket)?)
            .stdout(Stdio::from(stdout))
            .stderr(Stdio::from(stderr))
            .spawn()
            .map_err(|e| Failure::io(doing, e))?;
        let mut fuse = NbdFuse { child, folder: folder.to_path_buf(), output, running: true };
        fuse.wait_for_file(&mounts).map_err(|f| Failure { reason: format!("{}{}", f.reason, fuse.said()), ..f })?;
        Ok(fuse)
    }

    /// The file that is the export.
    ///
    /// # Errors
    /// nbdfuse or its server has died.
    pub(crate) fn open(&self) -> Result<File, Failure> {
        let path = self.folder.join("nbd");
        OpenOptions::new().read(true).write(true).open(path).map_err(|e| Failure::io("open the file of nbdfuse", e))
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

    /// Unmounts, waits for its end, and returns what it printed.
    ///
    /// # Errors
    /// The file is still in use, or the program does not go.
    pub(crate) fn stop(mut self) -> Result<String, Failure> {
        unmount(&self.folder, UnmountFlags::empty()).map_err(|e| Failure::io("unmount nbdfuse", e))?;
        let status = tool::wait_until(&mut self.child, Instant::now() + PATIENCE);
        match status.map_err(|e| Failure::io("wait for nbdfuse", e))? {
            Some(_) => {
                self.running = false;
                Ok(self.said())
            }
            None => {
                Err(Failure::new("stop nbdfuse", format!("still there {} s after its unmount", PATIENCE.as_secs())))
            }
        }
    }

    /// Woken by the kernel whenever this namespace's mounts change (poll(2) on mountinfo) and when the child ends.
    fn wait_for_file(&mut self, mounts: &File) -> Result<(), Failure> {
        let doing = "wait for nbdfuse";
        let end = Instant::now() + PATIENCE;
        let ended = tool::pidfd(&self.child).map_err(|e| Failure::io(doing, e))?;
        loop {
            if let Some(status) = self.child.try_wait().map_err(|e| Failure::io(doing, e))? {
                self.running = false;
                return Err(Failure::new(doing, format!("it ended ({status}): ")));
            }
            if self.folder.join("nbd").exists() {
                return Ok(());
            }
            if Instant::now() >= end {
                return Err(Failure::new(doing, format!("no mount within {} s: ", PATIENCE.as_secs())));
            }
            let mut fds = [PollFd::new(mounts, PollFlags::PRI), PollFd::new(&ended, PollFlags::IN)];
            tool::poll_again(&mut fds, end).map_err(|e| Failure::io(doing, e))?;
        }
    }
}

impl Drop for NbdFuse {
    fn drop(&mut self) {
        if self.running {
            let _ = unmount(&self.folder, UnmountFlags::DETACH);
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
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
