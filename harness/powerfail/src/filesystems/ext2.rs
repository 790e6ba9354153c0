//! ext2: no journal, so nothing is recovered; a control of another kind. The kernel's ext4 driver mounts it.

use powerfail_ledger::Expectation;
use powerfail_workloads::{DataMode, Promises};

use super::FileSystem;
use super::ext4::{E2FSCK, E2FSPROGS, SMALLEST, e2fsck_chats};
use crate::modes::Mode;

/// ext2.
#[derive(Debug)]
pub(super) struct Ext2;

const MODES: &[Mode] = &[
    Mode { data: DataMode::Writeback, ..Mode::BARRIER },
    Mode { name: "nobarrier-w0", write_cache: false, mount: "barrier=0", data: DataMode::Writeback, ..Mode::BARRIER },
    Mode { name: "nobarrier-w1", mount: "barrier=0", data: DataMode::Writeback, ..Mode::BARRIER },
];

impl FileSystem for Ext2 {
    fn name(&self) -> &'static str {
        "ext2"
    }

    fn driver(&self) -> &'static str {
        "ext4"
    }

    fn mkfs(&self) -> &'static [&'static str] {
        &["mkfs.ext4", "-t", "ext2", "-q", "-F", "-b", "4096"]
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

    fn expectation(&self, _: &Mode, _: &str) -> Expectation {
        Expectation::Unsafe
    }

    /// Its fsync says nothing of names: the directory is another file, and there is no transaction that holds both.
    fn promises(&self, mode: &Mode) -> Promises {
        Promises { data: mode.data, name_by_file_fsync: false }
    }

    fn superblock_in_two_sectors(&self) -> bool {
        true
    }

    fn tools(&self) -> (&'static [&'static str], &'static str) {
        E2FSPROGS
    }
}
