//! Making a block device of a source, and giving it back for certain.

pub mod loop_device;
mod nbdfuse;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::protocol::{Attached, Failure, Source};
use crate::tool::micros;
use loop_device::{LoopDevice, Setup};
use nbdfuse::NbdFuse;

/// A device that is attached. Dropping it detaches, but can't say whether that worked: [`Attachment::detach`] can.
#[derive(Debug)]
pub struct Attachment {
    // The order of the fields is the order in which they are dropped: the disk before the file that it stands on.
    disk: LoopDevice,
    fuse: Option<NbdFuse>,
    started: Instant,
}

impl Attachment {
    /// Attaches `source`. `folder` is the agent's own; `images` were handed over at its start.
    ///
    /// # Errors
    /// Says which step failed; what was made before it is undone.
    pub fn make(source: &Source, folder: &Path, images: &[File]) -> Result<Attachment, Failure> {
        let started = Instant::now();
        match source {
            Source::Nbd { socket } => {
                let fuse = NbdFuse::start(socket, &folder.join("nbd"))?;
                let file = fuse.open()?;
                let disk = LoopDevice::over(&file, &Setup { size: None, read_only: false, direct_io: true });
                let disk = disk.map_err(|e| Failure { reason: format!("{}{}", e.reason, fuse.said()), ..e })?;
                Ok(Attachment { disk, fuse: Some(fuse), started })
            }
            Source::Image { index, size, read_only } => {
                let image = images.get(*index).ok_or_else(|| {
                    Failure::new("attach an image", format!("image {index} was not handed over, {} were", images.len()))
                })?;
                let setup = Setup { size: Some(*size), read_only: *read_only, direct_io: false };
                Ok(Attachment { disk: LoopDevice::over(image, &setup)?, fuse: None, started })
            }
        }
    }

    /// `/dev/loop3`.
    pub fn device(&self) -> PathBuf {
        self.disk.path()
    }

    /// `loop3`.
    pub fn kernel_name(&self) -> String {
        self.disk.kernel_name()
    }

    /// Fails if anybody at all, in whatever namespace, still has a file system on the device.
    ///
    /// # Errors
    /// Somebody has.
    pub fn check_unused(&self) -> Result<(), Failure> {
        self.disk.check_unused()
    }

    /// What the kernel made of the source.
    ///
    /// # Errors
    /// sysfs can't be read.
    pub fn describe(&self) -> Result<Attached, Failure> {
        Ok(Attached {
            device: self.disk.path().display().to_string(),
            tag: self.disk.tag().to_string(),
            write_cache: self.disk.queue("write_cache")?,
            fua: self.disk.queue("fua")? == "1",
            discard_max_bytes: self.disk.queue_number("discard_max_bytes")?,
            logical_block: u32::try_from(self.disk.queue_number("logical_block_size")?).unwrap_or(u32::MAX),
            direct_io: self.disk.direct_io(),
            nbdfuse: self.fuse.as_ref().map(NbdFuse::said).unwrap_or_default(),
            took_us: micros(self.started),
        })
    }

    /// Detaches and returns what nbdfuse printed in its life.
    ///
    /// # Errors
    /// The device or nbdfuse did not let go.
    pub fn detach(self) -> Result<String, Failure> {
        self.disk.close()?;
        self.fuse.map_or_else(|| Ok(String::new()), NbdFuse::stop)
    }
}
