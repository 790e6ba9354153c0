//! A machine of its own under QEMU: any kernel, no root. Drives and images are served on loopback and attached by the real
//! nbd-client there, so FLUSH and FUA arrive as such.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::bail;
use powerfail_agent::protocol::Source;
use powerfail_nbd::{Address, Reach, Server};
use powerfail_rig::Agent;
use powerfail_rig::guest::{Guest as Machine, GuestSetup, HOST, Kernel as Bootable, cache_folder};

use super::{Rig, Seat, ServedImage};
use crate::filesystems::FileSystem;
use crate::image::Image;
use crate::kernels::Kernel;

/// The rig `guest`.
#[derive(Debug)]
pub struct Guest {
    machine: Machine,
}

impl Guest {
    /// Prepares guests with that kernel, for one file system.
    ///
    /// # Errors
    /// If QEMU, the kernel or the static agent is missing; it says what brings it.
    pub fn new(kernel: &Kernel, fs: &dyn FileSystem) -> anyhow::Result<Guest> {
        let kernel = match kernel {
            Kernel::Host => bail!("a guest has a kernel of its own"),
            Kernel::Debian(series) => Bootable::debian(series, &cache_folder(None)?)?,
            Kernel::Own { image, modules } => Bootable::own(image, modules.as_deref())?,
        };
        Ok(Guest { machine: Machine::prepare(GuestSetup::new(kernel, fs.driver())?)? })
    }
}

impl Rig for Guest {
    fn name(&self) -> &'static str {
        "guest"
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
        Ok(self.machine.spawn()?)
    }

    fn seat(&self, image: &Image) -> anyhow::Result<Seat> {
        let served = ServedImage::new(image)?;
        Ok(Seat { agent: self.agent()?, source: source(served.address()), served: Some(served) })
    }
}

fn source(address: SocketAddr) -> Source {
    Source::NbdClient { host: HOST.into(), port: address.port(), export: String::new() }
}
