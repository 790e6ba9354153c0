//! What is on a drive without power, and how a cut comes to it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use anyhow::Context;
use powerfail_drive::crash::Recipe;
use powerfail_drive::explore::{Sampled, View, Walk};
use powerfail_drive::pages::Pages;
use powerfail_drive::units::SECTOR;
use powerfail_drive::versions::Order;
use powerfail_seed::Seed;

use super::args::Setup;
use crate::recording_file::Mapped;

/// What a cut left.
#[derive(Debug)]
pub(crate) struct Fallen {
    pub(crate) recipe: Recipe,
    /// The image's digest.
    pub(crate) image: String,
    pub(crate) in_flight: u64,
    /// The contents: parts that were written, as (byte offset, contents), in order, none longer than [`PART`].
    pub(crate) platter: Vec<(u64, Vec<u8>)>,
}

/// The longest part of a platter, in bytes.
pub(crate) const PART: usize = 1 << 20;

/// Decides what survives a cut at event `cut`, and makes the platter.
///
/// # Errors
/// If the recording can't be read.
pub(crate) fn fall(recording: &Mapped, setup: &Setup, cut: u64, seed: Seed) -> anyhow::Result<Fallen> {
    let name = recording.digest()[..16].to_owned();
    let bytes = recording.bytes();
    let mut walk = Walk::new(bytes, setup.drive).context("the recording can't be read")?;
    walk.advance(cut).context("the recording can't be read")?;
    let loose = walk.history.loose();
    let contested = walk.history.contested();
    let view = View { cut, loose: &loose, contested, unit_sectors: setup.drive.unit.sectors() };
    let choice = Sampled::subset(seed, &view, 0);
    let in_flight = walk.history.in_flight();
    let image = walk.history.digest(bytes, &choice.kept, choice.order).to_string();
    let platter = parts(&contents(&walk, bytes, setup.header.geometry.bytes(), &choice.kept, choice.order));
    let recipe = Recipe { recording: name, cut, drive: setup.drive, kept: choice.kept, order: choice.order };
    Ok(Fallen { recipe, image, in_flight, platter })
}

fn contents(walk: &Walk<'_>, recording: &[u8], size: u64, kept: &[bool], order: Order) -> Pages {
    let unit = walk.history.description().unit;
    let mut pages = Pages::default();
    for (number, composition) in walk.history.image(kept, order) {
        let first = unit.first(number).bytes();
        // The last unit of a disk may be cut short by its end.
        let sectors = unit.bytes().min(size - first) / SECTOR;
        for sector in 0..sectors {
            let at = composition.0[sector as usize] as usize;
            if at != 0 {
                pages.write(first + sector * SECTOR, &recording[at..at + SECTOR as usize]);
            }
        }
    }
    pages
}

/// Neighbouring pages as one part.
fn parts(pages: &Pages) -> Vec<(u64, Vec<u8>)> {
    let mut pages: Vec<(u64, &[u8])> = pages.iter().collect();
    pages.sort_unstable_by_key(|(at, _)| *at);
    let mut parts: Vec<(u64, Vec<u8>)> = Vec::new();
    for (at, page) in pages {
        match parts.last_mut() {
            Some((from, part)) if *from + part.len() as u64 == at && part.len() + page.len() <= PART => {
                part.extend_from_slice(page);
            }
            _ => parts.push((at, page.to_vec())),
        }
    }
    parts
}

/// Writes an image of `size` bytes, sparse where nothing was written.
///
/// # Errors
/// If the file can't be written.
pub(crate) fn write_image<P: AsRef<[u8]>>(file: &File, size: u64, parts: &[(u64, P)]) -> io::Result<()> {
    file.set_len(size)?;
    for (at, part) in parts {
        let part = part.as_ref();
        // Pages are whole; the drive's end may lie within the last one.
        let inside = part.len().min((size - at) as usize);
        file.write_all_at(&part[..inside], *at)?;
    }
    Ok(())
}
