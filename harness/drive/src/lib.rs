//! The emulated drive. Pure: no I/O, no clock, no threads.
//!
//! # What a power cut may do
//!
//! 1. **Order.** Request X *precedes* Y if X's reply was sent before Y was received. Two requests of which neither
//!    precedes the other are unordered. The cache belongs to the export, so order and flushes hold across all of its
//!    connections: events are numbered under one lock, and "before" means a smaller number.
//! 2. **Settled.** A write is settled at a cut if a `FLUSH` was received after the write's reply and was itself replied
//!    to before the cut, or if the write carried FUA and was replied to before the cut. FUA settles that one write,
//!    never others. Without a write cache every write that was replied to is settled.
//! 3. **Loose.** Everything else that was received before the cut is loose, replied to or not. It may land, not land,
//!    land in any order that rule 1 leaves open, and be torn at borders of the atomic unit.
//! 4. **Never an older one.** Per atomic unit the image holds a version that no settled version strictly follows: the
//!    newest settled one, or a loose one that it does not follow. Of two settled versions that are unordered either
//!    may be there.
//! 5. **The atomic unit** is 4096 or 512 bytes. A write is cut at unit borders and nowhere else. The part of one write
//!    in one unit is a *fragment*: it survives whole or not at all. A write that covers only some sectors of a unit
//!    leaves the others to the versions below it. Fragments of one write are independent of each other.
//! 6. **A cache has a size.** When more units are dirty than fit, the drive destages by its policy; what was destaged
//!    is settled. Destaging is a pure function of recording and drive description, no event of the recording, so that
//!    one recording serves many cache sizes. Only writes that were replied to are in the cache.
//! 7. **TRIM and WRITE_ZEROES** are versions like writes; both read as zeroes.
//! 8. What came before the mark `mounted` is settled once it is there; cuts lie from there to the mark `workload-end`, but for
//!    the explorers of mkfs and of the unmount, which cut before and after.
//!
//! What is *not* permitted by this model: a settled version that is lost, a fragment that lands in part, a sector that
//! nobody wrote, a write that lands elsewhere. Drives that do such things lie; they are in [`lies`], and only to be caught.
//!
//! The rules are checked against a brute-force model that enumerates subsets and orders on tiny disks
//! (`tests/brute_force.rs`).
//!
//! # From a recording to an image
//!
//! [`event`] encodes what happened, [`recording`] reads it back, [`history`] walks it and keeps, per unit, the versions
//! that a cut could still show. At a cut [`explore`] picks what survives, [`crash`] writes that down as a recipe, and
//! [`history::History::image`] resolves a recipe to contents.

pub mod cache;
pub mod crash;
pub mod device;
pub mod digest;
pub mod event;
pub mod explore;
pub mod history;
pub mod lies;
pub mod live;
pub mod log_writes;
pub mod pages;
pub mod recording;
pub mod request;
pub mod thin;
pub mod units;
pub mod versions;
