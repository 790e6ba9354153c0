//! A drive whose flush covers only what had been in the cache for a while: the last writes before it can land after it.

use powerfail_seed::Seed;

use super::{Lie, Tale};
use crate::event::What;
use crate::request::Command;

#[derive(Debug)]
pub(super) struct ReordersAcrossFlush;

/// Replies before a flush that it does not cover.
const LATE: usize = 16;

impl Lie for ReordersAcrossFlush {
    fn name(&self) -> &'static str {
        "reorders-across-flush"
    }

    fn does(&self) -> &'static str {
        "lets the last 16 writes before a FLUSH land after it"
    }

    fn tell(&self, tale: &mut Tale, _: Seed) {
        let mut at = tale.span.start;
        while at < tale.span.end {
            if tale.events[at].is(Command::Flush) {
                let replies =
                    (tale.span.start..at).rev().filter(|at| matches!(tale.events[*at].what, What::Replied { .. }));
                let to = replies.take(LATE).last().unwrap_or(at);
                // As if it had come before those replies: it settles only what was replied to by then.
                let flush = tale.events.remove(at);
                tale.events.insert(to, flush);
            }
            at += 1;
        }
    }
}
