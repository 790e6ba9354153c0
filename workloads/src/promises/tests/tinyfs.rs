//! A file system of a few lines: volatile state, durable state, and everything that may happen between them.

use crate::content::{BLOCK, Identity};
use crate::observation::{Entry, Kind, Observation};
use crate::steps::{Allocate, Op, dir_of};
use std::collections::{BTreeMap, BTreeSet};

/// Generation per block; 0 is zeroes.
type Blocks = Vec<u32>;

/// What a name is bound to.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Node {
    File(u64),
    Symlink(String),
    Dir,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct TinyFs {
    /// What programs see.
    names: BTreeMap<String, Node>,
    pages: BTreeMap<u64, Blocks>,
    /// The running transaction's view: names are as in `names`, sizes lag behind until blocks are allocated.
    sizes: BTreeMap<u64, usize>,
    /// The running transaction's view of blocks that were taken from the file: what its new ones hold. Until the commit the drive
    /// has the old ones.
    moved: BTreeMap<u64, BTreeMap<usize, u32>>,
    /// Blocks whose writing has failed: their pages count as clean, and nothing writes them until they change.
    given_up: BTreeSet<(u64, usize)>,
    /// Directories that steps have made at some time; all others are there.
    dirs: BTreeSet<String>,
    /// What a crash leaves.
    durable_names: BTreeMap<String, Node>,
    durable_sizes: BTreeMap<u64, usize>,
    /// The drive's blocks of each file, wherever the size is.
    platter: BTreeMap<u64, Blocks>,
}

impl TinyFs {
    /// The parts of a step that may happen one after the other, with a crash between any two.
    pub(super) fn parts(op: &Op) -> Vec<Op> {
        match op {
            Op::Write { file, path, generation, block, blocks, how } => {
                let part = |block, blocks, how| Op::Write {
                    file: *file,
                    path: path.clone(),
                    generation: *generation,
                    block,
                    blocks,
                    how,
                };
                let mut parts: Vec<_> =
                    (*block..block + blocks).map(|block| part(block, 1, Default::default())).collect();
                if how.promises_itself() {
                    parts.push(part(*block, *blocks, *how));
                }
                parts
            }
            other => vec![other.clone()],
        }
    }

    /// Does one part, wholly.
    pub(super) fn apply(&mut self, op: &Op) {
        match op {
            Op::Create { file, path } => {
                self.names.insert(path.clone(), Node::File(*file));
                self.begin(*file);
            }
            Op::Tmpfile { file, .. } => self.begin(*file),
            Op::Symlink { path, target, .. } => drop(self.names.insert(path.clone(), Node::Symlink(target.clone()))),
            Op::Mkdir { path, .. } => {
                self.names.insert(path.clone(), Node::Dir);
                self.dirs.insert(path.clone());
            }
            Op::Write { file, generation, block, blocks, how, .. } => {
                let pages = self.pages.get_mut(file).unwrap();
                for at in *block as usize..(block + blocks) as usize {
                    if pages.len() <= at {
                        pages.resize(at + 1, 0);
                    }
                    pages[at] = *generation;
                    self.given_up.remove(&(*file, at));
                }
                if how.promises_itself() {
                    for at in *block as usize..(block + blocks) as usize {
                        self.write_back(*file, at);
                    }
                    // In place no metadata changes, and nothing else is written.
                    let moved = self.moved.get(file).is_some_and(|moved| !moved.is_empty());
                    if moved || self.sizes.get(file) != self.durable_sizes.get(file) {
                        self.commit();
                    }
                }
            }
            Op::Truncate { file, blocks, .. } => {
                let (was, blocks) = (self.pages[file].len(), *blocks as usize);
                self.given_up.retain(|(of, at)| of != file || *at < blocks);
                self.pages.get_mut(file).unwrap().resize(blocks, 0);
                let size = self.sizes.get_mut(file).unwrap();
                if blocks < was {
                    *size = (*size).min(blocks);
                    if let Some(moved) = self.moved.get_mut(file) {
                        moved.retain(|at, _| *at < blocks);
                    }
                } else {
                    // What was not written back by now lies in no block yet: zeroes, until it is.
                    let size = std::mem::replace(size, blocks);
                    self.take(*file, size, blocks);
                }
            }
            Op::Allocate { file, mode, block, blocks, .. } => {
                let (block, end) = (*block as usize, (block + blocks) as usize);
                let was = self.pages[file].len();
                if matches!(mode, Allocate::Extend | Allocate::Zero) && end > was {
                    self.pages.get_mut(file).unwrap().resize(end, 0);
                    let size = self.sizes.insert(*file, end).unwrap();
                    self.take(*file, size, end);
                }
                if matches!(mode, Allocate::Punch | Allocate::Zero | Allocate::ZeroKeepSize) && block < was {
                    self.pages.get_mut(file).unwrap()[block..end.min(was)].fill(0);
                    self.take(*file, block, end.min(was));
                }
            }
            Op::Link { file, to, .. } => drop(self.names.insert(to.clone(), Node::File(*file))),
            Op::Rename { from, to, .. } => {
                let node = self.names.remove(from).unwrap();
                self.names.insert(to.clone(), node);
            }
            Op::Exchange { path, other_path, .. } => {
                let (one, two) = (self.names[path].clone(), self.names[other_path].clone());
                self.names.insert(path.clone(), two);
                self.names.insert(other_path.clone(), one);
            }
            Op::Unlink { path, .. } | Op::Rmdir { path, .. } => drop(self.names.remove(path)),
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
            Op::Open { .. } | Op::Close { .. } => {}
        }
    }

    /// A sync of the file fails: the kernel gives up on its pages.
    pub(super) fn give_up(&mut self, file: u64) {
        let blocks = self.pages.get(&file).map_or(0, Vec::len);
        self.given_up.extend((0..blocks).map(|at| (file, at)));
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

    fn begin(&mut self, file: u64) {
        self.pages.insert(file, Vec::new());
        self.sizes.insert(file, 0);
        self.platter.insert(file, Vec::new());
    }

    /// The blocks are taken from the file, so that they read as zeroes from the next commit on.
    fn take(&mut self, file: u64, from: usize, to: usize) {
        self.given_up.retain(|(of, at)| *of != file || !(from..to).contains(at));
        let moved = self.moved.entry(file).or_default();
        moved.extend((from..to).map(|at| (at, 0)));
    }

    /// Writes one block to the drive. If it is beyond the size that the transaction knows, the size follows up to the
    /// end of this block; blocks before it that were not written yet are zeroes (unwritten extents).
    fn write_back(&mut self, file: u64, at: usize) {
        if self.given_up.contains(&(file, at)) {
            return;
        }
        let generation = self.pages[&file][at];
        let size = self.sizes.get_mut(&file).unwrap();
        let (was, now) = (*size, (*size).max(at + 1));
        *size = now;
        let durable = self.durable_sizes.get(&file).copied().unwrap_or(0);
        if let Some(new) = self.moved.get_mut(&file).and_then(|moved| moved.get_mut(&at)) {
            *new = generation;
            return;
        }
        let platter = self.platter.get_mut(&file).unwrap();
        if platter.len() <= at {
            platter.resize(at + 1, 0);
        }
        // What lies behind the old size on the drive belongs to nobody and reads as zeroes once the size passes it.
        for stale in &mut platter[was.max(durable).min(at)..at] {
            *stale = 0;
        }
        platter[at] = generation;
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
            let platter = self.platter.get_mut(file).unwrap();
            if *size < was {
                // Truncated for good: the blocks behind are free, and come back as zeroes if at all.
                platter.truncate(*size);
            }
            for (at, generation) in self.moved.remove(file).unwrap_or_default() {
                if platter.len() <= at {
                    platter.resize(at + 1, 0);
                }
                platter[at] = generation;
            }
        }
    }

    /// What a walk sees after a crash right now.
    pub(super) fn crash(&self) -> Observation {
        let seen = |(path, node): (&String, &Node)| match node {
            Node::File(file) => {
                let size = self.durable_sizes[file];
                let blocks = (0..size).map(|at| self.platter[file].get(at).copied().unwrap_or(0));
                entry(path, *file, &blocks.collect::<Vec<_>>())
            }
            Node::Symlink(target) => symlink(path, target),
            Node::Dir => directory(path),
        };
        let there = |path: &str| self.durable_names.contains_key(dir_of(path)) || !self.dirs.contains(dir_of(path));
        let mut entries: Vec<_> = self.durable_names.iter().filter(|(path, _)| there(path)).map(seen).collect();
        entries.sort_by(|a, b| a.path.cmp(&b.path));
        Observation { entries, errors: Vec::new() }
    }
}

/// A file entry with the given generations.
pub(super) fn entry(path: &str, file: u64, blocks: &[u32]) -> Entry {
    let mut entry = bare(path, Kind::File);
    entry.size = (blocks.len() * BLOCK) as u64;
    for (block, generation) in (0..).zip(blocks) {
        let identity = match *generation {
            0 => Identity::Zero,
            generation => Identity::Ours { file, generation, block },
        };
        entry.push(block, identity);
    }
    entry
}

/// A symbolic link.
pub(super) fn symlink(path: &str, target: &str) -> Entry {
    Entry { target: Some(target.to_owned()), size: target.len() as u64, ..bare(path, Kind::Symlink) }
}

/// A directory.
pub(super) fn directory(path: &str) -> Entry {
    Entry { size: 4096, nlink: 2, mode: 0o755, ..bare(path, Kind::Dir) }
}

fn bare(path: &str, kind: Kind) -> Entry {
    Entry { path: path.to_owned(), kind, size: 0, nlink: 1, mode: 0o644, target: None, runs: Vec::new() }
}

/// Adds the directories that step 0 made.
pub(super) fn with_directories(mut seen: Observation, directories: &[String]) -> Observation {
    seen.entries.extend(directories.iter().map(|dir| directory(dir)));
    seen.entries.sort_by(|a, b| a.path.cmp(&b.path));
    seen
}
