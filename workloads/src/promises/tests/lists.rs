//! Possible lists of steps, made out of any numbers: two directories with two names in each, one directory more that may be
//! made, files of up to three blocks.

use crate::steps::{Allocate, How, Op};
use std::collections::{BTreeMap, BTreeSet};

/// A step of a list.
#[derive(Clone, Debug)]
pub(super) struct Listed {
    pub(super) op: Op,
    /// Whether it returns an error and its worker goes on.
    pub(super) fails: bool,
}

const PATHS: [&str; 5] = ["a/1", "a/2", "b/1", "b/2", "a/d/1"];
const DIR: &str = "a/d";
const MOST: u64 = 3;
const WAYS: [How; 4] = [How::Buffered, How::Dsync, How::Mapped, How::Msync];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Held {
    File(u64),
    Symlink(u64),
}

impl Held {
    fn id(self) -> u64 {
        let (Held::File(id) | Held::Symlink(id)) = self;
        id
    }
}

#[derive(Clone, Copy, Default)]
struct File {
    size: u64,
    generation: u32,
    /// A step failed: its size must be set before anything else.
    doubtful: bool,
    /// Held open, with or without a name.
    open: bool,
}

#[derive(Default)]
struct Maker {
    ops: Vec<Listed>,
    live: BTreeMap<&'static str, Held>,
    files: BTreeMap<u64, File>,
    dir: Option<u64>,
    made: u64,
    /// Names of which nobody knows what they hold.
    dead: BTreeSet<&'static str>,
    may_fail: bool,
}

/// Makes a list; with `may_fail` some of its steps fail.
pub(super) fn possible(draws: &[(u8, u8, u8)], may_fail: bool) -> Vec<Listed> {
    let mut maker = Maker { may_fail, ..Maker::default() };
    draws.iter().for_each(|(kind, one, two)| maker.step(*kind, *one, *two));
    maker.ops
}

impl Maker {
    fn step(&mut self, kind: u8, one: u8, two: u8) {
        let paths = if self.dir.is_some() { 5 } else { 4 };
        let path = PATHS[usize::from(one) % paths];
        let other = PATHS[usize::from(two) % paths];
        let fails = self.may_fail && one >= 200;
        if self.dead.contains(path) || self.dead.contains(other) {
            return;
        }
        match kind % 40 {
            30 if self.dir.is_none() && !fails => {
                self.made += 1;
                self.dir = Some(self.made);
                return self.push(Op::Mkdir { dir: self.made, path: DIR.to_owned() }, false);
            }
            31 if !self.live.contains_key("a/d/1") && !self.dead.contains("a/d/1") => {
                if let Some(dir) = self.dir.take() {
                    self.push(Op::Rmdir { dir, path: DIR.to_owned() }, false);
                }
                return;
            }
            32 if self.dir.is_some() => return self.push(Op::SyncDir { dir: DIR.to_owned() }, false),
            33 => return self.unnamed(two, fails),
            _ => {}
        }
        match self.live.get(path).copied() {
            None => self.make(path, kind, fails),
            Some(held) => self.change(path, held, other, kind, two, fails),
        }
    }

    fn make(&mut self, path: &'static str, kind: u8, fails: bool) {
        self.made += 1;
        let id = self.made;
        if kind % 8 == 7 {
            let op = Op::Symlink { link: id, path: path.to_owned(), target: format!("to-{id}") };
            return self.name(op, fails, &[(path, Some(Held::Symlink(id)))]);
        }
        self.files.insert(id, File::default());
        self.name(Op::Create { file: id, path: path.to_owned() }, fails, &[(path, Some(Held::File(id)))]);
    }

    fn change(&mut self, path: &'static str, held: Held, other: &'static str, kind: u8, two: u8, fails: bool) {
        let (own, there) = (path.to_owned(), self.live.get(other).copied());
        match (kind % 40, held) {
            (0..16, Held::File(file)) => self.data(file, own, kind, two, fails),
            (16..19, Held::File(file)) => self.push(Op::Fsync { file, path: own }, fails),
            (19..21, Held::File(file)) => self.push(Op::Fdatasync { file, path: own }, fails),
            (21..24, _) => self.push(Op::SyncDir { dir: path[..1].to_owned() }, false),
            (24, _) if two.is_multiple_of(4) => self.push(Op::SyncFs, false),
            (25 | 26, _) if path != other && there != Some(held) => {
                let replaced = there.map(Held::id);
                let op = Op::Rename { file: held.id(), from: own, to: other.to_owned(), replaced };
                self.name(op, fails, &[(path, None), (other, Some(held))]);
            }
            (27, _) if there.is_some_and(|there| there != held) => {
                let there = there.expect("just asked");
                let (file, other_path) = (held.id(), other.to_owned());
                let op = Op::Exchange { file, path: own, other: there.id(), other_path };
                self.name(op, fails, &[(path, Some(there)), (other, Some(held))]);
            }
            (28 | 29, Held::File(file)) if there.is_none() => {
                let op = Op::Link { file, from: Some(own), to: other.to_owned() };
                self.name(op, fails, &[(other, Some(held))]);
            }
            (34, Held::File(file)) if !self.files[&file].open => {
                self.files.get_mut(&file).unwrap().open = true;
                self.push(Op::Open { file, path: own }, false);
            }
            (35..40, _) => self.name(Op::Unlink { file: held.id(), path: own }, fails, &[(path, None)]),
            _ => {}
        }
    }

    /// A step that changes what the names hold.
    fn name(&mut self, op: Op, fails: bool, change: &[(&'static str, Option<Held>)]) {
        self.push(op, fails);
        for (path, held) in change {
            if fails {
                self.live.remove(path);
                self.dead.insert(path);
            } else {
                match held {
                    Some(held) => drop(self.live.insert(path, *held)),
                    None => drop(self.live.remove(path)),
                }
            }
        }
    }

    fn data(&mut self, file: u64, path: String, kind: u8, two: u8, fails: bool) {
        let File { size, generation, doubtful, .. } = self.files[&file];
        let live = self.files.get_mut(&file).unwrap();
        let block = u64::from(two) % MOST;
        let blocks = 1 + u64::from(two / 16) % (MOST - block).min(2);
        let op = match kind % 16 {
            _ if doubtful => {
                live.size = block;
                Op::Truncate { file, path, blocks: block }
            }
            0..8 => {
                let how = WAYS[usize::from(kind / 16) % WAYS.len()];
                let inside = block + blocks <= size || !matches!(how, How::Mapped | How::Msync);
                live.size = size.max(block + blocks);
                live.generation += 1;
                let how = if inside { how } else { How::Buffered };
                Op::Write { file, path, generation: generation + 1, block, blocks, how }
            }
            8..11 => {
                live.size = block;
                Op::Truncate { file, path, blocks: block }
            }
            kind => {
                use Allocate::{Extend, KeepSize, Punch, Zero, ZeroKeepSize};
                let mode = [Extend, KeepSize, Punch, Zero, ZeroKeepSize][usize::from(kind) - 11];
                if matches!(mode, Extend | Zero) {
                    live.size = size.max(block + blocks);
                }
                Op::Allocate { file, path, mode, block, blocks }
            }
        };
        live.doubtful = fails;
        self.push(op, fails);
    }

    /// Something with a file that is held open, whether it has a name or not, or a new one without.
    fn unnamed(&mut self, two: u8, fails: bool) {
        let open: Vec<u64> = self.files.iter().filter(|(_, file)| file.open).map(|(file, _)| *file).collect();
        let Some(&file) = open.get(usize::from(two) % (open.len() + 1)) else {
            self.made += 1;
            self.files.insert(self.made, File { open: true, ..File::default() });
            return self.push(Op::Tmpfile { file: self.made, dir: "a".to_owned() }, false);
        };
        let named =
            self.live.values().any(|held| held.id() == file) || self.ops.iter().any(|listed| names(&listed.op, file));
        match two / 8 % 4 {
            0 => {
                let free = PATHS[..4].iter().find(|path| !self.live.contains_key(*path) && !self.dead.contains(*path));
                if let (Some(to), false) = (free, named) {
                    let op = Op::Link { file, from: None, to: (*to).to_owned() };
                    self.name(op, fails, &[(to, Some(Held::File(file)))]);
                }
            }
            1 => self.push(Op::Fsync { file, path: "gone".to_owned() }, fails),
            2 => {
                self.files.get_mut(&file).unwrap().open = false;
                self.push(Op::Close { file }, false);
            }
            _ => self.data(file, "gone".to_owned(), two, two / 3, fails),
        }
    }

    fn push(&mut self, op: Op, fails: bool) {
        self.ops.push(Listed { op, fails });
    }
}

/// Whether a step gave the file a name; one that was unlinked gets none again.
fn names(op: &Op, id: u64) -> bool {
    matches!(op, Op::Create { file, .. } | Op::Link { file, .. } if *file == id)
}
