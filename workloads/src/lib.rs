//! Workloads: what tortures the file system, what is seen of it afterwards, and what it had promised.
//!
//! The line through this crate:
//!
//! ```text
//! Spec -> generator -> Step (pure)      the same list of steps in the agent and in the harness
//!   agent:   run      executes the steps and reports each return as a Mark
//!            observe  walks the recovered tree and says whose every 512 bytes are
//!   harness: Oracle   fed with the marks before a cut, judges an Observation by the documented promises alone
//! ```
//!
//! `content`, `steps`, `catalog`, `model` and `promises` are pure: no clock, no I/O. Only `run` (with `exec` and
//! `hog`) and `observe` touch a kernel.

pub mod catalog;
pub mod content;
mod exec;
pub mod hog;
pub mod marks;
mod model;
pub mod observation;
pub mod observe;
pub mod promises;
pub mod run;
pub mod steps;

pub use catalog::{Spec, mason::Mason};
pub use marks::{Mark, Marks};
pub use observation::Observation;
pub use observe::walk;
pub use promises::{Breach, DataMode, Oracle, Promises};
pub use run::{RunError, Summary, run};
