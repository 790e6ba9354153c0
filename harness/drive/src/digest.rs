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

/// The text is no digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a digest is 64 hexadecimal digits")]
pub struct NotADigest;

impl std::str::FromStr for Digest {
    type Err = NotADigest;

    fn from_str(text: &str) -> Result<Digest, NotADigest> {
        if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(NotADigest);
        }
        let lane = |at: usize| u64::from_str_radix(&text[at * 16..at * 16 + 16], 16).expect("hexadecimal");
        Ok(Digest([lane(0), lane(1), lane(2), lane(3)]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_back() {
        let digest = Digest::of_sector(Lba(7), &[9; 512]).minus(Digest::of_sector(Lba(8), &[1; 512]));
        assert_eq!(digest.to_string().parse(), Ok(digest));
        assert_eq!("12".parse::<Digest>(), Err(NotADigest));
        assert_eq!("+".repeat(64).parse::<Digest>(), Err(NotADigest));
    }
}
