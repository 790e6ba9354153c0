//! Where hosts connect, over all generations of a drive.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use anyhow::Context;
use powerfail_nbd::{Address, BindError, Reach, Server};

use super::args::ServeArgs;
use super::place::Place;
use crate::folder::Usage;

/// A place to listen at, again and again.
#[derive(Debug)]
pub(crate) enum Door {
    Unix(PathBuf),
    Tcp(SocketAddr, Reach),
    /// It stays open while the power is off, for it is the parent's: who connects then waits.
    Passed(OwnedFd),
}

impl Door {
    pub(crate) fn of(args: &ServeArgs, place: &Place, passed: Option<OwnedFd>) -> anyhow::Result<Door> {
        Ok(match (passed, args.listen) {
            (Some(socket), _) => Door::Passed(socket),
            (None, Some(address)) => Door::Tcp(address, if args.anywhere { Reach::Anyone } else { Reach::Loopback }),
            (None, None) => Door::Unix(std::path::absolute(args.unix.clone().unwrap_or_else(|| place.socket()))?),
        })
    }

    /// Listens. A free TCP port that was taken once is kept.
    ///
    /// # Errors
    /// If somebody else is there.
    pub(crate) fn open(&mut self) -> anyhow::Result<Server> {
        let bound = match self {
            Door::Unix(path) => Server::bind_unix(path),
            Door::Tcp(address, reach) => Server::bind_tcp(*address, *reach),
            Door::Passed(socket) => {
                let socket = socket.try_clone()?;
                return Server::on_socket(socket).context("the socket that was passed can't be served");
            }
        };
        let server = bound.map_err(|error| match error {
            BindError::NotLoopback(address) => {
                Usage(format!("{address} can be reached from other machines; say --anywhere if that is meant"))
            }
            other => Usage(other.to_string()),
        })?;
        if let (Door::Tcp(asked, _), Address::Tcp(got)) = (self, server.address()) {
            *asked = *got;
        }
        Ok(server)
    }
}
