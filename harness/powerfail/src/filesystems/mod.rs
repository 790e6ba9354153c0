//! The file systems: how each is made, mounted and checked, and what its modes promise. One file each; a new one is a
//! file that implements [`FileSystem`] and a line in [`ALL`].

mod btrfs;
mod ext2;
mod ext3;
mod ext4;
mod xfs;

use std::fmt;

use powerfail_ledger::{Expectation, FindingKind, KnownFinding};
use powerfail_workloads::{DataMode, Promises};

use crate::modes::Mode;

/// One file system, as the phases need it.
pub trait FileSystem: fmt::Debug + Sync {
    /// Its name on the command line and in the ledger.
    fn name(&self) -> &'static str;

    /// The type that mount(2) is given.
    fn kernel_name(&self) -> &'static str {
        self.name()
    }

    /// The kernel's driver that mounts it, as its module is called.
    fn driver(&self) -> &'static str {
        self.kernel_name()
    }

    /// Program and options that make it in every run; options of the mode and of the user come after them, so that the
    /// last word is theirs, and then the device.
    fn mkfs(&self) -> &'static [&'static str];

    /// The check that only looks; exit code 0 says clean. `{device}` is the device.
    fn fsck(&self) -> &'static [&'static str];

    /// Whether a line of the check's output says nothing about this very file system.
    fn fsck_chats(&self, line: &str) -> bool;

    /// Bytes of the smallest drive that it can be made on.
    fn smallest(&self) -> u64;

    /// Its modes.
    fn modes(&self) -> &'static [Mode];

    /// What is expected of a mode of its, given all options of mkfs as they were said.
    fn expectation(&self, mode: &Mode, mkfs: &str) -> Expectation;

    /// What it promises in a mode.
    fn promises(&self, mode: &Mode) -> Promises {
        Promises { data: mode.data, name_by_file_fsync: true }
    }

    /// Mount options for the judge alone: several images of one file system are mounted at a time.
    fn judge_options(&self) -> &'static str {
        ""
    }

    /// How to learn where its journal is.
    fn journal(&self) -> Option<JournalPlace> {
        None
    }

    /// Whether its superblock lies in bytes 1024 to 2047, so in two sectors.
    fn superblock_in_two_sectors(&self) -> bool {
        false
    }

    /// The programs that its cells need on the rig, with the Debian package of all of them.
    fn tools(&self) -> (&'static [&'static str], &'static str);

    /// The mode of that name.
    fn mode(&self, name: &str) -> Option<&'static Mode> {
        self.modes().iter().find(|mode| mode.name == name)
    }
}

/// How to learn where a journal is: a tool that says it, and how to read what it says.
#[derive(Clone, Copy, Debug)]
pub struct JournalPlace {
    /// The command.
    pub argv: &'static [&'static str],
    /// Blocks of 4 KiB that the journal is in, first and last inclusive, from the command's output.
    pub blocks: fn(&str) -> Vec<(u64, u64)>,
}

/// Every file system there is.
pub const ALL: &[&dyn FileSystem] = &[&ext4::EXT4, &ext4::EXT4_1K, &ext3::Ext3, &ext2::Ext2, &xfs::Xfs, &btrfs::Btrfs];

/// The file system of that name.
pub fn named(name: &str) -> Option<&'static dyn FileSystem> {
    ALL.iter().copied().find(|fs| fs.name() == name)
}

/// All names, for people.
pub fn names() -> String {
    ALL.iter().map(|fs| fs.name()).collect::<Vec<_>>().join(", ")
}

fn known(findings: &[(FindingKind, &str)], reference: &str) -> Expectation {
    let findings = findings.iter().map(|&(kind, says)| KnownFinding { kind, says: says.into() }).collect();
    Expectation::Known { findings, reference: reference.into(), at_most_ppm: None }
}

/// What is expected of the three modes that every journaling file system has.
fn usual(mode: &Mode) -> Expectation {
    match mode.name {
        "barrier" | "nobarrier-w0" => Expectation::Safe,
        "nobarrier-w1" => Expectation::Unsafe,
        other => unreachable!("no expectation is written down for {other}"),
    }
}

/// The three modes of a file system that can't be told to leave flushes out: the drive does not offer them instead.
const BY_THE_DRIVE: &[Mode] = &[
    Mode { data: DataMode::Ordered, ..Mode::BARRIER },
    Mode { name: "nobarrier-w0", write_cache: false, ..Mode::BARRIER },
    Mode { name: "nobarrier-w1", offers_flush: false, ..Mode::BARRIER },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mode_of_every_file_system_has_an_expectation_and_a_safe_one_exists() {
        for fs in ALL {
            assert_eq!(named(fs.name()).map(FileSystem::name), Some(fs.name()));
            assert!(fs.fsck().contains(&"{device}"), "{}", fs.name());
            assert!(fs.mkfs()[0].starts_with("mkfs."), "{}", fs.name());
            for mode in fs.modes() {
                // It panics where none is written down.
                let _ = fs.expectation(mode, "");
            }
            assert!(fs.mode("barrier").is_some() && fs.mode("nobarrier-w1").is_some(), "{}", fs.name());
        }
        assert!(named("ext5").is_none());
    }
}
