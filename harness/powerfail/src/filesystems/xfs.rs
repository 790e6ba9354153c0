//! XFS. It can't be told to leave flushes out since Linux 4.19: in `nobarrier-w1` the drive does not offer them.

use powerfail_ledger::Expectation;

use super::{BY_THE_DRIVE, FileSystem, JournalPlace, usual};
use crate::modes::Mode;

/// XFS.
#[derive(Debug)]
pub(super) struct Xfs;

impl FileSystem for Xfs {
    fn name(&self) -> &'static str {
        "xfs"
    }

    fn mkfs(&self) -> &'static [&'static str] {
        &["mkfs.xfs", "-q", "-f"]
    }

    fn fsck(&self) -> &'static [&'static str] {
        &["xfs_repair", "-n", "{device}"]
    }

    fn fsck_chats(&self, line: &str) -> bool {
        line.starts_with("Phase ") || line.starts_with("- ") || line.starts_with("No modify flag set")
    }

    /// What mkfs.xfs asks for since xfsprogs 5.19: 300 MiB.
    fn smallest(&self) -> u64 {
        300 << 20
    }

    fn modes(&self) -> &'static [Mode] {
        BY_THE_DRIVE
    }

    fn expectation(&self, mode: &Mode, _: &str) -> Expectation {
        usual(mode)
    }

    /// XFS refuses a UUID that is mounted already, and images of one recording share theirs.
    fn judge_options(&self) -> &'static str {
        "nouuid"
    }

    fn journal(&self) -> Option<JournalPlace> {
        let argv =
            &["xfs_db", "-r", "-c", "sb 0", "-c", "p logstart logblocks blocksize agblocks agblklog", "{device}"];
        Some(JournalPlace { argv, blocks: log_blocks })
    }

    fn tools(&self) -> (&'static [&'static str], &'static str) {
        (&["mkfs.xfs", "xfs_repair", "xfs_db"], "xfsprogs")
    }
}

/// The log from the superblock's fields as `xfs_db` prints them: `logstart` is a block number whose upper part, from bit
/// `agblklog` on, is the allocation group (xfs_format.h, XFS_FSB_TO_AGNO).
fn log_blocks(fields: &str) -> Vec<(u64, u64)> {
    let field = |name: &str| -> Option<u64> {
        let line = fields.lines().find_map(|line| line.trim().strip_prefix(name)?.trim().strip_prefix('='))?;
        line.trim().parse().ok()
    };
    let place = || {
        let (start, blocks, size) = (field("logstart")?, field("logblocks")?, field("blocksize")?);
        let (group_blocks, shift) = (field("agblocks")?, u32::try_from(field("agblklog")?).ok()?);
        let group = start.checked_shr(shift)?;
        let first = (group * group_blocks + (start & ((1u64.checked_shl(shift)?) - 1))) * size;
        Some((first / 4096, (first + blocks * size).checked_sub(1)? / 4096))
    };
    place().into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_is_found_in_the_superblock() {
        let fields = "logstart = 65542\nlogblocks = 16384\nblocksize = 4096\nagblocks = 32768\nagblklog = 15\n";
        assert_eq!(log_blocks(fields), [(65542, 65542 + 16383)]);
        assert_eq!(log_blocks("logstart = 1\n"), []);
        assert_eq!(log_blocks("logstart = 1\nlogblocks = 0\nblocksize = 4096\nagblocks = 9\nagblklog = 99\n"), []);
    }
}
