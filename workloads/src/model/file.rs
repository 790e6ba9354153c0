//! What the content of one file may be after a crash.

use crate::content::BLOCK;
use crate::observation::{Content, Entry};
use crate::promises::{DataMode, Rule};
use std::collections::BTreeMap;

/// The books of one file. Generation 0 stands for zeroes.
#[derive(Clone, Default)]
pub(crate) struct File {
    /// Generation of each block at the last data promise. A new file begins as if its emptiness were promised.
    promised: Vec<u32>,
    /// Step whose return made that promise; 0: none.
    promised_at: u64,
    /// Generation of each block when all steps have happened.
    current: Vec<u32>,
    /// By block: generations written since the promise.
    since: BTreeMap<u64, Vec<u32>>,
    /// Smallest and largest size, in blocks, at the promise and since.
    low: u64,
    high: u64,
    /// Whether the file must be found under one of its places.
    pub(crate) must_exist: bool,
    /// Whether it was renamed since it was created.
    pub(crate) moved: bool,
    /// Names that may be bound to it.
    pub(crate) places: Vec<String>,
}

/// Why an entry cannot be this file.
pub(crate) struct Wrong {
    pub(crate) rule: Rule,
    pub(crate) text: String,
}

impl File {
    pub(super) fn write(&mut self, generation: u32, block: u64, blocks: u64) {
        let end = block + blocks;
        if self.current.len() < end as usize {
            self.current.resize(end as usize, 0);
            self.high = self.high.max(end);
        }
        for number in block..end {
            self.current[number as usize] = generation;
            self.since.entry(number).or_default().push(generation);
        }
    }

    pub(super) fn truncate(&mut self, blocks: u64) {
        self.current.truncate(blocks as usize);
        self.low = self.low.min(blocks);
    }

    /// Data and size as of now are promised.
    pub(super) fn decide(&mut self, step: u64) {
        self.promised.clone_from(&self.current);
        self.promised_at = step;
        self.since.clear();
        self.low = self.current.len() as u64;
        self.high = self.low;
    }

    /// Whether the content of `entry` may be that of this file, whose id is `id`. With `size_only` its blocks were not
    /// all readable and are left alone.
    pub(crate) fn verify(&self, id: u64, entry: &Entry, mode: DataMode, size_only: bool) -> Result<(), Wrong> {
        let (low, high) = (self.low * BLOCK as u64, self.high * BLOCK as u64);
        if entry.size < low || entry.size > high {
            let text =
                format!("its size is {} bytes, but may only be {low} to {high} ({})", entry.size, self.since_when());
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
        // From `low` on the file may have grown since the promise, or been cut and grown again.
        let open = number >= self.low;
        let fine = match what {
            Content::Zero => open || self.may_hold(number, 0),
            Content::Ours { file, generation } => *file == id && self.may_hold(number, *generation),
            Content::Torn { file, head, tail } => {
                let unsettled = open || self.since.contains_key(&number);
                let known = |end: &Option<u32>| match end {
                    None => open || self.may_hold(number, 0),
                    Some(generation) => self.may_hold(number, *generation),
                };
                *file == id && unsettled && known(head) && known(tail)
            }
            Content::Moved { .. } | Content::Foreign { .. } => false,
        };
        if fine || (open && mode == DataMode::Writeback) {
            return Ok(());
        }
        let rule = if open { Rule::Exposed } else { Rule::Data };
        let text = format!(
            "block {number} holds {}, but may only hold {} ({})",
            in_words(id, what),
            self.allowed(number, open),
            self.since_when()
        );
        Err(Wrong { rule, text })
    }

    fn may_hold(&self, number: u64, generation: u32) -> bool {
        self.promised.get(number as usize) == Some(&generation)
            || self.since.get(&number).is_some_and(|since| since.contains(&generation))
    }

    fn allowed(&self, number: u64, open: bool) -> String {
        let mut allowed: Vec<u32> = self.promised.get(number as usize).copied().into_iter().collect();
        allowed.extend(self.since.get(&number).into_iter().flatten());
        let mut words: Vec<_> = allowed.into_iter().filter(|g| *g > 0).map(|g| format!("generation {g}")).collect();
        if open || self.may_hold(number, 0) {
            words.push("zeroes".to_owned());
        }
        words.join(" or ")
    }

    fn since_when(&self) -> String {
        match self.promised_at {
            0 => "never synced".to_owned(),
            step => format!("synced by step {step}"),
        }
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

/// The id of a file as people read it: worker and number.
pub(crate) fn file_name(file: u64) -> String {
    format!("{}:{}", file >> 40, file & ((1 << 40) - 1))
}
