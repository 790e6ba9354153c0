//! What a sequence may do: the actions that are possible in a state, and what each is as a step.

use crate::steps::{Allocate, How, Op};
use std::fmt;

/// A name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    AFoo,
    ABar,
    BFoo,
    BBar,
    /// A file in the directory that a sequence may make.
    CFoo,
}

impl Place {
    const ALL: [Place; 5] = [Place::AFoo, Place::ABar, Place::BFoo, Place::BBar, Place::CFoo];

    fn text(self) -> &'static str {
        ["A/foo", "A/bar", "B/foo", "B/bar", "C/foo"][self as usize]
    }

    fn path(self, home: &str) -> String {
        format!("{home}/{}", self.text())
    }
}

/// What a name holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    /// Index in the files of the state.
    File(usize),
    /// Id of the link.
    Symlink(u64),
}

#[derive(Clone, Copy, Debug)]
struct File {
    id: u64,
    blocks: u64,
    generation: u32,
}

/// What is there when all actions so far have happened.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    names: [Option<Held>; 5],
    files: Vec<File>,
    /// The directory `C`.
    dir: Option<u64>,
    /// The file that was touched last.
    touched: Option<Place>,
}

/// An operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Create(Place),
    Symlink(Place),
    Link(Place, Place),
    Rename(Place, Place),
    Exchange(Place, Place),
    Unlink(Place),
    Mkdir,
    Rmdir,
    Overwrite(Place, How),
    Append(Place),
    /// Behind a hole.
    Beyond(Place),
    Cut(Place),
    Extend(Place),
    Allocate(Place, Allocate),
}

/// A persistence point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Persist {
    SyncFs,
    Fsync(Place),
    Fdatasync(Place),
    /// `A`, `B`, `C`, or the sequence's own directory.
    Dir(&'static str),
}

const WAYS: [How; 4] = [How::Buffered, How::Direct, How::Dsync, How::Mapped];
const MODES: [Allocate; 5] =
    [Allocate::Extend, Allocate::KeepSize, Allocate::Punch, Allocate::Zero, Allocate::ZeroKeepSize];

impl State {
    /// Everything that is possible now, always in the same order.
    pub(super) fn actions(&self) -> Vec<Action> {
        let mut all = Vec::new();
        let places = Place::ALL.into_iter().filter(|place| *place != Place::CFoo || self.dir.is_some());
        let places: Vec<_> = places.collect();
        for &place in &places {
            match self.names[place as usize] {
                None => {
                    all.push(Action::Create(place));
                    all.push(Action::Symlink(place));
                }
                Some(Held::Symlink(_)) => all.push(Action::Unlink(place)),
                Some(Held::File(file)) => {
                    let whole = self.files[file].blocks >= START;
                    all.extend(WAYS.into_iter().filter(|_| whole).map(|how| Action::Overwrite(place, how)));
                    all.extend([Action::Append(place), Action::Beyond(place), Action::Extend(place)]);
                    if self.files[file].blocks > CUT {
                        all.push(Action::Cut(place));
                    }
                    all.extend(MODES.map(|mode| Action::Allocate(place, mode)));
                    all.push(Action::Unlink(place));
                }
            }
            let Some(held) = self.names[place as usize] else { continue };
            for &other in &places {
                let there = self.names[other as usize];
                if there.is_none() && matches!(held, Held::File(_)) {
                    all.push(Action::Link(place, other));
                }
                // Two names of one file stay as they are.
                if there != Some(held) {
                    all.push(Action::Rename(place, other));
                }
                if place < other && there.is_some_and(|there| there != held) {
                    all.push(Action::Exchange(place, other));
                }
            }
        }
        match self.dir {
            None => all.push(Action::Mkdir),
            Some(_) if self.names[Place::CFoo as usize].is_none() => all.push(Action::Rmdir),
            Some(_) => {}
        }
        all
    }

    /// Everything that may be synced now, always in the same order.
    pub(super) fn persists(&self) -> Vec<Persist> {
        let files = Place::ALL.into_iter().filter(|place| self.file(*place).is_some());
        let mut all: Vec<_> = files.map(Persist::Fsync).collect();
        let touched = self.touched.filter(|place| self.file(*place).is_some());
        all.extend(touched.map(Persist::Fdatasync));
        all.extend([Persist::Dir("A"), Persist::Dir("B"), Persist::SyncFs]);
        if self.dir.is_some() {
            all.extend([Persist::Dir("C"), Persist::Dir("")]);
        }
        all
    }

    /// Does an action that is possible now, and says which step that is.
    pub(super) fn apply(&mut self, action: &Action, home: &str, id: &mut impl FnMut() -> u64) -> Option<Op> {
        let path = |place: Place| place.path(home);
        match *action {
            Action::Create(place) => {
                let file = id();
                self.names[place as usize] = Some(Held::File(self.files.len()));
                self.files.push(File { id: file, blocks: 0, generation: 0 });
                self.touched = Some(place);
                Some(Op::Create { file, path: path(place) })
            }
            Action::Symlink(place) => {
                let link = id();
                self.names[place as usize] = Some(Held::Symlink(link));
                self.touched = None;
                Some(Op::Symlink { link, path: path(place), target: format!("target-{link}") })
            }
            Action::Link(from, to) => {
                self.names[to as usize] = self.names[from as usize];
                self.touched = Some(to);
                Some(Op::Link { file: self.id(from)?, from: Some(path(from)), to: path(to) })
            }
            Action::Rename(from, to) => {
                let (file, replaced) = (self.id(from)?, self.id(to));
                self.names[to as usize] = self.names[from as usize].take();
                self.touched = Some(to);
                Some(Op::Rename { file, from: path(from), to: path(to), replaced })
            }
            Action::Exchange(one, two) => {
                let (file, other) = (self.id(one)?, self.id(two)?);
                self.names.swap(one as usize, two as usize);
                self.touched = Some(one);
                Some(Op::Exchange { file, path: path(one), other, other_path: path(two) })
            }
            Action::Unlink(place) => {
                let file = self.id(place)?;
                self.names[place as usize] = None;
                self.touched = None;
                Some(Op::Unlink { file, path: path(place) })
            }
            Action::Mkdir => {
                let dir = id();
                self.dir = Some(dir);
                self.touched = None;
                Some(Op::Mkdir { dir, path: format!("{home}/C") })
            }
            Action::Rmdir => {
                self.touched = None;
                Some(Op::Rmdir { dir: self.dir.take()?, path: format!("{home}/C") })
            }
            Action::Overwrite(place, how) => {
                let (block, blocks) = if how.is_direct() { (0, 8) } else { (3, 7) };
                self.write(place, home, block, blocks, how)
            }
            Action::Append(place) => {
                let end = self.file(place)?.blocks;
                self.write(place, home, end, START, How::Buffered)
            }
            Action::Beyond(place) => {
                let end = self.file(place)?.blocks;
                self.write(place, home, end + 13, 5, How::Buffered)
            }
            Action::Cut(place) => self.truncate(place, home, CUT),
            Action::Extend(place) => {
                let end = self.file(place)?.blocks;
                self.truncate(place, home, end + 11)
            }
            Action::Allocate(place, mode) => {
                let end = self.file(place)?.blocks;
                let (block, blocks) = match mode {
                    Allocate::Extend | Allocate::KeepSize => (end, 10),
                    // Whole pages and parts of two.
                    Allocate::Punch | Allocate::ZeroKeepSize => (5, 14),
                    Allocate::Zero => (end.saturating_sub(6), 10),
                };
                let file = self.file_mut(place)?;
                if matches!(mode, Allocate::Extend | Allocate::Zero) {
                    file.blocks = file.blocks.max(block + blocks);
                }
                let file = file.id;
                self.touched = Some(place);
                Some(Op::Allocate { file, path: path(place), mode, block, blocks })
            }
        }
    }

    /// A persistence point as a step.
    pub(super) fn persist(&self, persist: Persist, home: &str) -> Option<Op> {
        Some(match persist {
            Persist::SyncFs => Op::SyncFs,
            Persist::Fsync(place) => Op::Fsync { file: self.id(place)?, path: place.path(home) },
            Persist::Fdatasync(place) => Op::Fdatasync { file: self.id(place)?, path: place.path(home) },
            Persist::Dir("") => Op::SyncDir { dir: home.to_owned() },
            Persist::Dir(dir) => Op::SyncDir { dir: format!("{home}/{dir}") },
        })
    }

    fn write(&mut self, place: Place, home: &str, block: u64, blocks: u64, how: How) -> Option<Op> {
        self.touched = Some(place);
        let file = self.file_mut(place)?;
        file.generation += 1;
        file.blocks = file.blocks.max(block + blocks);
        let File { id, generation, .. } = *file;
        Some(Op::Write { file: id, path: place.path(home), generation, block, blocks, how })
    }

    fn truncate(&mut self, place: Place, home: &str, blocks: u64) -> Option<Op> {
        self.touched = Some(place);
        let file = self.file_mut(place)?;
        file.blocks = blocks;
        let file = file.id;
        Some(Op::Truncate { file, path: place.path(home), blocks })
    }

    fn file(&self, place: Place) -> Option<&File> {
        match self.names[place as usize] {
            Some(Held::File(file)) => Some(&self.files[file]),
            _ => None,
        }
    }

    fn file_mut(&mut self, place: Place) -> Option<&mut File> {
        match self.names[place as usize] {
            Some(Held::File(file)) => Some(&mut self.files[file]),
            _ => None,
        }
    }

    fn id(&self, place: Place) -> Option<u64> {
        match self.names[place as usize]? {
            Held::File(file) => Some(self.files[file].id),
            Held::Symlink(link) => Some(link),
        }
    }
}

/// Blocks of the files that are there at the beginning: more than two pages, and no whole number of them.
const START: u64 = 19;
/// To which size a file is cut.
const CUT: u64 = 5;

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Create(place) => write!(f, "create {}", place.text()),
            Action::Symlink(place) => write!(f, "symlink {}", place.text()),
            Action::Link(from, to) => write!(f, "link {} {}", from.text(), to.text()),
            Action::Rename(from, to) => write!(f, "rename {} {}", from.text(), to.text()),
            Action::Exchange(one, two) => write!(f, "exchange {} {}", one.text(), two.text()),
            Action::Unlink(place) => write!(f, "unlink {}", place.text()),
            Action::Mkdir => f.write_str("mkdir C"),
            Action::Rmdir => f.write_str("rmdir C"),
            Action::Overwrite(place, how) => write!(f, "overwrite {} {how:?}", place.text()),
            Action::Append(place) => write!(f, "append {}", place.text()),
            Action::Beyond(place) => write!(f, "write-beyond {}", place.text()),
            Action::Cut(place) => write!(f, "truncate-down {}", place.text()),
            Action::Extend(place) => write!(f, "truncate-up {}", place.text()),
            Action::Allocate(place, mode) => write!(f, "fallocate {} {mode:?}", place.text()),
        }
    }
}

impl fmt::Display for Persist {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Persist::SyncFs => f.write_str("syncfs"),
            Persist::Fsync(place) => write!(f, "fsync {}", place.text()),
            Persist::Fdatasync(place) => write!(f, "fdatasync {}", place.text()),
            Persist::Dir("") => f.write_str("fsync ."),
            Persist::Dir(dir) => write!(f, "fsync {dir}"),
        }
    }
}
