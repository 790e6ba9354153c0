//! Units and their conversions: every shift between bytes, sectors and atomic units is in this file.

/// Bytes in a sector, the smallest thing that the drive keeps (512, as in the kernel's `SECTOR_SIZE`).
pub const SECTOR: u64 = 512;

/// A sector's number on the drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Lba(pub u64);

/// A count of sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Sectors(pub u64);

impl Lba {
    /// Where the sector begins, in bytes.
    pub fn bytes(self) -> u64 {
        self.0 * SECTOR
    }
}

impl Sectors {
    /// The length in bytes.
    pub fn bytes(self) -> u64 {
        self.0 * SECTOR
    }
}

/// What the drive writes all or nothing: a write is cut at borders of this unit and nowhere else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AtomicUnit {
    /// One sector.
    B512,
    /// Eight sectors, aligned.
    B4096,
}

impl AtomicUnit {
    /// The unit of so many bytes, if the drive can have it.
    pub fn from_bytes(bytes: u64) -> Option<AtomicUnit> {
        match bytes {
            512 => Some(AtomicUnit::B512),
            4096 => Some(AtomicUnit::B4096),
            _ => None,
        }
    }

    /// The unit's size in bytes.
    pub fn bytes(self) -> u64 {
        self.sectors() * SECTOR
    }

    /// The unit's size in sectors (1 or 8).
    pub fn sectors(self) -> u64 {
        match self {
            AtomicUnit::B512 => 1,
            AtomicUnit::B4096 => 8,
        }
    }

    /// The unit that holds a sector.
    pub fn of(self, lba: Lba) -> u64 {
        lba.0 / self.sectors()
    }

    /// The unit's first sector.
    pub fn first(self, unit: u64) -> Lba {
        Lba(unit * self.sectors())
    }
}
