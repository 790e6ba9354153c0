//! The picture of one recording with one cut, as the ledger keeps it for the page.

use std::collections::HashSet;

use powerfail_drive::crash::Recipe;
use powerfail_drive::event::What;
use powerfail_drive::explore::{Span, Walk};
use powerfail_drive::recording::Reader;
use powerfail_drive::request::Command;
use powerfail_drive::units::SECTOR;
use powerfail_ledger::{Area, Case, Timeline, TimelineWrite};

/// Writes that a picture shows; more would be a smear, and a large page.
const WRITES: usize = 2500;
/// Of them at most so many lost ones; the others show what the lost ones are among.
const LOST: usize = 1500;
/// Flushes and FUA marks shown, each.
const TICKS: usize = 1500;

/// Events shown before the cut and behind it: a few commits, so that each write can be seen.
const BEFORE: u64 = 2500;
const BEHIND: u64 = 500;

/// Draws the recording around the cut of `recipe`, within the marks.
///
/// # Errors
/// If the recording is damaged.
pub fn timeline(
    recording: &[u8],
    case: Case,
    recipe: &Recipe,
    span: Span,
    journal: &[(u64, u64)],
) -> anyhow::Result<Timeline> {
    let lost = lost_writes(recording, recipe)?;
    // What is lost may have been written long before: without flushes, a cacheful ago.
    let first_lost = lost.iter().min().copied().unwrap_or(recipe.cut);
    let first = recipe.cut.saturating_sub(BEFORE).min(first_lost).max(span.first);
    let span = Span { first, last: (recipe.cut + BEHIND).min(span.last) };
    let mut reader = Reader::new(recording, false)?;
    let drive_sectors = reader.header().geometry.bytes() / SECTOR;
    let (mut writes, mut flushes, mut fua_events, mut commits) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    while let Some(entry) = reader.next()? {
        let event = entry.head.event;
        let What::Received { command, lba, sectors, fua } = entry.head.what else { continue };
        if event < span.first || event > span.last {
            continue;
        }
        if command == Command::Flush {
            flushes.push(event);
        }
        if command.writes() {
            if fua {
                fua_events.push(event);
            }
            let block = lba.0 / 8;
            let in_journal = journal.iter().any(|(first, last)| (*first..=*last).contains(&block));
            if in_journal && command == Command::Write && holds_commit(recording, entry.data_at, sectors.0) {
                commits.push(event);
            }
            let area = if in_journal { Area::Journal } else { Area::Home };
            writes.push(TimelineWrite { event, lba: lba.0, sectors: sectors.0, area, lost: lost.contains(&event) });
        }
    }
    let of_writes = writes.len() as u64;
    let (lost, kept): (Vec<_>, Vec<_>) = writes.into_iter().partition(|write| write.lost);
    let lost = thin(lost, LOST);
    let kept = thin(kept, WRITES - lost.len());
    let mut writes = [lost, kept].concat();
    writes.sort_by_key(|write| write.event);
    Ok(Timeline {
        case,
        state: recipe.to_string(),
        cut: recipe.cut,
        drive_sectors,
        first_event: span.first,
        last_event: span.last,
        writes,
        of_writes,
        flushes: thin(flushes, TICKS),
        fua: thin(fua_events, TICKS),
        commits: thin(commits, TICKS),
    })
}

/// Whether a write holds a commit block of jbd2: its magic number and the block type 2, big-endian, at the start of a
/// block (include/linux/jbd2.h). Data in a journal never begin with the magic number: jbd2 escapes them.
fn holds_commit(recording: &[u8], data_at: u64, sectors: u64) -> bool {
    const COMMIT: [u8; 8] = [0xc0, 0x3b, 0x39, 0x98, 0, 0, 0, 2];
    let data = usize::try_from(data_at).ok().and_then(|at| recording.get(at..)).unwrap_or_default();
    let data = &data[..data.len().min((sectors * SECTOR) as usize)];
    // Blocks are at least 1024 bytes.
    data.chunks(1024).any(|block| block.starts_with(&COMMIT))
}

/// Receipts of the writes of which some fragment is loose at the cut and lost.
fn lost_writes(recording: &[u8], recipe: &Recipe) -> anyhow::Result<HashSet<u64>> {
    let mut walk = Walk::new(recording, recipe.drive)?;
    walk.advance(recipe.cut)?;
    let loose = walk.history.loose();
    Ok(loose.iter().zip(&recipe.kept).filter(|(_, kept)| !**kept).map(|(loose, _)| loose.write).collect())
}

/// At most `most` of the items, evenly spread.
fn thin<T>(items: Vec<T>, most: usize) -> Vec<T> {
    let count = items.len();
    if count <= most {
        return items;
    }
    let mut next = 0;
    let keep = |index: usize| {
        let due = next * count / most.max(1);
        let keep = index == due && next < most;
        next += usize::from(keep);
        keep
    };
    let keep: Vec<bool> = (0..count).map(keep).collect();
    items.into_iter().zip(keep).filter(|(_, keep)| *keep).map(|(item, _)| item).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_commit_block_is_seen_at_the_start_of_any_block_of_a_write_and_nowhere_else() {
        let block = |first: [u8; 8]| [&first[..], &[7; 4088]].concat();
        let (descriptor, commit) =
            (block([0xc0, 0x3b, 0x39, 0x98, 0, 0, 0, 1]), block([0xc0, 0x3b, 0x39, 0x98, 0, 0, 0, 2]));
        let recording = [&[0; 16][..], &descriptor, &commit, &[9; 4096]].concat();
        assert!(super::holds_commit(&recording, 16, 16));
        assert!(!super::holds_commit(&recording, 16, 8), "the descriptor block alone");
        assert!(!super::holds_commit(&recording, 16 + 8192, 8));
        assert!(!super::holds_commit(&recording, 1 << 40, 8));
    }

    #[test]
    fn thinning_keeps_order_ends_at_the_bound_and_is_even() {
        let thinned = super::thin((0..1000).collect(), 100);
        assert_eq!(thinned, (0..100).map(|index| index * 10).collect::<Vec<_>>());
        assert_eq!(super::thin(vec![1, 2, 3], 5), [1, 2, 3]);
        assert_eq!(super::thin(vec![1, 2, 3], 0), [0; 0]);
    }
}
