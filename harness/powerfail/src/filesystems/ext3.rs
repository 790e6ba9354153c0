//! ext3: block maps instead of extents, no checksums. The kernel's ext4 driver mounts it.

use powerfail_ledger::{Expectation, FindingKind};
use powerfail_workloads::DataMode;

use super::ext4::{E2FSCK, E2FSPROGS, SMALLEST, STAT_JOURNAL, e2fsck_chats, journal_blocks};
use super::{FileSystem, JournalPlace, known, usual};
use crate::modes::Mode;

/// ext3.
#[derive(Debug)]
pub(super) struct Ext3;

const MODES: &[Mode] = &[
    Mode::BARRIER,
    Mode { name: "nobarrier-w0", write_cache: false, mount: "barrier=0", ..Mode::BARRIER },
    Mode { name: "nobarrier-w1", mount: "barrier=0", ..Mode::BARRIER },
    Mode { name: "data-writeback", mount: "data=writeback", data: DataMode::Writeback, ..Mode::BARRIER },
    Mode { name: "data-journal", mount: "data=journal", data: DataMode::Journal, ..Mode::BARRIER },
];

impl FileSystem for Ext3 {
    fn name(&self) -> &'static str {
        "ext3"
    }

    fn driver(&self) -> &'static str {
        "ext4"
    }

    fn mkfs(&self) -> &'static [&'static str] {
        &["mkfs.ext4", "-t", "ext3", "-q", "-F", "-b", "4096", "-J", "size=4"]
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

    fn expectation(&self, mode: &Mode, _: &str) -> Expectation {
        match mode.name {
            "data-writeback" => Expectation::Safe,
            "data-journal" => known(
                &[(FindingKind::Kernel, "data will be lost")],
                "recovery that finishes a truncate within a block leaves the page dirty and evicts the inode \
                 (docs/findings.md)",
            ),
            _ => usual(mode),
        }
    }

    fn journal(&self) -> Option<JournalPlace> {
        Some(JournalPlace { argv: STAT_JOURNAL, blocks: |stat| journal_blocks(stat, 4096) })
    }

    fn superblock_in_two_sectors(&self) -> bool {
        true
    }

    fn tools(&self) -> (&'static [&'static str], &'static str) {
        E2FSPROGS
    }
}
