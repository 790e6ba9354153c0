//! The superblock of ext2, ext3 and ext4, as far as a journal and the place of metadata need it.
//!
//! It is at byte 1024, little-endian, 1024 bytes long (`struct ext4_super_block` of `fs/ext4/ext4.h`).

use serde::Serialize;

use crate::blocks::Blocks;
use crate::bytes::{le16, le32, wide};
use crate::error::Error;
use crate::units::{Bytes, Group, HomeBlock, Ino};

/// Where it is.
pub(crate) const AT: Bytes = Bytes(1024);
/// How long it is.
pub(crate) const LENGTH: usize = 1024;

const MAGIC: u16 = 0xEF53;

const COMPAT_HAS_JOURNAL: u32 = 0x4;
const COMPAT_SPARSE_SUPER2: u32 = 0x200;
const INCOMPAT_RECOVER: u32 = 0x4;
const INCOMPAT_JOURNAL_DEV: u32 = 0x8;
const INCOMPAT_META_BG: u32 = 0x10;
const INCOMPAT_64BIT: u32 = 0x80;
const RO_COMPAT_SPARSE_SUPER: u32 = 0x1;
const RO_COMPAT_METADATA_CSUM: u32 = 0x400;

/// More groups than that are no file system of today: 2^20 groups of 128 MiB are 128 TiB.
const MOST_GROUPS: u64 = 1 << 20;

/// What the superblock says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SuperBlock {
    /// Bytes in a block: 1024 to 65536, a power of two.
    pub block_size: u32,
    /// Blocks of the device.
    pub blocks: u64,
    /// Inodes.
    pub inodes: u32,
    /// The first block of group 0: 1 where blocks have 1 KiB, else 0.
    pub first_data_block: HomeBlock,
    /// Blocks of a group.
    pub blocks_per_group: u32,
    /// Inodes of a group.
    pub inodes_per_group: u32,
    /// Bytes of an inode.
    pub inode_size: u16,
    /// Bytes of a group descriptor: 32, or more with `64bit`.
    pub descriptor_size: u16,
    /// The file system's UUID.
    pub uuid: [u8; 16],
    /// Features that others may ignore.
    pub compat: u32,
    /// Features that others must know.
    pub incompat: u32,
    /// Features that others must know in order to write.
    pub ro_compat: u32,
    /// The journal's inode; 0 for none.
    pub journal_inode: Ino,
    /// The UUID of the journal device; zeroes for none.
    pub journal_uuid: [u8; 16],
    /// The first group that `meta_bg` is about.
    pub first_meta_group: u32,
    /// With `sparse_super2`, the groups that have a backup; 0 for none.
    pub backup_groups: [u32; 2],
}

impl SuperBlock {
    /// Reads it.
    ///
    /// # Errors
    /// [`Error::NotExt`] if it is none, or if its numbers are impossible.
    pub fn read(blocks: &dyn Blocks) -> Result<SuperBlock, Error> {
        let mut bytes = [0; LENGTH];
        if !blocks.read(AT, &mut bytes) {
            return Err(Error::NotExt(format!("it has only {} bytes", blocks.length())));
        }
        SuperBlock::decode(&bytes)
    }

    fn decode(bytes: &[u8; LENGTH]) -> Result<SuperBlock, Error> {
        if le16(bytes, 0x38) != MAGIC {
            return Err(Error::NotExt("there is no superblock at byte 1024".into()));
        }
        let impossible = |what: &str| Error::NotExt(format!("its superblock has an impossible {what}"));
        let log_size = le32(bytes, 0x18);
        if log_size > 6 {
            return Err(impossible("block size"));
        }
        let dynamic = le32(bytes, 0x4C) >= 1;
        let incompat = le32(bytes, 0x60);
        let has_64bit = incompat & INCOMPAT_64BIT != 0;
        let descriptor_size = if has_64bit { le16(bytes, 0xFE) } else { 32 };
        let block_size = 1024u32 << log_size;
        let read = SuperBlock {
            block_size,
            blocks: wide(le32(bytes, 0x4), if has_64bit { le32(bytes, 0x150) } else { 0 }),
            inodes: le32(bytes, 0),
            first_data_block: HomeBlock(u64::from(le32(bytes, 0x14))),
            blocks_per_group: le32(bytes, 0x20),
            inodes_per_group: le32(bytes, 0x28),
            inode_size: if dynamic { le16(bytes, 0x58) } else { 128 },
            descriptor_size,
            uuid: bytes[0x68..0x78].try_into().expect("16 bytes"),
            compat: le32(bytes, 0x5C),
            incompat,
            ro_compat: le32(bytes, 0x64),
            journal_inode: Ino(le32(bytes, 0xE0)),
            journal_uuid: bytes[0xD0..0xE0].try_into().expect("16 bytes"),
            first_meta_group: le32(bytes, 0x104),
            backup_groups: [le32(bytes, 0x24C), le32(bytes, 0x250)],
        };
        if read.is_journal_device() {
            return Ok(read);
        }
        let per_bitmap = block_size * 8;
        let inodes_fit = read.inode_size.is_power_of_two()
            && (128..=block_size).contains(&u32::from(read.inode_size))
            && (1..=per_bitmap).contains(&read.inodes_per_group);
        if !inodes_fit {
            return Err(impossible("size or number of inodes"));
        }
        // With bigalloc a bit of the bitmap is a cluster, so a group has more blocks than bits.
        if read.blocks_per_group < 256 || read.first_data_block.0 > 1 {
            return Err(impossible("size of its groups"));
        }
        if !(32..=1024).contains(&read.descriptor_size) || !read.descriptor_size.is_power_of_two() {
            return Err(impossible("size of its group descriptors"));
        }
        if read.blocks <= read.first_data_block.0 || read.group_count() > MOST_GROUPS {
            return Err(impossible("number of blocks"));
        }
        Ok(read)
    }

    /// Whether recovery is due (feature `needs_recovery`).
    pub fn needs_recovery(&self) -> bool {
        self.incompat & INCOMPAT_RECOVER != 0
    }

    /// Whether this is no file system but a journal on a device of its own.
    pub fn is_journal_device(&self) -> bool {
        self.incompat & INCOMPAT_JOURNAL_DEV != 0
    }

    /// Whether the file system has a journal.
    pub fn has_journal(&self) -> bool {
        self.compat & COMPAT_HAS_JOURNAL != 0
    }

    /// Whether metadata has checksums (feature `metadata_csum`).
    pub fn has_metadata_checksums(&self) -> bool {
        self.ro_compat & RO_COMPAT_METADATA_CSUM != 0
    }

    /// Whether block numbers have more than 32 bits (feature `64bit`).
    pub fn has_64bit(&self) -> bool {
        self.incompat & INCOMPAT_64BIT != 0
    }

    /// Groups of the file system.
    pub fn group_count(&self) -> u64 {
        (self.blocks - self.first_data_block.0).div_ceil(u64::from(self.blocks_per_group))
    }

    /// The first block of a group.
    pub fn first_of(&self, group: Group) -> HomeBlock {
        HomeBlock(self.first_data_block.0 + u64::from(group.0) * u64::from(self.blocks_per_group))
    }

    /// Whether a group begins with a copy of the superblock.
    pub fn has_super(&self, group: Group) -> bool {
        let group = group.0;
        if group == 0 {
            return true;
        }
        if self.compat & COMPAT_SPARSE_SUPER2 != 0 {
            return self.backup_groups.contains(&group);
        }
        if group == 1 || self.ro_compat & RO_COMPAT_SPARSE_SUPER == 0 {
            return true;
        }
        [3, 5, 7].iter().any(|&base| is_power_of(group, base))
    }

    /// The block that holds the descriptors number `index` × (block size / descriptor size) and following.
    pub(crate) fn descriptor_block(&self, index: u64) -> HomeBlock {
        if index < self.plain_descriptor_blocks() {
            return HomeBlock(self.first_data_block.0 + 1 + index);
        }
        let group = Group(u32::try_from(index * u64::from(self.descriptors_per_block())).unwrap_or(u32::MAX));
        let super_before = u64::from(self.has_super(group));
        HomeBlock(self.first_of(group).0.saturating_add(super_before))
    }

    /// How many blocks of group descriptors follow the superblock and its copies; with `meta_bg` the others lie in the groups
    /// that they are about.
    pub(crate) fn plain_descriptor_blocks(&self) -> u64 {
        let all = self.group_count().div_ceil(u64::from(self.descriptors_per_block()));
        match self.incompat & INCOMPAT_META_BG {
            0 => all,
            _ => all.min(u64::from(self.first_meta_group)),
        }
    }

    /// Group descriptors in a block.
    pub(crate) fn descriptors_per_block(&self) -> u32 {
        self.block_size / u32::from(self.descriptor_size)
    }
}

fn is_power_of(number: u32, base: u32) -> bool {
    let mut power = u64::from(base);
    while power < u64::from(number) {
        power *= u64::from(base);
    }
    power == u64::from(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backups_are_in_the_powers_of_three_five_and_seven() {
        let powers: Vec<u32> = (2..400).filter(|&n| [3, 5, 7].iter().any(|&base| is_power_of(n, base))).collect();
        assert_eq!(powers, [3, 5, 7, 9, 25, 27, 49, 81, 125, 243, 343]);
    }

    #[test]
    fn what_is_none_is_refused_in_words() {
        let short = SuperBlock::read(&vec![0; 100]).unwrap_err();
        assert_eq!(short.to_string(), "this is no image of ext2, ext3 or ext4: it has only 100 bytes");
        assert!(matches!(SuperBlock::read(&vec![0; 4096]), Err(Error::NotExt(_))));
    }
}
