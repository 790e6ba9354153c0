//! Tools of this machine and the shared libraries that they need, as their ELF headers say (DT_NEEDED, PT_INTERP).
//!
//! They are put into the guest at the paths at which they are here, so that the loader finds them there by the same rules.
//! Programs that load libraries by name while they run (PAM, NSS) would miss those; no tool of ours does.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::GuestError;

/// Files for the guest: path there, path here.
pub(super) type Files = BTreeMap<PathBuf, PathBuf>;

/// Where programs are, here and in the guest.
const PROGRAMS: &[&str] = &["/usr/sbin", "/usr/bin", "/sbin", "/bin", "/usr/local/sbin", "/usr/local/bin"];

/// Where the loader looks by default, on Debian and elsewhere.
const LIBRARIES: &[&str] = &[
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
    "/usr/local/lib",
];

/// Adds `program` and everything that it needs.
///
/// # Errors
/// It, or a library, is not on this machine.
pub(super) fn add_program(program: &str, files: &mut Files) -> Result<(), GuestError> {
    let found = PROGRAMS.iter().map(|folder| Path::new(folder).join(program)).find(|path| path.is_file());
    let path = found.ok_or_else(|| {
        GuestError::Missing(format!("{program} is not installed: apt-get install {}", package_of(program)))
    })?;
    add_file(&path, files)
}

fn package_of(program: &str) -> &str {
    match program {
        "mkfs.ext4" | "e2fsck" | "dumpe2fs" | "debugfs" | "tune2fs" => "e2fsprogs",
        "mkfs.xfs" | "xfs_repair" | "xfs_db" => "xfsprogs",
        "mkfs.btrfs" | "btrfs" => "btrfs-progs",
        other => other,
    }
}

fn add_file(path: &Path, files: &mut Files) -> Result<(), GuestError> {
    if files.insert(path.to_path_buf(), path.to_path_buf()).is_some() {
        return Ok(());
    }
    let failed = |e: &dyn std::fmt::Display| GuestError::failed(format!("read {}", path.display()), e);
    let bytes = fs::read(path).map_err(|e| failed(&e))?;
    if !bytes.starts_with(b"\x7fELF") {
        let text = "it is a script, and there is no shell in a guest";
        return Err(GuestError::failed(format!("put {} into a guest", path.display()), text));
    }
    let elf = goblin::elf::Elf::parse(&bytes).map_err(|e| failed(&e))?;
    if let Some(loader) = elf.interpreter {
        files.insert(PathBuf::from(loader), PathBuf::from(loader));
    }
    let origin = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    let origin = origin.parent().unwrap_or(Path::new("/")).display().to_string();
    let own: Vec<PathBuf> = elf
        .runpaths
        .iter()
        .chain(&elf.rpaths)
        .flat_map(|paths| paths.split(':'))
        .map(|folder| PathBuf::from(folder.replace("$ORIGIN", &origin).replace("${ORIGIN}", &origin)))
        .collect();
    for library in &elf.libraries {
        let folders = own.iter().map(PathBuf::as_path).chain(LIBRARIES.iter().map(Path::new));
        let found = folders.map(|folder| folder.join(library)).find(|path| path.is_file());
        let found = found.ok_or_else(|| failed(&format!("its library {library} is nowhere")))?;
        add_file(&found, files)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_brings_its_libraries_and_its_loader() {
        let mut files = Files::new();
        add_program("ls", &mut files).unwrap();
        let has = |part: &str| files.keys().any(|path| path.to_string_lossy().contains(part));
        assert!(has("/ls") && has("libc.so") && has("ld-linux"), "{files:?}");
        assert!(files.values().all(|path| path.is_file()), "{files:?}");
    }

    #[test]
    fn what_is_missing_names_its_package_and_scripts_are_refused() {
        let error = add_program("no-such-tool", &mut Files::new()).unwrap_err();
        assert!(error.to_string().contains("apt-get install no-such-tool"), "{error}");
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("script");
        fs::write(&script, "#!/bin/sh\n").unwrap();
        assert!(add_file(&script, &mut Files::new()).unwrap_err().to_string().contains("no shell"));
    }
}
