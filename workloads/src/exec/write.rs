//! The ways to write.

use super::{Hands, open};
use crate::content::{BLOCK, extent};
use crate::steps::{How, Op};
use io_uring::{IoUring, opcode, types};
use memmap2::MmapOptions;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{MemfdFlags, OFlags};
use rustix::io::Errno;
use std::io;

/// What `O_DIRECT` asks of addresses, whatever the device; offsets and lengths are the workload's affair.
const ALIGNED: usize = 4096;

impl Hands {
    /// Does an [`Op::Write`].
    pub(super) fn write(&mut self, root: &OwnedFd, op: &Op) -> Result<(), Errno> {
        let Op::Write { file, path, generation, block, blocks, how } = op else { unreachable!("a write") };
        let bytes = extent(*file, *generation, *block, *blocks);
        let at = block * BLOCK as u64;
        let flags = match how {
            How::Buffered | How::Mapped | How::Msync | How::Uring | How::UringDsync => OFlags::empty(),
            How::Direct => OFlags::DIRECT,
            How::Dsync => OFlags::DSYNC,
            How::Sync => OFlags::SYNC,
            How::DirectDsync => OFlags::DIRECT | OFlags::DSYNC,
        };
        let opened;
        let fd = match self.open.get(file).filter(|_| flags.is_empty()) {
            Some(held) => held.as_fd(),
            None => {
                opened = open(root, path, OFlags::RDWR | flags)?;
                opened.as_fd()
            }
        };
        match how {
            How::Buffered | How::Dsync | How::Sync => write_all(fd, &bytes, at),
            How::Direct | How::DirectDsync => write_direct(fd, &bytes, at),
            How::Mapped | How::Msync => write_mapped(fd, &bytes, at, *how == How::Msync),
            How::Uring | How::UringDsync => write_uring(&mut self.ring, fd, &bytes, at, *how == How::UringDsync),
        }
    }
}

/// A write that the kernel cuts short goes on where it stopped: it is still the same step.
fn write_all(fd: BorrowedFd<'_>, mut bytes: &[u8], mut at: u64) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::io::pwrite(fd, bytes, at) {
            Ok(0) => return Err(Errno::IO),
            Ok(written) => {
                bytes = &bytes[written..];
                at += written as u64;
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

fn write_direct(fd: BorrowedFd<'_>, bytes: &[u8], at: u64) -> Result<(), Errno> {
    let mut room = vec![0; bytes.len() + ALIGNED];
    let start = room.as_ptr().align_offset(ALIGNED);
    let aligned = &mut room[start..start + bytes.len()];
    aligned.copy_from_slice(bytes);
    write_all(fd, aligned, at)
}

/// The range lies inside the size. The stores are the kernel's, which reads the bytes from memory into the mapping: through the same page
/// table as a program's own, but a page that the file system cannot give (it is shut down, or full) is an error and no SIGBUS.
fn write_mapped(fd: BorrowedFd<'_>, bytes: &[u8], at: u64, sync: bool) -> Result<(), Errno> {
    let memory = rustix::fs::memfd_create("bytes", MemfdFlags::CLOEXEC)?;
    write_all(memory.as_fd(), bytes, 0)?;
    // SAFETY: the file is ours alone while this worker is at this step: nobody truncates it or reads it as references.
    let map = unsafe { MmapOptions::new().offset(at).len(bytes.len()).map_mut(fd.as_raw_fd()) };
    let mut map = map.map_err(errno_of)?;
    let mut done = 0;
    while done < map.len() {
        match rustix::io::pread(&memory, &mut map[done..], done as u64) {
            Ok(0) => return Err(Errno::IO),
            Ok(stored) => done += stored,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    if sync { map.flush().map_err(errno_of) } else { Ok(()) }
}

fn write_uring(
    ring: &mut Option<IoUring>,
    fd: BorrowedFd<'_>,
    mut bytes: &[u8],
    mut at: u64,
    sync: bool,
) -> Result<(), Errno> {
    if ring.is_none() {
        *ring = Some(IoUring::new(2).map_err(errno_of)?);
    }
    let ring = ring.as_mut().expect("just made");
    while !bytes.is_empty() {
        let length = u32::try_from(bytes.len()).map_err(|_| Errno::INVAL)?;
        let write = opcode::Write::new(types::Fd(fd.as_raw_fd()), bytes.as_ptr(), length)
            .offset(at)
            .rw_flags(if sync { libc::RWF_DSYNC } else { 0 })
            .build();
        // SAFETY: descriptor and bytes outlive the entry: its completion is awaited below, and no other entry is in the ring.
        unsafe { ring.submission().push(&write) }.map_err(|_| Errno::BUSY)?;
        let done = loop {
            match ring.submit_and_wait(1) {
                Ok(_) => {}
                Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
                Err(error) => return Err(errno_of(error)),
            }
            if let Some(done) = ring.completion().next() {
                break done.result();
            }
        };
        match done {
            0 => return Err(Errno::IO),
            done if done < 0 => match Errno::from_raw_os_error(-done) {
                Errno::INTR | Errno::AGAIN => {}
                errno => return Err(errno),
            },
            done => {
                bytes = &bytes[done as usize..];
                at += done as u64;
            }
        }
    }
    Ok(())
}

fn errno_of(error: io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_to_a_page_that_is_not_there_is_an_error_and_no_signal() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(4096).unwrap();
        let bytes = extent(1, 1, 0, 8);
        assert_eq!(write_mapped(file.as_fd(), &bytes, 4096, true), Err(Errno::FAULT));
        assert_eq!(write_mapped(file.as_fd(), &bytes, 0, true), Ok(()));
        let mut read = vec![0; bytes.len()];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut read, 0).unwrap();
        assert_eq!(read, bytes);
    }
}
