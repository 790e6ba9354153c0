//! Garbage is refused in words, and never a panic, a loop or a mountain of memory. `PROPTEST_CASES` says how many cases.

mod common;

use std::collections::BTreeMap;
use std::sync::OnceLock;

use common::{EXT3, EXT4, EXT4_1K, EXT4_NO_CSUM, Image, Made};
use powerfail_jbd2::{Blocks, Bytes, Journal, Layout, LogBlock, Names, Overlay, Rules, replay, replay_by};
use proptest::prelude::*;

/// Everything that can be asked of an image is asked.
fn ask_all(image: &dyn Blocks) {
    if let Ok(journal) = Journal::open(image) {
        let table = journal.table(image);
        assert!(table.rows.len() <= journal.superblock.length as usize);
        for row in &table.rows {
            assert!(!row.to_string().is_empty());
            assert_eq!(table.at(row.log), Some(row));
            assert_eq!(journal.place(row.log), Some(row.place));
        }
    }
    let result = replay(image);
    let _ = replay_by(Rules::RefuseTornCommit, image);
    let replay = match result {
        Ok(replay) => Some(replay),
        Err(refused) => {
            assert!(!refused.to_string().is_empty());
            refused.partial.map(|partial| *partial)
        }
    };
    if let Some(replay) = replay {
        names(&Overlay::new(image, &replay));
    }
    names(image);
}

fn names(image: &dyn Blocks) {
    if let Ok(layout) = Layout::read(image) {
        let names = Names::walk(image, &layout, 300);
        for home in (0..layout.superblock.blocks.min(10_000)).step_by(97).map(powerfail_jbd2::HomeBlock) {
            let _ = (layout.role(home).to_string(), names.owner(home).map(|owner| owner.to_string()));
        }
    }
}

/// An image in which some bytes are others.
struct Changed<'a> {
    real: &'a Real,
    bytes: BTreeMap<usize, u8>,
}

impl Changed<'_> {
    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.bytes.extend(bytes.iter().enumerate().map(|(number, byte)| (at + number, *byte)));
    }
}

impl Blocks for Changed<'_> {
    fn length(&self) -> Bytes {
        self.real.bytes.length()
    }

    fn read(&self, at: Bytes, into: &mut [u8]) -> bool {
        if !self.real.bytes.read(at, into) {
            return false;
        }
        let from = at.0 as usize;
        for (place, byte) in self.bytes.range(from..from + into.len()) {
            into[place - from] = *byte;
        }
        true
    }
}

struct Real {
    bytes: Vec<u8>,
    block_size: usize,
    /// Where the journal's blocks begin, in bytes.
    journal: Vec<usize>,
}

/// Images with a journal to replay, and a tree.
fn real() -> &'static [Real] {
    static REAL: OnceLock<Vec<Real>> = OnceLock::new();
    REAL.get_or_init(|| {
        let variants: [(&Made<'_>, &str); 6] = [
            (&EXT3, "jo"),
            (&EXT4, "jo -c -v 3"),
            (&EXT4, "jo -c -v 2"),
            (&EXT4_1K, "jo -c -v 3"),
            (&EXT4_NO_CSUM, "jo -c"),
            (&EXT4_NO_CSUM, "jo"),
        ];
        variants
            .into_iter()
            .map(|(made, open)| {
                let image = Image::make(made);
                let three = image.data("three", &[0xC03B_3998, 1, 2]);
                image.debugfs(&format!(
                    "mkdir a\ncd a\nwrite {three} f\n{open}\njw -b 7000-7002 {three}\njw -r 7000\njw -b 7001 {three}\n\
                     jw -b 7002-7003 {three}\njc\n"
                ));
                let (journal, _) = image.journal();
                let places = (0..journal.superblock.length).filter_map(|log| journal.place(LogBlock(log)));
                let size = image.block_size as usize;
                let journal = places.map(|home| home.0 as usize * size).collect();
                Real { bytes: image.bytes(), block_size: size, journal }
            })
            .collect()
    })
}

/// Bytes of the log that say something: most changes elsewhere change nothing.
fn telling(at: prop::sample::Index) -> usize {
    const FIRST: usize = 80;
    let at = at.index(FIRST * 3);
    if at < FIRST * 2 { at % FIRST } else { 4096 - FIRST + at % FIRST }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(150), ..ProptestConfig::default() })]

    /// Bytes of the journal change, mostly where control blocks have their fields. Checksums are what protects most of
    /// them, so those of the first images are out of the way in half of the cases.
    #[test]
    fn changed_journals(
        which: prop::sample::Index,
        changes in prop::collection::vec((0usize..24, any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let real = &real()[which.index(real().len())];
        let mut image = Changed { real, bytes: BTreeMap::new() };
        for (block, at, byte) in changes {
            let at = telling(at) % real.block_size;
            image.put(real.journal[block] + at, &[byte]);
        }
        ask_all(&image);
    }

    /// Fields of the file system change: superblock, group descriptors, the first inodes.
    #[test]
    fn changed_file_systems(
        which: prop::sample::Index,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
    ) {
        let real = &real()[which.index(real().len())];
        let mut image = Changed { real, bytes: BTreeMap::new() };
        let table = Layout::read(&real.bytes).unwrap().inode_table_of(powerfail_jbd2::Ino(1)).unwrap();
        let table = table.0 as usize * real.block_size;
        for (at, byte) in changes {
            let at = at.index(600 + 64 + 12 * 256);
            let at = match at {
                0..600 => 1024 + at,
                600..664 => (1024 / real.block_size + 1) * real.block_size + at - 600,
                _ => table + at - 664,
            };
            image.put(at, &[byte]);
        }
        ask_all(&image);
    }

    #[test]
    fn noise(image in prop::collection::vec(any::<u8>(), 0..20_000)) {
        ask_all(&image);
    }

    /// Control blocks in any order, all of the expected transaction or near it, in a journal without checksums.
    #[test]
    fn invented_logs(blocks in prop::collection::vec((0u32..7, 0u32..4, any::<[u8; 24]>()), 1..60)) {
        let real = &real()[0];
        let mut image = Changed { real, bytes: BTreeMap::new() };
        for (number, (kind, further, rest)) in blocks.into_iter().enumerate() {
            let at = real.journal[number + 1];
            image.put(at, &0xC03B_3998u32.to_be_bytes());
            image.put(at + 4, &kind.to_be_bytes());
            image.put(at + 8, &(1 + further).to_be_bytes());
            image.put(at + 12, &rest);
        }
        ask_all(&image);
    }
}

/// A log whose every block is a descriptor of the first transaction: a kernel would go round for ever.
#[test]
fn a_log_that_goes_round() {
    let real = &real()[0];
    let mut image = Changed { real, bytes: BTreeMap::new() };
    for at in &real.journal[1..] {
        // Its one tag is the last one.
        image.put(*at, &[0xC0, 0x3B, 0x39, 0x98, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 8]);
    }
    let refused = replay(&image).unwrap_err();
    assert!(refused.to_string().contains("goes round for ever"), "{refused}");
    ask_all(&image);
}

fn cases(usual: u32) -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}
