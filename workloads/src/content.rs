//! Self-describing file content: every 512 bytes say whose they are.
//!
//! A block of [`BLOCK`] bytes, little endian:
//!
//! ```text
//!   0  head magic (8)   file (8)   generation (4)   CRC32C of all other bytes (4)   block (8)
//!  32  filler keyed by file, generation and block (448)
//! 480  tail magic (8)   file (8)   block (8)   generation (4)   its complement (4)
//! ```
//!
//! The tail repeats the head because a block can reach the drive as a mixture of two versions of itself: a kernel
//! that does not ask for stable pages lets a `write(2)` change a page while the device reads it. Such a block is
//! [`Identity::Torn`], not foreign. Both copies run through memory in one direction by cache lines, so the mixture
//! begins with a whole head of the one version and ends with a whole tail of the other, and changes over once between them.

/// Bytes of a block; sizes and extents of files are multiples of it.
pub const BLOCK: usize = 512;

const HEAD: [u8; 8] = *b"pwrfail\x01";
const TAIL: [u8; 8] = *b"\x01liafrwp";
const CRC_AT: usize = 20;
const FILLER: std::ops::Range<usize> = 32..480;

/// Whose a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identity {
    /// All zeroes: a hole, or never written.
    Zero,
    /// Written by a workload, whole.
    Ours {
        /// Id of the file it was written to.
        file: u64,
        /// Number of the write of that file.
        generation: u32,
        /// Byte offset in the file divided by [`BLOCK`].
        block: u64,
    },
    /// A mixture of two versions of the same block of one file; `None` is the zeroes before the first version or
    /// after a truncate.
    Torn {
        /// Id of the file.
        file: u64,
        /// Block number in that file.
        block: u64,
        /// Version that the head belongs to.
        head: Option<u32>,
        /// Version that the tail belongs to.
        tail: Option<u32>,
    },
    /// Nothing of ours; its first bytes.
    Foreign([u8; 8]),
}

/// Fills one block.
pub fn fill(block: &mut [u8; BLOCK], file: u64, generation: u32, number: u64) {
    block[0..8].copy_from_slice(&HEAD);
    block[8..16].copy_from_slice(&file.to_le_bytes());
    block[16..20].copy_from_slice(&generation.to_le_bytes());
    block[24..32].copy_from_slice(&number.to_le_bytes());
    let mut key = mixed(file ^ mixed(u64::from(generation)) ^ mixed(number).rotate_left(32));
    for word in block[FILLER].chunks_exact_mut(8) {
        key = key.wrapping_add(0x9e37_79b9_7f4a_7c15);
        word.copy_from_slice(&mixed(key).to_le_bytes());
    }
    block[480..488].copy_from_slice(&TAIL);
    block[488..496].copy_from_slice(&file.to_le_bytes());
    block[496..504].copy_from_slice(&number.to_le_bytes());
    block[504..508].copy_from_slice(&generation.to_le_bytes());
    block[508..512].copy_from_slice(&(!generation).to_le_bytes());
    let crc = crc_of(block);
    block[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
}

/// The bytes of `blocks` blocks of a write that starts at block `first`.
pub fn extent(file: u64, generation: u32, first: u64, blocks: u64) -> Vec<u8> {
    let mut bytes = vec![0; blocks as usize * BLOCK];
    for (number, block) in (first..).zip(bytes.as_chunks_mut::<BLOCK>().0) {
        fill(block, file, generation, number);
    }
    bytes
}

/// Says whose a block is.
pub fn identify(block: &[u8; BLOCK]) -> Identity {
    if block[0..8] == HEAD && crc_of(block) == u32_at(block, CRC_AT) {
        return Identity::Ours { file: u64_at(block, 8), generation: u32_at(block, 16), block: u64_at(block, 24) };
    }
    if block.iter().all(|&byte| byte == 0) {
        return Identity::Zero;
    }
    torn(block).unwrap_or_else(|| Identity::Foreign(block[..8].try_into().expect("eight bytes")))
}

/// The two versions of which `block` is a mixture, if it is one.
fn torn(block: &[u8; BLOCK]) -> Option<Identity> {
    let head = (block[0..8] == HEAD).then(|| (u64_at(block, 8), u64_at(block, 24), u32_at(block, 16)));
    let tail = (block[480..488] == TAIL && u32_at(block, 504) == !u32_at(block, 508))
        .then(|| (u64_at(block, 488), u64_at(block, 496), u32_at(block, 504)));
    let (file, number, _) = head.or(tail)?;
    if let (Some(head), Some(tail)) = (head, tail)
        && ((head.0, head.1) != (tail.0, tail.1) || head.2 == tail.2)
    {
        return None;
    }
    let version = |end: Option<(u64, u64, u32)>| {
        let mut bytes = [0; BLOCK];
        if let Some((file, number, generation)) = end {
            fill(&mut bytes, file, generation, number);
        }
        bytes
    };
    let (first, last) = (version(head), version(tail));
    // Reader and writer both run forward, so they pass each other once: a head of the one, then the rest of the other.
    let crossing = (0..BLOCK).find(|&at| block[at] != first[at]).unwrap_or(BLOCK);
    let whole_ends = (FILLER.start..=FILLER.end).contains(&crossing);
    (whole_ends && block[crossing..] == last[crossing..]).then_some(Identity::Torn {
        file,
        block: number,
        head: head.map(|h| h.2),
        tail: tail.map(|t| t.2),
    })
}

fn crc_of(block: &[u8; BLOCK]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&block[..CRC_AT]), &block[CRC_AT + 4..])
}

/// The finaliser of SplitMix64 (Steele, Lea, Flood, 2014): cheap, and no two keys that we use give the same filler.
fn mixed(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn u64_at(block: &[u8; BLOCK], at: usize) -> u64 {
    u64::from_le_bytes(block[at..at + 8].try_into().expect("eight bytes"))
}

fn u32_at(block: &[u8; BLOCK], at: usize) -> u32 {
    u32::from_le_bytes(block[at..at + 4].try_into().expect("four bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn filled(file: u64, generation: u32, number: u64) -> [u8; BLOCK] {
        let mut block = [0; BLOCK];
        fill(&mut block, file, generation, number);
        block
    }

    /// If this moves, recordings made before no longer mean what they meant.
    #[test]
    fn the_layout_is_stable() {
        assert_eq!(crc32c::crc32c(&filled(1 << 40 | 7, 3, 5)), GOLDEN);
    }
    const GOLDEN: u32 = 468_820_576;

    #[test]
    fn zeroes_and_strangers_are_told_apart() {
        assert_eq!(identify(&[0; BLOCK]), Identity::Zero);
        assert_eq!(identify(&[7; BLOCK]), Identity::Foreign([7; 8]));
        let mut last = [0; BLOCK];
        last[511] = 1;
        assert_eq!(identify(&last), Identity::Foreign([0; 8]));
    }

    proptest! {
        #[test]
        fn what_was_filled_is_identified(file: u64, generation: u32, block: u64) {
            prop_assert_eq!(identify(&filled(file, generation, block)), Identity::Ours { file, generation, block });
        }

        #[test]
        fn one_flipped_bit_is_foreign(file: u64, generation: u32, block: u64, bit in 0usize..BLOCK * 8) {
            let mut bytes = filled(file, generation, block);
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(matches!(identify(&bytes), Identity::Foreign(_)), "{:?}", identify(&bytes));
        }

        #[test]
        fn a_mixture_of_two_versions_names_both(file: u64, one: u32, two: u32, block: u64, line in 1usize..8) {
            prop_assume!(one != two);
            let (a, b) = (filled(file, one, block), filled(file, two, block));
            let mut mixture = a;
            mixture[line * 64..].copy_from_slice(&b[line * 64..]);
            prop_assert_eq!(identify(&mixture), Identity::Torn { file, block, head: Some(one), tail: Some(two) });
            mixture[200] ^= 0xff;
            prop_assert!(matches!(identify(&mixture), Identity::Foreign(_)));
        }

        #[test]
        fn a_half_arrived_first_version_is_torn_with_zeroes(file: u64, version: u32, block: u64, line in 1usize..8) {
            let whole = filled(file, version, block);
            let mut head = [0; BLOCK];
            head[..line * 64].copy_from_slice(&whole[..line * 64]);
            prop_assert_eq!(identify(&head), Identity::Torn { file, block, head: Some(version), tail: None });
            let mut tail = [0; BLOCK];
            tail[line * 64..].copy_from_slice(&whole[line * 64..]);
            prop_assert_eq!(identify(&tail), Identity::Torn { file, block, head: None, tail: Some(version) });
        }

        #[test]
        fn a_mixture_of_two_files_is_foreign(one: u64, two: u64, version: u32, block: u64, line in 1usize..8) {
            prop_assume!(one != two);
            let mut mixture = filled(one, version, block);
            mixture[line * 64..].copy_from_slice(&filled(two, version, block)[line * 64..]);
            prop_assert!(matches!(identify(&mixture), Identity::Foreign(_)));
        }
    }
}
