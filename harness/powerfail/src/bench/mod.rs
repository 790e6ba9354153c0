//! The project's own figures, each beside its floor, in one run: ratios hold on a noisy machine, absolute times do not.

pub mod floor;
pub mod guest;
pub mod nbd;
pub mod record;
pub mod verify;

/// The median of some figures.
///
/// # Panics
/// If there are none.
pub fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

/// A folder for a bench, in memory where there is one: the figures are not a disk's.
///
/// # Errors
/// If it can't be made.
pub fn scratch() -> std::io::Result<tempfile::TempDir> {
    let memory = std::path::Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }
}
