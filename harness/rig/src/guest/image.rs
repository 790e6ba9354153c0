//! The initramfs: the static agent as /init, kernel modules, tools with their libraries, and nothing else. No shell.
//!
//! It is not compressed: a guest without hardware virtualisation takes longer to unpack than QEMU to read. Each megabyte
//! costs such a guest some 30 ms, so what a cell does not need is not in it. It is a function of its inputs, bit for bit,
//! and is kept in the cache under their digest.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use cpio::newc::{Builder, trailer};
use powerfail_agent::guest::MODULES;

use super::libraries::{self, Files};
use super::modules::{Module, Modules};
use super::{GuestError, GuestSetup, whole};

/// Drivers that a guest can't do without, and their parameters.
const DRIVERS: &[(&str, &str)] =
    &[("virtio_pci", ""), ("virtio_net", ""), ("virtio_console", ""), ("nbd", "nbds_max=8 max_part=0")];

/// Files of this machine that tools read, if they are here.
const SETTINGS: &[&str] = &["/etc/mke2fs.conf"];

/// Character devices that must be there before the kernel fills /dev: name, major, minor.
const DEVICES: &[(&str, u32, u32)] = &[("dev/console", 5, 1), ("dev/null", 1, 3)];

/// Images that are kept; older ones are removed when another one is made.
const KEPT: usize = 16;

/// Makes the initramfs for `setup`, or finds it in the cache.
pub(super) fn make(setup: &GuestSetup) -> Result<PathBuf, GuestError> {
    let content = Content::gather(setup)?;
    let path = setup.cache.join(format!("initramfs-{}.cpio", content.digest()));
    if !path.exists() {
        remove_old(&setup.cache);
    }
    whole(&path, |part| {
        let write = || -> io::Result<()> {
            let mut out = BufWriter::new(File::create(part)?);
            content.write(&mut out)?;
            out.flush()
        };
        write().map_err(|e| GuestError::failed(format!("write {}", part.display()), e))
    })?;
    Ok(path)
}

/// Everything that is in it, in order.
#[derive(Debug, Default)]
struct Content {
    /// Without the leading slash; data; whether it is a program.
    files: Vec<(String, Vec<u8>, bool)>,
}

impl Content {
    fn gather(setup: &GuestSetup) -> Result<Content, GuestError> {
        let mut content = Content::default();
        content.add_file(Path::new("/init"), &setup.agent)?;
        if let Some(folder) = &setup.kernel.modules {
            content.add_modules(&wanted_modules(folder, &setup.file_systems)?);
        }
        let mut files = Files::new();
        setup.tools.iter().try_for_each(|tool| libraries::add_program(tool, &mut files))?;
        let settings = SETTINGS.iter().map(PathBuf::from).filter(|path| path.is_file());
        files.extend(settings.map(|path| (path.clone(), path)));
        files.iter().try_for_each(|(there, here)| content.add_file(there, here))?;
        Ok(content)
    }

    fn add_file(&mut self, there: &Path, here: &Path) -> Result<(), GuestError> {
        let failed = |e: io::Error| GuestError::failed(format!("read {}", here.display()), e);
        let data = fs::read(here).map_err(failed)?;
        let program = data.starts_with(b"\x7fELF");
        self.files.push((relative(there), data, program));
        Ok(())
    }

    fn add_modules(&mut self, modules: &[Module]) {
        let path = |module: &Module| format!("/lib/modules/{}.ko", module.name);
        let list: String = modules
            .iter()
            .map(|module| {
                let parameters = DRIVERS.iter().find(|(name, _)| *name == module.name).map_or("", |(_, p)| *p);
                format!("{}\n", format!("{} {parameters}", path(module)).trim_end())
            })
            .collect();
        self.files.push((relative(Path::new(MODULES)), list.into_bytes(), false));
        self.files
            .extend(modules.iter().map(|module| (relative(Path::new(&path(module))), module.bytes.clone(), false)));
    }

    /// Of everything that the bytes depend on.
    fn digest(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        for (name, data, program) in &self.files {
            hasher.update(format!("{name}\0{}\0{program}\0", data.len()).as_bytes()).update(data);
        }
        hasher.finalize().to_hex()[..24].to_string()
    }

    fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let mut archive = Archive { out, inode: 0 };
        // The kernel makes no folder that is not named, and must find each before what is in it.
        let folders: BTreeSet<&Path> = self
            .files
            .iter()
            .map(|(name, ..)| name.as_str())
            .chain(DEVICES.iter().map(|(name, ..)| *name))
            .flat_map(|name| Path::new(name).ancestors().skip(1))
            .filter(|folder| !folder.as_os_str().is_empty())
            .collect();
        for folder in folders.into_iter().chain(["tmp", "root"].map(Path::new)) {
            archive.add(&folder.to_string_lossy(), 0o040_755, (0, 0), &[])?;
        }
        for (name, major, minor) in DEVICES {
            archive.add(name, 0o020_600, (*major, *minor), &[])?;
        }
        for (name, data, program) in &self.files {
            archive.add(name, if *program { 0o100_755 } else { 0o100_644 }, (0, 0), data)?;
        }
        trailer(archive.out).map(drop)
    }
}

struct Archive<'a, W: Write> {
    out: &'a mut W,
    inode: u32,
}

impl<W: Write> Archive<'_, W> {
    fn add(&mut self, name: &str, mode: u32, device: (u32, u32), data: &[u8]) -> io::Result<()> {
        self.inode += 1;
        let size = u32::try_from(data.len()).map_err(io::Error::other)?;
        let entry = Builder::new(name).ino(self.inode).mode(mode).nlink(1).rdev_major(device.0).rdev_minor(device.1);
        let mut entry = entry.write(&mut *self.out, size);
        entry.write_all(data)?;
        entry.finish().map(drop)
    }
}

/// The modules for the drivers and the file systems. What is built in is left out; what is nowhere is an error here and
/// not in the guest.
fn wanted_modules(folder: &Path, file_systems: &[String]) -> Result<Vec<Module>, GuestError> {
    let mut wanted: Vec<&str> = DRIVERS.iter().map(|(name, _)| *name).collect();
    wanted.extend(file_systems.iter().map(String::as_str));
    Modules::of(folder)?.in_order(&wanted)
}

fn relative(path: &Path) -> String {
    path.strip_prefix("/").unwrap_or(path).to_string_lossy().into_owned()
}

fn remove_old(cache: &Path) {
    let mut images: Vec<_> = fs::read_dir(cache)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            name.starts_with("initramfs-") && name.ends_with(".cpio")
        })
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        .collect();
    images.sort();
    images.iter().rev().skip(KEPT - 1).for_each(|(_, path)| drop(fs::remove_file(path)));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content() -> Content {
        Content {
            files: vec![
                ("init".to_string(), b"\x7fELF".to_vec(), true),
                ("usr/sbin/mkfs.ext4".to_string(), vec![7; 1001], true),
                ("etc/mke2fs.conf".to_string(), b"[defaults]".to_vec(), false),
            ],
        }
    }

    #[test]
    fn each_folder_comes_before_what_is_in_it_and_all_can_be_read_back() {
        let mut bytes = Vec::new();
        content().write(&mut bytes).unwrap();
        let mut seen: Vec<(String, u32, Vec<u8>)> = Vec::new();
        let mut rest = &bytes[..];
        loop {
            let mut reader = cpio::newc::Reader::new(rest).unwrap();
            if reader.entry().is_trailer() {
                break;
            }
            let (name, mode) = (reader.entry().name().to_string(), reader.entry().mode());
            let mut data = Vec::new();
            io::Read::read_to_end(&mut reader, &mut data).unwrap();
            seen.push((name, mode, data));
            rest = reader.finish().unwrap();
        }
        for (name, ..) in &seen {
            let place = seen.iter().position(|(other, ..)| other == name).unwrap();
            for folder in Path::new(name).ancestors().skip(1).filter(|folder| !folder.as_os_str().is_empty()) {
                let at = seen.iter().position(|(other, mode, _)| Path::new(other) == folder && *mode == 0o040_755);
                assert!(at.is_some_and(|at| at < place), "{name}");
            }
        }
        let tool = seen.iter().find(|(name, ..)| name == "usr/sbin/mkfs.ext4").unwrap();
        assert_eq!((tool.1, &tool.2), (0o100_755, &vec![7; 1001]));
        assert!(seen.iter().any(|(name, mode, _)| name == "dev/console" && *mode == 0o020_600));
    }

    #[test]
    fn the_same_inputs_make_the_same_image_and_others_another() {
        let (mut one, mut two) = (Vec::new(), Vec::new());
        content().write(&mut one).unwrap();
        content().write(&mut two).unwrap();
        assert!(one == two);
        let mut other = content();
        other.files[1].1[0] = 8;
        assert_ne!(other.digest(), content().digest());
    }
}
