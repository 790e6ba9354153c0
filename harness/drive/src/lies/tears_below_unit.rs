//! A drive that promised to write its unit all or nothing, and writes sectors.

use powerfail_seed::Seed;

use super::{Lie, Tale};
use crate::units::AtomicUnit;

#[derive(Debug)]
pub(super) struct TearsBelowUnit;

impl Lie for TearsBelowUnit {
    fn name(&self) -> &'static str {
        "tears-below-unit"
    }

    fn does(&self) -> &'static str {
        "writes sectors of 512 bytes where it promised whole units of 4096"
    }

    fn tell(&self, _: &mut Tale, _: Seed) {}

    fn unit(&self, _: AtomicUnit) -> AtomicUnit {
        AtomicUnit::B512
    }
}
