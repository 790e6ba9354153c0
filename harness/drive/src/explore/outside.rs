//! Cuts outside the workload: while the file system is made, and while it is unmounted.
//!
//! Before the mark `mounted` nothing was promised, and a file system that is half made need not mount. After
//! `workload-end` every promise of the workload stands, and an unmount must break none.

use powerfail_seed::Seed;

use super::{Aim, Choice, EveryCut, Explorer, Outline, Sampled, Span, View, spread};

/// Ends and random subsets in one part of a recording.
#[derive(Clone, Copy, Debug)]
pub struct Outside {
    name: &'static str,
    span: Span,
}

impl Outside {
    /// From the first event to the mark `mounted`.
    pub fn mkfs(outline: &Outline) -> Outside {
        Outside { name: "mkfs", span: Span { first: 0, last: outline.span().first - 1 } }
    }

    /// From the mark `workload-end` to the end of the recording.
    pub fn unmount(outline: &Outline) -> Outside {
        Outside { name: "unmount", span: Span { first: outline.span().last + 1, last: outline.end() } }
    }
}

impl Explorer for Outside {
    fn name(&self) -> &'static str {
        self.name
    }

    fn aims(&self, seed: Seed, _: &Outline, want: u64, round: u64) -> Vec<Aim> {
        let cuts = spread(seed, self.name, self.span, want.div_ceil(3), round);
        cuts.into_iter().map(|cut| Aim { cut, target: 0 }).collect()
    }

    fn choices(&self, seed: Seed, view: &View<'_>, _: u64, round: u64) -> Vec<Choice> {
        let [lost, kept] = EveryCut::ends(view);
        vec![Sampled::subset(seed, view, round), lost, kept]
    }
}
