//! What one file, symbolic link or directory may be after a crash.

use super::blocks::Blocks;
use crate::content::BLOCK;
use crate::observation::{Content, Entry, Kind};
use crate::promises::{DataMode, Rule};
use crate::steps::file_name;

/// What an id stands for.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Node {
    File,
    Symlink(String),
    Dir,
}

/// The books of one id.
#[derive(Clone)]
pub(crate) struct File {
    pub(crate) node: Node,
    pub(super) blocks: Blocks,
    /// Whether it must be found under one of its places.
    pub(crate) must_exist: bool,
    /// Whether it was renamed or linked since it was created, so that a sync of it says nothing of any one name.
    pub(super) moved: bool,
    /// Names that may be bound to it.
    pub(crate) places: Vec<String>,
}

/// Why an entry cannot be this file.
pub(crate) struct Wrong {
    pub(crate) rule: Rule,
    pub(crate) text: String,
}

impl File {
    pub(super) fn new(node: Node) -> File {
        File { node, blocks: Blocks::default(), must_exist: false, moved: false, places: Vec::new() }
    }

    /// Whether `entry` may be this one, whose id is `id`. With `size_only` its blocks were not all readable and are left alone.
    pub(crate) fn verify(&self, id: u64, entry: &Entry, mode: DataMode, size_only: bool) -> Result<(), Wrong> {
        let wrong = |text: String| Err(Wrong { rule: Rule::Name, text });
        match (&self.node, entry.kind) {
            (Node::File, Kind::File) => self.verify_content(id, entry, mode, size_only),
            (Node::Dir, Kind::Dir) => Ok(()),
            (Node::Symlink(target), Kind::Symlink) if entry.target.as_ref() == Some(target) || size_only => Ok(()),
            (Node::Symlink(target), Kind::Symlink) => {
                wrong(format!("the link holds {:?}, not {target:?}", entry.target.as_deref().unwrap_or("nothing")))
            }
            (Node::File, kind) => wrong(format!("is a {kind:?}, not a regular file").to_lowercase()),
            (Node::Dir, kind) => wrong(format!("is a {kind:?}, not a directory").to_lowercase()),
            (Node::Symlink(_), kind) => wrong(format!("is a {kind:?}, not a symbolic link").to_lowercase()),
        }
    }

    fn verify_content(&self, id: u64, entry: &Entry, mode: DataMode, size_only: bool) -> Result<(), Wrong> {
        let (low, high) = (self.blocks.low() * BLOCK as u64, self.blocks.high() * BLOCK as u64);
        if entry.size < low || entry.size > high {
            let text = format!(
                "its size is {} bytes, but may only be {low} to {high} ({})",
                entry.size,
                since_when(self.blocks.synced_at())
            );
            return Err(Wrong { rule: Rule::Size, text });
        }
        if size_only {
            return Ok(());
        }
        for run in &entry.runs {
            for number in run.start..run.start + run.count {
                self.verify_block(id, number, &run.what, mode)?;
            }
        }
        Ok(())
    }

    fn verify_block(&self, id: u64, number: u64, what: &Content, mode: DataMode) -> Result<(), Wrong> {
        let may = |version: &u32| self.blocks.may_hold(number, *version);
        let fine = match what {
            Content::Zero => may(&0),
            Content::Ours { file, generation } => *file == id && may(generation),
            Content::Torn { file, head, tail } => {
                *file == id
                    && self.blocks.is_loose(number)
                    && may(&head.unwrap_or_default())
                    && may(&tail.unwrap_or_default())
            }
            Content::Moved { .. } | Content::Foreign { .. } => false,
        };
        if fine || (mode == DataMode::Writeback && self.blocks.may_be_new(number)) {
            return Ok(());
        }
        // From the smallest size on the file may have grown since the promise, or been cut and grown again.
        let rule = if number >= self.blocks.low() { Rule::Exposed } else { Rule::Data };
        let text = format!(
            "block {number} holds {}, but may only hold {} ({})",
            in_words(id, what),
            self.allowed(number),
            since_when(self.blocks.block_synced_at(number))
        );
        Err(Wrong { rule, text })
    }

    fn allowed(&self, number: u64) -> String {
        let words = self.blocks.versions(number).into_iter().map(|version| match version {
            0 => "zeroes".to_owned(),
            version => format!("generation {version}"),
        });
        words.collect::<Vec<_>>().join(" or ")
    }
}

fn since_when(step: u64) -> String {
    match step {
        0 => "never synced".to_owned(),
        step => format!("synced by step {step}"),
    }
}

fn in_words(id: u64, what: &Content) -> String {
    let whose = |file: &u64| if *file == id { "its own".to_owned() } else { format!("file {}'s", file_name(*file)) };
    let end = |end: &Option<u32>| end.map_or("zeroes".to_owned(), |generation| format!("generation {generation}"));
    match what {
        Content::Zero => "zeroes".to_owned(),
        Content::Ours { file, generation } => format!("{} generation {generation}", whose(file)),
        Content::Moved { file, generation, block } => {
            format!("{} generation {generation} of block {block} (first of the run)", whose(file))
        }
        Content::Torn { file, head, tail } => {
            format!("{} mixture of {} and {}", whose(file), end(head), end(tail))
        }
        Content::Foreign { hex } => format!("foreign bytes {hex}"),
    }
}
