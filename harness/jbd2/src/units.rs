//! Units: places and numbers that must not be taken for one another.

use std::fmt;

use serde::Serialize;

macro_rules! unit {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

unit!(
    /// A place or a length in an image, in bytes.
    Bytes(u64)
);
unit!(
    /// A block of the file system, by its number on the device; its size is the file system's block size.
    HomeBlock(u64)
);
unit!(
    /// A block of the journal, counted from the journal's own superblock, which is 0.
    LogBlock(u32)
);
unit!(
    /// The number of a transaction; it wraps.
    Tid(u32)
);
unit!(
    /// The number of an inode, from 1.
    Ino(u32)
);
unit!(
    /// The number of a block group, from 0.
    Group(u32)
);

impl Tid {
    /// Whether this one comes after `other`, or is it: numbers wrap, so the nearer way round counts
    /// (`tid_geq` of the kernel).
    pub fn reaches(self, other: Tid) -> bool {
        self.0.wrapping_sub(other.0).cast_signed() >= 0
    }

    /// Whether this one comes after `other` (`tid_gt` of the kernel).
    pub fn after(self, other: Tid) -> bool {
        self.0.wrapping_sub(other.0).cast_signed() > 0
    }

    /// The one that follows.
    #[must_use]
    pub fn next(self) -> Tid {
        Tid(self.0.wrapping_add(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_transactions_wrap() {
        assert!(Tid(3).reaches(Tid(3)) && !Tid(3).after(Tid(3)));
        assert!(Tid(1).after(Tid(u32::MAX)) && !Tid(u32::MAX).reaches(Tid(1)));
        assert_eq!(Tid(u32::MAX).next(), Tid(0));
    }
}
