//! A drive in memory, served on the loopback, that counts what arrives.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use powerfail_drive::device::{Device, Offers, Receipt};
use powerfail_drive::request::{Command, Geometry, Refusal, Request};
use powerfail_nbd::{Address, Config, Exports, Farewell, Handle, Reach, Server};

pub(crate) struct Memory {
    geometry: Geometry,
    bytes: Mutex<Vec<u8>>,
    events: AtomicU64,
    pub(crate) writes: AtomicU64,
    pub(crate) flushes: AtomicU64,
    pub(crate) fuas: AtomicU64,
}

impl Memory {
    pub(crate) fn fill(&self, from: usize, length: usize, byte: u8) {
        self.bytes.lock().unwrap()[from..from + length].fill(byte);
    }
}

impl Device for Memory {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn offers(&self) -> Offers {
        Offers::ALL
    }

    fn receive(&self, request: &Request<'_>) -> Result<Receipt, Refusal> {
        self.geometry.check(request)?;
        let (from, to) = (request.offset as usize, (request.offset + request.length) as usize);
        match request.command {
            Command::Write => {
                self.writes.fetch_add(1, Relaxed);
                self.bytes.lock().unwrap()[from..to].copy_from_slice(request.data);
            }
            Command::Trim | Command::WriteZeroes => self.bytes.lock().unwrap()[from..to].fill(0),
            Command::Flush => drop(self.flushes.fetch_add(1, Relaxed)),
            Command::Read | Command::Cache => {}
        }
        self.fuas.fetch_add(u64::from(request.fua), Relaxed);
        Ok(Receipt::for_event(self.events.fetch_add(1, Relaxed)))
    }

    fn read(&self, offset: u64, out: &mut [u8]) {
        let from = offset as usize;
        out.copy_from_slice(&self.bytes.lock().unwrap()[from..from + out.len()]);
    }

    fn reply(&self, _: Receipt) -> Result<(), Refusal> {
        Ok(())
    }
}

/// The drive with its server.
pub(crate) struct Served {
    pub(crate) drive: Arc<Memory>,
    pub(crate) port: u16,
    runtime: tokio::runtime::Runtime,
    handle: Option<Handle>,
}

impl Served {
    pub(crate) fn new(size: u64) -> Served {
        let drive = Arc::new(Memory {
            geometry: Geometry::new(size).unwrap(),
            bytes: Mutex::new(vec![0; size as usize]),
            events: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            flushes: AtomicU64::new(0),
            fuas: AtomicU64::new(0),
        });
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let inside = runtime.enter();
        let server = Server::bind_tcp("127.0.0.1:0".parse().unwrap(), Reach::Loopback).unwrap();
        let handle = server.serve(Exports::one(drive.clone()), Config::default()).unwrap();
        drop(inside);
        let Address::Tcp(address) = handle.address().clone() else { panic!("{:?}", handle.address()) };
        Served { drive, port: address.port(), runtime, handle: Some(handle) }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Some(handle) = self.handle.take() {
            self.runtime.block_on(handle.shutdown(Farewell::Drop));
        }
    }
}
