//! From ledgers to what a person reads: ledger -> [`Tally`] -> table, charts, page.
//!
//! The tally is a value; every view is a pure function of it: no file, clock or network is touched here, and the same
//! ledgers give the same bytes in whatever order they come. A harness failure is never merged into a verdict, and a
//! skip is never a pass.

pub mod charts;
pub mod compare;
mod findings;
mod headline;
pub mod history;
mod junit;
mod labels;
mod live;
mod merge;
mod notes;
mod page;
pub mod selftest;
pub mod stats;
mod summary;
pub mod table;
mod tally;
mod text;
mod verdict;

pub use findings::{Group, normalise};
pub use junit::junit;
pub use page::{Limits, render, render_with};
pub use summary::{Summary, markdown, merging};
pub use tally::{Cell, Counts, Explored, First, Key, Run, Tally, Violation};
pub use verdict::Verdict;
