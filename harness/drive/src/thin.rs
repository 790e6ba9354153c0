//! A recording over a drive that held something before, without what is of no matter.
//!
//! A recording begins with a drive of zeroes. Of a drive that was not empty it therefore begins with writes of all that was
//! there, settled by the mark `mounted`. That is exact, and for the recovery from one crash it is a hundred times what the
//! recovery itself writes. So what lay beneath is left out wherever nothing was written, trimmed or zeroed later; whoever
//! makes an image of such a recording puts it *over* the image that lay beneath, which holds the rest. Reads are left out,
//! too: they change nothing, and cuts among them would be the same cut again and again.

use std::collections::HashMap;

use crate::event::{HEAD, Head, What};
use crate::history::MOUNTED;
use crate::recording::{Entry, ReadError, Reader};
use crate::request::Command;

/// The thin recording, as bytes. The same recording gives the same bytes. Writes before `mounted` stay or go as a whole.
///
/// # Errors
/// If the recording is damaged.
pub fn thin(recording: &[u8]) -> Result<Vec<u8>, ReadError> {
    let (mut entries, mut mounted) = (Vec::<Entry>::new(), 0);
    let mut reader = Reader::new(recording, false)?;
    while let Some(entry) = reader.next()? {
        if entry.head.what == What::Mark && reader.data() == MOUNTED.as_bytes() {
            mounted = entries.len();
        }
        entries.push(entry);
    }
    let changed = Ranges::of(entries[mounted.min(entries.len())..].iter().filter_map(written));
    let mut bytes = reader.header().encode().to_vec();
    let mut numbers: HashMap<u64, u64> = HashMap::new();
    let mut next = 0;
    for (place, entry) in entries.iter().enumerate() {
        let what = match entry.head.what {
            What::Received { command: Command::Read | Command::Cache, .. } => continue,
            What::Received { .. } if place < mounted && !written(entry).is_some_and(|range| changed.meet(range)) => {
                continue;
            }
            What::Replied { receipt } => match numbers.get(&receipt) {
                Some(&receipt) => What::Replied { receipt },
                // Its request is left out.
                None => continue,
            },
            other => other,
        };
        numbers.insert(entry.head.event, next);
        let at = entry.data_at as usize;
        bytes.extend_from_slice(&Head { event: next, what, ..entry.head }.encode());
        bytes.extend_from_slice(&recording[at..at + entry.head.data_len as usize]);
        next += 1;
    }
    let end = Head { event: next, what: What::End, data_len: 0, data_crc: 0 };
    bytes.reserve_exact(HEAD);
    bytes.extend_from_slice(&end.encode());
    Ok(bytes)
}

/// The sectors that a request changes: first and end.
fn written(entry: &Entry) -> Option<(u64, u64)> {
    match entry.head.what {
        What::Received { command, lba, sectors, .. } if command.writes() => Some((lba.0, lba.0 + sectors.0)),
        _ => None,
    }
}

/// Ranges of sectors that do not touch, in order.
struct Ranges(Vec<(u64, u64)>);

impl Ranges {
    fn of(ranges: impl Iterator<Item = (u64, u64)>) -> Ranges {
        let mut sorted: Vec<_> = ranges.collect();
        sorted.sort_unstable();
        let mut merged: Vec<(u64, u64)> = Vec::new();
        for (first, end) in sorted {
            match merged.last_mut() {
                Some(last) if first <= last.1 => last.1 = last.1.max(end),
                _ => merged.push((first, end)),
            }
        }
        Ranges(merged)
    }

    /// Whether a range has a sector with one of these in common.
    fn meet(&self, (first, end): (u64, u64)) -> bool {
        let at = self.0.partition_point(|range| range.1 <= first);
        self.0.get(at).is_some_and(|range| range.0 < end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::{Cache, Description, Policy};
    use crate::event::Header;
    use crate::explore::Walk;
    use crate::history::WORKLOAD_END;
    use crate::live::{Drive, Sink};
    use crate::request::{Geometry, Request};
    use crate::units::AtomicUnit;
    use crate::versions::Order;
    use powerfail_seed::{Seed, below};
    use rand::Rng;
    use std::collections::BTreeMap;

    const SECTORS: u64 = 16 * 8 + 3;

    struct Memory(Vec<u8>);

    impl Sink for Memory {
        fn append(&mut self, head: &Head, data: &[u8]) -> std::io::Result<()> {
            self.0.extend_from_slice(&head.encode());
            self.0.extend_from_slice(data);
            Ok(())
        }
    }

    fn send(drive: &mut Drive<Memory>, command: Command, lba: u64, data: &[u8], length: u64, fua: bool) {
        let request = Request { command, offset: lba * 512, length, fua, data };
        let receipt = drive.receive(&request, crc32c::crc32c(data)).unwrap();
        drive.reply(receipt).unwrap();
    }

    /// What was there in pages of 4 KiB, and then a few requests of all kinds.
    fn recording(seed: Seed) -> Vec<u8> {
        let geometry = Geometry::new(SECTORS * 512).unwrap();
        let header = Header { geometry, write_cache: true, lie: None };
        let mut drive = Drive::new(geometry, Memory(header.encode().to_vec()));
        let mut rng = seed.rng("thin", &[]);
        for page in 0..SECTORS.div_ceil(8) {
            if below(&mut rng, 3) > 0 {
                let length = 8.min(SECTORS - page * 8) * 512;
                let data = vec![page as u8 + 1; length as usize];
                send(&mut drive, Command::Write, page * 8, &data, length, false);
            }
        }
        drive.mark(MOUNTED).unwrap();
        for step in 0..8 {
            let sectors = 1 + below(&mut rng, 6);
            let lba = below(&mut rng, SECTORS - sectors);
            let (length, byte) = (sectors * 512, 100 + step);
            match below(&mut rng, 6) {
                0 => send(&mut drive, Command::Flush, 0, &[], 0, false),
                1 => send(&mut drive, Command::Trim, lba, &[], length, false),
                2 => send(&mut drive, Command::Read, lba, &[], length, false),
                kind => send(&mut drive, Command::Write, lba, &vec![byte; length as usize], length, kind == 3),
            }
        }
        drive.mark(WORKLOAD_END).unwrap();
        drive.close().unwrap().0
    }

    /// Each sector that is known, at one cut.
    fn image(walk: &Walk<'_>, recording: &[u8], kept: &[bool], order: Order) -> BTreeMap<u64, Vec<u8>> {
        let unit = walk.history.description().unit;
        let mut sectors = BTreeMap::new();
        for (number, composition) in walk.history.image(kept, order) {
            for (sector, &at) in composition.0.iter().take(unit.sectors() as usize).enumerate() {
                let at = at as usize;
                let bytes = if at == 0 { vec![0; 512] } else { recording[at..at + 512].to_vec() };
                sectors.insert(unit.first(number).0 + sector as u64, bytes);
            }
        }
        sectors
    }

    /// Over what lay beneath, every state of the thin recording is the same state of the whole one.
    #[test]
    fn over_what_lay_beneath_a_thin_recording_gives_the_same_images() {
        let mut thinner = 0;
        for number in 0..60 {
            let whole = recording(Seed(number));
            let thin = thin(&whole).unwrap();
            thinner += usize::from(thin.len() < whole.len());
            assert_eq!(super::thin(&thin).unwrap(), thin, "a thin recording is as thin as can be");
            for unit in [AtomicUnit::B512, AtomicUnit::B4096] {
                let drive = Description { unit, cache: Cache { bytes: 8192, policy: Policy::Fifo }, lie: None };
                let (mut full, mut small) = (Walk::new(&whole, drive).unwrap(), Walk::new(&thin, drive).unwrap());
                let mut beneath = None;
                let mut rng = Seed(number).rng("kept", &[]);
                let mut reader = Reader::new(&whole[..], true).unwrap();
                while let Some(entry) = reader.next().unwrap() {
                    let mark = entry.head.what == What::Mark;
                    full.advance(entry.head.event + 1).unwrap();
                    if mark && beneath.is_none() {
                        beneath = Some(image(&full, &whole, &[], Order::Receipt));
                    }
                    let Some(beneath) = &beneath else { continue };
                    // The same place in the thin one: as many events that are no reads are behind it.
                    let read = match entry.head.what {
                        What::Received { command, .. } => command == Command::Read,
                        What::Replied { receipt } => is_read(&whole, receipt),
                        _ => false,
                    };
                    if mark && small.history.next_event() == 0 {
                        let marked = mark_at(&thin);
                        small.advance(marked + 1).unwrap();
                    } else if !read {
                        small.advance(small.history.next_event() + 1).unwrap();
                    }
                    let loose = full.history.loose().len();
                    assert_eq!(loose, small.history.loose().len());
                    let kept: Vec<bool> = (0..loose).map(|_| rng.next_u64().is_multiple_of(2)).collect();
                    let mut over = beneath.clone();
                    over.extend(image(&small, &thin, &kept, Order::Receipt));
                    let mut expected = beneath.clone();
                    expected.extend(image(&full, &whole, &kept, Order::Receipt));
                    over.retain(|_, bytes| bytes.iter().any(|&byte| byte != 0));
                    expected.retain(|_, bytes| bytes.iter().any(|&byte| byte != 0));
                    assert!(over == expected, "seed {number}, event {}", entry.head.event);
                }
            }
        }
        assert!(thinner > 50, "{thinner} of 60");
    }

    fn is_read(recording: &[u8], receipt: u64) -> bool {
        let mut reader = Reader::new(recording, false).unwrap();
        while let Some(entry) = reader.next().unwrap() {
            if entry.head.event == receipt {
                return matches!(entry.head.what, What::Received { command: Command::Read, .. });
            }
        }
        false
    }

    fn mark_at(recording: &[u8]) -> u64 {
        let mut reader = Reader::new(recording, false).unwrap();
        while let Some(entry) = reader.next().unwrap() {
            if entry.head.what == What::Mark {
                return entry.head.event;
            }
        }
        panic!("it has a mark")
    }
}
