//! Drives that lie. They exist only to prove that the harness catches them.
//!
//! A lie is told after the fact: it turns the events of an honest recording into those that the liar *really* served, and
//! the honest model then says what a cut of that leaves. So one recording serves every liar; what a liar does is as exact
//! and as repeatable as everything else; and no lie can be told by accident, since it takes another recording, whose digest
//! every recipe names.
//!
//! What the host was told stays as it was: it believed that its flush was done. That is the lie.

mod comes_back_stale;
mod flush_ignored;
mod fua_ignored;
mod fua_is_flush;
mod lands_elsewhere;
mod reorders_across_flush;
mod tale;
mod tears_below_unit;
pub mod witness;

use std::fmt;

use powerfail_seed::Seed;

use crate::recording::ReadError;
use crate::units::AtomicUnit;

pub use tale::{Tale, Told};

/// A way to lie.
pub trait Lie: fmt::Debug + Sync {
    /// Its name, as a selftest and a ledger show it.
    fn name(&self) -> &'static str;

    /// What the drive does, in one sentence.
    fn does(&self) -> &'static str;

    /// Turns what the host was told into what was done.
    fn tell(&self, tale: &mut Tale, seed: Seed);

    /// The unit that it really writes all or nothing, when it promised `unit`.
    fn unit(&self, unit: AtomicUnit) -> AtomicUnit {
        unit
    }
}

/// Every lie.
pub const ALL: &[&dyn Lie] = &[
    &flush_ignored::FlushIgnored,
    &fua_ignored::FuaIgnored,
    &fua_is_flush::FuaIsFlush,
    &reorders_across_flush::ReordersAcrossFlush,
    &tears_below_unit::TearsBelowUnit,
    &comes_back_stale::ComesBackStale,
    &lands_elsewhere::LandsElsewhere,
];

/// The recording of the drive that lies, as bytes. The same recording and seed give the same bytes.
///
/// # Errors
/// If the recording is damaged.
pub fn recording(honest: &[u8], lie: &dyn Lie, seed: Seed) -> Result<Vec<u8>, ReadError> {
    let mut tale = Tale::read(honest)?;
    lie.tell(&mut tale, seed.at(lie.name(), &[]));
    Ok(tale.write(honest))
}
