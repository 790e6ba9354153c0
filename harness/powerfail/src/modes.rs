//! The modes: what the kernel is told and what the drive is, and what is expected of each.
//!
//! The table of DESIGN for ext4; a mode is one entry. `-O ^metadata_csum` makes mke2fs leave the journal at checksum
//! v1 under `journal_async_commit`, whose commit block covers the log blocks too, so the pair of variants shows what
//! the checksum is worth.

use powerfail_drive::units::AtomicUnit;
use powerfail_ledger::{Expectation, FindingKind, KnownFinding};
use powerfail_workloads::DataMode;

/// One mode.
#[derive(Clone, Debug)]
pub struct Mode {
    /// Its name, as in the ledger.
    pub name: &'static str,
    /// Whether the drive has a write cache (W1).
    pub write_cache: bool,
    /// The drive's atomic unit, unless the command line says otherwise.
    pub unit: AtomicUnit,
    /// Mount options.
    pub mount: &'static str,
    /// Options of mkfs, beyond those of every run.
    pub mkfs: &'static str,
    /// How the file system treats data.
    pub data: DataMode,
    /// In which variants of the journal's checksum `--mode all` runs it.
    pub variants: &'static [Variant],
}

/// A variant of mkfs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// mke2fs's default: `metadata_csum`, so the journal has checksum v3.
    Csum,
    /// `^metadata_csum`: the journal has checksum v1 (async commit) or none.
    NoCsum,
}

impl Variant {
    /// The option of mkfs; none for the default.
    pub fn mkfs(self) -> &'static str {
        match self {
            Variant::Csum => "",
            Variant::NoCsum => "-O ^metadata_csum",
        }
    }
}

const BOTH: &[Variant] = &[Variant::Csum, Variant::NoCsum];
const DEFAULT: &[Variant] = &[Variant::Csum];

/// Every mode of ext4.
pub const MODES: &[Mode] = &[
    Mode {
        name: "barrier",
        write_cache: true,
        unit: AtomicUnit::B4096,
        mount: "",
        mkfs: "",
        data: DataMode::Ordered,
        variants: BOTH,
    },
    Mode {
        name: "nobarrier-w0",
        write_cache: false,
        unit: AtomicUnit::B4096,
        mount: "barrier=0",
        mkfs: "",
        data: DataMode::Ordered,
        variants: BOTH,
    },
    Mode {
        name: "nobarrier-w1",
        write_cache: true,
        unit: AtomicUnit::B4096,
        mount: "barrier=0",
        mkfs: "",
        data: DataMode::Ordered,
        variants: BOTH,
    },
    Mode {
        name: "async-commit",
        write_cache: true,
        unit: AtomicUnit::B4096,
        mount: "journal_async_commit,data=writeback",
        mkfs: "",
        data: DataMode::Writeback,
        variants: BOTH,
    },
    Mode {
        name: "async-commit-w0",
        write_cache: false,
        unit: AtomicUnit::B4096,
        mount: "journal_async_commit,data=writeback,barrier=0",
        mkfs: "",
        data: DataMode::Writeback,
        variants: BOTH,
    },
    Mode {
        name: "async-commit-nobarrier",
        write_cache: true,
        unit: AtomicUnit::B4096,
        mount: "journal_async_commit,data=writeback,barrier=0",
        mkfs: "",
        data: DataMode::Writeback,
        variants: BOTH,
    },
    Mode {
        name: "torn-512",
        write_cache: true,
        unit: AtomicUnit::B512,
        mount: "",
        mkfs: "",
        data: DataMode::Ordered,
        variants: BOTH,
    },
    Mode {
        name: "data-journal",
        write_cache: true,
        unit: AtomicUnit::B4096,
        mount: "data=journal",
        mkfs: "",
        data: DataMode::Journal,
        variants: DEFAULT,
    },
    Mode {
        name: "fast-commit",
        write_cache: true,
        unit: AtomicUnit::B4096,
        mount: "",
        mkfs: "-O fast_commit",
        data: DataMode::Ordered,
        variants: DEFAULT,
    },
];

impl Mode {
    /// The mode of that name.
    pub fn named(name: &str) -> Option<&'static Mode> {
        MODES.iter().find(|mode| mode.name == name)
    }

    /// What is expected, given all options of mkfs as they were said.
    pub fn expectation(&self, mkfs: &str) -> Expectation {
        let no_csum = mkfs.contains("^metadata_csum");
        match self.name {
            "barrier" | "nobarrier-w0" => Expectation::Safe,
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
}

fn known(findings: &[(FindingKind, &str)], reference: &str) -> Expectation {
    let findings = findings.iter().map(|&(kind, says)| KnownFinding { kind, says: says.into() }).collect();
    Expectation::Known { findings, reference: reference.into() }
}
