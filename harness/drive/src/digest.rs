//! A digest of an image that follows its changes.
//!
//! It is the sum, in four lanes modulo 2^64, of BLAKE3(sector number, sector) over all sectors that are not zero. So a
//! change of one sector is one subtraction and one addition, and the size of the disk is of no matter. It tells states
//! of one drive apart; it is no defence against somebody who looks for collisions.

use std::fmt;

use crate::units::{Lba, SECTOR};

/// The digest of an image, or of a part of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Digest([u64; 4]);

impl Digest {
    /// The digest of one sector; of zeroes it is nothing.
    ///
    /// # Panics
    /// If `bytes` is not one sector.
    pub fn of_sector(lba: Lba, bytes: &[u8]) -> Digest {
        assert_eq!(bytes.len() as u64, SECTOR, "a sector");
        if bytes.iter().all(|&byte| byte == 0) {
            return Digest::default();
        }
        let mut hasher = blake3::Hasher::new();
        hasher.update(&lba.0.to_le_bytes());
        hasher.update(bytes);
        let hash = hasher.finalize();
        let lane = |at: usize| u64::from_le_bytes(hash.as_bytes()[at * 8..at * 8 + 8].try_into().expect("eight bytes"));
        Digest([lane(0), lane(1), lane(2), lane(3)])
    }

    /// With another part of the image.
    #[must_use]
    pub fn plus(self, other: Digest) -> Digest {
        Digest(std::array::from_fn(|lane| self.0[lane].wrapping_add(other.0[lane])))
    }

    /// Without a part of it.
    #[must_use]
    pub fn minus(self, other: Digest) -> Digest {
        Digest(std::array::from_fn(|lane| self.0[lane].wrapping_sub(other.0[lane])))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|lane| write!(f, "{lane:016x}"))
    }
}
