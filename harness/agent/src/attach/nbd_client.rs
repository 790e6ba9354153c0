//! nbd-client: an NBD export as a disk of the kernel's own driver, `/dev/nbdN`.
//!
//! What is known of it, by trial with nbd-client 3.24 on Linux 6.1 and 6.12:
//!
//! - without `-t` a server that goes away with a request in flight leaves its writers in uninterruptible sleep without
//!   end, and `nbd-client -d` frees them. With `-t` the kernel gives up by itself;
//! - `nbd-client -d` says that it was successful before the device is free, and also when it is not (NBD's issue 94), so
//!   sysfs is asked until it really is. The kernel has no event for that; the pause is the distance between looks;
//! - a device can be used again too early even then. Devices are taken in turn, so that the one that was just given back
//!   is the last to be taken again.
//!
//! - with `-L -n` the connection is the process's (`NBD_DO_IT` of the old interface), and the device is free as soon as that
//!   process is dead, however it died. Without, it is the kernel's own and outlives everybody. On a machine that is not
//!   the agent's own the first is what a kill needs to leave nothing.
//!
//! A device in use, by whomever, is never touched: `nbd-client` refuses one that is connected, and what has a size, a
//! client or an exclusive user is not tried.

use std::fs::{self, File};
use std::io::{Read, Seek};
use std::path::Path;
use std::process::Child;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, memfd_create};

use super::check_unused;
use crate::protocol::{Failure, ToolRan};
use crate::tool;

/// Longest wait for nbd-client itself, and for the kernel after it.
const PATIENCE: Duration = Duration::from_secs(20);

/// Seconds after which the kernel gives up a request that the server does not answer.
const REQUEST_TIMEOUT: &str = "60";

/// A connected device; dropping it disconnects.
#[derive(Debug)]
pub(crate) struct NbdClient {
    number: u32,
    tag: String,
    said: String,
    connected: bool,
    /// The process that holds the connection, if one does.
    holder: Option<Child>,
}

/// Who keeps a device connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    /// The kernel, until it is told otherwise or the machine ends.
    ByKernel,
    /// A process, so that the device ends with it.
    ByProcess,
}

/// The device to try first.
static NEXT: AtomicU32 = AtomicU32::new(0);

impl NbdClient {
    /// Connects a free device to the export and waits until it is ready.
    ///
    /// # Errors
    /// The kernel has no NBD devices or none that is free; the program is not installed; it, or the server, refused.
    pub(crate) fn start(host: &str, port: u16, export: &str, hold: Hold) -> Result<NbdClient, Failure> {
        let doing = "attach with nbd-client (package nbd-client)";
        let devices = count();
        if devices == 0 {
            return Err(Failure::new(doing, "the kernel has no NBD devices: its module nbd is not loaded"));
        }
        let first = NEXT.load(Ordering::Relaxed);
        let mut refused = None;
        for number in (0..devices).map(|n| (first + n) % devices).filter(|n| is_free(*n)) {
            let tag = format!("{host}:{port}/{export}");
            let said = match hold {
                Hold::ByProcess => match held(number, host, port, export)? {
                    Ok(holder) => {
                        NEXT.store(number + 1, Ordering::Relaxed);
                        let (said, holder) = (String::new(), Some(holder));
                        let client = NbdClient { number, tag, said, connected: true, holder };
                        check_unused(&client.kernel_name())?;
                        return Ok(client);
                    }
                    Err(said) => said,
                },
                Hold::ByKernel => {
                    let ran = connect(number, host, port, export)?;
                    if ran.code == Some(0) {
                        NEXT.store(number + 1, Ordering::Relaxed);
                        let client = NbdClient { number, tag, said: said(&ran), connected: true, holder: None };
                        client.wait_until_ready()?;
                        return Ok(client);
                    }
                    said(&ran)
                }
            };
            let failure = Failure::new(doing, format!("/dev/nbd{number}: {}", said.trim()));
            // If it is free still, then it was not somebody else who was faster.
            if is_free(number) {
                return Err(failure);
            }
            refused = Some(failure);
        }
        Err(refused.unwrap_or_else(|| Failure::new(doing, format!("all {devices} NBD devices are in use"))))
    }

    /// `nbd0`.
    pub(crate) fn kernel_name(&self) -> String {
        format!("nbd{}", self.number)
    }

    /// The server and the export.
    pub(crate) fn tag(&self) -> &str {
        &self.tag
    }

    /// What the program printed.
    pub(crate) fn said(&self) -> &str {
        &self.said
    }

    /// Disconnects, waits until the device is free, and returns what was printed.
    ///
    /// # Errors
    /// A file system is on it, or the kernel does not let go.
    pub(crate) fn stop(mut self) -> Result<String, Failure> {
        check_unused(&self.kernel_name())?;
        let ran = disconnect(self.number)?;
        self.said.push_str(&said(&ran));
        let free = wait(|| is_free(self.number));
        self.connected = !free;
        if free {
            self.reap();
        }
        if free {
            return Ok(std::mem::take(&mut self.said));
        }
        let what = state(self.number);
        let reason = format!("{what} {} s after `nbd-client -d`: {}", PATIENCE.as_secs(), said(&ran).trim());
        Err(Failure::new(format!("detach /dev/nbd{}", self.number), reason))
    }

    /// A size and a client: the kernel has both before it answers the first request. The exclusive opening makes it read
    /// the partition table now: a disconnection during that would hang (NBD's issue 59).
    fn wait_until_ready(&self) -> Result<(), Failure> {
        if !wait(|| size(self.number) > 0 && has_client(self.number)) {
            let reason = format!("{} {} s after nbd-client connected it", state(self.number), PATIENCE.as_secs());
            return Err(Failure::new(format!("attach /dev/nbd{}", self.number), reason));
        }
        check_unused(&self.kernel_name())
    }
}

impl Drop for NbdClient {
    fn drop(&mut self) {
        if self.connected {
            // Nobody to tell; whoever wants to know uses `stop`.
            let _ = disconnect(self.number);
        }
        self.reap();
    }
}

impl NbdClient {
    /// A process whose device was given back ends by itself; one that does not is ended.
    fn reap(&mut self) {
        if let Some(mut holder) = self.holder.take()
            && !matches!(tool::wait_until(&mut holder, Instant::now() + PATIENCE), Ok(Some(_)))
        {
            let _ = holder.kill();
            let _ = holder.wait();
        }
    }
}

/// Starts the process that holds the device and waits until the kernel has it; or else what it said.
fn held(number: u32, host: &str, port: u16, export: &str) -> Result<Result<Child, String>, Failure> {
    let doing = || format!("connect /dev/nbd{number}");
    let mut said =
        File::from(memfd_create("nbd-client-output", MemfdFlags::CLOEXEC).map_err(|e| Failure::io(doing(), e))?);
    let words = words(number, host, port, export);
    let output = || said.try_clone().map_err(|e| Failure::io(doing(), e));
    let mut command = tool::command("nbd-client");
    command.args(&words[1..]).args(["-L", "-n"]).stdout(output()?).stderr(output()?);
    let mut holder = command.spawn().map_err(|e| Failure::io("start nbd-client (package nbd-client)", e))?;
    let ready = wait(|| {
        let there = size(number) > 0 && has_client(number);
        there || !matches!(holder.try_wait(), Ok(None))
    });
    if ready && matches!(holder.try_wait(), Ok(None)) {
        return Ok(Ok(holder));
    }
    let _ = holder.kill();
    let _ = holder.wait();
    let mut text = String::new();
    let read = said.rewind().and_then(|()| said.read_to_string(&mut text));
    Ok(Err(read.map_or_else(|e| format!("(its output can't be read: {e})"), |_| text)))
}

fn connect(number: u32, host: &str, port: u16, export: &str) -> Result<ToolRan, Failure> {
    tool::run(&words(number, host, port, export), "", PATIENCE)
}

fn words(number: u32, host: &str, port: u16, export: &str) -> Vec<String> {
    let (device, port) = (format!("/dev/nbd{number}"), port.to_string());
    let mut words = vec!["nbd-client", host, &port, &device, "-b", "512", "-t", REQUEST_TIMEOUT];
    if !export.is_empty() {
        words.extend(["-N", export]);
    }
    words.into_iter().map(String::from).collect()
}

fn disconnect(number: u32) -> Result<ToolRan, Failure> {
    run(&["nbd-client", "-d", &format!("/dev/nbd{number}")])
}

fn run(words: &[&str]) -> Result<ToolRan, Failure> {
    let words: Vec<String> = words.iter().map(ToString::to_string).collect();
    tool::run(&words, "", PATIENCE)
}

fn said(ran: &ToolRan) -> String {
    let late = if ran.timed_out { "(too slow, killed)\n" } else { "" };
    format!("{}{}{late}", ran.stdout, ran.stderr)
}

/// Looks until it holds; false: not in time.
fn wait(mut holds: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        if Instant::now() >= end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    true
}

fn count() -> u32 {
    (0..).find(|number| !folder(*number).exists()).unwrap_or(0)
}

fn is_free(number: u32) -> bool {
    !has_client(number) && size(number) == 0 && check_unused(&format!("nbd{number}")).is_ok()
}

/// The kernel shows the client's process id as long as the device has sockets.
fn has_client(number: u32) -> bool {
    folder(number).join("pid").exists()
}

/// In sectors; what can't be read counts as in use.
fn size(number: u32) -> u64 {
    fs::read_to_string(folder(number).join("size")).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(u64::MAX)
}

fn state(number: u32) -> String {
    let client = if has_client(number) { "has a client" } else { "has no client" };
    format!("it {client} and {} sectors", size(number))
}

fn folder(number: u32) -> std::path::PathBuf {
    Path::new("/sys/block").join(format!("nbd{number}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_the_module_says_so() {
        if count() > 0 {
            println!("SKIPPED: this kernel has NBD devices.");
            return;
        }
        let failure = NbdClient::start("127.0.0.1", 1, "", Hold::ByKernel).unwrap_err();
        assert!(failure.reason.contains("module nbd"), "{failure}");
    }
}
