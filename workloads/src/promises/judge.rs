//! Holds an observation against the books of all workers.

use super::{Breach, DataMode, Oracle, Rule};
use crate::model::{Model, Name, Wrong};
use crate::observation::{Content, Entry, Kind, Observation};
use crate::observe::TOO_MANY;
use crate::steps::{dir_of, file_name};
use rustc_hash::{FxHashMap, FxHashSet};

pub(super) fn judge(oracle: &Oracle, seen: &Observation) -> Vec<Breach> {
    let tree = Tree::new(seen);
    let mut breaches = Vec::new();
    directories(oracle, &tree, &mut breaches);
    for worker in &oracle.workers {
        Judge { model: &worker.model, tree: &tree, mode: oracle.promises.data }.names(&mut breaches);
    }
    strangers(oracle, seen, &mut breaches);
    breaches
}

/// The observation by path, and what it does not show.
struct Tree<'a> {
    entries: FxHashMap<&'a str, &'a Entry>,
    /// Paths with an error: an entry that could not be read, or a directory that could not be listed in full.
    blind: FxHashSet<&'a str>,
    /// The walk gave up: any path may exist.
    cut_short: bool,
}

impl<'a> Tree<'a> {
    fn new(seen: &'a Observation) -> Tree<'a> {
        Tree {
            entries: seen.entries.iter().map(|entry| (entry.path.as_str(), entry)).collect(),
            blind: seen.errors.iter().map(|error| error.path.as_str()).collect(),
            cut_short: seen.errors.iter().any(|error| error.error == TOO_MANY),
        }
    }

    /// Whether a path that has no entry may exist all the same.
    fn may_hide(&self, path: &str) -> bool {
        let mut at = path;
        while !self.blind.contains(at) {
            if at.is_empty() {
                return self.cut_short;
            }
            at = dir_of(at);
        }
        true
    }
}

/// The directories of step 0. A directory that is missing speaks for all names in it.
fn directories(oracle: &Oracle, tree: &Tree<'_>, breaches: &mut Vec<Breach>) {
    for dir in &oracle.directories {
        let detail = match tree.entries.get(dir.as_str()) {
            Some(entry) if entry.kind == Kind::Dir => continue,
            Some(_) => format!("{dir} is no directory; it was synced by step 0"),
            None if !oracle.made || tree.may_hide(dir) => continue,
            None => format!("the directory {dir} is gone; it was synced by step 0"),
        };
        breaches.push(Breach { rule: Rule::Name, detail });
    }
}

/// Names that no worker may have.
fn strangers(oracle: &Oracle, seen: &Observation, breaches: &mut Vec<Breach>) {
    let directories: FxHashSet<&str> = oracle.directories.iter().map(String::as_str).collect();
    for entry in &seen.entries {
        let path = entry.path.as_str();
        let ours = path == "lost+found"
            || path.starts_with("lost+found/")
            || directories.contains(path)
            || oracle.workers.iter().any(|worker| worker.model.names.contains_key(path));
        if ours {
            continue;
        }
        let was = oracle.workers.iter().any(|worker| worker.model.ever_had(path));
        let why = if was { "exists, although its removal was synced" } else { "exists, although no step made it" };
        let holds = owner(entry).map_or(String::new(), |file| format!("; it holds file {}", file_name(file)));
        breaches.push(Breach { rule: Rule::Unknown, detail: format!("{} {why}{holds}", brief(path)) });
    }
}

/// One worker's books and the tree.
struct Judge<'a> {
    model: &'a Model,
    tree: &'a Tree<'a>,
    mode: DataMode,
}

impl Judge<'_> {
    fn names(&self, breaches: &mut Vec<Breach>) {
        let mut accused = FxHashSet::default();
        let mut found = Vec::new();
        for (path, name) in &self.model.names {
            if let Err(wrong) = self.name(path, name) {
                accused.insert(path.as_str());
                found.push((path.as_str(), wrong));
            }
        }
        for (id, file) in &self.model.files {
            // A place that was accused already explains the loss.
            let missing = file.must_exist
                && !file.places.iter().any(|place| accused.contains(place.as_str()) || self.may_be_at(*id, place));
            if missing {
                let places: Vec<_> = file.places.iter().map(|place| brief(place)).collect();
                let text =
                    format!("nor under any other name that file {} may have: {}", file_name(*id), places.join(", "));
                found
                    .push((&file.places[0], Wrong { rule: Rule::Lost, text: format!("the file is not here, {text}") }));
            }
        }
        // The books are hash maps; the order of breaches must not depend on them.
        found.sort_by_key(|(path, wrong)| (wrong.rule, *path));
        breaches.extend(
            found
                .into_iter()
                .map(|(path, wrong)| Breach { rule: wrong.rule, detail: format!("{}: {}", brief(path), wrong.text) }),
        );
    }

    fn name(&self, path: &str, name: &Name) -> Result<(), Wrong> {
        let wrong = |rule, text| Err(Wrong { rule, text });
        let Some(entry) = self.tree.entries.get(path) else {
            if name.may_be(None) || self.may_hide(path) {
                return Ok(());
            }
            return wrong(Rule::Name, format!("the name is gone; it must be {}", name.in_words()));
        };
        let mut last = None;
        for id in name.bindings.iter().rev().filter_map(|bound| bound.to) {
            match self.is(id, entry) {
                Ok(()) => return Ok(()),
                // The file that the content says it is makes the better sentence.
                Err(wrong) if last.is_none() || owner(entry) == Some(id) => last = Some((id, wrong)),
                Err(_) => {}
            }
        }
        match (owner(entry), last) {
            (Some(file), _) if !name.may_be(Some(file)) => {
                wrong(Rule::Name, format!("holds file {}, but may only be {}", file_name(file), name.in_words()))
            }
            (_, Some((id, last))) if name.bindings.len() > 1 => {
                let text = format!("as file {}: {}; it may be {}", file_name(id), last.text, name.in_words());
                wrong(last.rule, text)
            }
            (_, Some((_, last))) => Err(last),
            (_, None) => wrong(Rule::Unknown, format!("exists, but may only be {}", name.in_words())),
        }
    }

    /// Whether `path` may be the file of that id as far as can be seen.
    fn may_be_at(&self, id: u64, path: &str) -> bool {
        match self.tree.entries.get(path) {
            Some(entry) => self.is(id, entry).is_ok(),
            None => self.may_hide(path),
        }
    }

    /// Whether a path that has no entry may exist all the same. A directory of a step's that is missing is judged by its own
    /// name, and speaks for all names in it.
    fn may_hide(&self, path: &str) -> bool {
        let dir = dir_of(path);
        let parent_is_missing = !self.tree.entries.contains_key(dir) && self.model.names.contains_key(dir);
        parent_is_missing || self.tree.may_hide(path)
    }

    fn is(&self, id: u64, entry: &Entry) -> Result<(), Wrong> {
        let unread = self.tree.blind.contains(entry.path.as_str());
        self.model.files[&id].verify(id, entry, self.mode, unread)
    }
}

/// The file that the first block of ours in this entry belongs to.
fn owner(entry: &Entry) -> Option<u64> {
    entry.runs.iter().find_map(|run| match run.what {
        Content::Ours { file, .. } | Content::Moved { file, .. } | Content::Torn { file, .. } => Some(file),
        Content::Zero | Content::Foreign { .. } => None,
    })
}

impl Name {
    /// What may be found here, each with the reason.
    pub(super) fn in_words(&self) -> String {
        let one = |bound: &crate::model::Bound| {
            let what = bound.to.map_or("absent".to_owned(), |file| format!("file {}", file_name(file)));
            match bound.step {
                0 => format!("{what} (so before all steps)"),
                step if step <= self.decided_at => {
                    format!("{what} (by step {step}, synced by step {})", self.decided_at)
                }
                step => format!("{what} (by step {step}, not synced)"),
            }
        };
        self.bindings.iter().map(one).collect::<Vec<_>>().join(" or ")
    }
}

/// A path short enough for a sentence; the number in each name keeps it unique.
fn brief(path: &str) -> String {
    if path.len() <= 48 { path.to_owned() } else { format!("{}… ({} bytes)", &path[..40], path.len()) }
}
