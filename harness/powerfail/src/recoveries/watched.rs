//! An image as a drive whose writes are kept apart from it, and watched: what a replay wrote ends with a flush.
//!
//! Of a mount it is the first one: the kernel writes nothing before its replay. e2fsck may flush before it begins to replay;
//! but it empties the log only once the replay is flushed, so of e2fsck it is the last flush before it changes the
//! journal's superblock (which it writes as it was before that).

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, MutexGuard};

use powerfail_drive::device::{Device, Offers, Receipt};
use powerfail_drive::request::{Command, Geometry, Refusal, Request};
use powerfail_jbd2::{Blocks, Bytes};

use crate::image::Image;

const PAGE: u64 = 4096;

/// Pages that differ from an image, or were at least written.
pub(super) type Pages = BTreeMap<u64, Box<[u8]>>;

/// An image under pages that were written over it.
#[derive(Debug)]
pub(super) struct Written<'a> {
    pub(super) below: &'a [u8],
    pub(super) pages: &'a Pages,
}

impl Blocks for Written<'_> {
    fn length(&self) -> Bytes {
        self.below.length()
    }

    fn read(&self, at: Bytes, into: &mut [u8]) -> bool {
        if !self.below.read(at, into) {
            return false;
        }
        cover(self.pages, at.0, into);
        true
    }
}

/// The drive.
#[derive(Debug)]
pub(super) struct Watched {
    below: File,
    geometry: Geometry,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    pages: Pages,
    watch: Watch,
}

#[derive(Debug, Default)]
enum Watch {
    /// Nobody watches.
    #[default]
    Off,
    /// No flush yet, and the first one counts.
    First,
    /// The last flush counts that comes before this page changes; with what had been written at the last one so far.
    Before(u64, Option<Pages>),
    /// What had been written when the flush came that counts.
    Flushed(Pages),
}

impl Watched {
    /// A drive over an image, which must not change while it is in use, but between two [`Watched::reset`]s may.
    pub(super) fn new(image: &Image) -> std::io::Result<Watched> {
        let geometry = Geometry::new(image.bytes().len() as u64).expect("an image is a drive's");
        Ok(Watched { below: File::from(image.fd().try_clone_to_owned()?), geometry, state: Mutex::default() })
    }

    /// Forgets all writes.
    pub(super) fn reset(&self) {
        *self.lock() = State::default();
    }

    /// Watches from now on, until the first flush.
    pub(super) fn watch(&self) {
        self.lock().watch = Watch::First;
    }

    /// Watches from now on, until the last flush before the page that holds a byte changes.
    pub(super) fn watch_until_before(&self, byte: u64) {
        self.lock().watch = Watch::Before(byte / PAGE, None);
    }

    /// What had been written at the flush that counts; with whether there was one. Without, it is all that was written.
    pub(super) fn seen(&self) -> (Pages, bool) {
        let mut state = self.lock();
        match std::mem::take(&mut state.watch) {
            Watch::Flushed(pages) | Watch::Before(_, Some(pages)) => (pages, true),
            Watch::First | Watch::Before(_, None) | Watch::Off => (state.pages.clone(), false),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no caller panics while it holds the pages")
    }

    /// What a host reads of a page; empty if it is not all on the drive.
    fn page(&self, pages: &Pages, number: u64) -> Vec<u8> {
        let mut bytes = vec![0; PAGE as usize];
        match self.below.read_exact_at(&mut bytes, number * PAGE) {
            Ok(()) => cover(pages, number * PAGE, &mut bytes),
            Err(_) => bytes.clear(),
        }
        bytes
    }

    fn write(&self, state: &mut State, offset: u64, length: u64, data: Option<&[u8]>) -> std::io::Result<()> {
        let end = offset + length;
        for page in offset / PAGE..end.div_ceil(PAGE) {
            let first = page * PAGE;
            if let std::collections::btree_map::Entry::Vacant(place) = state.pages.entry(page) {
                // The last page of a drive may be cut short by its end.
                let mut bytes = vec![0; PAGE.min(self.geometry.bytes() - first) as usize];
                self.below.read_exact_at(&mut bytes, first)?;
                place.insert(bytes.into());
            }
            let bytes = state.pages.get_mut(&page).expect("just made");
            let (from, to) = (first.max(offset), (first + bytes.len() as u64).min(end));
            let part = &mut bytes[(from - first) as usize..(to - first) as usize];
            match data {
                Some(data) => part.copy_from_slice(&data[(from - offset) as usize..(to - offset) as usize]),
                None => part.fill(0),
            }
        }
        Ok(())
    }
}

impl Device for Watched {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn offers(&self) -> Offers {
        // A discard says nothing of what recovery wrote, and a discard of the whole drive would touch every page.
        Offers { trim: false, write_zeroes: false, ..Offers::ALL }
    }

    fn receive(&self, request: &Request<'_>) -> Result<Receipt, Refusal> {
        self.geometry.check(request)?;
        let mut state = self.lock();
        let data = match request.command {
            Command::Write => Some(request.data),
            Command::Trim | Command::WriteZeroes => None,
            Command::Flush => {
                match state.watch {
                    Watch::First => state.watch = Watch::Flushed(state.pages.clone()),
                    Watch::Before(page, _) => state.watch = Watch::Before(page, Some(state.pages.clone())),
                    Watch::Off | Watch::Flushed(_) => {}
                }
                return Ok(Receipt::for_event(0));
            }
            Command::Read | Command::Cache => return Ok(Receipt::for_event(0)),
        };
        // An image that can't be read is as bad as a recording that can't be written: the drive says so.
        // An image that can't be read is as bad as a recording that can't be written: the drive says so.
        if let Watch::Before(page, last) = &mut state.watch {
            let (page, last) = (*page, last.take());
            let before = self.page(&state.pages, page);
            let written = self.write(&mut state, request.offset, request.length, data);
            let changed = before != self.page(&state.pages, page);
            state.watch = if changed { last.map_or(Watch::Off, Watch::Flushed) } else { Watch::Before(page, last) };
            return written.map(|()| Receipt::for_event(0)).map_err(|_| Refusal::RecordingFailed);
        }
        let written = self.write(&mut state, request.offset, request.length, data);
        written.map(|()| Receipt::for_event(0)).map_err(|_| Refusal::RecordingFailed)
    }

    fn read(&self, offset: u64, out: &mut [u8]) {
        if self.below.read_exact_at(out, offset).is_err() {
            out.fill(0);
        }
        cover(&self.lock().pages, offset, out);
    }

    fn reply(&self, _: Receipt) -> Result<(), Refusal> {
        Ok(())
    }
}

/// Puts what the pages hold of the bytes at `at` over `into`.
fn cover(pages: &Pages, at: u64, into: &mut [u8]) {
    let end = at + into.len() as u64;
    for (number, page) in pages.range(at / PAGE..end.div_ceil(PAGE)) {
        let first = number * PAGE;
        let (from, to) = (first.max(at), (first + page.len() as u64).min(end));
        if from < to {
            let part = &page[(from - first) as usize..(to - first) as usize];
            into[(from - at) as usize..(to - at) as usize].copy_from_slice(part);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(command: Command, offset: u64, data: &[u8]) -> Request<'_> {
        Request { command, offset, length: data.len() as u64, fua: false, data }
    }

    #[test]
    fn the_last_flush_before_a_page_changes_counts() {
        let image = Image::new(4 * 4096).unwrap();
        let drive = Watched::new(&image).unwrap();
        drive.watch_until_before(2 * 4096 + 7);
        for (page, byte) in [(0, 1), (2, 0), (1, 2), (2, 3), (3, 4)] {
            let _ = drive.receive(&request(Command::Write, page * 4096, &[byte; 512])).unwrap();
            let _ = drive.receive(&request(Command::Flush, 0, &[])).unwrap();
        }
        let (pages, flushed) = drive.seen();
        assert!(flushed);
        assert_eq!(pages.keys().copied().collect::<Vec<_>>(), [0, 1, 2]);
    }

    #[test]
    fn what_is_written_behind_the_first_flush_is_not_seen() {
        let image = Image::new(3 * 4096 + 512).unwrap();
        let drive = Watched::new(&image).unwrap();
        let _ = drive.receive(&request(Command::Write, 0, &[9; 512])).unwrap();
        drive.reset();
        drive.watch();
        let _ = drive.receive(&request(Command::Write, 4096 - 512, &[1; 1024])).unwrap();
        let _ = drive.receive(&request(Command::Write, 3 * 4096, &[2; 512])).unwrap();
        let _ = drive.receive(&request(Command::Flush, 0, &[])).unwrap();
        let _ = drive.receive(&request(Command::Write, 4096, &[3; 512])).unwrap();
        let _ = drive.receive(&request(Command::Flush, 0, &[])).unwrap();
        let mut now = [0; 512];
        drive.read(4096, &mut now);
        assert_eq!(now, [3; 512]);
        let (pages, flushed) = drive.seen();
        assert!(flushed);
        assert_eq!(pages.keys().copied().collect::<Vec<_>>(), [0, 1, 3]);
        let written = Written { below: image.bytes(), pages: &pages };
        let mut whole = vec![7; 3 * 4096 + 512];
        assert!(written.read(Bytes(0), &mut whole));
        assert_eq!(
            (whole[0], whole[4096 - 512], whole[4096 + 511], whole[4096 + 512], whole[3 * 4096]),
            (0, 1, 1, 0, 2)
        );
        assert!(image.bytes().iter().all(|&byte| byte == 0));
    }
}
