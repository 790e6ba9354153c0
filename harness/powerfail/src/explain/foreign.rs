//! What a block of XFS or btrfs is, as far as the block itself says: by its magic number or its tree's owner.
//!
//! Sources: `fs/xfs/libxfs/xfs_format.h` and `xfs_da_format.h`; `fs/btrfs/` `btrfs_header` (fsid at byte 32, owner at 88) and
//! `include/uapi/linux/btrfs_tree.h`.

use super::{Part, Place};

/// Magic numbers at the beginning of a block of XFS.
const XFS: &[(&[u8], &str)] = &[
    (b"XFSB", "superblock"),
    (b"XAGF", "free space header of an allocation group"),
    (b"XAGI", "inode header of an allocation group"),
    (b"XAFL", "free list of an allocation group"),
    (b"AB3B", "free space tree by block"),
    (b"AB3C", "free space tree by length"),
    (b"IAB3", "inode tree"),
    (b"FIB3", "free inode tree"),
    (b"RMB3", "reverse map tree"),
    (b"R3FC", "reference count tree"),
    (b"BMA3", "extent tree of a file"),
    (b"IN", "inodes"),
    (b"XDB3", "directory"),
    (b"XDD3", "directory"),
    (b"XDF3", "directory"),
    (b"XSLM", "symbolic link"),
];
/// … and of directory and attribute leaves, at byte 8.
const XFS_DA: &[(u16, &str)] =
    &[(0x3dd2, "directory leaf"), (0x3df1, "directory leaf"), (0x3ebe, "directory node"), (0x3bee, "attribute leaf")];

/// A block of XFS that is not in its log.
pub(super) fn xfs(bytes: &[u8]) -> Part {
    let found = XFS.iter().find(|(magic, _)| bytes.starts_with(magic)).map(|(_, name)| *name);
    let leaf = || {
        let magic = u16::from_be_bytes(bytes.get(8..10)?.try_into().ok()?);
        XFS_DA.iter().find(|(known, _)| *known == magic).map(|(_, name)| *name)
    };
    match found.or_else(leaf) {
        Some(name) => Part::of(Place::Home, name, format!("metadata ({name}), in place")),
        None => Part::of(Place::Home, "file data", "a block without a magic number: file data, most likely".into()),
    }
}

/// Where the superblocks of btrfs are, in bytes.
const BTRFS_SUPER: &[u64] = &[64 << 10, 64 << 20, 256 << 30];
/// Owners of trees.
const BTRFS_TREES: &[(i64, &str)] = &[
    (1, "root tree"),
    (2, "extent tree"),
    (3, "chunk tree"),
    (4, "device tree"),
    (5, "file system tree"),
    (7, "checksum tree"),
    (9, "UUID tree"),
    (10, "free space tree"),
    (11, "block group tree"),
    (-6, "log tree"),
    (-7, "log tree"),
    (-9, "relocation tree"),
];

/// A block of btrfs; `whole` is an image, which says the file system's id.
pub(super) fn btrfs(bytes: &[u8], at: u64, whole: &[u8]) -> Part {
    if BTRFS_SUPER.contains(&at) {
        return Part::of(Place::Home, "superblock", "the superblock, or a copy of it".into());
    }
    let id = usize::try_from(BTRFS_SUPER[0]).ok().and_then(|at| whole.get(at + 32..at + 48));
    if id.is_some() && bytes.get(32..48) == id {
        let owner = bytes.get(88..96).and_then(|owner| Some(i64::from_le_bytes(owner.try_into().ok()?)));
        let tree = owner.and_then(|owner| BTRFS_TREES.iter().find(|(known, _)| *known == owner).map(|(_, name)| *name));
        let name = tree.unwrap_or("a subvolume's tree");
        let place = if name == "log tree" { Place::Log } else { Place::Home };
        return Part::of(place, name, format!("a node of the {name}"));
    }
    Part::of(Place::Home, "file data", "a block that no tree owns: file data, or the later part of a node".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_say_what_they_are() {
        assert_eq!(xfs(b"XAGF\0\0\0\x01").role, "free space header of an allocation group");
        assert_eq!(xfs(b"hello, world").role, "file data");
        assert_eq!(xfs(b"\0\0\0\0\0\0\0\0\x3d\xf1").role, "directory leaf");
        assert_eq!(xfs(b"").role, "file data");
        let mut whole = vec![0; (64 << 10) + 4096];
        whole[(64 << 10) + 32..(64 << 10) + 48].fill(7);
        let mut node = vec![0; 4096];
        node[32..48].fill(7);
        node[88..96].copy_from_slice(&(-6i64).to_le_bytes());
        assert_eq!(btrfs(&node, 1 << 20, &whole).place, Place::Log);
        assert_eq!(btrfs(&[0; 4096], 64 << 10, &whole).role, "superblock");
        assert_eq!(btrfs(&[1; 4096], 1 << 20, &whole).role, "file data");
    }
}
