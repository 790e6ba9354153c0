//! Places and names, beside what dumpe2fs and debugfs say of the same image.

mod common;

use std::process::Command;

use common::{EXT3, EXT4, EXT4_1K, Image, Made, run};
use powerfail_jbd2::{Group, HomeBlock, HomeRole, Ino, Layout, Names};

fn layouts() -> Vec<Image> {
    [
        &EXT3,
        &EXT4,
        &EXT4_1K,
        &Made { program: "mkfs.ext4", block_size: 1024, options: &["-O", "^flex_bg,^64bit"] },
        &Made { program: "mkfs.ext4", block_size: 1024, options: &["-O", "meta_bg,^resize_inode"] },
        &Made { program: "mkfs.ext4", block_size: 4096, options: &["-O", "sparse_super2", "-g", "1024"] },
        &Made { program: "mkfs.ext2", block_size: 1024, options: &["-O", "has_journal,^sparse_super,^resize_inode"] },
    ]
    .map(Image::make)
    .into()
}

/// dumpe2fs names every block of metadata of every group.
#[test]
fn dumpe2fs_says_the_same_of_metadata() {
    for image in layouts() {
        let bytes = image.bytes();
        let layout = Layout::read(&bytes).unwrap();
        let output = run(Command::new("dumpe2fs").arg(image.path()));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let mut group = Group(0);
        let mut checked = 0;
        for line in text.lines() {
            let line = line.trim();
            if let Some(rest) = line.strip_prefix("Group ")
                && let Some((number, _)) = rest.split_once(':')
                && let Ok(number) = number.parse()
            {
                group = Group(number);
            }
            for part in line.split(", ") {
                let Some((what, range)) = part.split_once(" at ") else { continue };
                let range = range.split_whitespace().next().unwrap().trim_end_matches(',');
                let (first, last) = range.split_once('-').unwrap_or((range, range));
                let (Ok(first), Ok(last)) = (first.parse(), last.parse()) else { continue };
                for block in first..=last {
                    let role = layout.role(HomeBlock(block));
                    let right = match (what, role) {
                        ("Primary superblock", HomeRole::Superblock { group: Group(0) }) => true,
                        ("Backup superblock", HomeRole::Superblock { group: of }) => of == group,
                        ("Group descriptors" | "Group descriptor", HomeRole::GroupDescriptors { .. }) => true,
                        ("Block bitmap", HomeRole::BlockBitmap { group: of }) => of == group,
                        ("Inode bitmap", HomeRole::InodeBitmap { group: of }) => of == group,
                        ("Inode table", HomeRole::InodeTable { group: of, first, last }) => {
                            let per_group = layout.superblock.inodes_per_group;
                            of == group && first.0 > of.0 * per_group && last.0 <= (of.0 + 1) * per_group
                        }
                        ("Reserved GDT blocks", _) => true,
                        _ => false,
                    };
                    assert!(right, "{what} of group {group}, block {block}: {role}");
                    checked += 1;
                }
            }
        }
        assert!(checked > 100, "only {checked} blocks were named");
        let journal = layout.journal().unwrap();
        let first = journal.place(powerfail_jbd2::LogBlock(0)).unwrap();
        assert!(matches!(layout.role(first), HomeRole::Journal { .. }));
    }
}

/// A tree with a directory of many blocks (hashed) and a file with holes: debugfs says which inode a block is of, and what
/// that inode's name is.
#[test]
fn debugfs_says_the_same_of_names() {
    for image in layouts() {
        let big = image.data("big", &vec![9; 400]);
        let small = image.data("small", &[1]);
        let mut commands = format!("mkdir /a\nmkdir /a/b\nwrite {big} /a/big\n");
        for number in 0..150 {
            commands.push_str(&format!("write {small} a/b/{}{number}\n", "x".repeat(120)));
        }
        commands = commands.replace(" /a/big", " a/big").replace(" a/b/", " ");
        let commands = commands.replace(&format!("write {small} "), &format!("cd /a/b\nwrite {small} "));
        let commands = commands.replace(&format!("write {big} a/big"), &format!("cd /a\nwrite {big} big"));
        image.debugfs(&commands);
        // Hashes the directory.
        let _ = Command::new("e2fsck").args(["-fyD"]).arg(image.path()).output().unwrap();
        let bytes = image.bytes();
        let layout = Layout::read(&bytes).unwrap();
        let names = Names::walk(&bytes, &layout, 10_000);
        assert!(names.complete);
        assert_eq!(names.path(Ino(2)).unwrap(), "/");
        for (path, directory) in [("/a/b", true), ("/a/big", false)] {
            let text = image.ask(&format!("blocks {path}"));
            let blocks: Vec<u64> =
                text.split_whitespace().filter_map(|word| word.parse().ok()).filter(|&block| block != 0).collect();
            assert!(blocks.len() > 4, "{path}: {text}");
            let mut offsets = 0;
            for block in blocks {
                let owner =
                    names.owner(HomeBlock(block)).unwrap_or_else(|| panic!("nobody owns block {block} of {path}"));
                assert_eq!((owner.path.as_str(), owner.directory), (path, directory), "block {block}");
                offsets += u64::from(owner.offset.is_some());
                assert_eq!(layout.role(HomeBlock(block)), HomeRole::Contents);
            }
            assert!(offsets > 4);
        }
        let some = image.ask("ncheck 20");
        let name =
            some.lines().rfind(|line| line.starts_with("20")).unwrap().split_whitespace().nth(1).unwrap().to_owned();
        assert_eq!(names.path(Ino(20)).unwrap(), name);
        // A limit is kept, and said.
        let few = Names::walk(&bytes, &layout, 20);
        assert!(!few.complete);
    }
}
