//! The result schema and its append-only file of JSON lines; nothing else.
//!
//! One object a line, tagged by `line`. The first is a [`Header`]. A line is synced before it counts, so a killed run
//! has lost at most the line it was writing: a torn last line is dropped by the reader, and cut off by the writer.
//! Outcomes are typed and never merged: a harness failure is no verdict and a skip is no pass.

mod file;
mod schema;
mod selftest;

pub use file::{Contents, LedgerError, Writer, read};
pub use schema::*;
pub use selftest::{Ending, Selftest, Trial, TrialKind};
