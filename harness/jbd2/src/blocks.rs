//! Where bytes come from.

use std::collections::BTreeMap;

use crate::recover::Replay;
use crate::units::{Bytes, HomeBlock};

/// An image, which may be large and sparse: it is only ever read in small pieces.
pub trait Blocks {
    /// Its length.
    fn length(&self) -> Bytes;

    /// Fills `into` from the bytes at `at`; false, and nothing is filled, if that is not all inside.
    fn read(&self, at: Bytes, into: &mut [u8]) -> bool;
}

impl Blocks for &[u8] {
    fn length(&self) -> Bytes {
        Bytes(self.len() as u64)
    }

    fn read(&self, at: Bytes, into: &mut [u8]) -> bool {
        let from = usize::try_from(at.0).ok();
        let range = from.and_then(|from| Some(from..from.checked_add(into.len())?));
        match range.and_then(|range| self.get(range)) {
            Some(bytes) => {
                into.copy_from_slice(bytes);
                true
            }
            None => false,
        }
    }
}

impl Blocks for Vec<u8> {
    fn length(&self) -> Bytes {
        self.as_slice().length()
    }

    fn read(&self, at: Bytes, into: &mut [u8]) -> bool {
        self.as_slice().read(at, into)
    }
}

/// Reads one block of `size` bytes; none if it is not all inside.
pub(crate) fn block(blocks: &dyn Blocks, size: u32, number: HomeBlock) -> Option<Vec<u8>> {
    let at = number.0.checked_mul(u64::from(size))?;
    let mut bytes = vec![0; size as usize];
    blocks.read(Bytes(at), &mut bytes).then_some(bytes)
}

/// An image as it is once a replay's blocks are home: what names and roles are to be read from, since a directory's newest
/// block may be in the log only.
pub struct Overlay<'a> {
    below: &'a dyn Blocks,
    size: u64,
    above: BTreeMap<u64, Vec<u8>>,
}

impl<'a> Overlay<'a> {
    /// Puts what `replay` wrote over `below`. It holds all of those blocks, so at most a journal's worth.
    pub fn new(below: &'a dyn Blocks, replay: &Replay) -> Overlay<'a> {
        let above =
            replay.writes.iter().filter_map(|(home, write)| Some((home.0, replay.contents(below, write)?))).collect();
        Overlay { below, size: u64::from(replay.block_size), above }
    }
}

impl Blocks for Overlay<'_> {
    fn length(&self) -> Bytes {
        self.below.length()
    }

    fn read(&self, at: Bytes, into: &mut [u8]) -> bool {
        if !self.below.read(at, into) {
            return false;
        }
        let end = at.0 + into.len() as u64;
        for (number, bytes) in self.above.range(at.0 / self.size..end.div_ceil(self.size)) {
            let first = number * self.size;
            let (from, to) = (first.max(at.0), (first + self.size).min(end));
            let source = &bytes[(from - first) as usize..(to - first) as usize];
            into[(from - at.0) as usize..(to - at.0) as usize].copy_from_slice(source);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_gives_what_is_inside_and_nothing_else() {
        let image = vec![1u8, 2, 3, 4];
        let mut two = [0; 2];
        assert!(image.read(Bytes(2), &mut two));
        assert_eq!(two, [3, 4]);
        assert!(!image.read(Bytes(3), &mut two));
        assert!(!image.read(Bytes(u64::MAX), &mut two));
        assert_eq!(block(&image, 2, HomeBlock(1)), Some(vec![3, 4]));
        assert_eq!(block(&image, 2, HomeBlock(u64::MAX)), None);
    }
}
