//! Namespaces of its own, so that nothing of an agent outlives its harness.
//!
//! The program becomes two processes:
//!
//! - the *leash* stays in the harness's namespaces, has no thread, no mount and no device, and only waits: for the
//!   harness's end (its end of the pipe on standard input hangs up; or its pidfd says so) or for the agent's. In the
//!   first case it kills the agent. When it has waited for the agent, every process of the agent's PID namespace is
//!   gone, for the kernel ends a PID namespace's first process last;
//! - the *agent* is PID 1 of its own PID namespace and has a mount namespace of its own. When it dies, by whatever
//!   signal, the kernel kills the namespace's other processes (nbdfuse, tools), unmounts everything that only this
//!   namespace had mounted, and the loop devices clear themselves. It dies with the leash, which watches the input for
//!   it: the agent itself may be in a mount(2) that takes long. nbdfuse must not share the agent's mount namespace, or
//!   its end is a deadlock (see `nbdfuse`).
//!
//! A new mount namespace begins as a copy of the present one. A test mount that somebody else had at that moment
//! would be kept alive by the copy after its owner unmounted it, so the agent drops every copy of a mount on a loop
//! or NBD device and of a FUSE mount.

use std::fs;
use std::io;
use std::path::Path;

use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_change, unmount};
use rustix::process::Signal;
use rustix::thread::{UnshareFlags, unshare_unsafe};

use crate::leash;
use crate::protocol::Failure;

/// Returns in the agent proper, PID 1 of new namespaces; the leash ends inside, with the agent's exit code.
///
/// `folder` is covered by a tmpfs of the agent's own.
///
/// # Errors
/// Not root, or the kernel has no such namespaces. Nothing has been made then.
pub(crate) fn enter(folder: &Path) -> Result<(), Failure> {
    leash::require_single_thread()?;
    let harness = leash::watch_parent()?;
    // SAFETY: no thread but this one; a PID namespace changes nothing for this process itself.
    unsafe { unshare_unsafe(UnshareFlags::NEWPID) }.map_err(|e| Failure::io("make a PID namespace (needs root)", e))?;
    // SAFETY: no thread but this one, so the child is as whole as the parent.
    match unsafe { libc::fork() } {
        -1 => Err(Failure::io("fork", io::Error::last_os_error())),
        0 => become_agent(folder),
        child => leash::hold(child, harness.as_ref()),
    }
}

fn become_agent(folder: &Path) -> Result<(), Failure> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|e| Failure::io("ask to die with the leash", e))?;
    // SAFETY: no thread but this one.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS) }.map_err(|e| Failure::io("make a mount namespace", e))?;
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .map_err(|e| Failure::io("make all mounts private", e))?;
    drop_foreign_mounts()?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", "/proc", "proc", flags, None).map_err(|e| Failure::io("mount /proc", e))?;
    mount("powerfail-agent", folder, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, Some(c"mode=0700"))
        .map_err(|e| Failure::io(format!("mount a tmpfs on {}", folder.display()), e))
}

/// Block majors of loop and NBD devices (linux/major.h).
const LOOP_MAJOR: u32 = 7;
const NBD_MAJOR: u32 = 43;

/// Lets go of the copies of others' test mounts. Where the system itself or the tools live is left alone.
fn drop_foreign_mounts() -> Result<(), Failure> {
    let doing = "drop copies of others' mounts";
    let text = fs::read_to_string("/proc/self/mountinfo").map_err(|e| Failure::io(doing, e))?;
    let foreign: Vec<String> = text.lines().filter_map(foreign_mount).collect();
    // Last mounted first, so that what lies on top goes before what is below.
    for at in foreign.iter().rev() {
        match unmount(at, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
            // Hidden below another mount, or gone along with the one above it.
            Ok(()) | Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOENT) => {}
            Err(e) => return Err(Failure::io(format!("{doing}: {at}"), e)),
        }
    }
    Ok(())
}

/// The mount point of a mountinfo line (proc_pid_mountinfo(5)) that is a candidate to be dropped.
fn foreign_mount(line: &str) -> Option<String> {
    let (head, tail) = line.split_once(" - ")?;
    let fields: Vec<&str> = head.split(' ').collect();
    let major: u32 = fields.get(2)?.split(':').next()?.parse().ok()?;
    let fstype = tail.split(' ').next()?;
    let at = unescape(fields.get(4)?);
    let of_the_system = ["/usr", "/bin", "/sbin", "/lib", "/etc", "/nix", "/gnu", "/dev", "/proc", "/sys"];
    let system = at == "/" || of_the_system.iter().any(|top| Path::new(&at).starts_with(top));
    let of_a_test = major == LOOP_MAJOR || major == NBD_MAJOR || fstype == "fuse" || fstype.starts_with("fuse.");
    (of_a_test && !system).then_some(at)
}

/// mountinfo writes space, tab, newline and backslash as three octal digits.
fn unescape(field: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .iter()
        .fold(field.to_string(), |text, (code, plain)| text.replace(code, plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_mounts_of_tests_are_foreign() {
        let line = |id: &str, at: &str, fstype: &str| format!("36 35 {id} / {at} rw master:1 - {fstype} src rw");
        assert_eq!(foreign_mount(&line("7:3", "/mnt/a\\040b", "ext4")), Some("/mnt/a b".to_string()));
        assert_eq!(foreign_mount(&line("43:0", "/mnt", "xfs")), Some("/mnt".to_string()));
        assert_eq!(foreign_mount(&line("0:50", "/run/x", "fuse.nbdfuse")), Some("/run/x".to_string()));
        for (id, at, fstype) in [
            ("7:3", "/", "ext4"),
            ("7:3", "/usr/share", "squashfs"),
            ("254:0", "/mnt", "ext4"),
            ("0:6", "/dev", "fuse"),
        ] {
            assert_eq!(foreign_mount(&line(id, at, fstype)), None, "{id} {at} {fstype}");
        }
        assert_eq!(foreign_mount("garbage"), None);
    }
}
