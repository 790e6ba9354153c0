//! The agent as the first process of a guest: from the kernel's start to the command loop.
//!
//! There is no shell and no script in a guest, and nothing of it outlives it. Process 1 mounts what programs expect,
//! loads the kernel modules that the image names, brings the network up, finds the port to the harness, and becomes two:
//!
//! - the agent proper, with the port as its standard input and output, so that the rest is the same as on a host;
//! - process 1 itself, which takes the exit codes of orphans and ends the machine when the agent has ended.
//!
//! Whatever goes wrong is said on standard error, which is the guest's console, and ends the machine: the harness then
//! has the console's text.

mod modules;
mod network;
mod port;

use std::fs;
use std::io;
use std::path::PathBuf;

use rustix::mount::{MountFlags, mount};
use rustix::process::{Pid, WaitOptions, waitpid};

use crate::protocol::Failure;
use crate::serve::Setup;

/// The list of kernel modules in the guest: one a line, a path and the module's parameters, in the order of loading.
pub const MODULES: &str = "/etc/powerfail/modules";
/// The name of the virtio-serial port that leads to the harness.
pub const PORT: &str = "powerfail";
/// The guest's address in the network that QEMU makes, and the gateway, which is also the host's loopback.
pub const ADDRESS: [u8; 4] = [10, 0, 2, 15];
/// See [`ADDRESS`].
pub const GATEWAY: [u8; 4] = [10, 0, 2, 2];

/// Makes a machine of what the kernel started; returns in the agent proper. Process 1 never leaves this.
///
/// # Errors
/// Not process 1. Any other failure ends the machine.
pub fn boot() -> Result<Setup, Failure> {
    if std::process::id() != 1 {
        return Err(Failure::new("be a guest", "only the first process of a machine can be that"));
    }
    if let Err(failure) = prepare() {
        eprintln!("powerfail-agent: {failure}");
        end_machine();
    }
    // SAFETY: process 1 has made no thread, so the child is as whole as the parent.
    match unsafe { libc::fork() } {
        -1 => {
            eprintln!("powerfail-agent: fork: {}", io::Error::last_os_error());
            end_machine()
        }
        0 => Ok(Setup {
            folder: PathBuf::from("/run/powerfail"),
            images: Vec::new(),
            namespaced: true,
            own_machine: true,
        }),
        agent => reap_until(agent),
    }
}

fn prepare() -> Result<(), Failure> {
    for (fstype, at, options) in MOUNTS {
        fs::create_dir_all(at).map_err(|e| Failure::io(format!("make {at}"), e))?;
        let options = std::ffi::CString::new(*options).unwrap_or_default();
        match mount(*fstype, *at, *fstype, MountFlags::empty(), Some(options.as_c_str())) {
            // The kernel may have mounted /dev by itself.
            Ok(()) | Err(rustix::io::Errno::BUSY) => {}
            Err(e) => return Err(Failure::io(format!("mount {fstype} on {at}"), e)),
        }
    }
    fs::create_dir_all("/run/powerfail").map_err(|e| Failure::io("make /run/powerfail", e))?;
    std::env::set_current_dir("/").map_err(|e| Failure::io("go to /", e))?;
    modules::load_all()?;
    network::bring_up()?;
    port::become_standard_io()?;
    eprintln!("powerfail-agent: the guest is ready");
    Ok(())
}

const MOUNTS: &[(&str, &str, &str)] =
    &[("proc", "/proc", ""), ("sysfs", "/sys", ""), ("devtmpfs", "/dev", ""), ("tmpfs", "/run", "mode=0755")];

/// Process 1's life: it waits for everybody whose parent has died, and for the agent.
fn reap_until(agent: i32) -> ! {
    let agent = Pid::from_raw(agent);
    loop {
        match waitpid(None, WaitOptions::empty()) {
            Ok(Some((pid, status))) if Some(pid) == agent => {
                match (status.exit_status(), status.terminating_signal()) {
                    (Some(0), _) => {}
                    (code, signal) => eprintln!("powerfail-agent: ended with code {code:?}, signal {signal:?}"),
                }
                end_machine();
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            // No children at all, which can't be: the agent's end is seen above.
            Err(e) => {
                eprintln!("powerfail-agent: wait for the agent: {e}");
                end_machine();
            }
        }
    }
}

/// Restarts the machine; whoever made it lets a restart be its end. Nothing is synced: what the drive does not have by
/// now, nobody was promised.
fn end_machine() -> ! {
    let error = rustix::system::reboot(rustix::system::RebootCommand::Restart);
    eprintln!("powerfail-agent: restart the machine: {error:?}");
    std::process::exit(1)
}
