//! The machine's own kernel: nbdfuse and a loop device for the recorded drive, a bare loop device for images.

use std::os::fd::BorrowedFd;
use std::path::PathBuf;

use anyhow::Context;
use powerfail_agent::protocol::Source;
use powerfail_nbd::{Address, Server};
use powerfail_rig::workdir::{Workdir, clean_leftovers};
use powerfail_rig::{Agent, AgentSetup};

use super::{Rig, Seat};
use crate::image::Image;

/// The rig `host-loop`.
#[derive(Debug)]
pub struct HostLoop {
    workdir: Workdir,
    program: PathBuf,
}

impl HostLoop {
    /// Makes the folder that agents need, after what killed runs left was taken away.
    ///
    /// # Errors
    /// If the folder can't be made.
    pub fn new() -> anyhow::Result<HostLoop> {
        clean_leftovers().context("can't clean up after an earlier run")?;
        let workdir = Workdir::make().context("can't make a working folder below /run")?;
        let program = std::env::current_exe().context("can't find the program itself")?;
        Ok(HostLoop { workdir, program })
    }

    fn spawn(&self, images: Vec<BorrowedFd<'_>>) -> anyhow::Result<Agent> {
        let setup = AgentSetup {
            program: self.program.clone(),
            arguments: vec!["agent".into()],
            folder: self.workdir.agents(),
            images,
        };
        Ok(Agent::spawn(&setup)?)
    }
}

impl Rig for HostLoop {
    fn name(&self) -> &'static str {
        "host-loop"
    }

    fn bind(&self, cell: &str) -> anyhow::Result<Server> {
        Ok(Server::bind_unix(self.workdir.path().join(format!("{cell}.sock")))?)
    }

    fn drive(&self, address: &Address) -> Source {
        match address {
            Address::Unix(socket) => Source::Nbd { socket: socket.clone() },
            other => unreachable!("`bind` makes a Unix socket, not {other:?}"),
        }
    }

    fn agent(&self) -> anyhow::Result<Agent> {
        self.spawn(Vec::new())
    }

    fn seat(&self, image: &Image) -> anyhow::Result<Seat> {
        let agent = self.spawn(vec![image.fd()])?;
        let source = Source::Image { index: 0, size: image.bytes().len() as u64, read_only: false };
        Ok(Seat { agent, source, served: None })
    }
}
