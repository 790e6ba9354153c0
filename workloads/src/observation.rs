//! What was seen of a tree: every entry, and for each regular file whose blocks it holds.

use crate::content::Identity;
use serde::{Deserialize, Serialize};

/// A walked tree. Entries are sorted by path; the root itself is not one of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observation {
    /// What is there.
    pub entries: Vec<Entry>,
    /// What could not be listed or read, or was left out because a bound was exceeded.
    pub errors: Vec<WalkError>,
}

/// One name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Path relative to the root, escaped by [`escape`].
    pub path: String,
    /// Kind of the inode.
    pub kind: Kind,
    /// `st_size`, bytes.
    pub size: u64,
    /// `st_nlink`.
    pub nlink: u64,
    /// `st_mode`, the permission bits alone.
    pub mode: u32,
    /// What a symbolic link holds, escaped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Content of a regular file: whole blocks from block 0 to `size / 512`, less what could not be read. The bytes
    /// after the last whole block belong to no run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<Run>,
}

/// Kind of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Regular file.
    File,
    /// Directory.
    Dir,
    /// Symbolic link.
    Symlink,
    /// Device, FIFO or socket.
    Other,
}

/// Consecutive blocks of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// First block.
    pub start: u64,
    /// Number of blocks.
    pub count: u64,
    /// What each of them holds.
    pub what: Content,
}

/// What a block holds, seen from its place in a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Content {
    /// Zeroes.
    Zero,
    /// Content of a workload, at the offset that it was written to.
    Ours {
        /// Id of the file.
        file: u64,
        /// Number of the write of that file.
        generation: u32,
    },
    /// Content of a workload, at another offset than it was written to.
    Moved {
        /// Id of the file.
        file: u64,
        /// Number of the write of that file.
        generation: u32,
        /// Block that the first block of the run says it is; the others follow it.
        block: u64,
    },
    /// A mixture of two versions of this very block; see [`Identity::Torn`].
    Torn {
        /// Id of the file.
        file: u64,
        /// Version that the head belongs to.
        head: Option<u32>,
        /// Version that the tail belongs to.
        tail: Option<u32>,
    },
    /// None of ours.
    Foreign {
        /// The first eight bytes of the first block of the run.
        hex: String,
    },
}

/// Something that could not be seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WalkError {
    /// Path relative to the root, escaped; empty for the root.
    pub path: String,
    /// The operation that failed: `open`, `list`, `stat`, `read`, `readlink`, or `bound` when a limit of ours was exceeded.
    pub operation: String,
    /// What the kernel said, or which bound.
    pub error: String,
}

impl Entry {
    /// Adds the next block, in order, to the runs.
    pub(crate) fn push(&mut self, number: u64, identity: Identity) {
        let what = match identity {
            Identity::Zero => Content::Zero,
            Identity::Ours { file, generation, block } if block == number => Content::Ours { file, generation },
            Identity::Ours { file, generation, block } => Content::Moved { file, generation, block },
            Identity::Torn { file, block, head, tail } if block == number => Content::Torn { file, head, tail },
            Identity::Torn { block, .. } => Content::Foreign { hex: format!("torn block {block}") },
            Identity::Foreign(bytes) => Content::Foreign { hex: bytes.iter().map(|b| format!("{b:02x}")).collect() },
        };
        if let Some(last) = self.runs.last_mut()
            && last.start + last.count == number
            && last.continues_with(&what)
        {
            last.count += 1;
        } else {
            self.runs.push(Run { start: number, count: 1, what });
        }
    }
}

impl Run {
    fn continues_with(&self, next: &Content) -> bool {
        match (&self.what, next) {
            (
                Content::Moved { file, generation, block },
                Content::Moved { file: next_file, generation: next_generation, block: next_block },
            ) => {
                (file, generation) == (next_file, next_generation) && block.checked_add(self.count) == Some(*next_block)
            }
            (Content::Foreign { .. }, Content::Foreign { .. }) => true,
            (a, b) => a == b,
        }
    }
}

/// A name as text without loss: printable ASCII stands for itself, a backslash and every other byte is `\xHH`.
pub fn escape(name: &[u8]) -> String {
    let mut text = String::with_capacity(name.len());
    for &byte in name {
        if (byte.is_ascii_graphic() || byte == b' ') && byte != b'\\' {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}

/// The name that [`escape`] made a text of; `None` for a text that it does not make.
pub fn unescape(text: &str) -> Option<Vec<u8>> {
    let mut name = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'\\' {
            name.push(byte);
            continue;
        }
        let hex = std::str::from_utf8(rest.strip_prefix(b"x")?.get(..2)?).ok()?;
        name.push(u8::from_str_radix(hex, 16).ok()?);
        rest = &rest[3..];
    }
    (escape(&name) == text).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_name_survives_its_text(name: Vec<u8>) {
            prop_assert_eq!(unescape(&escape(&name)), Some(name));
        }

        #[test]
        fn no_text_makes_unescape_panic(text: String) {
            let _ = unescape(&text);
        }
    }

    fn entry() -> Entry {
        Entry { path: "f".into(), kind: Kind::File, size: 0, nlink: 1, mode: 0o644, target: None, runs: vec![] }
    }

    #[test]
    fn runs_merge_only_what_is_the_same_and_consecutive() {
        let ours = |file, block| Identity::Ours { file, generation: 1, block };
        let mut e = entry();
        for (at, identity) in [ours(5, 0), ours(5, 1), ours(6, 2), ours(5, 9), ours(5, 10), ours(5, 12), Identity::Zero]
            .into_iter()
            .enumerate()
        {
            e.push(at as u64, identity);
        }
        e.push(8, Identity::Zero); // block 7 could not be read
        let shape: Vec<_> = e.runs.iter().map(|run| (run.start, run.count)).collect();
        assert_eq!(shape, [(0, 2), (2, 1), (3, 2), (5, 1), (6, 1), (8, 1)]);
        assert_eq!(e.runs[2].what, Content::Moved { file: 5, generation: 1, block: 9 });
    }

    #[test]
    fn an_observation_survives_json() {
        let mut e = entry();
        e.push(0, Identity::Torn { file: 1, block: 0, head: None, tail: Some(2) });
        e.push(1, Identity::Foreign([1; 8]));
        let error = WalkError { path: "x".into(), operation: "read".into(), error: "EIO".into() };
        let seen = Observation { entries: vec![e], errors: vec![error] };
        assert_eq!(serde_json::from_str::<Observation>(&serde_json::to_string(&seen).unwrap()).unwrap(), seen);
    }
}
