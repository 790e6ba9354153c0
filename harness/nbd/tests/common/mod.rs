//! What the tests share.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses its part of it")]

pub mod memory;
pub mod raw;
pub mod tools;

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use powerfail_nbd::{Config, Exports, Farewell, Handle, Server};
use tempfile::TempDir;

use memory::Memory;

pub const MIB: u64 = 1 << 20;

/// A served drive in a folder of its own.
pub struct Served {
    pub handle: Handle,
    pub drive: Arc<Memory>,
    pub path: PathBuf,
    pub folder: TempDir,
}

impl Served {
    /// One drive of `size` bytes, the defaults of everything.
    pub fn new(size: u64) -> Served {
        Served::with(Memory::new(size), Config::default())
    }

    pub fn with(drive: Memory, config: Config) -> Served {
        let drive = Arc::new(drive);
        Served::exports(Exports::one(drive.clone()), drive, config)
    }

    pub fn exports(exports: Exports, drive: Arc<Memory>, config: Config) -> Served {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("nbd.sock");
        let handle = Server::bind_unix(&path).expect("a socket").serve(exports, config).expect("a server");
        Served { handle, drive, path, folder }
    }

    pub fn uri(&self) -> String {
        self.handle.uri("")
    }

    /// Ends it; a panic in the drive or the server comes out here.
    pub async fn end(self) {
        self.handle.shutdown(Farewell::Drop).await;
    }
}

/// Runs a test; a test that takes longer than a minute has failed. Two threads, so that the server isn't only ever
/// run when the client waits.
pub fn bounded(test: impl Future<Output = ()>) {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(2).enable_all().build().expect("a runtime");
    let ended = runtime.block_on(async { tokio::time::timeout(Duration::from_secs(60), test).await });
    runtime.shutdown_timeout(Duration::from_secs(1));
    ended.expect("the test ends within a minute");
}
