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
    pub(super) e2fsck: (End, &'a [u8]),
    /// Bytes in which e2fsck's image is allocated.
    pub(super) e2fsck_extents: &'a [(u64, u64)],
    /// None: it was refused before anything was written.
    pub(super) ours: (End, Option<&'a Replay>),
    pub(super) layout: &'a Layout,
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
        let pages = self.kernel.pages.iter();
        touched.extend(pages.flat_map(|(page, bytes)| {
            (page * 4096 / size..(page * 4096 + bytes.len() as u64).div_ceil(size)).map(HomeBlock)
        }));
        touched.extend(self.three.ours.1.into_iter().flat_map(|replay| replay.writes.keys().copied()));
        touched.extend(self.superblock.map(|(place, _)| place));
        for &(from, to) in self.three.e2fsck_extents {
            for number in from / size..to.div_ceil(size) {
                let range =
                    (number * size) as usize..((number + 1) * size).min(self.three.before.len() as u64) as usize;
                if self.three.before[range.clone()] != self.three.e2fsck.1[range] {
                    touched.insert(HomeBlock(number));
                }
            }
        }
        touched
    }

    /// None if all are alike; else who stands alone.
    fn differs(&self, home: HomeBlock, refused: bool) -> Option<Option<Who>> {
        let role = self.three.layout.role(home);
        let compared = |who| replay_mask::left_out(&role, who, refused).is_none();
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
            Who::E2fsck => self.three.e2fsck.1.read(at, &mut block),
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
