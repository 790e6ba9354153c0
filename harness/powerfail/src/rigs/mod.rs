//! Rigs, as the phases see them: where an agent is, and how it gets at a recorded drive and at an image. Everything above
//! is the same on all of them.

mod guest;
mod host_loop;
mod host_nbd;
mod served_image;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use powerfail_agent::protocol::Source;
use powerfail_nbd::{Address, Server};
use powerfail_rig::Agent;

use crate::cell::Cell;
use crate::filesystems::FileSystem;
use crate::folder::Usage;
use crate::image::Image;
use crate::kernels::Kernel;
use crate::verify::Limits;

pub use guest::Guest;
pub use host_loop::HostLoop;
pub use host_nbd::HostNbd;
pub use served_image::ServedImage;

/// A place where a kernel is tortured.
pub trait Rig: fmt::Debug + Send + Sync {
    /// Its name, as in the ledger.
    fn name(&self) -> &'static str;

    /// A server, bound where the rig's kernel can reach it, for the drive of a cell.
    ///
    /// # Errors
    /// If nothing can be bound.
    fn bind(&self, cell: &str) -> anyhow::Result<Server>;

    /// How an agent attaches the drive that is served there.
    fn drive(&self, address: &Address) -> Source;

    /// An agent for a recording.
    ///
    /// # Errors
    /// If it does not start.
    fn agent(&self) -> anyhow::Result<Agent>;

    /// An agent that can attach an image, again and again.
    ///
    /// # Errors
    /// If it does not start.
    fn seat(&self, image: &Image) -> anyhow::Result<Seat>;

    /// How long the parts of an examination may take here.
    fn limits(&self) -> Limits {
        Limits::default()
    }
}

/// An agent with an image.
#[derive(Debug)]
pub struct Seat {
    /// The agent.
    pub agent: Agent,
    /// How it attaches the image.
    pub source: Source,
    /// What has to live as long: the image's server, on rigs that need one.
    pub served: Option<ServedImage>,
}

/// Rigs that are set up when they are first needed: planning needs none, and no privilege either.
#[derive(Debug, Default)]
pub struct Pool {
    rigs: Mutex<HashMap<Key, Arc<dyn Rig>>>,
}

/// What a rig is made for. A guest has the modules and tools of one file system.
type Key = (String, Kernel, &'static str);

impl Pool {
    /// The rig of a cell.
    ///
    /// # Errors
    /// If it can't be set up.
    pub fn get(&self, cell: &Cell) -> anyhow::Result<Arc<dyn Rig>> {
        let key = (cell.rig.clone(), cell.kernel.clone(), cell.fs.driver());
        let mut rigs = self.rigs.lock().expect("setting up a rig does not panic");
        if let Some(rig) = rigs.get(&key) {
            return Ok(rig.clone());
        }
        let rig = set_up(&cell.rig, &cell.kernel, cell.fs)?;
        rigs.insert(key, rig.clone());
        Ok(rig)
    }
}

/// The names of all rigs.
pub const NAMES: &[&str] = &["host-loop", "host-nbd", "guest"];

/// Sets up the rig of that name; `kernel` is what a guest runs, and `fs` what it can mount.
///
/// # Errors
/// If something is missing; it says what brings it.
pub fn set_up(name: &str, kernel: &Kernel, fs: &'static dyn FileSystem) -> anyhow::Result<Arc<dyn Rig>> {
    check_kernel(name, kernel)?;
    match name {
        "host-loop" => Ok(Arc::new(HostLoop::new()?)),
        "host-nbd" => Ok(Arc::new(HostNbd::new()?)),
        "guest" => Ok(Arc::new(Guest::new(kernel, fs)?)),
        other => Err(Usage(format!("there is no rig `{other}`; there are {} and auto", NAMES.join(", "))).into()),
    }
}

/// Refuses a kernel that a rig can't run.
///
/// # Errors
/// [`Usage`].
pub fn check_kernel(rig: &str, kernel: &Kernel) -> Result<(), Usage> {
    match (rig, kernel) {
        ("guest", Kernel::Host) => Err(Usage("a guest has a kernel of its own; say for example debian-6.1".into())),
        ("guest", _) | (_, Kernel::Host) => Ok(()),
        (rig, other) => Err(Usage(format!("--kernel {other} is for --rig guest; {rig} has the machine's own, host"))),
    }
}
