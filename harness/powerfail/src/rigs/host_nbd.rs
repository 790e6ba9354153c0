//! The machine's own kernel with its own NBD driver: drives and images are served on loopback and attached by the real
//! nbd-client on a /dev/nbdN that is free, so FLUSH and FUA arrive as such.

use std::net::{Ipv4Addr, SocketAddr};

use powerfail_agent::protocol::Source;
use powerfail_nbd::{Address, Reach, Server};
use powerfail_rig::Agent;

use super::{HostLoop, Rig, Seat, ServedImage};
use crate::image::Image;

/// The rig `host-nbd`.
#[derive(Debug)]
pub struct HostNbd {
    agents: HostLoop,
}

impl HostNbd {
    /// Makes the folder that agents need, after what killed runs left was taken away.
    ///
    /// # Errors
    /// If the folder can't be made.
    pub fn new() -> anyhow::Result<HostNbd> {
        Ok(HostNbd { agents: HostLoop::new()? })
    }
}

impl Rig for HostNbd {
    fn name(&self) -> &'static str {
        "host-nbd"
    }

    fn bind(&self, _: &str) -> anyhow::Result<Server> {
        Ok(Server::bind_tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), Reach::Loopback)?)
    }

    fn drive(&self, address: &Address) -> Source {
        match address {
            Address::Tcp(address) => source(*address),
            other => unreachable!("`bind` makes a TCP socket, not {other:?}"),
        }
    }

    fn agent(&self) -> anyhow::Result<Agent> {
        self.agents.agent()
    }

    fn seat(&self, image: &Image) -> anyhow::Result<Seat> {
        let served = ServedImage::new(image)?;
        Ok(Seat { agent: self.agent()?, source: source(served.address()), served: Some(served) })
    }
}

fn source(address: SocketAddr) -> Source {
    Source::NbdClient { host: address.ip().to_string(), port: address.port(), export: String::new() }
}
