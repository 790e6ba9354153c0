//! Which kernel modules a guest needs, in the order of loading.
//!
//! A module file says itself which others it needs (`depends` in its section `.modinfo`), so no `modules.dep` is read,
//! which Debian's packages don't contain and which only `depmod` makes. What is built into the kernel is listed in
//! `modules.builtin`; a kernel without a modules folder is taken to have everything built in.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::GuestError;
use super::unpack::{ENDINGS, read_module};

/// A module to be loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Module {
    /// With underscores.
    pub(super) name: String,
    /// The unpacked file.
    pub(super) bytes: Vec<u8>,
}

/// The modules of a kernel.
#[derive(Debug)]
pub(super) struct Modules {
    files: BTreeMap<String, PathBuf>,
    built_in: BTreeSet<String>,
}

impl Modules {
    /// Looks through a modules folder, `lib/modules/VERSION`.
    ///
    /// # Errors
    /// It can't be read.
    pub(super) fn of(folder: &Path) -> Result<Modules, GuestError> {
        let mut files = BTreeMap::new();
        find_files(folder, &mut files)
            .map_err(|e| GuestError::failed(format!("look for kernel modules in {}", folder.display()), e))?;
        let built_in = fs::read_to_string(folder.join("modules.builtin")).unwrap_or_default();
        let built_in = built_in.lines().filter_map(|line| module_name(Path::new(line))).collect();
        Ok(Modules { files, built_in })
    }

    /// The modules of `wanted` and all that they need, each after what it needs.
    ///
    /// # Errors
    /// One is neither built in nor a file.
    pub(super) fn in_order(&self, wanted: &[&str]) -> Result<Vec<Module>, GuestError> {
        let mut order = Order { modules: self, done: BTreeSet::new(), list: Vec::new() };
        wanted.iter().try_for_each(|name| order.add(name, "a guest"))?;
        Ok(order.list)
    }
}

struct Order<'a> {
    modules: &'a Modules,
    done: BTreeSet<String>,
    list: Vec<Module>,
}

impl Order<'_> {
    fn add(&mut self, name: &str, who: &str) -> Result<(), GuestError> {
        let name = name.replace('-', "_");
        if self.modules.built_in.contains(&name) || !self.done.insert(name.clone()) {
            return Ok(());
        }
        let path = self.modules.files.get(&name).ok_or_else(|| {
            GuestError::Missing(format!("the kernel has no module {name}, which {who} needs, and it is not built in"))
        })?;
        let bytes = read_module(path).map_err(|e| GuestError::failed(format!("read {}", path.display()), e))?;
        let needs = depends(&bytes).map_err(|e| GuestError::failed(format!("read {}", path.display()), e))?;
        needs.iter().try_for_each(|needed| self.add(needed, &name))?;
        self.list.push(Module { name, bytes });
        Ok(())
    }
}

/// What `.modinfo` says under `depends`.
fn depends(bytes: &[u8]) -> Result<Vec<String>, goblin::error::Error> {
    let elf = goblin::elf::Elf::parse(bytes)?;
    let info = elf.section_headers.iter().find(|section| elf.shdr_strtab.get_at(section.sh_name) == Some(".modinfo"));
    let range = info.and_then(goblin::elf::SectionHeader::file_range).unwrap_or_default();
    let info = bytes.get(range).ok_or_else(|| goblin::error::Error::Malformed("a cut-off .modinfo".to_string()))?;
    let mut needs = Vec::new();
    for field in info.split(|byte| *byte == 0).filter_map(|field| std::str::from_utf8(field).ok()) {
        if let Some(names) = field.strip_prefix("depends=") {
            needs.extend(names.split(',').filter(|name| !name.is_empty()).map(str::to_string));
        }
    }
    Ok(needs)
}

fn find_files(folder: &Path, files: &mut BTreeMap<String, PathBuf>) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let (path, kind) = (entry.path(), entry.file_type()?);
        // Links (`build`, `source`) lead out of it.
        if kind.is_dir() {
            find_files(&path, files)?;
        } else if let (true, Some(name)) = (kind.is_file(), module_name(&path)) {
            files.insert(name, path);
        }
    }
    Ok(())
}

/// `nbd` of `drivers/block/nbd.ko.xz`; with underscores, as the kernel counts both as the same.
fn module_name(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    let (stem, ending) = name.split_once('.')?;
    ENDINGS.contains(&ending).then(|| stem.replace('-', "_"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_kernel() {
        assert_eq!(module_name(Path::new("kernel/lib/crc-itu-t.ko.xz")), Some("crc_itu_t".to_string()));
        assert_eq!(module_name(Path::new("kernel/nbd.ko")), Some("nbd".to_string()));
        assert_eq!(module_name(Path::new("modules.builtin")), None);
    }

    #[test]
    fn a_module_that_is_nowhere_is_named_with_who_needs_it() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("modules.builtin"), "kernel/fs/ext4/ext4.ko\n").unwrap();
        let modules = Modules::of(folder.path()).unwrap();
        assert_eq!(modules.in_order(&["ext4"]).unwrap(), []);
        let error = modules.in_order(&["nbd"]).unwrap_err();
        assert!(error.to_string().contains("no module nbd"), "{error}");
        assert!(Modules::of(&folder.path().join("none")).is_err());
    }
}
