//! Images that mke2fs and debugfs made, in temporary files.
#![allow(dead_code, reason = "each test file takes what it needs")]

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use powerfail_jbd2::{Journal, Table};
use tempfile::TempDir;

/// An image in a folder of its own.
pub(crate) struct Image {
    folder: TempDir,
    pub(crate) block_size: u64,
}

/// A file system to be made.
pub(crate) struct Made<'a> {
    pub(crate) program: &'a str,
    pub(crate) block_size: u64,
    pub(crate) options: &'a [&'a str],
}

impl Image {
    pub(crate) fn make(made: &Made<'_>) -> Image {
        let folder = tempfile::tempdir().unwrap();
        let image = Image { folder, block_size: made.block_size };
        fs::File::create(image.path()).unwrap().set_len(32 << 20).unwrap();
        let size = made.block_size.to_string();
        let mut command = Command::new(made.program);
        command.args(["-q", "-F", "-b", &size, "-E", "lazy_itable_init=0,lazy_journal_init=0"]);
        if !made.options.iter().any(|option| option.contains("^has_journal") || *option == "-J") {
            command.args(["-J", "size=4"]);
        }
        command.args(made.options).arg(image.path());
        run(&mut command);
        image
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("image")
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        fs::read(self.path()).unwrap()
    }

    pub(crate) fn set(&self, bytes: &[u8]) {
        fs::write(self.path(), bytes).unwrap();
    }

    /// Blocks to log: block N of the file begins with `first` and is filled with a byte of its own.
    pub(crate) fn data(&self, name: &str, firsts: &[u32]) -> String {
        let path = self.folder.path().join(name);
        let mut bytes = Vec::new();
        for (number, first) in firsts.iter().enumerate() {
            let mut block = vec![(number as u8).wrapping_add(0x40); self.block_size as usize];
            block[..4].copy_from_slice(&first.to_be_bytes());
            bytes.extend_from_slice(&block);
        }
        fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().into()
    }

    /// Commands for a debugfs that may write.
    pub(crate) fn debugfs(&self, commands: &str) -> String {
        let script = self.folder.path().join("commands");
        fs::write(&script, commands).unwrap();
        let output = run(Command::new("debugfs").arg("-w").arg("-f").arg(&script).arg(self.path()));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    pub(crate) fn ask(&self, request: &str) -> String {
        let output = run(Command::new("debugfs").args(["-R", request]).arg(self.path()));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// The image after e2fsck replayed the journal and did nothing else, and e2fsck's exit code.
    pub(crate) fn after_e2fsck(&self) -> (Vec<u8>, i32) {
        let copy = self.folder.path().join("copy");
        fs::copy(self.path(), &copy).unwrap();
        let output = Command::new("e2fsck").args(["-E", "journal_only", "-y"]).arg(&copy).output();
        (fs::read(&copy).unwrap(), output.expect("e2fsck, of the package e2fsprogs").status.code().unwrap())
    }

    pub(crate) fn journal(&self) -> (Journal, Table) {
        let bytes = self.bytes();
        let journal = Journal::open(&bytes).unwrap();
        let table = journal.table(&bytes);
        (journal, table)
    }
}

pub(crate) fn run(command: &mut Command) -> Output {
    let output = command.stdin(Stdio::null()).output();
    let output = output.unwrap_or_else(|error| panic!("{command:?}, of the package e2fsprogs: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

/// Blocks in which two images differ.
pub(crate) fn differing(left: &[u8], right: &[u8], block_size: u64) -> Vec<u64> {
    let size = block_size as usize;
    let pairs = left.chunks(size).zip(right.chunks(size)).enumerate();
    pairs.filter(|(_, (left, right))| left != right).map(|(number, _)| number as u64).collect()
}

pub(crate) const EXT3: Made<'static> = Made { program: "mkfs.ext3", block_size: 4096, options: &[] };
pub(crate) const EXT4: Made<'static> = Made { program: "mkfs.ext4", block_size: 4096, options: &[] };
pub(crate) const EXT4_1K: Made<'static> = Made { program: "mkfs.ext4", block_size: 1024, options: &[] };
pub(crate) const EXT4_32BIT: Made<'static> =
    Made { program: "mkfs.ext4", block_size: 4096, options: &["-O", "^64bit"] };
/// `jo -c` makes that checksum v1.
pub(crate) const EXT4_NO_CSUM: Made<'static> =
    Made { program: "mkfs.ext4", block_size: 4096, options: &["-O", "^metadata_csum"] };
