//! btrfs. Its `nobarrier` is its own matter; in `nobarrier-w1` the drive does not offer flushes.

use powerfail_ledger::Expectation;

use super::{BY_THE_DRIVE, FileSystem, usual};
use crate::modes::Mode;

/// btrfs.
#[derive(Debug)]
pub(super) struct Btrfs;

impl FileSystem for Btrfs {
    fn name(&self) -> &'static str {
        "btrfs"
    }

    fn mkfs(&self) -> &'static [&'static str] {
        &["mkfs.btrfs", "-q", "-f"]
    }

    fn fsck(&self) -> &'static [&'static str] {
        &["btrfs", "check", "--readonly", "{device}"]
    }

    fn fsck_chats(&self, line: &str) -> bool {
        line.starts_with('[') || line.starts_with("Opening filesystem") || line.starts_with("Checking filesystem")
    }

    /// What mkfs.btrfs asks for with its default profiles: 109 MiB.
    fn smallest(&self) -> u64 {
        128 << 20
    }

    fn modes(&self) -> &'static [Mode] {
        BY_THE_DRIVE
    }

    fn expectation(&self, mode: &Mode, _: &str) -> Expectation {
        usual(mode)
    }

    fn tools(&self) -> (&'static [&'static str], &'static str) {
        (&["mkfs.btrfs", "btrfs"], "btrfs-progs")
    }
}
