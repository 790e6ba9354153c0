//! A canary that hangs: its image is behind a server that takes the connection and never says a word. The agent waits in the
//! handshake, so no device hangs with it, and its death frees everything.

use std::time::Duration;

use anyhow::Context;
use powerfail_agent::protocol::Source;
use powerfail_ledger::{Ending, Outcome};
use powerfail_nbd::{Address, Server};
use powerfail_rig::Agent;

use crate::cell::Cell;
use crate::folder::Folder;
use crate::image::Image;
use crate::recording_file::Mapped;
use crate::rigs::{Rig, Seat};
use crate::run::about;
use crate::verify::{Job, Limits, Worker};

/// How long the agent may hang; it would for ever.
const LIMIT: Duration = Duration::from_secs(1);

/// A rig whose images never answer.
#[derive(Debug)]
struct Silent<'a> {
    rig: &'a dyn Rig,
    /// Bound, and never served.
    server: Server,
}

impl Rig for Silent<'_> {
    fn name(&self) -> &'static str {
        self.rig.name()
    }

    fn bind(&self, cell: &str) -> anyhow::Result<Server> {
        self.rig.bind(cell)
    }

    fn drive(&self, address: &Address) -> Source {
        self.rig.drive(address)
    }

    fn agent(&self) -> anyhow::Result<Agent> {
        self.rig.agent()
    }

    fn seat(&self, image: &Image) -> anyhow::Result<Seat> {
        Ok(Seat { source: self.rig.drive(self.server.address()), ..self.rig.seat(image)? })
    }

    fn limits(&self) -> Limits {
        Limits { other: LIMIT, ..self.rig.limits() }
    }
}

/// Judges a state of an honest cell there; the harness must call that broken, for it is no doing of the file system's.
///
/// # Errors
/// If the cell was not recorded and planned.
pub(super) fn judge(folder: &Folder, cell: &Cell, rig: &dyn Rig) -> anyhow::Result<Ending> {
    let files = folder.cell(&cell.name)?;
    let recording = Mapped::open(&files.recording())?;
    let about = about(&files)?;
    let plan = crate::plan_file::read(&files)?;
    let entry = plan.entries.first().context("a plan without a state")?;
    let rig = Silent { rig, server: rig.bind("silent")? };
    let job = Job {
        cell,
        folder: &files,
        recording: &recording,
        about: &about,
        rig: &rig,
        jobs: 1,
        until_found: false,
        end: None,
    };
    Ok(match Worker::new(&job).judge(entry)?.outcome {
        Outcome::Broken { reason } => Ending::Passed { seen: format!("broken: {reason}") },
        other => Ending::Failed { seen: format!("{other:?}, though nobody could look") },
    })
}
