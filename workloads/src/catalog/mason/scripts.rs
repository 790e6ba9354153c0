//! What the workers of `mason` play: scripts of a few steps over their own pure model of the live files.

use super::names::{Names, is_long};
use super::{Mason, SHARED};
use crate::steps::{How, Op, Steps, dir_of, file_id};
use powerfail_seed::{Seed, below};
use rand_chacha::ChaCha8Rng;
use std::collections::VecDeque;

/// A file that exists when all steps so far have happened.
#[derive(Clone)]
struct Live {
    file: u64,
    path: String,
    blocks: u64,
    generation: u32,
}

impl Live {
    fn write(&mut self, block: u64, blocks: u64) -> Op {
        self.generation += 1;
        self.blocks = self.blocks.max(block + blocks);
        Op::Write {
            file: self.file,
            path: self.path.clone(),
            generation: self.generation,
            block,
            blocks,
            how: How::Buffered,
        }
    }

    fn truncate(&mut self, blocks: u64) -> Op {
        self.blocks = blocks;
        Op::Truncate { file: self.file, path: self.path.clone(), blocks }
    }

    fn fsync(&self) -> Op {
        Op::Fsync { file: self.file, path: self.path.clone() }
    }

    fn fdatasync(&self) -> Op {
        Op::Fdatasync { file: self.file, path: self.path.clone() }
    }
}

/// A worker with many files.
#[derive(Clone)]
pub(super) struct Tree {
    options: Mason,
    worker: u32,
    directories: Vec<String>,
    target: usize,
    /// Steps given out so far.
    step: u64,
    created: u64,
    filled: bool,
    live: Vec<Live>,
    names: Names,
    /// The rest of the script that is being played. The model above is already past it.
    script: VecDeque<Op>,
}

impl Steps for Tree {
    fn next(&mut self) -> Option<Op> {
        self.step += 1;
        if self.script.is_empty() {
            let mut rng = self.options.seed.rng("mason script", &[u64::from(self.worker), self.step]);
            self.plan(&mut rng);
        }
        self.script.pop_front()
    }

    fn fork(&self) -> Box<dyn Steps> {
        Box::new(self.clone())
    }
}

impl Tree {
    pub(super) fn new(options: Mason, worker: u32) -> Tree {
        let mut directories = options.own(worker);
        directories.push(SHARED.to_owned());
        Tree {
            worker,
            target: (options.files / options.workers.max(1)).max(4) as usize,
            directories,
            step: 0,
            created: 0,
            filled: false,
            live: Vec::new(),
            names: Names::new(worker, options.long_names_percent),
            script: VecDeque::new(),
            options,
        }
    }

    fn plan(&mut self, rng: &mut ChaCha8Rng) {
        if !self.filled {
            if self.live.len() < self.target {
                self.create(rng);
            } else {
                self.filled = true;
                self.script.push_back(Op::SyncFs);
            }
            return;
        }
        // Births and deaths balance at the target: the share of each is moved by how far the tree is from it.
        let (few, many) = (self.live.len() < self.target, self.live.len() > self.target);
        let draw = below(rng, 100);
        match draw {
            0..22 if !many => self.create_and_sync(rng),
            0..22 => self.unlink(rng),
            22..36 if !few => self.unlink(rng),
            22..36 => self.create_and_sync(rng),
            36..52 => self.overwrite(rng),
            52..62 => self.append(rng),
            62..72 => self.truncate(rng),
            72..86 => self.rename(rng),
            86..94 => self.replace_by_new(rng),
            _ => self.replace_by_old(rng),
        }
    }

    /// Creates a file with content; it is the last of the live ones then.
    fn create(&mut self, rng: &mut ChaCha8Rng) {
        let dir = self.directory(rng);
        let path = self.names.fresh(rng, &dir);
        self.create_at(rng, path);
    }

    fn create_at(&mut self, rng: &mut ChaCha8Rng, path: String) {
        self.created += 1;
        let mut live = Live { file: file_id(self.worker, self.created), path, blocks: 0, generation: 0 };
        self.script.push_back(Op::Create { file: live.file, path: live.path.clone() });
        let blocks = self.size(rng);
        self.script.push_back(live.write(0, blocks));
        self.live.push(live);
    }

    fn create_and_sync(&mut self, rng: &mut ChaCha8Rng) {
        self.create(rng);
        let last = self.live.len() - 1;
        let dir = dir_of(&self.live[last].path).to_owned();
        self.sync_data(rng, last);
        if below(rng, 4) == 0 {
            self.script.push_back(Op::SyncDir { dir });
        }
    }

    fn overwrite(&mut self, rng: &mut ChaCha8Rng) {
        let at = self.pick(rng);
        let size = self.live[at].blocks;
        if size == 0 {
            return self.append(rng);
        }
        let block = below(rng, size);
        let blocks = 1 + below(rng, size - block);
        let op = self.live[at].write(block, blocks);
        self.script.push_back(op);
        self.sync_data(rng, at);
    }

    fn append(&mut self, rng: &mut ChaCha8Rng) {
        let at = self.pick(rng);
        let (end, room) = (self.live[at].blocks, self.options.file_blocks.max(1));
        if end >= room {
            let op = self.live[at].truncate(end / 4);
            self.script.push_back(op);
        } else {
            let blocks = 1 + below(rng, (room - end).min(16));
            let op = self.live[at].write(end, blocks);
            self.script.push_back(op);
        }
        self.sync_data(rng, at);
    }

    fn truncate(&mut self, rng: &mut ChaCha8Rng) {
        let at = self.pick(rng);
        let size = self.live[at].blocks;
        if size == 0 {
            return self.append(rng);
        }
        let op = self.live[at].truncate(below(rng, size));
        self.script.push_back(op);
        // A file that grows again at once can show what was cut off before.
        if below(rng, 3) == 0 {
            let (end, more) = (self.live[at].blocks, 1 + below(rng, 8));
            let op = self.live[at].write(end, more);
            self.script.push_back(op);
        }
        self.sync_data(rng, at);
    }

    fn unlink(&mut self, rng: &mut ChaCha8Rng) {
        let at = self.pick(rng);
        let Live { file, path, .. } = self.live.swap_remove(at);
        self.script.push_back(Op::Unlink { file, path: path.clone() });
        self.sync_names(rng, &[dir_of(&path).to_owned()], None);
        self.names.free(path);
    }

    /// Long to short or short to long, in the same directory or to another.
    fn rename(&mut self, rng: &mut ChaCha8Rng) {
        let at = self.pick(rng);
        let from = self.live[at].path.clone();
        let dir = if below(rng, 3) == 0 { self.directory(rng) } else { dir_of(&from).to_owned() };
        let to = self.names.make(rng, &dir, !is_long(&from));
        self.rename_to(rng, at, to, None);
    }

    /// The way editors save: a new file, perhaps synced, renamed over the old one.
    fn replace_by_new(&mut self, rng: &mut ChaCha8Rng) {
        let victim = self.pick(rng);
        let dir = dir_of(&self.live[victim].path).to_owned();
        let path = self.names.make(rng, &dir, false);
        self.create_at(rng, path);
        let last = self.live.len() - 1;
        self.sync_data(rng, last);
        self.replace(rng, victim, last);
    }

    fn replace_by_old(&mut self, rng: &mut ChaCha8Rng) {
        let (victim, by) = (self.pick(rng), self.pick(rng));
        if victim == by {
            return self.rename(rng);
        }
        self.replace(rng, victim, by);
    }

    fn replace(&mut self, rng: &mut ChaCha8Rng, victim: usize, by: usize) {
        let Live { file, path, .. } = self.live[victim].clone();
        let mover = self.live[by].file;
        self.live.swap_remove(victim);
        let by = self.live.iter().position(|live| live.file == mover).expect("only the victim is gone");
        self.rename_to(rng, by, path, Some(file));
    }

    fn rename_to(&mut self, rng: &mut ChaCha8Rng, at: usize, to: String, replaced: Option<u64>) {
        let live = &mut self.live[at];
        let from = std::mem::replace(&mut live.path, to.clone());
        self.script.push_back(Op::Rename { file: live.file, from: from.clone(), to: to.clone(), replaced });
        let mut dirs = vec![dir_of(&to).to_owned(), dir_of(&from).to_owned()];
        dirs.dedup();
        self.sync_names(rng, &dirs, Some(at));
        self.names.free(from);
    }

    fn sync_data(&mut self, rng: &mut ChaCha8Rng, at: usize) {
        if below(rng, 100) < u64::from(self.options.sync_percent) {
            let live = &self.live[at];
            self.script.push_back(if below(rng, 3) == 0 { live.fdatasync() } else { live.fsync() });
        }
    }

    /// Syncs one or all of the directories of a change, or the file itself, or nothing.
    fn sync_names(&mut self, rng: &mut ChaCha8Rng, dirs: &[String], file: Option<usize>) {
        if below(rng, 100) >= u64::from(self.options.sync_percent) {
            return;
        }
        match (below(rng, 4), file) {
            (0, Some(at)) => self.script.push_back(self.live[at].fsync()),
            (1, _) => self.script.push_back(Op::SyncDir { dir: dirs[0].clone() }),
            _ => self.script.extend(dirs.iter().map(|dir| Op::SyncDir { dir: dir.clone() })),
        }
    }

    fn pick(&self, rng: &mut ChaCha8Rng) -> usize {
        below(rng, self.live.len() as u64) as usize
    }

    fn directory(&self, rng: &mut ChaCha8Rng) -> String {
        self.directories[below(rng, self.directories.len() as u64) as usize].clone()
    }

    fn size(&self, rng: &mut ChaCha8Rng) -> u64 {
        let limit = self.options.file_blocks.max(1);
        let most = match below(rng, 20) {
            0 => limit,
            1..5 => limit / 2,
            _ => limit / 4,
        };
        1 + below(rng, most.max(1))
    }
}

/// The worker with one small file: write, fsync, truncate, and again.
#[derive(Clone)]
pub(super) struct Loop {
    seed: Seed,
    worker: u32,
    step: u64,
    file: Live,
}

impl Loop {
    pub(super) fn new(seed: Seed, worker: u32) -> Loop {
        let file =
            Live { file: file_id(worker, 1), path: format!("{SHARED}/w{worker}-loop"), blocks: 0, generation: 0 };
        Loop { seed, worker, step: 0, file }
    }
}

impl Steps for Loop {
    fn next(&mut self) -> Option<Op> {
        self.step += 1;
        let mut rng = self.seed.rng("mason loop", &[u64::from(self.worker), self.step]);
        Some(match self.step {
            1 => Op::Create { file: self.file.file, path: self.file.path.clone() },
            step => match step % 3 {
                2 => {
                    let (end, more) = (self.file.blocks, 1 + below(&mut rng, 12));
                    self.file.write(end, more)
                }
                0 => self.file.fsync(),
                _ => {
                    let blocks = below(&mut rng, self.file.blocks.min(8));
                    self.file.truncate(blocks)
                }
            },
        })
    }

    fn fork(&self) -> Box<dyn Steps> {
        Box::new(self.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Workload;
    use std::collections::{HashMap, HashSet};

    fn list(options: &Mason, worker: u32, count: usize) -> Vec<Op> {
        let mut steps = options.steps(worker);
        (0..count).map(|_| steps.next().unwrap()).collect()
    }

    #[test]
    fn the_same_options_give_the_same_steps_and_a_fork_goes_on_the_same() {
        let options = Mason::default();
        assert_eq!(list(&options, 2, 3000), list(&options, 2, 3000));
        assert_ne!(list(&options, 2, 3000), list(&options, 1, 3000));
        assert_ne!(list(&options, 2, 3000), list(&Mason { seed: Seed(2), ..options.clone() }, 2, 3000));
        let mut steps = options.steps(0);
        (0..1234).for_each(|_| drop(steps.next()));
        let mut fork = steps.fork();
        (0..1000).for_each(|_| assert_eq!(steps.next(), fork.next()));
    }

    /// Plays the steps of all workers on a plain map of names: each must be possible when it comes.
    #[test]
    fn every_step_is_possible_and_the_tree_keeps_its_size() {
        let options = Mason::default();
        let directories: HashSet<_> = options.directories().into_iter().collect();
        let mut names: HashMap<String, u64> = HashMap::new();
        let mut sizes: HashMap<u64, u64> = HashMap::new();
        let mut counts: HashMap<&str, u32> = HashMap::new();
        let mut reused = (HashSet::new(), 0);
        for worker in 0..options.workers() {
            for op in list(&options, worker, 6000) {
                *counts.entry(op.kind()).or_default() += 1;
                match op {
                    Op::Create { file, path } => {
                        assert!(directories.contains(dir_of(&path)) && path.len() - dir_of(&path).len() <= 256);
                        reused.1 += u32::from(!reused.0.insert(path.clone()));
                        assert_eq!(names.insert(path, file), None);
                        assert_eq!(sizes.insert(file, 0), None, "file ids are unique");
                    }
                    Op::Write { file, path, block, blocks, .. } => {
                        assert_eq!(names[&path], file);
                        let size = sizes.get_mut(&file).unwrap();
                        assert!(block <= *size && blocks > 0, "no holes");
                        *size = (*size).max(block + blocks);
                    }
                    Op::Truncate { file, path, blocks } => {
                        assert_eq!(names[&path], file);
                        assert!(blocks < sizes[&file]);
                        sizes.insert(file, blocks);
                    }
                    Op::Fsync { file, path } | Op::Fdatasync { file, path } => assert_eq!(names[&path], file),
                    Op::SyncDir { dir } => assert!(directories.contains(&dir)),
                    Op::Rename { file, from, to, replaced } => {
                        assert_eq!(names.remove(&from), Some(file));
                        assert_eq!(names.insert(to, file), replaced);
                    }
                    Op::Unlink { file, path } => assert_eq!(names.remove(&path), Some(file)),
                    Op::SyncFs => {}
                    other => panic!("mason does no {other}"),
                }
            }
        }
        assert!((950..1050).contains(&names.len()), "{} files", names.len());
        assert!(reused.1 > 100, "names are used again: {}", reused.1);
        let total: u32 = counts.values().sum();
        let synced = counts["fsync"] + counts["fdatasync"] + counts["fsync-dir"];
        assert!(synced * 10 > total * 3, "{synced} of {total}: {counts:?}");
        assert_eq!(counts.len(), 10, "every kind occurs: {counts:?}");
    }
}
