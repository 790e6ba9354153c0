//! What one worker's names and files may be after a crash, given the steps that have returned and the one in flight.
//!
//! The model keeps possibilities, not one state. Issuing a step adds what it may have done; only the return of a
//! sync takes possibilities away. So the return of any other step changes nothing, and what is in flight needs no
//! case of its own. The rules are those at the top of `promises`; here they are only kept in books.

mod file;

pub(crate) use file::{File, Wrong, file_name};

use crate::promises::Promises;
use crate::steps::{Op, dir_of};
use rustc_hash::{FxHashMap, FxHashSet, FxHasher};
use std::hash::{Hash, Hasher};

/// What a name may be bound to: a file, or nothing.
pub(crate) type Binding = Option<u64>;

/// The books of one worker.
#[derive(Clone, Default)]
pub(crate) struct Model {
    /// Names that may exist. A name that is not here must not exist.
    pub(crate) names: FxHashMap<String, Name>,
    /// Files that some name may be bound to.
    pub(crate) files: FxHashMap<u64, File>,
    /// By directory: names with bindings that no sync has decided yet, some of them twice or decided since.
    undecided: FxHashMap<String, Vec<String>>,
    /// Hashes of all names that ever were, to tell a resurrected name from one that never was.
    ever: FxHashSet<u64>,
}

/// One name.
#[derive(Clone, Default)]
pub(crate) struct Name {
    /// All bindings that may be found, the current one last.
    pub(crate) bindings: Vec<Binding>,
    /// Step whose return decided this name last; 0: none has.
    pub(crate) decided_at: u64,
}

impl Model {
    /// The step begins: from now on it may have happened, wholly or in part.
    pub(crate) fn issue(&mut self, op: &Op) {
        match op {
            Op::Create { file, path } => {
                self.files.insert(*file, File::default());
                self.bind(path, Some(*file));
            }
            Op::Write { file, generation, block, blocks, .. } => self.file(*file).write(*generation, *block, *blocks),
            Op::Truncate { file, blocks, .. } => self.file(*file).truncate(*blocks),
            Op::Rename { file, from, to, replaced } => {
                if let Some(replaced) = replaced {
                    self.file(*replaced).must_exist = false;
                }
                self.file(*file).moved = true;
                self.bind(to, Some(*file));
                self.bind(from, None);
            }
            Op::Unlink { file, path } => {
                self.file(*file).must_exist = false;
                self.bind(path, None);
            }
            Op::Fsync { .. } | Op::Fdatasync { .. } | Op::SyncDir { .. } | Op::SyncFs => {}
        }
    }

    /// The step, which was issued last, has returned without an error.
    pub(crate) fn complete(&mut self, step: u64, op: &Op, promises: &Promises) {
        match op {
            Op::Fsync { file, path } => {
                self.file(*file).decide(step);
                if promises.name_by_file_fsync {
                    self.file(*file).must_exist = true;
                    if !self.file(*file).moved {
                        self.decide(path, step);
                    }
                }
            }
            Op::Fdatasync { file, .. } => self.file(*file).decide(step),
            Op::SyncDir { dir } => {
                for path in self.undecided.remove(dir).unwrap_or_default() {
                    self.decide(&path, step);
                }
            }
            Op::SyncFs => {
                for path in std::mem::take(&mut self.undecided).into_values().flatten() {
                    self.decide(&path, step);
                }
                self.files.values_mut().for_each(|file| file.decide(step));
            }
            Op::Create { .. } | Op::Write { .. } | Op::Truncate { .. } | Op::Rename { .. } | Op::Unlink { .. } => {}
        }
    }

    /// Whether a name that must not exist now existed once.
    pub(crate) fn ever_had(&self, path: &str) -> bool {
        self.ever.contains(&hash(path))
    }

    fn bind(&mut self, path: &str, binding: Binding) {
        self.ever.insert(hash(path));
        let name = self.names.entry(path.to_owned()).or_insert_with(|| Name { bindings: vec![None], decided_at: 0 });
        name.bindings.retain(|earlier| *earlier != binding);
        name.bindings.push(binding);
        if let Some(file) = binding {
            let places = &mut self.file(file).places;
            if !places.iter().any(|place| place == path) {
                places.push(path.to_owned());
            }
        }
        self.undecided.entry(dir_of(path).to_owned()).or_default().push(path.to_owned());
    }

    /// The current binding of a name is promised: none of the earlier ones may be found any more.
    fn decide(&mut self, path: &str, step: u64) {
        let Some(name) = self.names.get_mut(path) else { return };
        name.decided_at = step;
        let current = name.bindings.pop().expect("a name has at least one binding");
        let dropped = std::mem::replace(&mut name.bindings, vec![current]);
        match current {
            Some(file) => self.file(file).must_exist = true,
            None => drop(self.names.remove(path)),
        }
        for file in dropped.into_iter().flatten() {
            let places = &mut self.file(file).places;
            places.retain(|place| place != path);
            if places.is_empty() {
                self.files.remove(&file);
            }
        }
    }

    fn file(&mut self, file: u64) -> &mut File {
        self.files.get_mut(&file).expect("steps only name files that may exist")
    }
}

fn hash(path: &str) -> u64 {
    let mut hasher = FxHasher::default();
    path.hash(&mut hasher);
    hasher.finish()
}
