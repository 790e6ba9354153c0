//! A sparse disk in memory: pages of 4 KiB that exist once something was written there.

use rustc_hash::FxHashMap;

const PAGE: u64 = 4096;

/// The contents of a disk. Memory follows what was written; what was never written reads as zeroes.
#[derive(Debug, Default)]
pub struct Pages {
    pages: FxHashMap<u64, Box<[u8; PAGE as usize]>>,
}

impl Pages {
    /// Writes `data` at byte `offset`.
    pub fn write(&mut self, mut offset: u64, mut data: &[u8]) {
        while !data.is_empty() {
            let within = (offset % PAGE) as usize;
            let count = data.len().min(PAGE as usize - within);
            let page = self.pages.entry(offset / PAGE).or_insert_with(|| Box::new([0; PAGE as usize]));
            page[within..within + count].copy_from_slice(&data[..count]);
            offset += count as u64;
            data = &data[count..];
        }
    }

    /// Makes a range read as zeroes; whole pages are given back.
    pub fn zero(&mut self, offset: u64, length: u64) {
        let end = offset + length;
        let whole = offset.div_ceil(PAGE)..end / PAGE;
        if whole.start >= whole.end {
            self.zero_part(offset, end);
            return;
        }
        self.zero_part(offset, whole.start * PAGE);
        self.zero_part(whole.end * PAGE, end);
        // A discard of the whole drive names far more pages than there are: go by whichever is fewer.
        if whole.end - whole.start > self.pages.len() as u64 {
            self.pages.retain(|page, _| !whole.contains(page));
        } else {
            for page in whole {
                self.pages.remove(&page);
            }
        }
    }

    /// Fills `out` from byte `offset`.
    pub fn read(&self, mut offset: u64, mut out: &mut [u8]) {
        while !out.is_empty() {
            let within = (offset % PAGE) as usize;
            let count = out.len().min(PAGE as usize - within);
            let (part, rest) = out.split_at_mut(count);
            match self.pages.get(&(offset / PAGE)) {
                Some(page) => part.copy_from_slice(&page[within..within + count]),
                None => part.fill(0),
            }
            offset += count as u64;
            out = rest;
        }
    }

    /// Every page that exists, as (byte offset, contents), in no order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &[u8])> {
        self.pages.iter().map(|(page, bytes)| (page * PAGE, &bytes[..]))
    }

    fn zero_part(&mut self, mut offset: u64, end: u64) {
        while offset < end {
            let within = offset % PAGE;
            let count = (end - offset).min(PAGE - within);
            if let Some(page) = self.pages.get_mut(&(offset / PAGE)) {
                page[within as usize..(within + count) as usize].fill(0);
            }
            offset += count;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn reads_what_a_plain_array_would(ops in prop::collection::vec((0u64..40_000, 1u64..20_000, any::<Option<u8>>()), 1..40)) {
            let mut plain = vec![0u8; 65_536];
            let mut pages = Pages::default();
            for (offset, length, byte) in ops {
                let end = (offset + length) as usize;
                match byte {
                    Some(byte) => pages.write(offset, &vec![byte; length as usize]),
                    None => pages.zero(offset, length),
                }
                plain[offset as usize..end].fill(byte.unwrap_or(0));
            }
            let mut out = vec![1; 65_536];
            pages.read(0, &mut out);
            prop_assert_eq!(out, plain);
        }
    }

    #[test]
    fn a_discard_of_a_huge_drive_costs_what_is_there() {
        let mut pages = Pages::default();
        pages.write(1 << 40, &[1; 512]);
        pages.zero(0, 2 << 40);
        assert_eq!(pages.iter().count(), 0);
    }
}
