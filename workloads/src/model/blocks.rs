//! Size and blocks of one file: what they are by the steps that returned, and what the drive may hold.
//!
//! A *version* of a block is the generation of the write that made it; 0 stands for zeroes, and for what lies beyond the end.
//! For each block the books know the versions that the drive may hold (`loose`, or else the one that a sync *settled*), and
//! the version that a reader of the running system would see (`now`). A step adds versions when it begins. A sync
//! makes what is now the only version, of all blocks or of those that it covers.
//!
//! A step that failed may have been done in part, so what a reader sees is in doubt (`unsure`) until it is
//! written or cut again. A sync that failed leaves the drive in doubt for good: Linux marks pages clean whose writing has failed, and a
//! later fsync that succeeds says nothing of them.

use std::collections::BTreeMap;

/// The books.
#[derive(Clone, Default)]
pub(super) struct Blocks {
    /// By block: the version that was settled and the step whose return did that. Beyond its end: zeroes, by step 0.
    settled: Vec<(u32, u64)>,
    /// Step whose return settled all of the file; 0: none.
    synced_at: u64,
    /// By block: all versions the drive may hold, where it is not only the settled one.
    loose: BTreeMap<u64, Vec<u32>>,
    /// Smallest and largest size the drive may hold.
    low: u64,
    high: u64,
    now: Now,
    /// What was now before the step that began last.
    before: Now,
    /// Whether any step has changed data since all of the file was settled.
    touched: bool,
}

/// What a reader of the running system would see.
#[derive(Clone, Default)]
struct Now {
    /// By block, up to the largest size.
    versions: Vec<u32>,
    /// Further versions of blocks that are in doubt; each list has the one in `versions` too.
    unsure: BTreeMap<u64, Vec<u32>>,
    /// The smallest size.
    low: u64,
}

impl Blocks {
    pub(super) fn low(&self) -> u64 {
        self.low
    }

    pub(super) fn high(&self) -> u64 {
        self.high
    }

    pub(super) fn synced_at(&self) -> u64 {
        self.synced_at
    }

    pub(super) fn block_synced_at(&self, number: u64) -> u64 {
        self.settled.get(number as usize).map_or(self.synced_at, |settled| settled.1)
    }

    /// All versions that the drive may hold of a block.
    pub(super) fn versions(&self, number: u64) -> Vec<u32> {
        self.loose.get(&number).cloned().unwrap_or_else(|| vec![self.settled_version(number)])
    }

    pub(super) fn may_hold(&self, number: u64, version: u32) -> bool {
        match self.loose.get(&number) {
            Some(loose) => loose.contains(&version),
            None => self.settled_version(number) == version,
        }
    }

    /// Whether a block was written or cut since it was settled.
    pub(super) fn is_loose(&self, number: u64) -> bool {
        self.loose.contains_key(&number)
    }

    /// Whether the block may have been given to the file since the last promise, so that before its first write
    /// reaches the drive it shows what the drive held there.
    pub(super) fn may_be_new(&self, number: u64) -> bool {
        number >= self.low || (self.touched && self.may_hold(number, 0))
    }

    /// The next step begins; what it finds is remembered in case that it fails.
    pub(super) fn begin(&mut self) {
        self.before = self.now.clone();
    }

    /// Blocks are written, perhaps beyond the end.
    pub(super) fn put(&mut self, block: u64, blocks: u64, version: u32) {
        self.touched = true;
        let end = block + blocks;
        self.grow(end);
        for number in block..end {
            self.now.versions[number as usize] = version;
            self.now.unsure.remove(&number);
            self.may_become(number, version);
        }
    }

    /// Blocks inside the size become zeroes. Where the size is in doubt, so is whether anything happens to them.
    pub(super) fn clear(&mut self, block: u64, blocks: u64) {
        self.touched = true;
        let end = (block + blocks).min(self.now.versions.len() as u64);
        for number in block..end {
            if number < self.now.low {
                self.now.versions[number as usize] = 0;
                self.now.unsure.remove(&number);
            } else {
                let unsure = self.now.unsure.entry(number).or_default();
                add(unsure, self.now.versions[number as usize]);
                add(unsure, 0);
            }
            self.may_become(number, 0);
        }
    }

    /// The size is at least so many blocks.
    pub(super) fn grow(&mut self, blocks: u64) {
        self.touched = true;
        if (self.now.versions.len() as u64) < blocks {
            self.now.versions.resize(blocks as usize, 0);
        }
        self.now.low = self.now.low.max(blocks);
        self.high = self.high.max(blocks);
    }

    /// The size is exactly so many blocks.
    pub(super) fn resize(&mut self, blocks: u64) {
        self.touched = true;
        for number in blocks..self.now.versions.len() as u64 {
            self.may_become(number, 0);
        }
        self.now.versions.resize(blocks as usize, 0);
        self.now.unsure.split_off(&blocks);
        self.now.low = blocks;
        self.low = self.low.min(blocks);
        self.high = self.high.max(blocks);
    }

    /// The step that began last has failed: it may have been done in part.
    pub(super) fn doubt_step(&mut self) {
        let before = std::mem::take(&mut self.before);
        let after = &mut self.now;
        let most = before.versions.len().max(after.versions.len());
        let at = |versions: &[u32], number: usize| versions.get(number).copied().unwrap_or(0);
        for number in 0..most {
            let (old, new) = (at(&before.versions, number), at(&after.versions, number));
            let older = before.unsure.get(&(number as u64));
            if old != new || older.is_some() {
                let unsure = after.unsure.entry(number as u64).or_default();
                older.into_iter().flatten().for_each(|version| add(unsure, *version));
                add(unsure, old);
                add(unsure, new);
            }
        }
        after.low = after.low.min(before.low);
        after.versions.resize(most, 0);
        self.before = self.now.clone();
    }

    /// A sync of the file has failed: what was loose stays in doubt, whatever later syncs say.
    pub(super) fn doubt_drive(&mut self) {
        let most = self.now.versions.len().max(self.high as usize);
        self.now.versions.resize(most, 0);
        self.now.low = self.now.low.min(self.low);
        for (number, versions) in &self.loose {
            let unsure = self.now.unsure.entry(*number).or_default();
            versions.iter().for_each(|version| add(unsure, *version));
            add(unsure, self.now.versions.get(*number as usize).copied().unwrap_or(0));
        }
    }

    /// Data and size as of now are promised.
    pub(super) fn settle(&mut self, step: u64) {
        self.settled.clear();
        self.settled.extend(self.now.versions.iter().map(|version| (*version, step)));
        self.synced_at = step;
        self.loose.clone_from(&self.now.unsure);
        self.low = self.now.low;
        self.high = self.now.versions.len() as u64;
        self.touched = !self.loose.is_empty();
    }

    /// The blocks of one write are promised, and the size that they need.
    pub(super) fn settle_range(&mut self, step: u64, block: u64, blocks: u64) {
        let end = block + blocks;
        if self.settled.len() < end as usize {
            self.settled.resize(end as usize, (0, self.synced_at));
        }
        for number in block..end {
            self.settled[number as usize] = (self.now.versions[number as usize], step);
            self.loose.remove(&number);
        }
        self.low = self.low.max(end);
    }

    fn settled_version(&self, number: u64) -> u32 {
        self.settled.get(number as usize).map_or(0, |settled| settled.0)
    }

    fn may_become(&mut self, number: u64, version: u32) {
        let settled = self.settled_version(number);
        let loose = self.loose.entry(number).or_insert_with(|| vec![settled]);
        add(loose, version);
    }
}

fn add(versions: &mut Vec<u32>, version: u32) {
    if !versions.contains(&version) {
        versions.push(version);
    }
}
