//! Sockets that a parent process passes, as systemd does and as `nbdinfo -- [ … ]` and `nbdcopy -- [ … ]` do
//! (sd_listen_fds(3)): `LISTEN_PID` is this process, `LISTEN_FDS` their number, and the first is descriptor 3.

use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use anyhow::bail;

use crate::folder::Usage;

const FIRST: RawFd = 3;

/// The socket that was passed, if any.
///
/// # Errors
/// [`Usage`] if there are several: there is one drive.
pub(crate) fn passed() -> anyhow::Result<Option<OwnedFd>> {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u32>().ok());
    if number("LISTEN_PID") != Some(std::process::id()) {
        return Ok(None);
    }
    match number("LISTEN_FDS") {
        None | Some(0) => Ok(None),
        Some(1) => {
            // SAFETY: by the protocol the descriptor is open and ours; this is called once, before anything is opened
            // that could have its number.
            let socket = unsafe { OwnedFd::from_raw_fd(FIRST) };
            rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC)?;
            Ok(Some(socket))
        }
        Some(several) => bail!(Usage(format!("{several} sockets were passed (LISTEN_FDS), and there is one drive"))),
    }
}
