//! `powerfail journal IMAGE`: the journal of an image as a table.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use powerfail_jbd2::{Blocks, Bytes, Checksum, FastCommit, Journal, Kind, Layout, Row, Standing, Table, replay};

use crate::folder::Usage;

/// An image in a file, or a device, which is only read.
#[derive(Debug)]
struct ImageFile {
    file: File,
    length: u64,
}

impl ImageFile {
    fn open(path: &Path) -> anyhow::Result<ImageFile> {
        let usage = |error: std::io::Error| Usage(format!("{}: {error}", path.display()));
        let file = File::open(path).map_err(usage)?;
        if file.metadata().map_err(usage)?.is_dir() {
            return Err(Usage(format!("{} is a folder; name an image", path.display())).into());
        }
        // A block device's metadata says 0; its end is where seeking to the end leads.
        let length = rustix::fs::seek(&file, rustix::fs::SeekFrom::End(0)).map_err(|error| usage(error.into()))?;
        Ok(ImageFile { file, length })
    }
}

impl Blocks for ImageFile {
    fn length(&self) -> Bytes {
        Bytes(self.length)
    }

    fn read(&self, at: Bytes, into: &mut [u8]) -> bool {
        let inside = at.0.checked_add(into.len() as u64).is_some_and(|end| end <= self.length);
        inside && self.file.read_exact_at(into, at.0).is_ok()
    }
}

/// Prints the journal of an image.
///
/// # Errors
/// [`Usage`] if it has none, or can't be read.
pub fn journal(path: &Path, json: bool) -> anyhow::Result<u8> {
    let image = ImageFile::open(path)?;
    let journal = Journal::open(&image).map_err(|error| Usage(format!("{}: {error}", path.display())))?;
    let table = journal.table(&image);
    let layout = Layout::read(&image).ok();
    let recovery = Recovery::of(&image);
    if json {
        let value = serde_json::json!({
            "superblock": journal.superblock, "medium": journal.medium,
            "needs_recovery": journal.file_system.needs_recovery(),
            "rows": table.rows, "end": table.end, "trouble": table.trouble,
            "recovery": recovery.text, "refused": recovery.refused, "fast_commit": recovery.fast_commit,
        });
        println!("{value}");
        return Ok(0);
    }
    println!("journal {}", journal.superblock);
    println!("{}", text(&table, layout.as_ref()));
    println!("recovery: {}", recovery.text);
    Ok(0)
}

/// What recovery would do, in a sentence.
struct Recovery {
    text: String,
    refused: bool,
    fast_commit: Option<FastCommit>,
}

impl Recovery {
    fn of(image: &ImageFile) -> Recovery {
        match replay(image) {
            Ok(replay) if replay.nothing.is_some() => {
                Recovery { text: "there is nothing to replay".into(), refused: false, fast_commit: None }
            }
            Ok(replay) => {
                let (blocks, skipped) = (replay.writes.len(), replay.revoked.len());
                let which = match (replay.transactions.first(), replay.transactions.last()) {
                    (Some(first), Some(last)) => format!("transactions {first} to {last} are replayed"),
                    _ => "no transaction was committed".into(),
                };
                let fast = match &replay.fast_commit {
                    Some(fast) => format!("; then {} fast commits, which are not looked at here", fast.commits),
                    None => String::new(),
                };
                let text = format!("{which}: {blocks} blocks go home, {skipped} were revoked{fast}");
                Recovery { text, refused: false, fast_commit: replay.fast_commit }
            }
            Err(refused) => Recovery { text: format!("refused: {}", refused.why), refused: true, fast_commit: None },
        }
    }
}

pub(crate) fn text(table: &Table, layout: Option<&Layout>) -> comfy_table::Table {
    let mut out = comfy_table::Table::new();
    out.load_style(comfy_table::presets::NOTHING)
        .set_content_arrangement(comfy_table::ContentArrangement::Dynamic)
        .set_header(["log", "block", "what", "checksum", "recovery", ""]);
    for row in &table.rows {
        out.add_row([
            row.log.to_string(),
            row.place.to_string(),
            row.to_string(),
            checksum(row.checksum).to_owned(),
            standing(row.standing).to_owned(),
            more(row, layout),
        ]);
    }
    out
}

fn checksum(checksum: Checksum) -> &'static str {
    match checksum {
        Checksum::None => "",
        Checksum::Right => "right",
        Checksum::Wrong => "WRONG",
        Checksum::InCommit => "in commit",
    }
}

fn standing(standing: Standing) -> &'static str {
    match standing {
        Standing::Always => "read first",
        Standing::Replayed => "replayed",
        Standing::Beyond => "not replayed",
        Standing::Stale => "",
    }
}

fn more(row: &Row, layout: Option<&Layout>) -> String {
    /// Revoked blocks that are named one by one.
    const SHOWN: usize = 8;
    match &row.kind {
        Kind::Superblock | Kind::Unknown => String::new(),
        Kind::Descriptor { tags } => format!("{tags} blocks"),
        Kind::Data { home, escaped, revoked } => {
            let role = layout.map(|layout| layout.role(*home).to_string()).unwrap_or_default();
            let notes = [(*escaped, "escaped"), (*revoked, "revoked")];
            let notes = notes.into_iter().filter(|(has, _)| *has).map(|(_, note)| note.to_owned());
            std::iter::once(role).chain(notes).filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ")
        }
        Kind::Commit { torn, .. } => if *torn { "torn" } else { "" }.into(),
        Kind::Revoke { homes } => {
            let shown: Vec<_> = homes.iter().take(SHOWN).map(ToString::to_string).collect();
            let left = homes.len() - shown.len();
            let rest = if left > 0 { format!(" and {left} more") } else { String::new() };
            format!("blocks {}{rest}", shown.join(", "))
        }
        Kind::FastCommit { tags } => tags.join(", "),
    }
}
