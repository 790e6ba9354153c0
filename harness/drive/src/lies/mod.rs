//! Drives that lie. They exist only to prove that the harness catches them.
//!
//! A lie is told after the fact: it turns the events of an honest recording into those that the liar *really* served, and
//! the honest model then says what a cut of that leaves. So one recording serves every liar, and what a liar does is as exact
//! and as repeatable as everything else. No lie can be told by accident: it takes another recording, whose header, in a
//! format of its own, says which lie it is; and the recipes of its states say so too (`lie=NAME:SEED`).
//!
//! What the host was told stays as it was: it believed that its flush was done. That is the lie.

mod comes_back_stale;
mod flush_ignored;
mod fua_ignored;
mod fua_is_flush;
mod lands_elsewhere;
mod liar;
mod planted;
mod reorders_across_flush;
mod tale;
mod tears_below_unit;
pub mod witness;

use std::fmt;

use powerfail_seed::Seed;

use crate::recording::ReadError;
use crate::units::AtomicUnit;

pub use liar::{Liar, NoSuchLie};
pub use planted::PLANTED;
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

/// Why there is no such recording.
#[derive(Debug, thiserror::Error)]
pub enum CantTell {
    /// The honest recording can't be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// It is none.
    #[error("it is a recording of a drive that lies already ({0})")]
    Lied(Liar),
}

/// The recording of the drive that lies, as bytes; its header says which lie it is. The same recording and liar give the
/// same bytes.
///
/// # Errors
/// If the recording is damaged, or is not of an honest drive.
pub fn tell(honest: &[u8], liar: Liar) -> Result<Vec<u8>, CantTell> {
    let mut tale = Tale::read(honest)?;
    if let Some(other) = tale.header().lie {
        return Err(CantTell::Lied(other));
    }
    liar.lie().tell(&mut tale, liar.seed.at(liar.name(), &[]));
    Ok(tale.write(honest, liar))
}
