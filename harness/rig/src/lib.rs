//! Rigs: where the kernel under test runs and how it is attached. Knows agents, no crash states.
//!
//! - [`agent`]: an agent on this machine, from its start to its certain end; [`ask`] puts its commands in words.
//! - [`workdir`]: the folder of a run under `/run`, and what killed runs left there.
//! - [`doctor`]: what works on this machine, what is missing, and the package that brings it.

pub mod agent;
pub mod ask;
pub mod doctor;
mod line;
pub mod workdir;

pub use agent::{Agent, AgentSetup, LinkError};
pub use ask::{Asked, MountOutcome, RunOutcome, UnmountOutcome};
pub use powerfail_agent::protocol;
