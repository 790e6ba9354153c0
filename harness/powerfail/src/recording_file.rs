//! The recording as a file: written by a thread of its own while the workload runs, mapped when it is read.
//!
//! The drive's lock is held only while an event is copied into a buffer of a mebibyte; full buffers go to the writer,
//! of which there are a fixed number, so memory is bounded and a slow disk slows the workload instead of growing the
//! queue.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use powerfail_drive::event::{HEAD, Head, Header};
use powerfail_drive::live::Sink;

const BUFFER: usize = 1 << 20;
/// Buffers on their way to the file.
const BUFFERS: usize = 16;

/// Writes a recording to a file.
#[derive(Debug)]
pub struct FileSink {
    buffer: Vec<u8>,
    full: Option<SyncSender<Vec<u8>>>,
    empty: Receiver<Vec<u8>>,
    /// Empty buffers that `flush` took out of circulation.
    spare: Vec<Vec<u8>>,
    writer: Option<JoinHandle<io::Result<File>>>,
}

impl FileSink {
    /// Begins a recording at `path`, which must not exist.
    ///
    /// # Errors
    /// If the file can't be made.
    pub fn create(path: &Path, header: Header) -> io::Result<FileSink> {
        let file = File::options().write(true).create_new(true).open(path)?;
        let (full, to_write) = sync_channel::<Vec<u8>>(BUFFERS);
        let (written, empty) = sync_channel(BUFFERS + 1);
        for _ in 0..BUFFERS {
            written.send(Vec::with_capacity(BUFFER)).expect("the receiver is here");
        }
        let writer =
            std::thread::Builder::new().name("recording".into()).spawn(move || write_all(file, &to_write, &written))?;
        let mut buffer = Vec::with_capacity(BUFFER);
        buffer.extend_from_slice(&header.encode());
        Ok(FileSink { buffer, full: Some(full), empty, spare: Vec::new(), writer: Some(writer) })
    }

    /// Writes all that was appended so far; the file then ends between two events, and can be read by others.
    ///
    /// # Errors
    /// If it could not be written.
    pub fn flush(&mut self) -> io::Result<()> {
        self.pass_on()?;
        // All buffers but the one in hand are back only when the writer has none.
        while self.spare.len() < BUFFERS {
            self.spare.push(self.empty.recv().map_err(|_| gone())?);
        }
        Ok(())
    }

    /// Writes what is left and syncs the file.
    ///
    /// # Errors
    /// If anything could not be written.
    pub fn finish(mut self) -> io::Result<()> {
        let last = std::mem::take(&mut self.buffer);
        if let Some(full) = self.full.take() {
            full.send(last).map_err(|_| gone())?;
        }
        let writer = self.writer.take().expect("finished once");
        writer.join().map_err(|_| io::Error::other("the recording's writer panicked"))??.sync_all()
    }
}

impl FileSink {
    /// Hands the buffer to the writer and takes an empty one.
    fn pass_on(&mut self) -> io::Result<()> {
        let mut next = match self.spare.pop() {
            Some(next) => next,
            None => self.empty.recv().map_err(|_| gone())?,
        };
        next.clear();
        let full = std::mem::replace(&mut self.buffer, next);
        self.full.as_ref().expect("not finished").send(full).map_err(|_| gone())
    }
}

fn gone() -> io::Error {
    io::Error::other("the recording's writer has ended")
}

impl Sink for FileSink {
    fn append(&mut self, head: &Head, data: &[u8]) -> io::Result<()> {
        if self.buffer.len() + HEAD + data.len() > BUFFER && !self.buffer.is_empty() {
            self.pass_on()?;
        }
        self.buffer.extend_from_slice(&head.encode());
        self.buffer.extend_from_slice(data);
        Ok(())
    }
}

fn write_all(mut file: File, full: &Receiver<Vec<u8>>, empty: &SyncSender<Vec<u8>>) -> io::Result<File> {
    for buffer in full {
        file.write_all(&buffer)?;
        // A request of many mebibytes grew this one; memory stays bounded if it does not stay that large.
        let buffer = if buffer.capacity() > BUFFER * 2 { Vec::with_capacity(BUFFER) } else { buffer };
        let _ = empty.send(buffer);
    }
    Ok(file)
}

/// A recording that is read.
#[derive(Debug)]
pub struct Mapped {
    map: memmap2::Mmap,
    path: PathBuf,
    /// Hundreds of megabytes are hashed once.
    digest: OnceLock<String>,
}

impl Mapped {
    /// Maps a recording. Nobody may truncate it meanwhile: it lies in a run's folder, under that run's lock.
    ///
    /// # Errors
    /// If it can't be opened or is empty.
    pub fn open(path: &Path) -> io::Result<Mapped> {
        let file = File::open(path)?;
        // SAFETY: the file is private to the run whose lock we hold; recordings are never changed once closed.
        let map = unsafe { memmap2::Mmap::map(&file)? };
        Ok(Mapped { map, path: path.into(), digest: OnceLock::new() })
    }

    /// The whole recording.
    pub fn bytes(&self) -> &[u8] {
        &self.map
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its BLAKE3, hexadecimal; recipes name it by the first 16 digits.
    pub fn digest(&self) -> &str {
        self.digest.get_or_init(|| blake3::hash(&self.map).to_hex().to_string())
    }
}
