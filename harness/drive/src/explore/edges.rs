//! Aims at flushes and FUA, where a file system says what must not be lost.
//!
//! Whatever a journal looks like, its commits end in a flush or in a write with FUA. So the states are, while the flush or that
//! write is under way: one of the last writes before it lost and all else kept, or it alone kept.

use powerfail_seed::Seed;

use super::{Aim, Choice, Explorer, Op, Outline, Span, View, cut_in, strata};
use crate::request::Command;

/// How many writes before an edge are aimed at.
const BEFORE: usize = 4;

/// Around flushes and FUA.
#[derive(Clone, Debug)]
pub struct Edges {
    /// Receipts of writes, with the cuts at which an edge lies and the write is loose.
    writes: Vec<(u64, Span)>,
}

impl Edges {
    /// Looks for the edges of a recording's workload.
    pub fn of(outline: &Outline) -> Edges {
        let mut writes = Vec::new();
        let mut last: Vec<&Op> = Vec::new();
        for op in outline.ops() {
            let forces = op.command == Command::Flush || op.fua;
            if forces {
                let edge = Span { first: op.receipt + 1, last: op.replied.unwrap_or(outline.end()) };
                let itself = op.command.writes().then_some(op);
                let windows = last.iter().copied().chain(itself).filter_map(|write| {
                    let window = outline.window(write)?;
                    let (first, last) = (window.first.max(edge.first), window.last.min(edge.last));
                    (first <= last).then_some((write.receipt, Span { first, last }))
                });
                writes.extend(windows);
            }
            if op.command.writes() {
                if last.len() == BEFORE {
                    last.remove(0);
                }
                last.push(op);
            }
        }
        Edges { writes }
    }
}

impl Explorer for Edges {
    fn name(&self) -> &'static str {
        "edges"
    }

    fn aims(&self, seed: Seed, _: &Outline, want: u64, round: u64) -> Vec<Aim> {
        let places = strata(seed, self.name(), self.writes.len() as u64, want.div_ceil(2), round);
        let aim = |place: u64| {
            let (target, window) = self.writes[place as usize];
            Aim { cut: cut_in(seed, self.name(), &[place, round], window), target }
        };
        places.into_iter().map(aim).collect()
    }

    fn choices(&self, _: Seed, view: &View<'_>, target: u64, _: u64) -> Vec<Choice> {
        if !view.loose.iter().any(|loose| loose.write == target) {
            return Vec::new();
        }
        vec![view.choice(|loose| loose.write != target), view.choice(|loose| loose.write == target)]
    }
}
