//! ext4, with blocks of 4 KiB and of 1 KiB.
//!
//! `-O ^metadata_csum` makes mke2fs leave the journal at checksum v1 under `journal_async_commit`, whose commit block
//! covers the log blocks too, so the pair of variants shows what the checksum is worth.

use powerfail_drive::units::AtomicUnit;
use powerfail_ledger::{Expectation, FindingKind};
use powerfail_workloads::DataMode;

use super::{FileSystem, JournalPlace, known};
use crate::modes::{Mode, Variant};

/// ext4 with blocks of one size.
#[derive(Debug)]
pub(super) struct Ext4 {
    name: &'static str,
    mkfs: &'static [&'static str],
    journal: JournalPlace,
}

// Lazy initialisation would write in place for minutes, and a default journal is too large to wrap in seconds.
pub(super) const EXT4: Ext4 = Ext4 {
    name: "ext4",
    mkfs: &["mkfs.ext4", "-q", "-F", "-b", "4096", "-J", "size=4", "-E", "lazy_itable_init=0,lazy_journal_init=0"],
    journal: JournalPlace { argv: STAT_JOURNAL, blocks: |stat| journal_blocks(stat, 4096) },
};

pub(super) const EXT4_1K: Ext4 = Ext4 {
    name: "ext4-1k",
    mkfs: &["mkfs.ext4", "-q", "-F", "-b", "1024", "-J", "size=4", "-E", "lazy_itable_init=0,lazy_journal_init=0"],
    journal: JournalPlace { argv: STAT_JOURNAL, blocks: |stat| journal_blocks(stat, 1024) },
};

const BOTH: &[Variant] = &[Variant::Csum, Variant::NoCsum];

const MODES: &[Mode] = &[
    Mode { variants: BOTH, ..Mode::BARRIER },
    Mode { name: "nobarrier-w0", write_cache: false, mount: "barrier=0", variants: BOTH, ..Mode::BARRIER },
    Mode { name: "nobarrier-w1", mount: "barrier=0", variants: BOTH, ..Mode::BARRIER },
    Mode {
        name: "async-commit",
        mount: "journal_async_commit,data=writeback",
        data: DataMode::Writeback,
        variants: BOTH,
        ..Mode::BARRIER
    },
    Mode {
        name: "async-commit-w0",
        write_cache: false,
        mount: "journal_async_commit,data=writeback,barrier=0",
        data: DataMode::Writeback,
        variants: BOTH,
        ..Mode::BARRIER
    },
    Mode {
        name: "async-commit-nobarrier",
        mount: "journal_async_commit,data=writeback,barrier=0",
        data: DataMode::Writeback,
        variants: BOTH,
        ..Mode::BARRIER
    },
    Mode { name: "torn-512", unit: AtomicUnit::B512, variants: BOTH, ..Mode::BARRIER },
    Mode { name: "data-writeback", mount: "data=writeback", data: DataMode::Writeback, ..Mode::BARRIER },
    Mode { name: "data-journal", mount: "data=journal", data: DataMode::Journal, ..Mode::BARRIER },
    Mode { name: "fast-commit", mkfs: "-O fast_commit", ..Mode::BARRIER },
];

impl FileSystem for Ext4 {
    fn name(&self) -> &'static str {
        self.name
    }

    fn kernel_name(&self) -> &'static str {
        "ext4"
    }

    fn mkfs(&self) -> &'static [&'static str] {
        self.mkfs
    }

    fn fsck(&self) -> &'static [&'static str] {
        E2FSCK
    }

    fn fsck_chats(&self, line: &str) -> bool {
        e2fsck_chats(line)
    }

    fn smallest(&self) -> u64 {
        SMALLEST
    }

    fn modes(&self) -> &'static [Mode] {
        MODES
    }

    fn expectation(&self, mode: &Mode, mkfs: &str) -> Expectation {
        let no_csum = mkfs.contains("^metadata_csum");
        match mode.name {
            "barrier" | "nobarrier-w0" | "data-writeback" => Expectation::Safe,
            "nobarrier-w1" | "async-commit-nobarrier" => Expectation::Unsafe,
            "async-commit" | "async-commit-w0" if no_csum => Expectation::Safe,
            "async-commit" | "async-commit-w0" => known(
                &[(FindingKind::Mounts, "Invalid checksum recovering data block")],
                "with journal checksum v3 the commit block covers only itself, so a commit that lands without one of its log \
                 blocks makes recovery refuse the mount (Ted Ts'o, linux-ext4, August 2009)",
            ),
            "torn-512" => known(
                &[(FindingKind::Mounts, "superblock checksum")],
                "the superblock spans two sectors and its checksum does not survive a tear between them",
            ),
            "data-journal" => known(
                &[(FindingKind::Kernel, "data will be lost")],
                "recovery that finishes a truncate within a block leaves the page dirty and evicts the inode \
                 (docs/findings.md)",
            ),
            "fast-commit" => known(
                &[
                    (FindingKind::Promises, ""),
                    (FindingKind::Fsck, ""),
                    (FindingKind::Mounts, "journal recovery failed"),
                    (FindingKind::Mounts, "corrupted journal superblock"),
                ],
                "five faults of the kernel's fast commit, each shown without this project (docs/findings.md)",
            ),
            other => unreachable!("no expectation is written down for {other}"),
        }
    }

    fn journal(&self) -> Option<JournalPlace> {
        Some(self.journal)
    }

    fn superblock_in_two_sectors(&self) -> bool {
        true
    }

    fn tools(&self) -> (&'static [&'static str], &'static str) {
        E2FSPROGS
    }
}

/// With a 4 MiB journal.
pub(super) const SMALLEST: u64 = 32 << 20;
pub(super) const E2FSCK: &[&str] = &["e2fsck", "-fn", "{device}"];
pub(super) const E2FSPROGS: (&[&str], &str) = (&["mkfs.ext4", "e2fsck", "debugfs"], "e2fsprogs");
pub(super) const STAT_JOURNAL: &[&str] = &["debugfs", "-R", "stat <8>", "{device}"];

/// The banner and the names of the passes.
pub(super) fn e2fsck_chats(line: &str) -> bool {
    line.starts_with("Pass ") || line.starts_with("e2fsck ")
}

/// The extents of inode 8 (the journal) from `debugfs`'s `stat`: `(0-1023):32768-33791, …`, in blocks of `block_size`,
/// as blocks of 4 KiB.
pub(super) fn journal_blocks(stat: &str, block_size: u64) -> Vec<(u64, u64)> {
    let Some((_, extents)) = stat.split_once("EXTENTS:").or_else(|| stat.split_once("BLOCKS:")) else {
        return Vec::new();
    };
    let extents = extents.split(',').filter(|extent| !extent.contains("IND") && !extent.contains("ETB"));
    let range = |extent: &str| {
        let (_, blocks) = extent.trim().split_once(':')?;
        let blocks = blocks.split_whitespace().next()?;
        let (first, last) = blocks.split_once('-').unwrap_or((blocks, blocks));
        let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
        Some((first * block_size / 4096, (last * block_size + block_size - 1) / 4096))
    };
    extents.filter_map(range).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debugfs_says_where_the_journal_is() {
        let stat = "Inode: 8   Type: regular\nEXTENTS:\n(0-1023):32768-33791, (1024): 40000\n";
        assert_eq!(journal_blocks(stat, 4096), [(32768, 33791), (40000, 40000)]);
        let old = "BLOCKS:\n(0-11):100-111, (IND):112, (12-1023):113-1124\nTOTAL: 1025\n";
        assert_eq!(journal_blocks(old, 4096), [(100, 111), (113, 1124)]);
        assert_eq!(journal_blocks(old, 1024), [(25, 27), (28, 281)]);
        assert_eq!(journal_blocks("nothing", 4096), []);
    }
}
