//! What is asked of every workload in the list.

use super::*;
use crate::steps::{Op, dir_of};
use std::collections::{HashMap, HashSet};

fn specs() -> impl Iterator<Item = Spec> {
    Spec::NAMES.iter().map(|name| Spec::named(name).unwrap())
}

#[test]
fn every_name_in_the_list_is_a_workload_that_survives_its_json() {
    for name in Spec::NAMES {
        let spec = Spec::named(name).unwrap();
        assert!(spec.describe().starts_with(name), "{}", spec.describe());
        assert_eq!(spec.name(), *name);
        assert_eq!(spec.check(), Ok(()));
        assert_eq!(serde_json::from_str::<Spec>(&serde_json::to_string(&spec).unwrap()).unwrap(), spec);
    }
    assert_eq!(Spec::named("nothing"), None);
}

#[test]
fn options_are_changed_by_their_own_names() {
    let mason = Spec::named("mason").unwrap();
    let Spec::Mason(changed) = mason.with_options("files=7, steps=9").unwrap() else { panic!("another workload") };
    assert_eq!((changed.files, changed.steps), (7, Some(9)));
    let wrong = mason.with_options("fils=7").unwrap_err();
    assert!(wrong.contains("no option `fils`") && wrong.contains("files"), "{wrong}");
    assert!(mason.with_options("seed=7").unwrap_err().contains("no option `seed`"));
    assert!(mason.with_options("files=many").unwrap_err().contains("files=many"));
    assert_eq!(mason.with_options("").unwrap(), mason);
}

#[test]
fn options_that_promise_nothing_are_refused() {
    for spec in specs() {
        assert!(spec.with_options("seconds=0").unwrap().check().is_err(), "{}", spec.name());
        assert!(spec.with_options("steps=0").unwrap().check().is_err(), "{}", spec.name());
        assert!(spec.with_options("steps=5").unwrap().check().is_ok(), "{}", spec.name());
    }
    let fs_mark = Spec::named("fs-mark").unwrap();
    assert!(fs_mark.with_options("sync=post").unwrap().check().is_ok());
    assert!(fs_mark.with_options("sync=never").unwrap().check().unwrap_err().contains("in-band"));
}

#[test]
fn the_same_seed_gives_the_same_steps_and_a_fork_goes_on_the_same() {
    for spec in specs() {
        let list = |spec: &Spec| {
            // Worker 0 of `full` fills, which nothing is drawn for.
            let mut steps = spec.steps(spec.workers() - 1);
            (0..300).map_while(|_| steps.next()).collect::<Vec<_>>()
        };
        let first = list(&spec.clone().with_seed(Seed(7)));
        assert_eq!(first, list(&spec.clone().with_seed(Seed(7))), "{}", spec.name());
        // What `bounded` does is decided by its numbers alone.
        let other = list(&spec.clone().with_seed(Seed(8)));
        assert_eq!(first == other, spec.name() == "bounded", "{}", spec.name());
        let mut steps = spec.steps(0);
        (0..100).for_each(|_| drop(steps.next()));
        let mut fork = steps.fork();
        (0..100).for_each(|_| assert_eq!(steps.next(), fork.next(), "{}", spec.name()));
    }
}

/// What a name holds in a plain tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Node {
    File(u64),
    Symlink(u64),
    Dir(u64),
}

impl Node {
    fn id(self) -> u64 {
        let (Node::File(id) | Node::Symlink(id) | Node::Dir(id)) = self;
        id
    }
}

/// A plain tree: each step must be possible when it comes.
#[derive(Default)]
struct Plain {
    directories: HashSet<String>,
    names: HashMap<String, Node>,
    sizes: HashMap<u64, u64>,
    generations: HashMap<u64, u32>,
    open: HashSet<u64>,
}

impl Plain {
    fn is_dir(&self, path: &str) -> bool {
        self.directories.contains(path) || matches!(self.names.get(path), Some(Node::Dir(_)))
    }

    fn make(&mut self, path: &str, node: Node) {
        assert!(self.is_dir(dir_of(path)), "{path} is in no directory");
        assert_eq!(self.names.insert(path.to_owned(), node), None, "{path} is free");
    }

    fn take(&mut self, path: &str, id: u64) {
        assert_eq!(self.names.remove(path).map(Node::id), Some(id), "{path} holds it");
    }

    /// The file is there by that name or held open.
    fn reach(&self, file: u64, path: &str) {
        assert!(self.open.contains(&file) || self.names.get(path) == Some(&Node::File(file)), "{path} is file {file}");
    }

    fn new_file(&mut self, file: u64) {
        assert_eq!(self.sizes.insert(file, 0), None, "ids are unique");
    }

    fn step(&mut self, op: &Op) {
        match op {
            Op::Create { file, path } => {
                self.new_file(*file);
                self.make(path, Node::File(*file));
            }
            Op::Tmpfile { file, dir } => {
                assert!(self.is_dir(dir));
                self.new_file(*file);
                self.open.insert(*file);
            }
            Op::Open { file, path } => {
                self.reach(*file, path);
                self.open.insert(*file);
            }
            Op::Close { file } => assert!(self.open.remove(file)),
            Op::Write { file, path, generation, block, blocks, how } => {
                if how.is_direct() {
                    assert!(block.is_multiple_of(8) && blocks.is_multiple_of(8), "{op}");
                    assert_eq!(self.names.get(path), Some(&Node::File(*file)), "opened by its name");
                }
                self.reach(*file, path);
                let size = self.sizes.get_mut(file).unwrap();
                if op.kind().starts_with("write-m") {
                    assert!(block + blocks <= *size, "a mapping ends inside the size: {op}");
                }
                *size = (*size).max(block + blocks);
                assert!(*blocks > 0 && *generation > self.generations.insert(*file, *generation).unwrap_or(0), "{op}");
            }
            Op::Truncate { file, path, blocks } => {
                self.reach(*file, path);
                self.sizes.insert(*file, *blocks);
            }
            Op::Allocate { file, path, block, blocks, mode } => {
                self.reach(*file, path);
                assert!(*blocks > 0);
                let size = self.sizes.get_mut(file).unwrap();
                if matches!(mode, crate::steps::Allocate::Extend | crate::steps::Allocate::Zero) {
                    *size = (*size).max(block + blocks);
                }
            }
            Op::Fsync { file, path } | Op::Fdatasync { file, path } => self.reach(*file, path),
            Op::SyncDir { dir } => assert!(self.is_dir(dir) || self.directories.contains(dir), "{dir}"),
            Op::Link { file, from: Some(from), to } => {
                assert_eq!(self.names.get(from), Some(&Node::File(*file)));
                self.make(to, Node::File(*file));
            }
            Op::Link { file, from: None, to } => {
                assert!(self.open.contains(file) && !self.names.values().any(|node| node.id() == *file));
                self.make(to, Node::File(*file));
            }
            Op::Symlink { link, path, .. } => self.make(path, Node::Symlink(*link)),
            Op::Mkdir { dir, path } => self.make(path, Node::Dir(*dir)),
            Op::Rmdir { dir, path } => {
                assert!(!self.names.keys().any(|name| dir_of(name) == path), "{path} is empty");
                self.take(path, *dir);
            }
            Op::Rename { file, from, to, replaced } => {
                let node = self.names[from];
                self.take(from, *file);
                if let Some(replaced) = replaced {
                    assert_ne!(replaced, file, "two names of one file stay as they are");
                    self.take(to, *replaced);
                }
                self.make(to, node);
            }
            Op::Exchange { file, path, other, other_path } => {
                assert_ne!(file, other);
                let (one, two) = (self.names[path], self.names[other_path]);
                assert_eq!((one.id(), two.id()), (*file, *other));
                self.names.insert(path.clone(), two);
                self.names.insert(other_path.clone(), one);
            }
            Op::Unlink { file, path } => {
                assert!(!matches!(self.names.get(path), Some(Node::Dir(_))));
                self.take(path, *file);
            }
            Op::SyncFs => {}
        }
    }
}

#[test]
fn every_step_is_possible_and_every_kind_occurs() {
    let mut kinds: HashMap<&str, HashSet<&str>> = HashMap::new();
    for spec in specs() {
        let spec = if spec.name() == "bounded" { spec.with_options("part=80000-80399").unwrap() } else { spec };
        let mut plain = Plain { directories: spec.directories().into_iter().collect(), ..Plain::default() };
        for worker in 0..spec.workers() {
            let mut steps = spec.steps(worker);
            // Without any failure `full` never stops to fill.
            let count = if spec.name() == "full" { 100 } else { 4000 };
            for op in (0..count).map_while(|_| steps.next()) {
                kinds.entry(op.kind()).or_default().insert(spec.name());
                plain.step(&op);
            }
        }
    }
    for kind in ["tmpfile", "link-tmpfile", "link", "symlink", "exchange", "mkdir", "rmdir", "rename", "rename-over"] {
        assert!(kinds.contains_key(kind), "no workload does {kind}");
    }
    let ways = crate::steps::How::ALL.len();
    assert_eq!(kinds.keys().filter(|kind| kind.starts_with("write")).count(), ways, "every way to write: {kinds:?}");
    for mode in ["fallocate", "fallocate-keep-size", "punch-hole", "zero-range", "zero-range-keep-size"] {
        assert!(kinds.contains_key(mode), "no workload does {mode}");
    }
}

/// `full` under failures of every kind of step, as a file system without space gives them.
#[test]
fn full_goes_on_whatever_has_no_space() {
    let spec = Spec::named("full").unwrap();
    for worker in 0..spec.workers() {
        let mut steps = spec.steps(worker);
        let mut dead: HashSet<String> = HashSet::new();
        for step in 0..5000 {
            let op = steps.next().expect("it does not end");
            if let Op::Create { path, .. } = &op {
                assert!(!dead.contains(path), "a name whose making failed is left alone");
            }
            if Seed(1).draw("fails", &[u64::from(worker), step]).is_multiple_of(5) {
                if let Op::Create { path, .. } = &op {
                    dead.insert(path.clone());
                }
                assert!(steps.failed(libc::ENOSPC), "{op}");
            }
        }
        assert!(!steps.failed(libc::EIO), "anything else ends it");
    }
}
