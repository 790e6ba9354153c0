//! Modes: what the kernel is told and what the drive is. Which modes a file system has, and what is expected of each, is
//! in its file below `filesystems`.

use powerfail_drive::units::AtomicUnit;
use powerfail_workloads::DataMode;

use crate::filesystems;

/// One mode of a file system.
#[derive(Clone, Debug)]
pub struct Mode {
    /// Its name, as in the ledger.
    pub name: &'static str,
    /// Whether the drive has a write cache (W1).
    pub write_cache: bool,
    /// Whether a drive with a write cache offers FLUSH and FUA. One that does not is how flushes are left out under file
    /// systems that can't be told to.
    pub offers_flush: bool,
    /// The drive's atomic unit, unless the command line says otherwise.
    pub unit: AtomicUnit,
    /// Mount options.
    pub mount: &'static str,
    /// Options of mkfs, beyond those of every run.
    pub mkfs: &'static str,
    /// How the file system treats data.
    pub data: DataMode,
    /// In which variants `--mode all` runs it.
    pub variants: &'static [Variant],
}

impl Mode {
    /// An honest drive with a write cache, and the file system's defaults.
    pub const BARRIER: Mode = Mode {
        name: "barrier",
        write_cache: true,
        offers_flush: true,
        unit: AtomicUnit::B4096,
        mount: "",
        mkfs: "",
        data: DataMode::Ordered,
        variants: &[Variant::Csum],
    };
}

/// A variant of mkfs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// mkfs's defaults; for ext4 `metadata_csum`, so the journal has checksum v3.
    Csum,
    /// `^metadata_csum`: the journal has checksum v1 (async commit) or none.
    NoCsum,
}

impl Variant {
    /// All, in the order in which a run takes them.
    pub const ALL: [Variant; 2] = [Variant::Csum, Variant::NoCsum];

    /// The option of mkfs; none for the default.
    pub fn mkfs(self) -> &'static str {
        match self {
            Variant::Csum => "",
            Variant::NoCsum => "-O ^metadata_csum",
        }
    }

    /// What a cell's name has of it.
    pub fn suffix(self) -> &'static str {
        match self {
            Variant::Csum => "",
            Variant::NoCsum => "-no-csum",
        }
    }
}

/// Whether any file system has a mode of that name.
pub fn exists(name: &str) -> bool {
    filesystems::ALL.iter().any(|fs| fs.mode(name).is_some())
}
