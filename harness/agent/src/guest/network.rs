//! The network: the loopback, and one card with the address that QEMU's user network gives out.

use std::fs;
use std::io;
use std::net::{SocketAddrV4, TcpListener};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use super::{ADDRESS, GATEWAY};
use crate::protocol::Failure;

/// The driver makes the card while it is being loaded, mostly.
const PATIENCE: Duration = Duration::from_secs(10);

/// Brings both up. A machine without a card has no drive either, so that is an error.
///
/// # Errors
/// No card, or the kernel refused.
pub(super) fn bring_up() -> Result<(), Failure> {
    let card = wait_for_card().ok_or_else(|| {
        Failure::new("bring the network up", "there is no network card; is virtio_net in the kernel?")
    })?;
    let socket = control_socket().map_err(|e| Failure::io("bring the network up", e))?;
    let steps = || -> io::Result<()> {
        up(&socket, "lo")?;
        set_address(&socket, &card, libc::SIOCSIFADDR, ADDRESS)?;
        set_address(&socket, &card, libc::SIOCSIFNETMASK, [255, 255, 255, 0])?;
        up(&socket, &card)?;
        route_by_default(&socket)
    };
    steps().map_err(|e| Failure::io(format!("bring {card} up"), e))
}

fn wait_for_card() -> Option<String> {
    let end = Instant::now() + PATIENCE;
    loop {
        let names = fs::read_dir("/sys/class/net").ok().into_iter().flatten().flatten();
        let mut names: Vec<String> =
            names.map(|entry| entry.file_name().to_string_lossy().into_owned()).filter(|name| name != "lo").collect();
        names.sort();
        if let Some(name) = names.into_iter().next() {
            return Some(name);
        }
        if Instant::now() >= end {
            return None;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Any socket of the family takes these requests; nothing is sent on it.
fn control_socket() -> io::Result<OwnedFd> {
    // Bound to the unspecified address, which needs no interface that is up.
    Ok(TcpListener::bind(SocketAddrV4::new([0, 0, 0, 0].into(), 0))?.into())
}

fn set_address(socket: &OwnedFd, card: &str, request: libc::c_ulong, address: [u8; 4]) -> io::Result<()> {
    let mut card = named(card)?;
    card.ifr_ifru.ifru_addr = internet(address);
    // SAFETY: both requests read one `struct ifreq` with the name and an address of family AF_INET.
    checked(unsafe { libc::ioctl(socket.as_raw_fd(), request as _, &raw const card) })
}

fn up(socket: &OwnedFd, card: &str) -> io::Result<()> {
    let mut card = named(card)?;
    // SAFETY: reads the name and writes the flags of the `struct ifreq`.
    checked(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFFLAGS as _, &raw mut card) })?;
    // SAFETY: the request above has made the flags the member of the union that is in use.
    unsafe { card.ifr_ifru.ifru_flags |= libc::IFF_UP as libc::c_short };
    // SAFETY: reads the name and the flags.
    checked(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as _, &raw const card) })
}

fn route_by_default(socket: &OwnedFd) -> io::Result<()> {
    // SAFETY: all zeroes is a `struct rtentry`; its pointer may be null.
    let mut route: libc::rtentry = unsafe { std::mem::zeroed() };
    route.rt_dst = internet([0; 4]);
    route.rt_genmask = internet([0; 4]);
    route.rt_gateway = internet(GATEWAY);
    route.rt_flags = libc::RTF_UP | libc::RTF_GATEWAY;
    // SAFETY: reads one `struct rtentry`, all of whose addresses are of family AF_INET.
    checked(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCADDRT as _, &raw const route) })
}

fn named(card: &str) -> io::Result<libc::ifreq> {
    // SAFETY: all zeroes is a `struct ifreq`.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // The last byte stays the zero that ends the name.
    if card.len() >= request.ifr_name.len() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{card} is no name of an interface")));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(card.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(request)
}

/// An address as the old requests want it: `struct sockaddr_in` in the place of a `struct sockaddr`.
fn internet(address: [u8; 4]) -> libc::sockaddr {
    let mut data = [0 as libc::c_char; 14];
    for (to, from) in data[2..6].iter_mut().zip(address) {
        *to = from as libc::c_char;
    }
    libc::sockaddr { sa_family: libc::AF_INET as libc::sa_family_t, sa_data: data }
}

fn checked(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
