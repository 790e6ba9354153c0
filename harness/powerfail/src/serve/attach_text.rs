//! What `serve` prints: the drive, and the full commands that attach it.

use std::ffi::OsStr;
use std::fmt::Write;
use std::path::Path;

use powerfail_nbd::Address;

use super::args::Setup;

/// The text. `nbd-client` is always given its block size: with a wrong one partitions seem to end behind the device
/// (NetworkBlockDevice/nbd issue 157).
pub(crate) fn attach_text(setup: &Setup, address: &Address, control: &Path, record: &Path, kept: bool) -> String {
    let uri = address.uri(&setup.export);
    let block = setup.drive.unit.bytes();
    let cache = match setup.header.write_cache {
        true => format!("write cache {} KiB", setup.drive.cache.bytes >> 10),
        false => "no write cache".into(),
    };
    let name = if setup.export.is_empty() { String::new() } else { format!(" -N {}", quoted(&setup.export)) };
    let place = match address {
        Address::Unix(path) => format!("-unix {} /dev/nbd0", quoted(path)),
        Address::Tcp(address) => format!("{} {} /dev/nbd0", address.ip(), address.port()),
    };
    let removed = if kept { "" } else { " (removed at the end; keep it with --record DIR)" };
    let (quoted_uri, control) = (quoted(&uri), quoted(control));
    let mut text = String::new();
    let size = setup.header.geometry.bytes();
    let _ = write!(
        text,
        "\
drive      {size} bytes, {cache}, atomic unit {block}; seed {seed}
uri        {uri}
recording  {record}{removed}

attach, as root, with the kernel's nbd:
  nbd-client {place} -b {block}{name}
or with nbdfuse and a loop device:
  mkdir -p /run/drive && unshare --mount nbdfuse --pidfile /run/drive.pid /run/drive/nbd {quoted_uri} &
  losetup --find --show --direct-io=on /proc/$(cat /run/drive.pid)/root/run/drive/nbd
or whichever works, undone by --detach:
  scripts/attach {quoted_uri}
or to a virtual machine:
  qemu-system-x86_64 ... -drive {drive}

power:
  powerfail ctl --control {control} cut
  powerfail ctl --control {control} restore
  powerfail ctl --control {control} status

serving until Ctrl-C
",
        seed = setup.seed,
        record = record.display(),
        drive = quoted(&format!("file={},format=raw,if=virtio,cache=none", uri.replace(',', ",,"))),
    );
    text
}

/// As one word of a shell.
fn quoted(text: &(impl AsRef<OsStr> + ?Sized)) -> String {
    let text = text.as_ref().to_string_lossy();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._/:+=%@,".contains(&byte);
    if !text.is_empty() && text.bytes().all(plain) {
        return text.into_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}
