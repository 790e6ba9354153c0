//! A file system of a few lines: volatile state, durable state, and everything that may happen between them.

use crate::content::{BLOCK, Identity};
use crate::observation::{Entry, Kind, Observation};
use crate::steps::Op;
use std::collections::BTreeMap;

/// Generation per block; 0 is zeroes.
type Blocks = Vec<u32>;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct TinyFs {
    /// What programs see.
    names: BTreeMap<String, u64>,
    pages: BTreeMap<u64, Blocks>,
    /// The running transaction's view: names are as in `names`, sizes lag behind until blocks are allocated.
    sizes: BTreeMap<u64, usize>,
    /// What a crash leaves.
    durable_names: BTreeMap<String, u64>,
    durable_sizes: BTreeMap<u64, usize>,
    /// The drive's blocks of each file, wherever the size is.
    platter: BTreeMap<u64, Blocks>,
}

impl TinyFs {
    /// The parts of a step that may happen one after the other, with a crash between any two.
    pub(super) fn parts(op: &Op) -> Vec<Op> {
        match op {
            Op::Write { file, path, generation, block, blocks } => (*block..block + blocks)
                .map(|block| Op::Write { file: *file, path: path.clone(), generation: *generation, block, blocks: 1 })
                .collect(),
            other => vec![other.clone()],
        }
    }

    /// Does one part, wholly.
    pub(super) fn apply(&mut self, op: &Op) {
        match op {
            Op::Create { file, path } => {
                self.names.insert(path.clone(), *file);
                self.pages.insert(*file, Vec::new());
                self.sizes.insert(*file, 0);
                self.platter.insert(*file, Vec::new());
            }
            Op::Write { file, generation, block, blocks, .. } => {
                let pages = self.pages.get_mut(file).unwrap();
                for at in *block as usize..(block + blocks) as usize {
                    if pages.len() <= at {
                        pages.resize(at + 1, 0);
                    }
                    pages[at] = *generation;
                }
            }
            Op::Truncate { file, blocks, .. } => {
                self.pages.get_mut(file).unwrap().truncate(*blocks as usize);
                let size = self.sizes.get_mut(file).unwrap();
                *size = (*size).min(*blocks as usize);
            }
            Op::Rename { file, from, to, .. } => {
                assert_eq!(self.names.remove(from), Some(*file));
                self.names.insert(to.clone(), *file);
            }
            Op::Unlink { path, .. } => drop(self.names.remove(path)),
            Op::Fsync { file, .. } | Op::Fdatasync { file, .. } => {
                self.write_back_all(*file);
                self.commit();
            }
            Op::SyncDir { .. } => self.commit(),
            Op::SyncFs => {
                let files: Vec<_> = self.pages.keys().copied().collect();
                files.into_iter().for_each(|file| self.write_back_all(file));
                self.commit();
            }
        }
    }

    /// All that the kernel may do by itself right now, each as the state after it.
    pub(super) fn background(&self) -> Vec<TinyFs> {
        let mut after = vec![{
            let mut next = self.clone();
            next.commit();
            next
        }];
        for (file, pages) in &self.pages {
            for at in 0..pages.len() {
                let mut next = self.clone();
                next.write_back(*file, at);
                after.push(next);
            }
        }
        after.retain(|next| next != self);
        after
    }

    /// One background event, picked by `pick`.
    pub(super) fn disturb(&mut self, pick: u64) {
        if pick.is_multiple_of(8) || self.pages.is_empty() {
            return self.commit();
        }
        let files: Vec<_> = self.pages.iter().filter(|(_, pages)| !pages.is_empty()).map(|(file, _)| *file).collect();
        if let Some(file) = files.get((pick / 8) as usize % files.len().max(1)) {
            let blocks = self.pages[file].len();
            self.write_back(*file, (pick >> 32) as usize % blocks);
        }
    }

    /// Writes one block to the drive. If it is beyond the size that the transaction knows, the size follows up to the
    /// end of this block; blocks before it that were not written yet are zeroes (unwritten extents).
    fn write_back(&mut self, file: u64, at: usize) {
        let generation = self.pages[&file][at];
        let platter = self.platter.get_mut(&file).unwrap();
        if platter.len() <= at {
            platter.resize(at + 1, 0);
        }
        let size = self.sizes.get_mut(&file).unwrap();
        // What lies behind the old size on the drive belongs to nobody and reads as zeroes once the size passes it.
        for stale in &mut platter[(*size).max(self.durable_sizes.get(&file).copied().unwrap_or(0)).min(at)..at] {
            *stale = 0;
        }
        platter[at] = generation;
        *size = (*size).max(at + 1);
    }

    fn write_back_all(&mut self, file: u64) {
        for at in 0..self.pages[&file].len() {
            self.write_back(file, at);
        }
    }

    fn commit(&mut self) {
        self.durable_names = self.names.clone();
        for (file, size) in &self.sizes {
            let was = self.durable_sizes.insert(*file, *size).unwrap_or(0);
            if *size < was {
                // Truncated for good: the blocks behind are free, and come back as zeroes if at all.
                self.platter.get_mut(file).unwrap().truncate(*size);
            }
        }
    }

    /// What a walk sees after a crash right now.
    pub(super) fn crash(&self) -> Observation {
        let entries = self.durable_names.iter().map(|(path, file)| {
            let size = self.durable_sizes[file];
            let blocks = (0..size).map(|at| self.platter[file].get(at).copied().unwrap_or(0));
            entry(path, *file, &blocks.collect::<Vec<_>>())
        });
        let mut entries: Vec<_> = entries.collect();
        entries.sort_by(|a, b| a.path.cmp(&b.path));
        Observation { entries, errors: Vec::new() }
    }
}

/// A file entry with the given generations.
pub(super) fn entry(path: &str, file: u64, blocks: &[u32]) -> Entry {
    let size = (blocks.len() * BLOCK) as u64;
    let mut entry = Entry { path: path.to_owned(), kind: Kind::File, size, nlink: 1, mode: 0o644, runs: Vec::new() };
    for (block, generation) in (0..).zip(blocks) {
        let identity = match *generation {
            0 => Identity::Zero,
            generation => Identity::Ours { file, generation, block },
        };
        entry.push(block, identity);
    }
    entry
}

/// Adds the directories that step 0 made.
pub(super) fn with_directories(mut seen: Observation, directories: &[String]) -> Observation {
    for dir in directories {
        seen.entries.push(Entry {
            path: dir.clone(),
            kind: Kind::Dir,
            size: 4096,
            nlink: 2,
            mode: 0o755,
            runs: vec![],
        });
    }
    seen.entries.sort_by(|a, b| a.path.cmp(&b.path));
    seen
}
