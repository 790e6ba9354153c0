//! Walks a recovered tree. What the file system refuses to show is noted and passed over; the walk itself never fails.
//!
//! The tree may be corrupted in any way: names of any bytes, directories that contain themselves, sizes of exabytes,
//! inodes of a kind that the directory does not say. So nothing is opened before `stat` has said that it is a regular
//! file or a directory, no link is followed, no access time is changed, and depth, entries and bytes are bounded.
//! The entries of a directory are read in the order of their inodes, which is the order of the inode table on the
//! drive: a cold walk then reads that table once, forwards. Files are opened and their read-ahead is begun a few dozen at
//! a time before the first of them is read, so that the drive works on many while the walk waits for one.

use crate::content::{BLOCK, identify};
use crate::observation::{Entry, Kind, Observation, WalkError, escape};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Advice, AtFlags, Dir, FileType, Mode, OFlags, Stat, openat, statat};
use rustix::io::Errno;
use std::ffi::CString;
use std::num::NonZeroU64;
use std::path::Path;

/// How far a walk goes; beyond it there is an error entry of the operation `bound`.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Directories inside each other.
    pub depth: usize,
    /// Entries of the whole tree.
    pub entries: usize,
    /// Bytes read of one file.
    pub file_bytes: u64,
    /// Bytes read of all files.
    pub bytes: u64,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds { depth: 32, entries: 200_000, file_bytes: 16 << 20, bytes: 1 << 30 }
    }
}

/// Walks the tree under `root` within the default bounds.
pub fn walk(root: &Path) -> Observation {
    walk_within(root, Bounds::default())
}

/// Walks the tree under `root` within `bounds`.
pub fn walk_within(root: &Path, bounds: Bounds) -> Observation {
    let mut walker = Walker { bounds, left: bounds.bytes, buffer: vec![0; 256 << 10], seen: Observation::default() };
    match rustix::fs::open(root, DIR_FLAGS.difference(OFlags::NOFOLLOW), Mode::empty()) {
        Ok(fd) => walker.directory(fd, "", 0),
        Err(errno) => walker.failed("", "open", errno),
    }
    walker.seen.entries.sort_by(|a, b| a.path.cmp(&b.path));
    walker.seen
}

const DIR_FLAGS: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const FILE_FLAGS: OFlags = OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

struct Walker {
    bounds: Bounds,
    /// Bytes that may still be read.
    left: u64,
    buffer: Vec<u8>,
    seen: Observation,
}

impl Walker {
    fn directory(&mut self, fd: OwnedFd, path: &str, depth: usize) {
        for names in self.list(&fd, path).chunks(AHEAD) {
            let begun: Vec<Begun> = names.iter().map(|(_, name)| Begun::new(&fd, name)).collect();
            for ((_, name), begun) in names.iter().zip(begun) {
                if self.seen.entries.len() >= self.bounds.entries {
                    let said = self.seen.errors.iter().any(|error| error.error == TOO_MANY);
                    if !said {
                        self.note(path, "bound", TOO_MANY.to_owned());
                    }
                    return;
                }
                let mut below = String::with_capacity(path.len() + 1 + name.as_bytes().len());
                below.push_str(path);
                if !path.is_empty() {
                    below.push('/');
                }
                below.push_str(&escape(name.as_bytes()));
                self.entry(&fd, name, begun, below, depth);
            }
        }
    }

    /// Names and inode numbers of a directory, in the order of the inodes; as many as could be listed.
    fn list(&mut self, fd: &OwnedFd, path: &str) -> Vec<(u64, CString)> {
        let mut names = Vec::new();
        let listing = match Dir::read_from(fd) {
            Ok(listing) => listing,
            Err(errno) => {
                self.failed(path, "list", errno);
                return names;
            }
        };
        for entry in listing {
            match entry {
                Ok(entry) if matches!(entry.file_name().to_bytes(), b"." | b"..") => {}
                Ok(entry) => names.push((entry.ino(), entry.file_name().to_owned())),
                Err(errno) => {
                    self.failed(path, "list", errno);
                    break;
                }
            }
            if names.len() > self.bounds.entries {
                self.note(path, "bound", TOO_MANY.to_owned());
                break;
            }
        }
        names.sort();
        names
    }

    fn entry(&mut self, dir: &OwnedFd, name: &CString, begun: Begun, path: String, depth: usize) {
        let stat = match begun.stat {
            Ok(stat) => stat,
            Err(errno) => return self.failed(&path, "stat", errno),
        };
        let kind = kind(&stat);
        let size = size(&stat);
        let (nlink, mode) = (stat.st_nlink, stat.st_mode & 0o7777);
        let mut entry = Entry { path, kind, size, nlink, mode, target: None, runs: Vec::new() };
        match kind {
            Kind::File => match begun.file {
                Ok(fd) => self.content(&fd, &mut entry),
                Err(errno) => self.failed(&entry.path, "open", errno),
            },
            Kind::Dir if depth + 1 >= self.bounds.depth => {
                self.note(&entry.path, "bound", format!("deeper than {} directories", self.bounds.depth));
            }
            Kind::Dir => {
                let path = entry.path.clone();
                self.seen.entries.push(entry);
                return match open_quietly(dir, name, DIR_FLAGS) {
                    Ok(fd) => self.directory(fd, &path, depth + 1),
                    Err(errno) => self.failed(&path, "open", errno),
                };
            }
            Kind::Symlink => match rustix::fs::readlinkat(dir, name.as_c_str(), Vec::new()) {
                Ok(target) => entry.target = Some(escape(target.as_bytes())),
                Err(errno) => self.failed(&entry.path, "readlink", errno),
            },
            Kind::Other => {}
        }
        self.seen.entries.push(entry);
    }

    fn content(&mut self, fd: &OwnedFd, entry: &mut Entry) {
        let end = entry.size.min(self.bounds.file_bytes).min(self.left);
        let mut at = 0;
        while at < end {
            let want = usize::try_from(end - at).map_or(self.buffer.len(), |want| want.min(self.buffer.len()));
            // The buffer is a multiple of BLOCK, so only the last read of a file can end inside a block.
            let got = match read_full(fd, &mut self.buffer[..want], at) {
                Ok(got) => got,
                Err(errno) => {
                    self.left -= at;
                    return self.failed(&entry.path, "read", errno);
                }
            };
            for (block, number) in self.buffer[..got].as_chunks::<BLOCK>().0.iter().zip(at / BLOCK as u64..) {
                entry.push(number, identify(block));
            }
            at += got as u64;
            if got < want {
                self.left -= at;
                return self.note(&entry.path, "read", format!("end of file at byte {at} of {}", entry.size));
            }
        }
        self.left -= end;
        if end < entry.size {
            self.note(&entry.path, "bound", format!("only {end} of {} bytes were read", entry.size));
        }
    }

    fn failed(&mut self, path: &str, operation: &str, errno: Errno) {
        self.note(path, operation, std::io::Error::from(errno).to_string());
    }

    fn note(&mut self, path: &str, operation: &str, error: String) {
        self.seen.errors.push(WalkError { path: path.to_owned(), operation: operation.to_owned(), error });
    }
}

/// Entries that are begun before the first of them is read.
const AHEAD: usize = 64;
/// Bytes of one file that are read ahead.
const AHEAD_BYTES: u64 = 1 << 20;

/// An entry that was looked at; a regular file is open and on its way into memory.
struct Begun {
    stat: Result<Stat, Errno>,
    /// Of anything but a regular file this is `NOENT`, and nobody looks.
    file: Result<OwnedFd, Errno>,
}

impl Begun {
    fn new(dir: &OwnedFd, name: &CString) -> Begun {
        let stat = statat(dir, name.as_c_str(), AtFlags::SYMLINK_NOFOLLOW);
        let length = stat.as_ref().ok().filter(|stat| kind(stat) == Kind::File).map(size);
        let Some(length) = length else { return Begun { stat, file: Err(Errno::NOENT) } };
        let file = open_quietly(dir, name, FILE_FLAGS);
        if let (Ok(file), Some(length)) = (&file, NonZeroU64::new(length.min(AHEAD_BYTES))) {
            // A hint: whatever goes wrong shows when the file is read.
            let _ = rustix::fs::fadvise(file, 0, Some(length), Advice::WillNeed);
        }
        Begun { stat, file }
    }
}

fn kind(stat: &Stat) -> Kind {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Kind::File,
        FileType::Directory => Kind::Dir,
        FileType::Symlink => Kind::Symlink,
        _ => Kind::Other,
    }
}

fn size(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(u64::MAX)
}

pub(crate) const TOO_MANY: &str = "too many entries";

/// Opens without touching the access time; that flag is refused to whoever does not own the file.
fn open_quietly(dir: &OwnedFd, name: &CString, flags: OFlags) -> Result<OwnedFd, Errno> {
    match openat(dir, name.as_c_str(), flags.union(OFlags::NOATIME), Mode::empty()) {
        Err(Errno::PERM) => openat(dir, name.as_c_str(), flags, Mode::empty()),
        other => other,
    }
}

fn read_full(fd: impl AsFd, buffer: &mut [u8], at: u64) -> Result<usize, Errno> {
    let mut done = 0;
    while done < buffer.len() {
        match rustix::io::pread(&fd, &mut buffer[done..], at + done as u64) {
            Ok(0) => break,
            Ok(got) => done += got,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::extent;
    use crate::observation::{Content, Run};
    use std::fs;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn everything_is_listed_and_every_block_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        fs::create_dir(root.join("d")).unwrap();
        let mut bytes = extent(7, 1, 0, 3);
        bytes.extend([0; BLOCK]);
        bytes.extend(extent(7, 2, 4, 1));
        bytes.extend(b"tail");
        fs::write(root.join("d/f"), &bytes).unwrap();
        fs::write(root.join(std::ffi::OsStr::from_bytes(b"\xff\\")), b"").unwrap();
        std::os::unix::fs::symlink("/", root.join("link")).unwrap();

        let seen = walk(root);
        assert_eq!(seen.errors, []);
        let shape: Vec<_> = seen.entries.iter().map(|e| (e.path.as_str(), e.kind)).collect();
        assert_eq!(shape, [("\\xff\\x5c", Kind::File), ("d", Kind::Dir), ("d/f", Kind::File), ("link", Kind::Symlink)]);
        let ours = |generation| Content::Ours { file: 7, generation };
        assert_eq!(seen.entries[3].target.as_deref(), Some("/"));
        assert_eq!(seen.entries[2].size, bytes.len() as u64);
        assert_eq!(
            seen.entries[2].runs,
            [
                Run { start: 0, count: 3, what: ours(1) },
                Run { start: 3, count: 1, what: Content::Zero },
                Run { start: 4, count: 1, what: ours(2) },
            ]
        );
        assert_eq!(walk(root), seen, "a walk changes nothing");
    }

    #[test]
    fn each_bound_exceeded_is_an_error_entry() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("a/b/c")).unwrap();
        fs::File::create(dir.path().join("huge")).unwrap().set_len(1 << 40).unwrap();
        for n in 0..10 {
            fs::write(dir.path().join(format!("f{n}")), [1; BLOCK]).unwrap();
        }
        let bounds = Bounds { depth: 2, entries: 100, file_bytes: 1 << 20, bytes: (1 << 20) + 1024 };
        let seen = walk_within(dir.path(), bounds);
        let said: Vec<_> = seen.errors.iter().map(|e| (e.path.as_str(), e.operation.as_str())).collect();
        assert!(said.contains(&("huge", "bound")) && said.contains(&("a/b", "bound")), "{said:?}");

        let few = walk_within(dir.path(), Bounds { entries: 5, ..Bounds::default() });
        assert!(few.entries.len() <= 5 && few.errors.iter().any(|e| e.error == TOO_MANY), "{few:?}");
        let short = walk_within(dir.path(), Bounds { bytes: 1024, ..Bounds::default() });
        assert!(short.errors.iter().filter(|e| e.operation == "bound").count() >= 8, "{:?}", short.errors);
    }

    #[test]
    fn a_root_that_is_not_there_is_an_error_entry() {
        let dir = tempfile::tempdir().unwrap();
        let seen = walk(&dir.path().join("gone"));
        assert_eq!((seen.entries.len(), seen.errors[0].operation.as_str()), (0, "open"));
    }
}
