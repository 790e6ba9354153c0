//! A drive that puts a write where it does not belong.

use powerfail_seed::{Ratio, Seed};

use super::{Lie, Tale};
use crate::event::What;
use crate::request::Command;
use crate::units::{Lba, SECTOR};

#[derive(Debug)]
pub(super) struct LandsElsewhere;

/// Of the writes, so many are misplaced …
const MISPLACED: (u32, u32) = (1, 32);
/// … by so many sectors.
const BY: u64 = 8;

impl Lie for LandsElsewhere {
    fn name(&self) -> &'static str {
        "lands-elsewhere"
    }

    fn does(&self) -> &'static str {
        "puts one write in 32 down 4 KiB behind its place"
    }

    fn tell(&self, tale: &mut Tale, seed: Seed) {
        let (misplaced, sectors_of_drive) = (Ratio::new(MISPLACED.0, MISPLACED.1), tale.geometry().bytes() / SECTOR);
        tale.keep(|event| {
            let id = event.id;
            if let What::Received { command: Command::Write, lba, sectors, .. } = &mut event.what
                && lba.0 + sectors.0 + BY <= sectors_of_drive
                && misplaced.happens(&mut seed.rng("misplaced", &[id]))
            {
                *lba = Lba(lba.0 + BY);
            }
            true
        });
    }
}
