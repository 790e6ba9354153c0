//! Who is at the other end of a connection, as far as the system tells.

use std::fmt;
use std::net::SocketAddr;

use tokio::net::{TcpStream, UnixStream};

/// The host of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The number of the connection, from 1, in the order of their coming.
    pub connection: u64,
    /// Where it comes from.
    pub origin: Origin,
}

/// Where a connection comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A Unix socket: the process that connected it. It may have passed it on since, to the kernel for example.
    Process(i32),
    /// A TCP address.
    Tcp(SocketAddr),
    /// The system does not say.
    Unknown,
}

impl Peer {
    pub(crate) fn of_unix(connection: u64, stream: &UnixStream) -> Peer {
        let process = stream.peer_cred().ok().and_then(|credentials| credentials.pid());
        Peer { connection, origin: process.map_or(Origin::Unknown, Origin::Process) }
    }

    pub(crate) fn of_tcp(connection: u64, stream: &TcpStream) -> Peer {
        Peer { connection, origin: stream.peer_addr().map_or(Origin::Unknown, Origin::Tcp) }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.origin {
            Origin::Process(id) => write!(f, "connection {} of process {id}", self.connection),
            Origin::Tcp(address) => write!(f, "connection {} from {address}", self.connection),
            Origin::Unknown => write!(f, "connection {}", self.connection),
        }
    }
}
