//! The recording of a cell whose drive lies: that of an honest cell of the same run, with the lie told.

use anyhow::{Context, ensure};
use powerfail_drive::lies;

use crate::cell::Cell;
use crate::folder::{CellFolder, write_whole};
use crate::record::About;
use crate::recording_file::Mapped;
use crate::run::about;

/// Tells a cell's lie over the recording of `honest`; the recording is there, whole and synced, when this returns.
///
/// # Errors
/// If the honest cell has no recording.
pub fn tell(cell: &Cell, honest: &CellFolder, folder: &CellFolder) -> anyhow::Result<About> {
    let liar = cell.drive.lie.context("an honest cell has nothing to tell")?;
    let source = honest.recording();
    ensure!(source.is_file(), "{} has no recording over which {} could be told", honest.path.display(), liar.name());
    let about = about(honest)?;
    let told = lies::tell(Mapped::open(&source)?.bytes(), liar)?;
    // Whoever finds the recording finds what was said of it.
    write_whole(&folder.about(), &serde_json::to_vec_pretty(&about)?)?;
    write_whole(&folder.recording(), &told)?;
    Ok(about)
}
