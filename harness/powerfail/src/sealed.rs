//! Sealed files of JSON lines: the first line holds the digest of all of it, so that a line that was altered by hand is
//! noticed. Plans are such files: what they say of an image goes into the ledger unseen.

use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::folder::{Usage, write_whole};

/// The first line of a sealed file.
pub trait Head: Clone + Serialize + DeserializeOwned {
    /// BLAKE3, hexadecimal, of this line with an empty seal and of all lines that follow.
    fn seal(&mut self) -> &mut String;
}

/// Seals `head` over `entries` and writes both, whole or not at all.
///
/// # Errors
/// If the file can't be written.
pub fn write<H: Head>(path: &Path, head: &mut H, entries: &[impl Serialize]) -> anyhow::Result<()> {
    let mut lines = Vec::new();
    for entry in entries {
        serde_json::to_writer(&mut lines, entry)?;
        lines.push(b'\n');
    }
    *head.seal() = seal(head, &lines)?;
    let mut text = serde_json::to_vec(head)?;
    text.push(b'\n');
    text.append(&mut lines);
    write_whole(path, &text)
}

/// Reads a sealed file; `remedy` is what the user is told to do about one that can't be read, such as `remove it`.
///
/// # Errors
/// [`Usage`] if it is missing or damaged.
pub fn read<H: Head, E: DeserializeOwned>(path: &Path, remedy: &str) -> anyhow::Result<(H, Vec<E>)> {
    let usage = |why: String| Usage(format!("{}: {why}; {remedy}", path.display()));
    let text = std::fs::read(path).map_err(|error| usage(error.to_string()))?;
    let end = text.iter().position(|&byte| byte == b'\n').ok_or_else(|| usage("it is no plan".into()))?;
    let (first, lines) = (&text[..end], &text[end + 1..]);
    let mut head: H = serde_json::from_slice(first).map_err(|error| usage(format!("it is no plan ({error})")))?;
    if seal(&head, lines)? != *head.seal() {
        return Err(usage("it was altered since it was made".into()).into());
    }
    let entries: Result<Vec<E>, _> = serde_json::Deserializer::from_slice(lines).into_iter().collect();
    Ok((head, entries.map_err(|error| usage(error.to_string()))?))
}

fn seal<H: Head>(head: &H, lines: &[u8]) -> anyhow::Result<String> {
    let mut unsealed = head.clone();
    unsealed.seal().clear();
    let mut hasher = blake3::Hasher::new();
    hasher.update(&serde_json::to_vec(&unsealed)?);
    hasher.update(lines);
    Ok(hasher.finalize().to_hex().to_string())
}
