//! An image of a crash state in a memfd, which a loop device can be put on and which is gone with the last process.
//!
//! A worker keeps one file and makes it the next state's image by comparing what is there with what should be there,
//! page by page: mostly nothing differs but what the last verification wrote and what the next state changes, so hardly
//! a page is written. What the last verification wrote where no recording ever wrote is found by the file's extents.
//! The cost follows what was written, not the size of the disk.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;

use powerfail_drive::digest::Digest;
use powerfail_drive::history::History;
use powerfail_drive::units::{Lba, SECTOR};
use powerfail_drive::versions::{Composition, Order};
use rustix::fs::{FallocateFlags, MemfdFlags, SeekFrom, fallocate, memfd_create, seek};

const PAGE: u64 = 4096;
/// Sectors in a page.
const SECTORS: u64 = PAGE / SECTOR;

/// An image.
#[derive(Debug)]
pub struct Image {
    file: File,
    map: memmap2::MmapMut,
}

impl Image {
    /// An image of `size` bytes that reads as zeroes and takes no memory yet.
    ///
    /// # Errors
    /// If the system has no memfd or no room in the address space.
    pub fn new(size: u64) -> io::Result<Image> {
        let file = File::from(memfd_create("powerfail-image", MemfdFlags::CLOEXEC)?);
        file.set_len(size)?;
        // SAFETY: the memfd is ours; whoever else writes to it (a loop device over it) is detached before we look.
        let map = unsafe { memmap2::MmapMut::map_mut(&file)? };
        Ok(Image { file, map })
    }

    /// The file, to hand to an agent.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// The contents.
    pub fn bytes(&self) -> &[u8] {
        &self.map
    }

    /// Makes this the image of a state of `history`; gives the bytes that had to be changed.
    ///
    /// # Errors
    /// If the file's extents can't be asked or freed.
    pub fn become_state(
        &mut self,
        history: &History,
        recording: &[u8],
        kept: &[bool],
        order: Order,
    ) -> io::Result<u64> {
        let mut known = BTreeSet::new();
        let mut changed = self.set_units(history, recording, (kept, order), &mut known);
        changed += self.clear_all_but(&known)?;
        Ok(changed)
    }

    /// Puts what a state of `history` has written over what is here; gives the bytes that had to be changed. Of a page of
    /// which the history knows a part, the rest becomes zeroes.
    pub fn overlay(&mut self, history: &History, recording: &[u8], kept: &[bool], order: Order) -> u64 {
        self.set_units(history, recording, (kept, order), &mut BTreeSet::new())
    }

    /// Sets every page of which a history knows a unit, and says which pages those are.
    fn set_units(
        &mut self,
        history: &History,
        recording: &[u8],
        (kept, order): (&[bool], Order),
        known: &mut BTreeSet<u64>,
    ) -> u64 {
        let unit = history.description().unit;
        let mut changed = 0;
        // Page by page, also where units are smaller: the sectors of a page that nobody wrote are zeroes, whatever the
        // last verification left there.
        let mut page: Option<(u64, Composition)> = None;
        for (number, composition) in history.image(kept, order) {
            let first = unit.first(number).0;
            let (here, within) = (first / SECTORS, (first % SECTORS) as usize);
            if page.as_ref().is_none_or(|(number, _)| *number != here) {
                if let Some((number, composition)) = page.replace((here, Composition::default())) {
                    changed += self.set_page(number, &composition, recording);
                }
                known.insert(here);
            }
            let sectors = unit.sectors() as usize;
            let (_, whole) = page.as_mut().expect("just begun");
            whole.0[within..within + sectors].copy_from_slice(&composition.0[..sectors]);
        }
        if let Some((number, composition)) = page {
            changed += self.set_page(number, &composition, recording);
        }
        changed
    }

    /// Makes this the image that is in a file of the same size.
    ///
    /// # Errors
    /// If the file can't be read.
    pub fn become_file(&mut self, from: &File) -> io::Result<()> {
        self.clear_all_but(&BTreeSet::new())?;
        const PART: usize = 1 << 20;
        let mut part = vec![0; PART];
        let mut at = 0;
        while at < self.map.len() {
            let length = PART.min(self.map.len() - at);
            from.read_exact_at(&mut part[..length], at as u64)?;
            // What is zeroes takes no memory.
            for (number, page) in part[..length].chunks(PAGE as usize).enumerate() {
                if page.iter().any(|&byte| byte != 0) {
                    let first = at + number * PAGE as usize;
                    self.map[first..first + page.len()].copy_from_slice(page);
                }
            }
            at += length;
        }
        Ok(())
    }

    /// The digest of the whole image, for a check against the plan's. Looks at every page that is allocated.
    ///
    /// # Errors
    /// If the file's extents can't be asked.
    pub fn digest(&self) -> io::Result<Digest> {
        let mut digest = Digest::default();
        for (from, to) in self.extents()? {
            for at in (from..to).step_by(SECTOR as usize) {
                let bytes = &self.map[at as usize..(at + SECTOR) as usize];
                digest = digest.plus(Digest::of_sector(Lba(at / SECTOR), bytes));
            }
        }
        Ok(digest)
    }

    /// Writes what is allocated to `out`, at its place.
    ///
    /// # Errors
    /// If `out` can't be written.
    pub fn write_sparse(&self, out: &mut File) -> io::Result<()> {
        for (from, to) in self.extents()? {
            out.write_all_at(&self.map[from as usize..to as usize], from)?;
        }
        Ok(())
    }

    fn set_page(&mut self, number: u64, composition: &Composition, recording: &[u8]) -> u64 {
        let first = number * PAGE;
        // The last page of a disk may be cut short by its end.
        let sectors = (PAGE.min(self.map.len() as u64 - first) / SECTOR) as usize;
        let mut changed = 0;
        let mut sector = 0;
        while sector < sectors {
            let at = composition.0[sector];
            // A run of sectors from one write, or of zeroes, is compared at once.
            let run = (sector + 1..sectors)
                .take_while(|next| {
                    composition.0[*next] == if at == 0 { 0 } else { at + (*next - sector) as u64 * SECTOR }
                })
                .count()
                + 1;
            let from = first as usize + sector * SECTOR as usize;
            let place = &mut self.map[from..from + run * SECTOR as usize];
            changed += if at == 0 { zero(place) } else { copy(place, &recording[at as usize..]) };
            sector += run;
        }
        changed
    }

    /// Frees every page that is allocated and not known.
    fn clear_all_but(&mut self, known: &BTreeSet<u64>) -> io::Result<u64> {
        let mut freed = 0;
        for (from, to) in self.extents()? {
            let mut page = from / PAGE;
            while page < to.div_ceil(PAGE) {
                let run = (page..to.div_ceil(PAGE)).take_while(|page| !known.contains(page)).count() as u64;
                if run > 0 {
                    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                    fallocate(&self.file, flags, page * PAGE, run * PAGE)?;
                    freed += run * PAGE;
                }
                page += run.max(1);
            }
        }
        Ok(freed)
    }

    /// The allocated parts of the file, in bytes.
    ///
    /// # Errors
    /// If the system can't say.
    pub fn extents(&self) -> io::Result<Vec<(u64, u64)>> {
        let size = self.map.len() as u64;
        let mut extents = Vec::new();
        let mut at = 0;
        while at < size {
            let from = match seek(&self.file, SeekFrom::Data(at)) {
                Ok(from) => from,
                // No data from here on.
                Err(rustix::io::Errno::NXIO) => break,
                Err(error) => return Err(error.into()),
            };
            let to = seek(&self.file, SeekFrom::Hole(from))?.min(size);
            extents.push((from, to));
            at = to;
        }
        Ok(extents)
    }
}

fn copy(place: &mut [u8], from: &[u8]) -> u64 {
    let from = &from[..place.len()];
    if place == from {
        return 0;
    }
    place.copy_from_slice(from);
    place.len() as u64
}

fn zero(place: &mut [u8]) -> u64 {
    if place.iter().all(|&byte| byte == 0) {
        return 0;
    }
    place.fill(0);
    place.len() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use powerfail_drive::cache::{Cache, Description, Policy};
    use powerfail_drive::event::{Head, Header};
    use powerfail_drive::explore::{Asked, EveryCut, Explorer, Outline, Sampled, Walk, plan};
    use powerfail_drive::live::{Drive, Sink};
    use powerfail_drive::request::{Command, Geometry, Request};
    use powerfail_drive::units::AtomicUnit;
    use powerfail_seed::{Seed, below};

    struct Memory(Vec<u8>);

    impl Sink for Memory {
        fn append(&mut self, head: &Head, data: &[u8]) -> io::Result<()> {
            self.0.extend_from_slice(&head.encode());
            self.0.extend_from_slice(data);
            Ok(())
        }
    }

    fn recording(size: u64) -> Vec<u8> {
        let geometry = Geometry::new(size).unwrap();
        let header = Header::honest(geometry, true);
        let mut drive = Drive::new(geometry, Memory(header.encode().to_vec()));
        let mut rng = Seed(5).rng("image test", &[]);
        drive.mark("mounted").unwrap();
        for step in 0..400u64 {
            let command =
                [Command::Write, Command::Write, Command::Flush, Command::WriteZeroes][below(&mut rng, 4) as usize];
            let sectors = 1 + below(&mut rng, 20);
            let lba = below(&mut rng, size / 512 - sectors);
            let length = if command == Command::Flush { 0 } else { sectors * 512 };
            let data = vec![step as u8 | 1; if command == Command::Write { length as usize } else { 0 }];
            let request = Request { command, offset: lba * 512, length, fua: false, data: &data };
            let receipt = drive.receive(&request, crc32c::crc32c(&data)).unwrap();
            drive.reply(receipt).unwrap();
        }
        drive.mark("workload-end").unwrap();
        drive.close().unwrap().0
    }

    /// States are made one after the other in one file, which a verification dirties anywhere in between: each must be
    /// what the plan says, also where the disk ends within a unit.
    #[test]
    fn an_image_is_the_planned_one_whatever_was_in_the_file_before() {
        let size = (1 << 20) + 512 * 3;
        let recording = recording(size);
        for unit in [AtomicUnit::B512, AtomicUnit::B4096] {
            let drive = Description::honest(unit, Cache { bytes: 64 << 10, policy: Policy::Elevator });
            let outline = Outline::of(&recording, drive).unwrap();
            let asked = Asked { recording: &recording, name: "0123456789abcdef", drive, seed: Seed(1), states: 80 };
            let explorers: [Box<dyn Explorer>; 2] = [Box::new(EveryCut), Box::new(Sampled)];
            let plan = plan(&asked, &outline, &explorers).unwrap();
            let mut image = Image::new(size).unwrap();
            let mut walk = Walk::new(&recording, drive).unwrap();
            let mut rng = Seed(6).rng("dirt", &[]);
            for state in &plan.states {
                walk.advance(state.recipe.cut).unwrap();
                image.become_state(&walk.history, &recording, &state.recipe.kept, state.recipe.order).unwrap();
                assert_eq!(image.digest().unwrap(), state.digest);
                for _ in 0..20 {
                    let at = below(&mut rng, size - 600) as usize;
                    image.map[at..at + 600].fill(0xee);
                }
            }
        }
    }
}
