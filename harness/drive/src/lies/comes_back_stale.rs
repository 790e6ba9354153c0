//! A drive that finds an old version of a unit when it comes back: some writes are gone although they were settled.

use powerfail_seed::{Ratio, Seed};

use super::{Lie, Tale};
use crate::request::Command;

#[derive(Debug)]
pub(super) struct ComesBackStale;

/// Of the writes, so many are forgotten.
const FORGOTTEN: (u32, u32) = (1, 32);

impl Lie for ComesBackStale {
    fn name(&self) -> &'static str {
        "comes-back-stale"
    }

    fn does(&self) -> &'static str {
        "shows the version before in place of one write in 32, settled or not"
    }

    fn tell(&self, tale: &mut Tale, seed: Seed) {
        let forgotten = Ratio::new(FORGOTTEN.0, FORGOTTEN.1);
        tale.keep(|event| !(event.is(Command::Write) && forgotten.happens(&mut seed.rng("forgotten", &[event.id]))));
    }
}
