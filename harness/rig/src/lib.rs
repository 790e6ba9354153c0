//! Rigs: where the kernel under test runs and how it is attached. Knows agents, no crash states.
//!
//! - [`agent`]: an agent, from its start to its certain end; [`ask`] puts its commands in words.
//! - [`guest`]: the agent in a machine of its own: any kernel, no root, and a power cut that is one.
//! - [`workdir`]: the folder of a run under `/run`, and what killed runs left there.
//! - [`doctor`]: what works on this machine, what is missing, and the package that brings it.

pub mod agent;
pub mod ask;
mod console;
pub mod doctor;
pub mod guest;
mod line;
pub mod workdir;

pub use agent::{Agent, AgentSetup, LinkError, PowerSwitch};
pub use ask::{Asked, MountOutcome, RunOutcome, Stuck, UnmountOutcome};
pub use guest::{Guest, GuestError, GuestSetup};
pub use powerfail_agent::protocol;
