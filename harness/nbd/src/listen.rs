//! Where a server listens: a Unix socket, whose file it owns, a TCP port of this machine, or a socket that a parent
//! process passed, whose file is the parent's.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener as StdUnixListener, UnixStream as StdUnixStream};
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::net::{TcpStream, UnixStream};

use crate::transmission::Wire;

/// Who may reach a TCP port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Only programs of this machine; any other address is refused.
    Loopback,
    /// Whoever can send packets to the address. The protocol has no password here.
    Anyone,
}

/// Why a server can't listen.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Somebody serves there already.
    #[error("a server already listens on {0}")]
    InUse(Address),
    /// There is a file, and it isn't a socket.
    #[error("{0} exists and is not a socket")]
    NotASocket(PathBuf),
    /// The address can be reached from other machines.
    #[error("{0} can be reached from other machines; the drive is served to this one only, unless that is asked for")]
    NotLoopback(SocketAddr),
    /// The system refused.
    #[error("can't listen on {address}: {error}")]
    System {
        /// Where.
        address: Address,
        /// What it said.
        #[source]
        error: io::Error,
    },
}

/// Where a server can be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// The path of a Unix socket.
    Unix(PathBuf),
    /// A TCP address.
    Tcp(SocketAddr),
}

impl Address {
    /// The NBD URI of an export, as `nbdinfo`, `nbdcopy`, `nbdfuse`, `qemu-io` and `fio` take it.
    pub fn uri(&self, export: &str) -> String {
        let name = escape(export.as_bytes());
        match self {
            Address::Unix(path) => format!("nbd+unix:///{name}?socket={}", escape(path.as_os_str().as_encoded_bytes())),
            Address::Tcp(address) => format!("nbd://{address}/{name}"),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Unix(path) => path.display().fmt(f),
            Address::Tcp(address) => address.fmt(f),
        }
    }
}

/// A bound socket. It needs no runtime yet.
#[derive(Debug)]
pub(crate) enum Listener {
    Unix(StdUnixListener, Option<SocketFile>),
    Tcp(std::net::TcpListener),
}

impl Listener {
    /// Binds a Unix socket.
    pub(crate) fn unix(path: &Path) -> Result<Listener, BindError> {
        let (listener, file) = listen_unix(path)?;
        Ok(Listener::Unix(listener, Some(file)))
    }

    /// A socket that listens already.
    pub(crate) fn passed(socket: OwnedFd) -> io::Result<Listener> {
        use rustix::net::sockopt::{socket_acceptconn, socket_domain};
        if !socket_acceptconn(&socket)? {
            return Err(io::Error::other("the socket that was passed does not listen"));
        }
        if socket_domain(&socket)? == rustix::net::AddressFamily::UNIX {
            let listener = StdUnixListener::from(socket);
            listener.set_nonblocking(true)?;
            return Ok(Listener::Unix(listener, None));
        }
        let listener = std::net::TcpListener::from(socket);
        listener.set_nonblocking(true)?;
        Ok(Listener::Tcp(listener))
    }

    /// Binds a TCP port; port 0 takes a free one.
    pub(crate) fn tcp(address: SocketAddr, reach: Reach) -> Result<Listener, BindError> {
        if reach == Reach::Loopback && !address.ip().to_canonical().is_loopback() {
            return Err(BindError::NotLoopback(address));
        }
        let system = |error: io::Error| match error.kind() {
            io::ErrorKind::AddrInUse => BindError::InUse(Address::Tcp(address)),
            _ => BindError::System { address: Address::Tcp(address), error },
        };
        let listener = std::net::TcpListener::bind(address).map_err(system)?;
        listener.set_nonblocking(true).map_err(system)?;
        Ok(Listener::Tcp(listener))
    }

    pub(crate) fn address(&self) -> io::Result<Address> {
        match self {
            Listener::Unix(_, Some(file)) => Ok(Address::Unix(file.path.clone())),
            Listener::Unix(listener, None) => {
                Ok(Address::Unix(listener.local_addr()?.as_pathname().unwrap_or(Path::new("")).to_path_buf()))
            }
            Listener::Tcp(listener) => Ok(Address::Tcp(listener.local_addr()?)),
        }
    }
}

/// Binds a Unix socket, not blocking. The file of a server that died is replaced, that of one that lives is not.
///
/// # Errors
/// If somebody listens there, or the path can't be a socket.
pub fn listen_unix(path: &Path) -> Result<(StdUnixListener, SocketFile), BindError> {
    let address = Address::Unix(path.to_path_buf());
    let system = |error| BindError::System { address: address.clone(), error };
    if let Ok(found) = path.symlink_metadata() {
        if !found.file_type().is_socket() {
            return Err(BindError::NotASocket(path.to_path_buf()));
        }
        match StdUnixStream::connect(path) {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                std::fs::remove_file(path).map_err(system)?;
            }
            Ok(_) => return Err(BindError::InUse(address)),
            Err(error) => return Err(system(error)),
        }
    }
    let listener = StdUnixListener::bind(path).map_err(system)?;
    let file = SocketFile::of(path).map_err(system)?;
    listener.set_nonblocking(true).map_err(system)?;
    Ok((listener, file))
}

/// The file of a Unix socket: removed with this value, unless another server has put its own there.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    identity: (u64, u64),
}

impl SocketFile {
    fn of(path: &Path) -> io::Result<SocketFile> {
        let made = path.symlink_metadata()?;
        // The working directory may change before the file has to go.
        Ok(SocketFile { path: std::path::absolute(path)?, identity: (made.dev(), made.ino()) })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let ours = |found: std::fs::Metadata| (found.dev(), found.ino()) == self.identity;
        if self.path.symlink_metadata().is_ok_and(ours) {
            // Nothing can be done about a folder that has become read-only, and nothing is lost by it.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl Wire for UnixStream {
    fn hung_up(&self) -> bool {
        state(self).intersects(PollFlags::HUP | PollFlags::ERR)
    }

    fn has_arrivals(&self) -> bool {
        state(self).contains(PollFlags::IN)
    }
}

/// A session may borrow its stream, so that who lends it decides what becomes of it.
impl<S: Wire> Wire for &mut S {
    fn hung_up(&self) -> bool {
        (**self).hung_up()
    }

    fn has_arrivals(&self) -> bool {
        (**self).has_arrivals()
    }
}

impl Wire for TcpStream {
    fn hung_up(&self) -> bool {
        state(self).intersects(PollFlags::HUP | PollFlags::ERR)
    }

    fn has_arrivals(&self) -> bool {
        state(self).contains(PollFlags::IN)
    }
}

/// `POLLHUP` is both directions closed, `POLLRDHUP` (not asked here) only the peer's sending one. A TCP peer that is gone
/// looks like one that sends no more until it answers with a reset.
fn state(stream: &impl std::os::fd::AsFd) -> PollFlags {
    let mut fds = [PollFd::new(stream, PollFlags::IN)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    match poll(&mut fds, Some(&at_once)) {
        Ok(_) => fds[0].revents(),
        Err(_) => PollFlags::ERR,
    }
}

/// Percent-encodes what has a meaning in a URI.
fn escape(bytes: &[u8]) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
    let mut out = String::new();
    for &byte in bytes {
        if plain(byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_are_escaped() {
        let unix = Address::Unix("/run/a b?.sock".into());
        assert_eq!(unix.uri("x&y"), "nbd+unix:///x%26y?socket=/run/a%20b%3F.sock");
        let tcp = Address::Tcp("[::1]:10809".parse().expect("an address"));
        assert_eq!(tcp.uri(""), "nbd://[::1]:10809/");
    }

    #[test]
    fn only_loopback_unless_asked() {
        for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
            let refused = Listener::tcp(address.parse().expect("an address"), Reach::Loopback);
            assert!(matches!(refused, Err(BindError::NotLoopback(_))), "{address}: {refused:?}");
        }
        assert!(Listener::tcp("127.0.0.1:0".parse().expect("an address"), Reach::Loopback).is_ok());
        assert!(Listener::tcp("0.0.0.0:0".parse().expect("an address"), Reach::Anyone).is_ok());
    }
}
