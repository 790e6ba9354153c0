//! A recovery on a recorded drive: the image is what the drive holds when its power comes on, and the kernel mounts and
//! unmounts it.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{anyhow, bail};
use powerfail_drive::device::Device;
use powerfail_drive::event::{Head, Header};
use powerfail_drive::history::{MOUNTED, WORKLOAD_END};
use powerfail_drive::live::Sink;
use powerfail_drive::request::{Command, Request};
use powerfail_drive::thin::thin;
use powerfail_nbd::{Config as Serving, Exports, Farewell};
use powerfail_rig::{Agent, MountOutcome, UnmountOutcome};

use crate::cell::Cell;
use crate::image::Image;
use crate::record::with_console;
use crate::rigs::Rig;
use crate::served_drive::ServedDrive;

const PAGE: usize = 4096;
/// For attaching and detaching.
const LIMIT: Duration = Duration::from_secs(60);
/// How often a recovery is tried when the harness or its guest breaks.
const TRIES: u32 = 2;

/// A recording in memory. ext4 writes about half a mebibyte in a recovery; XFS writes the same hundred buffers again and again,
/// for each checkpoint of its log, and can come to 230 MB.
#[derive(Debug)]
struct Memory(Vec<u8>);

impl Memory {
    fn new(header: Header) -> Memory {
        Memory(header.encode().to_vec())
    }
}

impl Sink for Memory {
    fn append(&mut self, head: &Head, data: &[u8]) -> std::io::Result<()> {
        self.0.extend_from_slice(&head.encode());
        self.0.extend_from_slice(data);
        Ok(())
    }
}

/// Records recoveries, one after the other, with one agent.
pub(super) struct Recorder<'a> {
    cell: &'a Cell,
    rig: &'a dyn Rig,
    agent: Option<Agent>,
    /// Servers so far: each has a name of its own.
    served: u32,
}

impl<'a> Recorder<'a> {
    pub(super) fn new(cell: &'a Cell, rig: &'a dyn Rig) -> Recorder<'a> {
        Recorder { cell, rig, agent: None, served: 0 }
    }

    /// The thin recording of the recovery from an image; none if the mount is refused.
    ///
    /// # Errors
    /// If the rig fails, twice.
    pub(super) fn record(&mut self, image: &Image) -> anyhow::Result<Option<Vec<u8>>> {
        let mut tries = 1;
        loop {
            match self.recover(image) {
                Ok(recording) => return Ok(recording),
                Err(error) => {
                    let error = match self.agent.take() {
                        Some(agent) => with_console(error, &agent),
                        None => error,
                    };
                    if tries == TRIES {
                        return Err(error.context("recording a recovery"));
                    }
                    tries += 1;
                }
            }
        }
    }

    fn recover(&mut self, image: &Image) -> anyhow::Result<Option<Vec<u8>>> {
        let cell = self.cell;
        let drive = Arc::new(ServedDrive::new(cell.header, cell.offers_flush(), Memory::new(cell.header)));
        write_base(&drive, image)?;
        self.served += 1;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let server = {
            let _inside = runtime.enter();
            let serving = Serving { hold: cell.hold, ..Serving::default() };
            let name = format!("{}-recovery-{}", cell.name, self.served);
            self.rig.bind(&name)?.serve(Exports::one(drive.clone()), serving)?
        };
        let mounted = self.mount_on(&drive, self.rig.drive(server.address()));
        runtime.block_on(server.shutdown(Farewell::Answer));
        let recording = drive.close().map_err(|refusal| anyhow!("{refusal}"))?.0;
        Ok(if mounted? { Some(thin(&recording)?) } else { None })
    }

    /// Whether it mounted.
    fn mount_on(
        &mut self,
        drive: &ServedDrive<Memory>,
        source: powerfail_agent::protocol::Source,
    ) -> anyhow::Result<bool> {
        let (cell, limits) = (self.cell, self.rig.limits());
        if self.agent.is_none() {
            self.agent = Some(self.rig.agent()?);
        }
        let agent = self.agent.as_mut().expect("just started");
        agent.attach(source, LIMIT)?;
        let options = cell.judge_mount();
        let mounted = match agent.mount(cell.fs.kernel_name(), &options, limits.lock, limits.mount)? {
            MountOutcome::Mounted { .. } => true,
            MountOutcome::Refused { .. } => false,
        };
        if mounted {
            match agent.unmount(limits.other)? {
                UnmountOutcome::Unmounted { .. } => {}
                UnmountOutcome::Failed { message, .. } => bail!("can't unmount after a recovery: {message}"),
            }
        }
        drive.mark(WORKLOAD_END).map_err(|refusal| anyhow!("{refusal}"))?;
        agent.detach(LIMIT)?;
        Ok(mounted)
    }
}

/// The first events of the recording: all that the image holds, settled.
fn write_base(drive: &ServedDrive<Memory>, image: &Image) -> anyhow::Result<()> {
    let refused = |refusal| anyhow!("{refusal}");
    for (from, to) in image.extents()? {
        for offset in (from..to).step_by(PAGE) {
            let data = &image.bytes()[offset as usize..(offset as usize + PAGE).min(to as usize)];
            if data.iter().all(|&byte| byte == 0) {
                continue;
            }
            let request = Request { command: Command::Write, offset, length: data.len() as u64, fua: false, data };
            let receipt = drive.receive(&request).map_err(refused)?;
            drive.reply(receipt).map_err(refused)?;
        }
    }
    drive.mark(MOUNTED).map_err(refused)?;
    Ok(())
}
