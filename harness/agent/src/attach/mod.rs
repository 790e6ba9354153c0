//! Making a block device of a source, and giving it back for certain.

pub mod loop_device;
mod nbd_client;
mod nbdfuse;
mod owed;

use std::fs::{self, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::protocol::{Attached, Failure, Source};
use crate::serve::Setup as AgentSetup;
use crate::tool::micros;
use loop_device::{LoopDevice, Setup};
use nbd_client::{Hold, NbdClient};
use nbdfuse::NbdFuse;

/// A device that is attached. Dropping it detaches, but can't say whether that worked: [`Attachment::detach`] can.
#[derive(Debug)]
pub struct Attachment {
    disk: Disk,
    started: Instant,
}

#[derive(Debug)]
enum Disk {
    // The order of the fields is the order in which they are dropped: the disk before the file that it stands on.
    Loop { device: LoopDevice, fuse: Option<NbdFuse> },
    Nbd(NbdClient),
}

impl Attachment {
    /// Attaches `source`, with the folder of the agent and the images that it was handed at its start.
    ///
    /// # Errors
    /// Says which step failed; what was made before it is undone.
    pub fn make(source: &Source, setup: &AgentSetup) -> Result<Attachment, Failure> {
        let started = Instant::now();
        let (folder, images) = (&setup.folder, &setup.images);
        let disk = match source {
            Source::Nbd { socket } => {
                let fuse = NbdFuse::start(socket, &folder.join("nbd"))?;
                let file = fuse.open()?;
                let device = LoopDevice::over(&file, &Setup { size: None, read_only: false, direct_io: true });
                let device = device.map_err(|e| Failure { reason: format!("{}{}", e.reason, fuse.said()), ..e })?;
                Disk::Loop { device, fuse: Some(fuse) }
            }
            Source::NbdClient { host, port, export } => {
                let hold = if setup.own_machine { Hold::ByKernel } else { Hold::ByProcess };
                Disk::Nbd(NbdClient::start(host, *port, export, hold)?)
            }
            Source::Image { index, size, read_only } => {
                let image = images.get(*index).ok_or_else(|| {
                    Failure::new("attach an image", format!("image {index} was not handed over, {} were", images.len()))
                })?;
                let setup = Setup { size: Some(*size), read_only: *read_only, direct_io: false };
                Disk::Loop { device: LoopDevice::over(image, &setup)?, fuse: None }
            }
        };
        Ok(Attachment { disk, started })
    }

    /// `/dev/loop3`, `/dev/nbd0`.
    pub fn device(&self) -> PathBuf {
        Path::new("/dev").join(self.kernel_name())
    }

    /// `loop3`, `nbd0`.
    pub fn kernel_name(&self) -> String {
        match &self.disk {
            Disk::Loop { device, .. } => device.kernel_name(),
            Disk::Nbd(client) => client.kernel_name(),
        }
    }

    /// Fails if anybody at all, in whatever namespace, still has a file system on the device.
    ///
    /// # Errors
    /// Somebody has.
    pub fn check_unused(&self) -> Result<(), Failure> {
        match &self.disk {
            Disk::Loop { device, .. } => device.check_unused(),
            Disk::Nbd(client) => check_unused(&client.kernel_name()),
        }
    }

    /// Requests that the disk has had for two seconds in which it answered none; 0: it owes nothing.
    pub fn owes(&self) -> u64 {
        owed::owed(&self.kernel_name())
    }

    /// What the kernel made of the source.
    ///
    /// # Errors
    /// sysfs can't be read.
    pub fn describe(&self) -> Result<Attached, Failure> {
        let name = self.kernel_name();
        let (tag, direct_io, said) = match &self.disk {
            Disk::Loop { device, fuse } => {
                (device.tag().to_string(), device.direct_io(), fuse.as_ref().map(NbdFuse::said).unwrap_or_default())
            }
            Disk::Nbd(client) => (client.tag().to_string(), true, client.said().to_string()),
        };
        Ok(Attached {
            device: self.device().display().to_string(),
            tag,
            write_cache: queue(&name, "write_cache")?,
            fua: queue(&name, "fua")? == "1",
            discard_max_bytes: queue_number(&name, "discard_max_bytes")?,
            logical_block: u32::try_from(queue_number(&name, "logical_block_size")?).unwrap_or(u32::MAX),
            direct_io,
            nbdfuse: said,
            took_us: micros(self.started),
        })
    }

    /// Detaches and returns what nbdfuse or nbd-client printed in its life.
    ///
    /// # Errors
    /// The device or the program did not let go.
    pub fn detach(self) -> Result<String, Failure> {
        match self.disk {
            Disk::Loop { device, fuse } => {
                device.close()?;
                fuse.map_or_else(|| Ok(String::new()), NbdFuse::stop)
            }
            Disk::Nbd(client) => client.stop(),
        }
    }
}

/// Opens a device exclusively for a moment, which fails as long as any mount namespace has a file system on it.
fn check_unused(name: &str) -> Result<(), Failure> {
    let opened =
        OpenOptions::new().read(true).custom_flags(libc::O_EXCL | libc::O_CLOEXEC).open(format!("/dev/{name}"));
    opened.map(drop).map_err(|e| {
        let reason = format!("{e}: a file system is still on it, perhaps in another mount namespace");
        Failure { reason, ..Failure::io(format!("use /dev/{name} alone"), e) }
    })
}

/// A file in `/sys/block/NAME/queue`.
fn queue(name: &str, file: &str) -> Result<String, Failure> {
    let path = format!("/sys/block/{name}/queue/{file}");
    let text = fs::read_to_string(&path).map_err(|e| Failure::io(format!("read {path}"), e))?;
    Ok(text.trim().to_string())
}

fn queue_number(name: &str, file: &str) -> Result<u64, Failure> {
    let text = queue(name, file)?;
    text.parse().map_err(|_| Failure::new(format!("read queue/{file}"), format!("{text:?} is no number")))
}
