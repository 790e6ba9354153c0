//! The port to the harness: a virtio-serial port, found by its name.

use std::fs::{self, OpenOptions};
use std::mem::ManuallyDrop;
use std::os::fd::{FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::PORT;
use crate::protocol::Failure;

/// The driver adds ports some time after it was loaded, when the machine has told it of them.
const PATIENCE: Duration = Duration::from_secs(20);

/// Makes the port standard input and output.
///
/// # Errors
/// There is no such port.
pub(super) fn become_standard_io() -> Result<(), Failure> {
    let doing = "open the port to the harness";
    let path = wait_for_port().ok_or_else(|| {
        let reason = format!("no virtio-serial port is named {PORT:?}; is virtio_console in the kernel?");
        Failure::new(doing, reason)
    })?;
    let port = OpenOptions::new().read(true).write(true).open(path).map_err(|e| Failure::io(doing, e))?;
    for number in [libc::STDIN_FILENO, libc::STDOUT_FILENO] {
        // SAFETY: descriptors 0 and 1 are nobody's objects here; `ManuallyDrop` keeps them open.
        let mut standard = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(number) });
        rustix::io::dup2(&port, &mut standard).map_err(|e| Failure::io(doing, e))?;
    }
    Ok(())
}

fn wait_for_port() -> Option<PathBuf> {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(path) = find_port() {
            return Some(path);
        }
        if Instant::now() >= end {
            return None;
        }
        // sysfs has no event for it; the pause is the distance between looks.
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn find_port() -> Option<PathBuf> {
    let ports = fs::read_dir("/sys/class/virtio-ports").ok()?.flatten();
    ports.into_iter().find_map(|port| {
        let name = fs::read_to_string(port.path().join("name")).ok()?;
        let device = Path::new("/dev").join(port.file_name());
        (name.trim() == PORT && device.exists()).then_some(device)
    })
}
