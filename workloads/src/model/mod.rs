//! What one worker's names and files may be after a crash, given the steps that have returned and the one in flight.
//!
//! The model keeps possibilities, not one state. Issuing a step adds what it may have done; only the return of a
//! sync takes possibilities away. So the return of any other step changes nothing, and what is in flight needs no
//! case of its own. The rules are those at the top of `promises`; here they are only kept in books.

mod blocks;
mod file;

pub(crate) use file::{File, Node, Wrong};

use crate::promises::Promises;
use crate::steps::{Allocate, Op, dir_of};
use rustc_hash::{FxHashMap, FxHashSet, FxHasher};
use std::hash::{Hash, Hasher};

/// What a name may be bound to: a file, symbolic link or directory, or nothing.
pub(crate) type Binding = Option<u64>;

/// The books of one worker.
#[derive(Clone, Default)]
pub(crate) struct Model {
    /// Names that may exist. A name that is not here must not exist.
    pub(crate) names: FxHashMap<String, Name>,
    /// What some name may be bound to, or may be yet: a file without a name that is held open.
    pub(crate) files: FxHashMap<u64, File>,
    /// By directory: names with bindings that no sync has decided yet, some of them twice or decided since.
    undecided: FxHashMap<String, Vec<String>>,
    /// Hashes of all names that ever were, to tell a resurrected name from one that never was.
    ever: FxHashSet<u64>,
    /// Names that the step that began last binds, with what a program saw there before.
    before: Vec<(String, Vec<Binding>)>,
}

/// One name.
#[derive(Clone, Default)]
pub(crate) struct Name {
    /// All bindings that may be found, the newest last.
    pub(crate) bindings: Vec<Bound>,
    /// What a program sees there: one binding, or several if a step that failed may have been done.
    now: Vec<Binding>,
    /// Step whose return decided this name last; 0: none has.
    pub(crate) decided_at: u64,
}

/// A binding that may be found.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bound {
    pub(crate) to: Binding,
    /// The step that made it; 0: it was so before all steps.
    pub(crate) step: u64,
}

impl Name {
    /// Whether only `binding` may be found.
    fn is_only(&self, binding: Binding) -> bool {
        self.bindings.iter().all(|bound| bound.to == binding)
    }

    /// Whether `binding` may be found.
    pub(crate) fn may_be(&self, binding: Binding) -> bool {
        self.bindings.iter().any(|bound| bound.to == binding)
    }
}

impl Model {
    /// The step begins: from now on it may have happened, wholly or in part.
    pub(crate) fn issue(&mut self, step: u64, op: &Op) {
        self.before.clear();
        match op {
            Op::Create { file, path } => self.make(step, *file, path, Node::File),
            Op::Tmpfile { file, .. } => drop(self.files.insert(*file, File::new(Node::File))),
            Op::Symlink { link, path, target } => self.make(step, *link, path, Node::Symlink(target.clone())),
            Op::Mkdir { dir, path } => self.make(step, *dir, path, Node::Dir),
            Op::Write { file, generation, block, blocks, .. } => {
                self.data(*file, |data| data.put(*block, *blocks, *generation));
            }
            Op::Truncate { file, blocks, .. } => self.data(*file, |data| data.resize(*blocks)),
            Op::Allocate { file, mode, block, blocks, .. } => self.data(*file, |data| match mode {
                Allocate::Extend => data.grow(block + blocks),
                Allocate::KeepSize => {}
                Allocate::Punch | Allocate::ZeroKeepSize => data.clear(*block, *blocks),
                Allocate::Zero => data.put(*block, *blocks, 0),
            }),
            Op::Link { file, to, .. } => {
                self.with(*file, |file| file.moved = true);
                self.bind(step, to, Some(*file));
            }
            Op::Rename { file, from, to, replaced } => {
                self.with(*file, |file| file.moved = true);
                self.bind(step, to, Some(*file));
                self.bind(step, from, None);
                replaced.iter().for_each(|replaced| self.loses_a_name(*replaced));
            }
            Op::Exchange { file, path, other, other_path } => {
                self.with(*file, |file| file.moved = true);
                self.with(*other, |file| file.moved = true);
                self.bind(step, path, Some(*other));
                self.bind(step, other_path, Some(*file));
            }
            Op::Unlink { file, path } | Op::Rmdir { dir: file, path } => {
                self.bind(step, path, None);
                self.loses_a_name(*file);
            }
            Op::Close { file } => {
                if self.files.get(file).is_some_and(|file| file.places.is_empty()) {
                    self.files.remove(file);
                }
            }
            Op::Open { .. } | Op::Fsync { .. } | Op::Fdatasync { .. } | Op::SyncDir { .. } | Op::SyncFs => {}
        }
    }

    /// The step, which was issued last, has returned without an error.
    pub(crate) fn complete(&mut self, step: u64, op: &Op, promises: &Promises) {
        match op {
            Op::Fsync { file, path } => {
                self.with(*file, |file| file.blocks.settle(step));
                if promises.name_by_file_fsync {
                    self.name_of_synced(step, *file, path);
                }
            }
            Op::Fdatasync { file, .. } => self.with(*file, |file| file.blocks.settle(step)),
            Op::Write { file, block, blocks, how, .. } if how.promises_itself() => {
                self.with(*file, |file| file.blocks.settle_range(step, *block, *blocks));
            }
            Op::SyncDir { dir } => {
                for path in self.undecided.remove(dir).unwrap_or_default() {
                    self.decide(&path, step);
                }
            }
            Op::SyncFs => {
                for path in std::mem::take(&mut self.undecided).into_values().flatten() {
                    self.decide(&path, step);
                }
                self.files.values_mut().for_each(|file| file.blocks.settle(step));
            }
            _ => {}
        }
    }

    /// The step, which was issued last, has returned an error: it may have happened, in part, or not at all.
    pub(crate) fn fail(&mut self, op: &Op) {
        for (path, before) in std::mem::take(&mut self.before) {
            let now = &mut self.names.get_mut(&path).expect("bound when the step was issued").now;
            for binding in before {
                if !now.contains(&binding) {
                    now.push(binding);
                }
            }
        }
        match op {
            Op::Write { file, .. } | Op::Truncate { file, .. } | Op::Allocate { file, .. } => {
                self.with(*file, |file| file.blocks.doubt_step());
            }
            Op::Fsync { file, .. } | Op::Fdatasync { file, .. } => self.with(*file, |file| file.blocks.doubt_drive()),
            Op::SyncFs => self.files.values_mut().for_each(|file| file.blocks.doubt_drive()),
            _ => {}
        }
    }

    /// Whether a name that must not exist now existed once.
    pub(crate) fn ever_had(&self, path: &str) -> bool {
        self.ever.contains(&hash(path))
    }

    fn make(&mut self, step: u64, id: u64, path: &str, node: Node) {
        self.files.insert(id, File::new(node));
        self.bind(step, path, Some(id));
    }

    fn data(&mut self, file: u64, change: impl FnOnce(&mut blocks::Blocks)) {
        self.with(file, |file| {
            file.blocks.begin();
            change(&mut file.blocks);
        });
    }

    /// A file that no name may hold any more is in no book; nothing that is done to it can be seen.
    fn with(&mut self, file: u64, change: impl FnOnce(&mut File)) {
        if let Some(file) = self.files.get_mut(&file) {
            change(file);
        }
    }

    /// A file was synced: under which name it must be found.
    fn name_of_synced(&mut self, step: u64, id: u64, path: &str) {
        let Some(file) = self.files.get(&id) else { return };
        let is_here = |place: &String| {
            self.names.get(place).is_some_and(|name| name.now == [Some(id)]) && self.is_sure(dir_of(place))
        };
        if !file.places.iter().any(is_here) {
            return;
        }
        let decides = !file.moved && is_here(&path.to_owned());
        self.with(id, |file| file.must_exist = true);
        if decides {
            self.decide(path, step);
        }
    }

    /// Whether a directory is one of step 0's, or one whose own name is decided.
    fn is_sure(&self, dir: &str) -> bool {
        self.names.get(dir).is_none_or(|name| name.now.first().is_some_and(|binding| name.is_only(*binding)))
    }

    /// A name of a file goes. If another name is decided to be its own, it stays; otherwise nothing is promised any
    /// more, since the order between its names is not.
    fn loses_a_name(&mut self, id: u64) {
        let Some(file) = self.files.get(&id) else { return };
        let stays = file.places.iter().any(|place| self.names.get(place).is_some_and(|name| name.is_only(Some(id))));
        self.with(id, |file| file.must_exist &= stays);
    }

    fn bind(&mut self, step: u64, path: &str, binding: Binding) {
        self.ever.insert(hash(path));
        let nothing = || Name { bindings: vec![Bound { to: None, step: 0 }], now: vec![None], decided_at: 0 };
        let name = self.names.entry(path.to_owned()).or_insert_with(nothing);
        name.bindings.retain(|earlier| earlier.to != binding);
        name.bindings.push(Bound { to: binding, step });
        self.before.push((path.to_owned(), std::mem::replace(&mut name.now, vec![binding])));
        if let Some(file) = binding {
            self.with(file, |file| {
                if !file.places.iter().any(|place| place == path) {
                    file.places.push(path.to_owned());
                }
            });
        }
        self.undecided.entry(dir_of(path).to_owned()).or_default().push(path.to_owned());
    }

    /// What a program sees at a name is promised: no other binding may be found any more.
    fn decide(&mut self, path: &str, step: u64) {
        let Some(name) = self.names.get_mut(path) else { return };
        name.decided_at = step;
        let now = name.now.clone();
        let dropped: Vec<u64> =
            name.bindings.iter().filter(|bound| !now.contains(&bound.to)).filter_map(|bound| bound.to).collect();
        name.bindings.retain(|bound| now.contains(&bound.to));
        match now[..] {
            [Some(file)] => self.with(file, |file| file.must_exist = true),
            [None] => drop(self.names.remove(path)),
            // In doubt: a later sync of the directory may find it decided by a later step.
            _ => {}
        }
        for id in dropped {
            let Some(file) = self.files.get_mut(&id) else { continue };
            file.places.retain(|place| place != path);
            if file.places.is_empty() {
                self.files.remove(&id);
            }
        }
    }
}

fn hash(path: &str) -> u64 {
    let mut hasher = FxHasher::default();
    path.hash(&mut hasher);
    hasher.finish()
}
