//! The three checksums of a journal.
//!
//! - v1 (feature compat `checksum`): one CRC-32 over all descriptor and data blocks of a transaction, big-endian bit order,
//!   begun with all ones and not inverted at the end; it stands in the commit block. Revoke blocks are not in it.
//! - v2 and v3 (feature incompat `csum_v2`, `csum_v3`): CRC32C, seeded with that of the journal's UUID, one for each block:
//!   in the last four bytes of a descriptor or revoke block, in the commit block's own field, and in the tag of a data
//!   block (v2: its lower half; v3: all of it) over the transaction's number and the block as it stands in the log.

use crc::{CRC_32_MPEG_2, Crc, Digest};

/// Same polynomial, order, start and end as the kernel's `crc32_be(~0, …)`.
static BIG_ENDIAN: Crc<u32> = Crc::<u32>::new(&CRC_32_MPEG_2);

/// Checksum v1 of a transaction, block by block.
pub(crate) struct Transaction(Digest<'static, u32>);

impl Transaction {
    pub(crate) fn new() -> Transaction {
        Transaction(BIG_ENDIAN.digest())
    }

    pub(crate) fn add(&mut self, block: &[u8]) {
        self.0.update(block);
    }

    pub(crate) fn value(&self) -> u32 {
        self.0.clone().finalize()
    }
}

/// The kernel's `crc32c(seed, bytes)`: neither begun nor ended by an inversion.
pub(crate) fn crc32c(seed: u32, bytes: &[u8]) -> u32 {
    !::crc32c::crc32c_append(!seed, bytes)
}

/// The same over a block whose four bytes at `hole` count as zero: the field that holds the checksum itself.
pub(crate) fn crc32c_around(seed: u32, block: &[u8], hole: usize) -> u32 {
    let before = crc32c(seed, &block[..hole]);
    crc32c(crc32c(before, &[0; 4]), &block[hole + 4..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_the_published_ones() {
        let mut v1 = Transaction::new();
        v1.add(b"1234");
        v1.add(b"56789");
        // The check value of CRC-32/MPEG-2.
        assert_eq!(v1.value(), 0x0376_E6E7);
        // The check value of CRC-32C, without its last inversion.
        assert_eq!(crc32c(!0, b"123456789"), !0xE306_9283);
        assert_eq!(crc32c_around(!0, b"12\x00\x00\x00\x00789", 2), crc32c_around(!0, b"12xxxx789", 2));
    }
}
