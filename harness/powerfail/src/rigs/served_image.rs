//! An image served over NBD, for kernels that can't be handed a file: an honest drive that forgets nothing.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use powerfail_drive::device::{Device, Offers, Receipt};
use powerfail_drive::request::{Command, Geometry, Refusal, Request};
use powerfail_nbd::{Address, Config, Exports, Farewell, Handle, Reach, Server};
use rustix::fs::{FallocateFlags, fallocate};

use crate::image::Image;

/// A server of one image on loopback; it ends when this is dropped.
#[derive(Debug)]
pub struct ServedImage {
    address: SocketAddr,
    owed: Arc<AtomicI64>,
    server: Option<Handle>,
    runtime: tokio::runtime::Runtime,
}

impl ServedImage {
    /// Serves `image` on a port of loopback that is free.
    ///
    /// # Errors
    /// If no port can be bound.
    pub fn new(image: &Image) -> anyhow::Result<ServedImage> {
        let file = File::from(image.fd().try_clone_to_owned()?);
        let geometry = Geometry::new(image.bytes().len() as u64).expect("an image is a drive's");
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let owed = Arc::new(AtomicI64::new(0));
        let server = {
            let _inside = runtime.enter();
            let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
            let exports = Exports::one(Arc::new(ImageDevice { file, geometry, owed: owed.clone() }));
            Server::bind_tcp(any, Reach::Loopback)?.serve(exports, Config::default())?
        };
        let Address::Tcp(address) = *server.address() else { unreachable!("bound as TCP") };
        Ok(ServedImage { address, owed, server: Some(server), runtime })
    }

    /// Requests that were received and not answered.
    pub fn owes(&self) -> u64 {
        self.owed.load(Ordering::Relaxed).try_into().unwrap_or(0)
    }

    /// Where it is served.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for ServedImage {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            self.runtime.block_on(server.shutdown(Farewell::Drop));
        }
    }
}

/// The memory file as a drive. Everything is there as soon as it was received, so a flush has nothing to do.
#[derive(Debug)]
struct ImageDevice {
    file: File,
    geometry: Geometry,
    owed: Arc<AtomicI64>,
}

impl ImageDevice {
    fn apply(&self, request: &Request<'_>) -> io::Result<()> {
        match request.command {
            Command::Write => self.file.write_all_at(request.data, request.offset),
            Command::Trim | Command::WriteZeroes if request.length > 0 => {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                Ok(fallocate(self.file.as_fd(), flags, request.offset, request.length)?)
            }
            _ => Ok(()),
        }
    }
}

impl Device for ImageDevice {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn offers(&self) -> Offers {
        Offers::ALL
    }

    fn receive(&self, request: &Request<'_>) -> Result<Receipt, Refusal> {
        self.geometry.check(request)?;
        // A memory file fails only where there is no memory; a drive that can't write any more says so.
        self.apply(request).map_err(|_| Refusal::RecordingFailed)?;
        self.owed.fetch_add(1, Ordering::Relaxed);
        Ok(Receipt::for_event(0))
    }

    fn read(&self, offset: u64, out: &mut [u8]) {
        if self.file.read_exact_at(out, offset).is_err() {
            out.fill(0);
        }
    }

    fn reply(&self, _: Receipt) -> Result<(), Refusal> {
        self.owed.fetch_sub(1, Ordering::Relaxed);
        Ok(())
    }
}
