//! `links`: hard links, symbolic links, renames across directories and exchanges, with syncs of files and directories between
//! them.
//!
//! What a sync says of a file with several names is subtle, and the journal of btrfs logs single inodes, so this is where to
//! look for lost names. A worker has a handful of names in a few directories; any of them may be another name of
//! a file, a symbolic link or a directory that it made.

use super::Workload;
use super::kit::{Desk, Plan, Player, options, usual};
use crate::steps::{How, Op, Steps, file_name};
use powerfail_seed::below;
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;

options! {
    "links",
    /// Options of `links`.
    Links {
        workers: 3, seconds: 3,
        /// Directories of each worker.
        directories: u32 = 3,
        /// Names in each of them.
        names: u32 = 6,
    }
}

impl Workload for Links {
    usual!();

    fn directories(&self) -> Vec<String> {
        (0..self.workers).flat_map(|worker| self.own(worker)).collect()
    }

    fn steps(&self, worker: u32) -> Box<dyn Steps> {
        let dirs = self.own(worker);
        let paths = dirs.iter().flat_map(|dir| (0..self.names).map(move |name| format!("{dir}/n{name}"))).collect();
        let plan = Names { dirs, paths, held: BTreeMap::new(), files: BTreeMap::new() };
        Player::boxed(self.seed, "links", worker, plan)
    }

    fn check(&self) -> Result<(), String> {
        self.usual_check()?;
        if self.directories == 0 || self.names < 2 {
            return Err("links needs at least one directory and two names in it".into());
        }
        Ok(())
    }
}

impl Links {
    fn own(&self, worker: u32) -> Vec<String> {
        (0..self.directories).map(|dir| format!("w{worker}-{dir}")).collect()
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Held {
    File(u64),
    Symlink(u64),
    Dir(u64),
}

impl Held {
    fn id(self) -> u64 {
        let (Held::File(id) | Held::Symlink(id) | Held::Dir(id)) = self;
        id
    }
}

#[derive(Clone)]
struct Names {
    dirs: Vec<String>,
    paths: Vec<String>,
    held: BTreeMap<String, Held>,
    /// Size and generation of each live file.
    files: BTreeMap<u64, (u64, u32)>,
}

impl Plan for Names {
    fn plan(&mut self, desk: &mut Desk, rng: &mut ChaCha8Rng) {
        let path = self.paths[below(rng, self.paths.len() as u64) as usize].clone();
        let other = self.paths[below(rng, self.paths.len() as u64) as usize].clone();
        let Some(held) = self.held.get(&path).copied() else {
            self.make(desk, rng, path);
            return self.sync(desk, rng);
        };
        let there = self.held.get(&other).copied();
        match (below(rng, 12), held) {
            (0..3, Held::File(file)) => self.write(desk, rng, file, path),
            (3..5, Held::File(file)) if there.is_none() => {
                desk.push(Op::Link { file, from: Some(path), to: other.clone() });
                self.held.insert(other, held);
            }
            (5..8, _) if path != other && there.is_none_or(|there| may_replace(held, there)) => {
                let replaced = there.map(Held::id);
                desk.push(Op::Rename { file: held.id(), from: path.clone(), to: other.clone(), replaced });
                self.held.remove(&path);
                self.held.insert(other, held);
            }
            (8..10, _) if there.is_some_and(|there| there != held) => {
                let there = there.expect("just asked");
                desk.push(Op::Exchange {
                    file: held.id(),
                    path: path.clone(),
                    other: there.id(),
                    other_path: other.clone(),
                });
                self.held.insert(path, there);
                self.held.insert(other, held);
            }
            (10..12, Held::Dir(dir)) => {
                desk.push(Op::Rmdir { dir, path: path.clone() });
                self.held.remove(&path);
            }
            (10..12, _) => {
                desk.push(Op::Unlink { file: held.id(), path: path.clone() });
                self.held.remove(&path);
            }
            _ => {}
        }
        self.sync(desk, rng);
    }
}

impl Names {
    fn make(&mut self, desk: &mut Desk, rng: &mut ChaCha8Rng, path: String) {
        let id = desk.id();
        let held = match below(rng, 6) {
            0 => {
                let far = if below(rng, 4) == 0 { "-".repeat(200) } else { String::new() };
                desk.push(Op::Symlink { link: id, path: path.clone(), target: format!("to-{}{far}", file_name(id)) });
                Held::Symlink(id)
            }
            1 => {
                desk.push(Op::Mkdir { dir: id, path: path.clone() });
                Held::Dir(id)
            }
            _ => {
                desk.push(Op::Create { file: id, path: path.clone() });
                self.files.insert(id, (0, 0));
                self.write(desk, rng, id, path.clone());
                Held::File(id)
            }
        };
        self.held.insert(path, held);
    }

    fn write(&mut self, desk: &mut Desk, rng: &mut ChaCha8Rng, file: u64, path: String) {
        let (size, generation) = self.files.get_mut(&file).expect("a live file");
        *generation += 1;
        let block = below(rng, *size + 1).min(24);
        let blocks = 1 + below(rng, 8);
        *size = (*size).max(block + blocks);
        desk.push(Op::Write { file, path, generation: *generation, block, blocks, how: How::Buffered });
    }

    /// Any file or directory, not only what the step before was about.
    fn sync(&self, desk: &mut Desk, rng: &mut ChaCha8Rng) {
        match below(rng, 10) {
            0..3 => {
                let dir = self.dirs[below(rng, self.dirs.len() as u64) as usize].clone();
                desk.push(Op::SyncDir { dir });
            }
            3..6 => {
                let files: Vec<_> = self.held.iter().filter(|(_, held)| matches!(held, Held::File(_))).collect();
                if !files.is_empty() {
                    let (path, held) = files[below(rng, files.len() as u64) as usize];
                    let (file, path) = (held.id(), path.clone());
                    let whole = below(rng, 4) > 0;
                    desk.push(if whole { Op::Fsync { file, path } } else { Op::Fdatasync { file, path } });
                }
            }
            6 if below(rng, 8) == 0 => desk.push(Op::SyncFs),
            _ => {}
        }
    }
}

/// rename(2): a directory only replaces an empty directory, and only a directory does that; two names of one file
/// stay as they are.
fn may_replace(mover: Held, there: Held) -> bool {
    mover != there && matches!(mover, Held::Dir(_)) == matches!(there, Held::Dir(_))
}
