//! Three recoveries of one image, block by block.
//!
//! Compared is every block that any of the three wrote; a block that none wrote is the same in all of them. Whoever is not
//! like the other two stands alone.

use std::collections::{BTreeMap, BTreeSet};

use powerfail_jbd2::{Blocks, Bytes, HomeBlock, HomeRole, Layout, LogBlock, Names, Overlay, Replay};

use super::replay_mask::{self, Who};
use super::watched::{Pages, Written};

/// Inodes that are looked at for the name of a block that differs.
const INODES: usize = 100_000;
/// Blocks that a finding names.
const NAMED: usize = 16;

/// How one recovery ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct End {
    pub(super) who: Who,
    /// Why it was refused, if it was.
    pub(super) refused: Option<String>,
}

/// What the three left, beside what they began with.
pub(super) struct Three<'a> {
    pub(super) before: &'a [u8],
    pub(super) kernel: (End, &'a Pages),
    pub(super) e2fsck: (End, Left<'a>),
    /// None: it was refused before anything was written.
    pub(super) ours: (End, Option<&'a Replay>),
    pub(super) layout: &'a Layout,
}

/// What e2fsck left.
pub(super) enum Left<'a> {
    /// The whole image, once it was done.
    Image {
        /// Its bytes.
        bytes: &'a [u8],
        /// Bytes in which it is allocated, from and to.
        extents: &'a [(u64, u64)],
    },
    /// What it wrote before it emptied the log.
    Pages(&'a Pages),
}

/// A block in which they differ.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Difference {
    /// The block.
    pub block: HomeBlock,
    /// What it is.
    pub role: String,
    /// Who stands alone; none: no two are alike.
    pub alone: Option<Who>,
}

/// What a comparison came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Comparison {
    /// Blocks that were compared.
    pub(super) blocks: usize,
    /// Whether all refused.
    pub(super) refused: bool,
    /// The finding, if there is one.
    pub(super) finding: Option<(String, Vec<Difference>)>,
}

/// Compares.
pub(super) fn compare(three: &Three<'_>) -> Comparison {
    let ends = [&three.kernel.0, &three.e2fsck.0, &three.ours.0];
    let refused = ends.map(|end| end.refused.is_some());
    if refused != [refused[0]; 3] {
        let told = ends.map(|end| match &end.refused {
            Some(why) => format!("{} refuses ({why})", end.who.name()),
            None => format!("{} recovers", end.who.name()),
        });
        let alone = alone(refused[0] == refused[1], refused[0] == refused[2], refused[1] == refused[2]);
        let text = format!("{} stands alone: {}", name(alone), told.join(", "));
        return Comparison { blocks: 0, refused: false, finding: Some((text, Vec::new())) };
    }
    let refused = refused[0];
    let sides = Sides::new(three);
    let touched = sides.touched();
    let different: Vec<(HomeBlock, Option<Who>)> =
        touched.iter().filter_map(|home| Some((*home, sides.differs(*home, refused)?))).collect();
    let finding = (!different.is_empty()).then(|| {
        let names = Names::walk(&sides.ours, three.layout, INODES);
        let differences: Vec<Difference> = different
            .into_iter()
            .map(|(block, alone)| {
                let role = match (three.layout.role(block), names.owner(block)) {
                    (HomeRole::Contents, Some(owner)) => owner.to_string(),
                    (role, _) => role.to_string(),
                };
                Difference { block, role, alone }
            })
            .collect();
        (describe(&differences), differences)
    });
    Comparison { blocks: touched.len(), refused, finding }
}

/// Who stands alone, from which two are alike.
fn alone(kernel_e2fsck: bool, kernel_ours: bool, e2fsck_ours: bool) -> Option<Who> {
    match (kernel_e2fsck, kernel_ours, e2fsck_ours) {
        (true, ..) => Some(Who::Ours),
        (_, true, _) => Some(Who::E2fsck),
        (_, _, true) => Some(Who::Kernel),
        _ => None,
    }
}

fn name(alone: Option<Who>) -> &'static str {
    alone.map_or("each", Who::name)
}

fn describe(differences: &[Difference]) -> String {
    let mut parts: Vec<String> = differences
        .iter()
        .take(NAMED)
        .map(|Difference { block, role, alone }| match alone {
            Some(who) => format!("block {block} ({role}): {} stands alone", who.name()),
            None => format!("block {block} ({role}): no two are alike"),
        })
        .collect();
    if differences.len() > NAMED {
        parts.push(format!("and {} more blocks", differences.len() - NAMED));
    }
    parts.join("; ")
}

/// The three images, to be read block by block.
struct Sides<'a> {
    three: &'a Three<'a>,
    kernel: Written<'a>,
    ours: Overlay<'a>,
    /// The journal's superblock as our replay leaves it, with its place.
    superblock: Option<(HomeBlock, &'a [u8])>,
    size: usize,
}

impl<'a> Sides<'a> {
    fn new(three: &'a Three<'a>) -> Sides<'a> {
        let nothing = Replay::nothing(three.layout.superblock.block_size);
        let place = three.layout.journal().and_then(|journal| journal.place(LogBlock(0)));
        Sides {
            three,
            kernel: Written { below: three.before, pages: three.kernel.1 },
            ours: Overlay::new(&three.before, three.ours.1.unwrap_or(&nothing)),
            superblock: place.zip(three.ours.1.map(|replay| &replay.superblock[..])),
            size: three.layout.superblock.block_size as usize,
        }
    }

    /// Blocks that someone wrote, or changed.
    fn touched(&self) -> BTreeSet<HomeBlock> {
        let size = self.size as u64;
        let mut touched: BTreeSet<HomeBlock> = BTreeSet::new();
        let of_page = |first: u64, length: usize| (first / size..(first + length as u64).div_ceil(size)).map(HomeBlock);
        let of_pages = |pages: &Pages| -> Vec<HomeBlock> {
            pages.iter().flat_map(|(page, bytes)| of_page(page * 4096, bytes.len())).collect()
        };
        touched.extend(of_pages(self.kernel.pages));
        touched.extend(self.three.ours.1.into_iter().flat_map(|replay| replay.writes.keys().copied()));
        touched.extend(self.superblock.map(|(place, _)| place));
        let (image, extents) = match &self.three.e2fsck.1 {
            Left::Pages(pages) => {
                touched.extend(of_pages(pages));
                return touched;
            }
            Left::Image { bytes, extents } => (bytes, extents),
        };
        let before = self.three.before;
        for &(from, to) in *extents {
            for number in from / size..to.div_ceil(size) {
                let range = (number * size) as usize..((number + 1) * size).min(before.len() as u64) as usize;
                if before[range.clone()] != image[range] {
                    touched.insert(HomeBlock(number));
                }
            }
        }
        touched
    }

    /// None if all are alike; else who stands alone.
    fn differs(&self, home: HomeBlock, refused: bool) -> Option<Option<Who>> {
        let role = self.three.layout.role(home);
        let watched = matches!(self.three.e2fsck.1, Left::Pages(_));
        let compared = |who| replay_mask::left_out(&role, who, watched, refused).is_none();
        let mut left: BTreeMap<u8, Vec<u8>> = BTreeMap::new();
        for (key, who) in [Who::Kernel, Who::E2fsck, Who::Ours].into_iter().enumerate() {
            if compared(who) {
                left.insert(key as u8, self.block(who, home, &role, refused));
            }
        }
        let same = |a: u8, b: u8| match (left.get(&a), left.get(&b)) {
            (Some(a), Some(b)) => a == b,
            _ => true,
        };
        match (same(0, 1), same(0, 2), same(1, 2)) {
            (true, true, true) => None,
            // Of two that are compared, nobody knows who is right.
            _ if left.len() < 3 => Some(None),
            (kernel_e2fsck, kernel_ours, e2fsck_ours) => Some(alone(kernel_e2fsck, kernel_ours, e2fsck_ours)),
        }
    }

    fn block(&self, who: Who, home: HomeBlock, role: &HomeRole, refused: bool) -> Vec<u8> {
        let at = Bytes(home.0 * self.size as u64);
        let mut block = vec![0; self.size];
        // A block that is not all there reads as zeroes in each of them.
        let _ = match who {
            Who::Kernel => self.kernel.read(at, &mut block),
            Who::E2fsck => match &self.three.e2fsck.1 {
                Left::Image { bytes, .. } => bytes.read(at, &mut block),
                Left::Pages(pages) => Written { below: self.three.before, pages }.read(at, &mut block),
            },
            Who::Ours => self.ours.read(at, &mut block),
        };
        if let Some((place, bytes)) = self.superblock
            && (place, who) == (home, Who::Ours)
        {
            block[..bytes.len()].copy_from_slice(bytes);
        }
        replay_mask::mask(role, if self.size == 1024 { 0 } else { 1024 }, refused, &mut block);
        block
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use powerfail_jbd2::replay;
    use std::process::{Command, Stdio};

    /// An ext4 image of 32 MiB with a journal to replay: blocks 7000 to 7002 go home.
    fn image() -> Vec<u8> {
        let folder = tempfile::tempdir().unwrap();
        let (path, data) = (folder.path().join("image"), folder.path().join("data"));
        std::fs::File::create(&path).unwrap().set_len(32 << 20).unwrap();
        std::fs::write(&data, vec![9; 3 * 4096]).unwrap();
        let script = folder.path().join("script");
        std::fs::write(&script, format!("jo -c -v 3\njw -b 7000-7002 {}\njc\n", data.display())).unwrap();
        let mkfs = ["-q", "-F", "-b", "4096", "-J", "size=4"];
        for command in [
            Command::new("mkfs.ext4").args(mkfs).arg(&path),
            Command::new("debugfs").arg("-w").arg("-f").arg(&script).arg(&path),
        ] {
            let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
            assert!(status.expect("of the package e2fsprogs").success());
        }
        std::fs::read(path).unwrap()
    }

    /// Compares our replay with itself, after `spoil` changed what the kernel (its pages) or e2fsck (its image) left.
    fn spoilt(before: &[u8], spoil: impl FnOnce(&mut Pages, &mut Vec<u8>)) -> Comparison {
        let replay = replay(&before).unwrap();
        let layout = Layout::read(&before).unwrap();
        let (mut pages, mut image) = (Pages::new(), before.to_vec());
        for (home, write) in &replay.writes {
            let bytes = replay.contents(&before, write).unwrap();
            image[home.0 as usize * 4096..][..4096].copy_from_slice(&bytes);
            pages.insert(home.0, bytes.into());
        }
        let journal = layout.journal().unwrap().place(LogBlock(0)).unwrap().0 as usize * 4096;
        image[journal..journal + 1024].copy_from_slice(&replay.superblock);
        spoil(&mut pages, &mut image);
        let end = |who| End { who, refused: None };
        let extents = [(0, image.len() as u64)];
        compare(&Three {
            before,
            kernel: (end(Who::Kernel), &pages),
            e2fsck: (end(Who::E2fsck), Left::Image { bytes: &image, extents: &extents }),
            ours: (end(Who::Ours), Some(&replay)),
            layout: &layout,
        })
    }

    #[test]
    fn who_stands_alone_is_named_and_what_is_masked_is_not_seen() {
        let before = image();
        let alike = spoilt(&before, |_, _| {});
        // Three blocks, and the journal's superblock.
        assert_eq!((alike.blocks, alike.finding), (4, None));
        let alone = |comparison: Comparison| {
            let (text, blocks) = comparison.finding.expect("a difference was made");
            (blocks.into_iter().map(|block| (block.block.0, block.alone)).collect::<Vec<_>>(), text)
        };

        let lost = spoilt(&before, |pages, _| drop(pages.remove(&7001)));
        let (blocks, text) = alone(lost);
        assert_eq!(blocks, [(7001, Some(Who::Kernel))]);
        assert!(text.contains("the kernel stands alone"), "{text}");

        let flipped = spoilt(&before, |_, image| image[7002 * 4096] ^= 1);
        assert_eq!(alone(flipped).0, [(7002, Some(Who::E2fsck))]);

        let both = spoilt(&before, |pages, image| {
            pages.get_mut(&7000).unwrap()[5] = 1;
            image[7000 * 4096 + 5] = 1;
        });
        assert_eq!(alone(both).0, [(7000, Some(Who::Ours))]);

        // Somewhere where no replay has anything to do.
        let stray = spoilt(&before, |_, image| image[5000 * 4096] = 1);
        assert_eq!(alone(stray).0, [(5000, Some(Who::E2fsck))]);

        // s_wtime and its like are masked, the label (at 0x78) is not.
        let time = spoilt(&before, |_, image| image[1024 + 0x30] ^= 1);
        assert_eq!(time.finding, None);
        let label = spoilt(&before, |_, image| image[1024 + 0x78] ^= 1);
        assert_eq!(alone(label).0, [(0, Some(Who::E2fsck))]);
    }

    #[test]
    fn who_alone_refuses_is_named() {
        let before = image();
        let layout = Layout::read(&&before[..]).unwrap();
        let end = |who, refused: Option<&str>| End { who, refused: refused.map(String::from) };
        let pages = Pages::new();
        let comparison = compare(&Three {
            before: &before,
            kernel: (end(Who::Kernel, Some("bad superblock")), &pages),
            e2fsck: (end(Who::E2fsck, None), Left::Image { bytes: &before, extents: &[] }),
            ours: (end(Who::Ours, None), None),
            layout: &layout,
        });
        let (text, _) = comparison.finding.unwrap();
        assert_eq!(
            text,
            "the kernel stands alone: the kernel refuses (bad superblock), e2fsck recovers, powerfail recovers"
        );
    }
}
