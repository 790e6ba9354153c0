//! Loop devices: configured in one call, with autoclear, each with a name of its own.
//!
//! The kernel reuses a loop device's *number* as soon as it is free, so "is /dev/loop3 gone?" can't be answered by
//! number: in between it may be another agent's. Each device of ours carries a unique tag in `lo_file_name`.
//!
//! Before a device is used two things are made sure. It has no exclusive user, that is, no mounted file system: a file
//! system that was copied into a foreign mount namespace outlives its unmount here, and would write over the next
//! image. And its backing file is not behind another loop device.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::protocol::Failure;

/// Longest wait for the kernel to let go of a device that was closed.
const RELEASE: Duration = Duration::from_secs(10);

/// How the device is to be.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Bytes of the file that are the disk; none: all.
    pub size: Option<u64>,
    /// The disk refuses writes.
    pub read_only: bool,
    /// Requests bypass the page cache of the backing file, so that a flush of the disk is one of the file.
    pub direct_io: bool,
}

/// A configured loop device; closing the last descriptor clears it, and a killed process closes all it has.
#[derive(Debug)]
pub struct LoopDevice {
    /// Taken only by `close` and by drop.
    device: Option<File>,
    number: u32,
    tag: String,
    direct_io: bool,
}

impl LoopDevice {
    /// Puts a loop device over `backing`.
    ///
    /// # Errors
    /// No free device, the backing is in use by another one, or direct I/O was wanted and is not to be had.
    pub fn over(backing: &File, setup: &Setup) -> Result<LoopDevice, Failure> {
        check_size(backing, setup)?;
        if let Some(other) = device_over(backing)? {
            return Err(Failure::new("attach a loop device", format!("its backing file is behind {other} already")));
        }
        let control = OpenOptions::new().read(true).write(true).open("/dev/loop-control");
        let control = control.map_err(|e| Failure::io("open /dev/loop-control", e))?;
        let tag = unique_tag();
        let mut last = io::Error::from_raw_os_error(libc::EBUSY);
        // Others take free devices too, so the number may be gone by the time it is used; then there is another.
        for _ in 0..ATTEMPTS {
            match configure_a_free_one(&control, backing, setup, &tag) {
                Ok((device, number)) => {
                    let direct_io = fs::read_to_string(format!("/sys/block/loop{number}/loop/dio"))
                        .is_ok_and(|dio| dio.trim() == "1");
                    if setup.direct_io && !direct_io {
                        let reason = "the kernel fell back to buffered I/O, flushes would not arrive";
                        return Err(Failure::new(format!("attach /dev/loop{number} with direct I/O"), reason));
                    }
                    return Ok(LoopDevice { device: Some(device), number, tag, direct_io });
                }
                Err(e) if e.raw_os_error() == Some(libc::EBUSY) => last = e,
                Err(e) => return Err(Failure::io("configure a loop device", e)),
            }
            std::thread::yield_now();
        }
        Err(Failure::io(format!("find a loop device without users, {ATTEMPTS} times"), last))
    }

    /// `/dev/loop3`.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(format!("/dev/loop{}", self.number))
    }

    /// `loop3`.
    pub fn kernel_name(&self) -> String {
        format!("loop{}", self.number)
    }

    /// The name that no other loop device has.
    pub fn tag(&self) -> &str {
        &self.tag
    }

    /// Whether requests bypass the page cache of the backing file.
    pub fn direct_io(&self) -> bool {
        self.direct_io
    }

    /// Opens the device exclusively for a moment, which fails as long as any mount namespace has a file system on it.
    ///
    /// # Errors
    /// It has a user.
    pub fn check_unused(&self) -> Result<(), Failure> {
        super::check_unused(&self.kernel_name())
    }

    /// Closes it and waits until the kernel has let go of the backing file.
    ///
    /// # Errors
    /// Somebody else keeps it open.
    pub fn close(mut self) -> Result<(), Failure> {
        self.device = None;
        if wait_released(self.number, &self.tag, RELEASE) {
            return Ok(());
        }
        let reason = format!("somebody else still has it open after {} s", RELEASE.as_secs());
        Err(Failure::new(format!("detach /dev/loop{}", self.number), reason))
    }
}

/// Waits until no loop device of number `number` carries `tag`; false: it still does. For whoever killed an agent.
///
/// The kernel has no event for the end of a loop device that reaches a mount namespace without udev, so this looks
/// again and again; the pause is the distance between looks, never the proof.
pub fn wait_released(number: u32, tag: &str, limit: Duration) -> bool {
    let end = Instant::now() + limit;
    loop {
        if !is_bound(number, tag) {
            return true;
        }
        if Instant::now() >= end {
            return false;
        }
        std::thread::sleep(Duration::from_micros(500));
    }
}

/// Whether `/dev/loop<number>` is configured under this tag.
pub fn is_bound(number: u32, tag: &str) -> bool {
    // sysfs first: opening a device that is about to clear itself would put that off.
    if !PathBuf::from(format!("/sys/block/loop{number}/loop/backing_file")).exists() {
        return false;
    }
    status(number).is_some_and(|info| file_name(&info) == tag)
}

// linux/loop.h
const LOOP_CTL_GET_FREE: libc::c_ulong = 0x4C82;
const LOOP_CONFIGURE: libc::c_ulong = 0x4C0A;
const LOOP_GET_STATUS64: libc::c_ulong = 0x4C05;
const LO_FLAGS_READ_ONLY: u32 = 1;
const LO_FLAGS_AUTOCLEAR: u32 = 4;
const LO_FLAGS_DIRECT_IO: u32 = 16;
/// Free numbers that may be lost to others before it is called a fault.
const ATTEMPTS: u32 = 1000;

/// `struct loop_info64`.
#[repr(C)]
#[derive(Clone, Copy)]
struct LoopInfo {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

impl LoopInfo {
    const EMPTY: LoopInfo = LoopInfo {
        device: 0,
        inode: 0,
        rdevice: 0,
        offset: 0,
        size_limit: 0,
        number: 0,
        encrypt_type: 0,
        encrypt_key_size: 0,
        flags: 0,
        file_name: [0; 64],
        crypt_name: [0; 64],
        encrypt_key: [0; 32],
        init: [0; 2],
    };
}

/// `struct loop_config`.
#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo,
    reserved: [u64; 8],
}

const _: () = assert!(size_of::<LoopInfo>() == 232 && size_of::<LoopConfig>() == 304);

fn configure_a_free_one(control: &File, backing: &File, setup: &Setup, tag: &str) -> io::Result<(File, u32)> {
    // SAFETY: LOOP_CTL_GET_FREE takes no argument.
    let number = unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE) };
    let number = u32::try_from(number).map_err(|_| io::Error::last_os_error())?;
    // An exclusive handle while configuring: refused if anybody holds the device, and nobody can take it meanwhile.
    let exclusive = exclusively(number, setup.read_only)?;
    let mut info = LoopInfo { size_limit: setup.size.unwrap_or(0), flags: LO_FLAGS_AUTOCLEAR, ..LoopInfo::EMPTY };
    info.flags |= if setup.read_only { LO_FLAGS_READ_ONLY } else { 0 };
    info.flags |= if setup.direct_io { LO_FLAGS_DIRECT_IO } else { 0 };
    info.file_name[..tag.len()].copy_from_slice(tag.as_bytes());
    let fd = u32::try_from(backing.as_raw_fd()).map_err(|_| io::Error::from_raw_os_error(libc::EBADF))?;
    let config = LoopConfig { fd, block_size: 512, info, reserved: [0; 8] };
    // SAFETY: LOOP_CONFIGURE reads one `struct loop_config`, whose layout `LoopConfig` has (asserted above).
    if unsafe { libc::ioctl(exclusive.as_raw_fd(), LOOP_CONFIGURE, &raw const config) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // Held without exclusivity from here on, or mkfs and mount would be refused; opened before the other is closed,
    // or autoclear would act.
    let device = OpenOptions::new().read(true).write(!setup.read_only).open(format!("/dev/loop{number}"))?;
    Ok((device, number))
}

fn exclusively(number: u32, read_only: bool) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(!read_only)
        .custom_flags(libc::O_EXCL | libc::O_CLOEXEC)
        .open(format!("/dev/loop{number}"))
}

fn status(number: u32) -> Option<LoopInfo> {
    let device = File::open(format!("/dev/loop{number}")).ok()?;
    let mut info = LoopInfo::EMPTY;
    // SAFETY: LOOP_GET_STATUS64 writes one `struct loop_info64`, whose layout `LoopInfo` has (asserted above).
    let result = unsafe { libc::ioctl(device.as_raw_fd(), LOOP_GET_STATUS64, &raw mut info) };
    // ENXIO: free, or about to be.
    (result == 0).then_some(info)
}

fn file_name(info: &LoopInfo) -> &str {
    let end = info.file_name.iter().position(|b| *b == 0).unwrap_or(info.file_name.len());
    std::str::from_utf8(&info.file_name[..end]).unwrap_or_default()
}

/// The configured loop device over the same file, if there is one.
fn device_over(backing: &File) -> Result<Option<String>, Failure> {
    let doing = "look for other loop devices over the same file";
    let meta = backing.metadata().map_err(|e| Failure::io(doing, e))?;
    for entry in fs::read_dir("/sys/block").map_err(|e| Failure::io(doing, e))? {
        let entry = entry.map_err(|e| Failure::io(doing, e))?;
        let name = entry.file_name().into_string().unwrap_or_default();
        let number = name.strip_prefix("loop").and_then(|n| n.parse().ok());
        let Some(number) = number.filter(|_| entry.path().join("loop/backing_file").exists()) else { continue };
        if status(number).is_some_and(|info| info.inode == meta.ino() && same_device(info.device, meta.dev())) {
            return Ok(Some(format!("/dev/{name}")));
        }
    }
    Ok(None)
}

/// The kernel's `huge_encode_dev` beside libc's `st_dev`.
fn same_device(kernel: u64, libc_dev: u64) -> bool {
    let (major, minor) = (u64::from(libc::major(libc_dev)), u64::from(libc::minor(libc_dev)));
    kernel == ((minor & 0xff) | (major << 8) | ((minor & !0xff) << 12))
}

fn check_size(backing: &File, setup: &Setup) -> Result<(), Failure> {
    let Some(size) = setup.size else { return Ok(()) };
    let length = backing.metadata().map_err(|e| Failure::io("ask for the image's size", e))?.len();
    if size == 0 || !size.is_multiple_of(512) || size > length {
        let reason =
            format!("{size} bytes wanted of {length}; a disk is a multiple of 512 bytes and lies in its image");
        return Err(Failure::new("attach an image", reason));
    }
    Ok(())
}

/// Unique on this machine, across PID namespaces (in each of which the agent has PID 1), and no longer than 63 bytes.
fn unique_tag() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    let namespace = fs::metadata("/proc/self/ns/pid").map(|m| m.ino()).unwrap_or_default();
    format!("powerfail-{namespace:x}-{}-{now:x}-{count}", std::process::id())
}
