//! A drive from one power-on to the next cut: its recording, its server, its clients.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, anyhow};
use powerfail_drive::device::Device;
use powerfail_drive::history::MOUNTED;
use powerfail_drive::request::{Command, Request};
use powerfail_nbd::{Config, Export, Exports, Farewell, Handle};

use super::args::Setup;
use super::door::Door;
use super::tape::Tape;
use crate::recording_file::Mapped;
use crate::served_drive::ServedDrive;

/// A drive that has power.
#[derive(Debug)]
pub(crate) struct Generation {
    pub(crate) number: u64,
    pub(crate) drive: Arc<ServedDrive<Tape>>,
    pub(crate) server: Handle,
    files: Files,
    tape: Tape,
}

/// The files of a generation.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    folder: PathBuf,
}

impl Files {
    pub(crate) fn recording(&self) -> PathBuf {
        self.folder.join("recording")
    }

    pub(crate) fn cut(&self) -> PathBuf {
        self.folder.join("cut.json")
    }

    /// The recording while it is written.
    pub(crate) fn part(&self) -> PathBuf {
        self.folder.join("recording.part")
    }
}

impl Generation {
    /// Turns the power on over what is on the platter. Must be called within the runtime.
    ///
    /// # Errors
    /// If it can't be recorded or served; then nothing is left of it.
    pub(crate) fn begin(
        setup: &Setup,
        record: &Path,
        number: u64,
        platter: &[(u64, Vec<u8>)],
        door: &mut Door,
    ) -> anyhow::Result<Generation> {
        let files = Files { folder: record.join(number.to_string()) };
        fs::create_dir(&files.folder).with_context(|| format!("can't make {}", files.folder.display()))?;
        let begun = Generation::begin_in(setup, files.clone(), number, platter, door);
        if begun.is_err() {
            // It was made above, and nobody else knows of it.
            let _ = fs::remove_dir_all(&files.folder);
        }
        begun
    }

    fn begin_in(
        setup: &Setup,
        files: Files,
        number: u64,
        platter: &[(u64, Vec<u8>)],
        door: &mut Door,
    ) -> anyhow::Result<Generation> {
        let tape = Tape::create(&files.part(), setup.header).context("can't begin the recording")?;
        let drive = Arc::new(ServedDrive::new(setup.header, true, tape.clone()));
        write_base(&drive, setup, platter).context("can't write what was on the platter to the new recording")?;
        let cache = match setup.header.write_cache {
            true => format!("write cache of {} KiB", setup.drive.cache.bytes >> 10),
            false => "no write cache".into(),
        };
        let text = format!("powerfail drive, {cache}, generation {number}");
        let export = Export::new(setup.export.clone(), drive.clone() as Arc<dyn Device>).description(text);
        let exports = Exports::new(vec![export]).map_err(|error| crate::folder::Usage(error.to_string()))?;
        let server = door.open()?.serve(exports, Config { hold: setup.hold, ..Config::default() })?;
        Ok(Generation { number, drive, server, files, tape })
    }

    /// Events that were recorded so far.
    pub(crate) fn events(&self) -> u64 {
        self.tape.events()
    }

    /// The files.
    pub(crate) fn files(&self) -> &Files {
        &self.files
    }

    /// The recording's bytes so far, while the drive is in use.
    ///
    /// # Errors
    /// If it can't be written or read.
    pub(crate) fn so_far(&self) -> anyhow::Result<(Mapped, usize)> {
        let part = self.files.part();
        let length = self.tape.flushed_length(&part).context("the recording can't be written")?;
        Ok((Mapped::open(&part)?, length as usize))
    }

    /// Closes the recording of a drive that has lost its power, and gives it its name.
    ///
    /// # Errors
    /// If it could not be written.
    pub(crate) fn keep_recording(&self) -> anyhow::Result<Mapped> {
        self.tape.finish().context("the recording could not be written")?;
        let path = self.files.recording();
        fs::rename(self.files.part(), &path)?;
        Ok(Mapped::open(&path)?)
    }

    /// Ends a drive in good order: what hosts have asked is answered first.
    ///
    /// # Errors
    /// If the recording could not be written.
    pub(crate) async fn end(self) -> anyhow::Result<()> {
        self.server.shutdown(Farewell::Answer).await;
        self.drive.cut()?;
        self.tape.finish().context("the recording could not be written")?;
        Ok(fs::rename(self.files.part(), self.files.recording())?)
    }
}

/// The first events of a recording: what was there before.
fn write_base(drive: &ServedDrive<Tape>, setup: &Setup, platter: &[(u64, Vec<u8>)]) -> anyhow::Result<()> {
    let refused = |refusal| anyhow!("{refusal}");
    for (offset, part) in platter {
        let inside = (setup.header.geometry.bytes() - offset).min(part.len() as u64);
        let data = &part[..inside as usize];
        let request = Request { command: Command::Write, offset: *offset, length: inside, fua: false, data };
        let receipt = drive.receive(&request).map_err(refused)?;
        drive.reply(receipt).map_err(refused)?;
    }
    drive.mark(MOUNTED).map_err(refused)?;
    Ok(())
}
