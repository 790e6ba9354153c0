//! Rigs, as the phases see them: where an agent is, and how it gets at a recorded drive and at an image. Everything above
//! is the same on all of them.

mod guest;
mod host_loop;
mod served_image;

use std::cell::OnceCell;
use std::fmt;

use powerfail_agent::protocol::Source;
use powerfail_nbd::{Address, Server};
use powerfail_rig::Agent;

use crate::config::Config;
use crate::folder::Usage;
use crate::image::Image;

pub use guest::Guest;
pub use host_loop::HostLoop;
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

/// A rig that is set up when it is first needed: planning needs none, and no privilege either.
#[derive(Debug)]
pub struct Lazy {
    name: String,
    kernel: String,
    rig: OnceCell<Box<dyn Rig>>,
}

impl Lazy {
    /// The rig of a configuration.
    pub fn of(config: &Config) -> Lazy {
        Lazy { name: config.rig.clone(), kernel: config.kernel.clone(), rig: OnceCell::new() }
    }

    /// The rig.
    ///
    /// # Errors
    /// If it can't be set up.
    pub fn get(&self) -> anyhow::Result<&dyn Rig> {
        if self.rig.get().is_none() {
            let _ = self.rig.set(named(&self.name, &self.kernel)?);
        }
        Ok(&**self.rig.get().expect("just set"))
    }
}

/// The names of all rigs.
pub const NAMES: &[&str] = &["host-loop", "guest"];

/// The rig of that name; `kernel` is what a guest runs.
///
/// # Errors
/// If it can't be set up.
pub fn named(name: &str, kernel: &str) -> anyhow::Result<Box<dyn Rig>> {
    match name {
        "host-loop" => Ok(Box::new(HostLoop::new()?)),
        "guest" => Ok(Box::new(Guest::new(kernel)?)),
        other => Err(Usage(format!("there is no rig `{other}`; there are {} and auto", NAMES.join(", "))).into()),
    }
}
