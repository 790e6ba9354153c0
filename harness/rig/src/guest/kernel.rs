//! Kernels for guests: Debian's, fetched by package name and unpacked without root, or the user's own files.
//!
//! A package is asked for by its series (`6.1`): the newest `linux-image-6.1.…-cloud-amd64` that apt's lists have. It is
//! checked by the SHA256 of those lists, which apt in turn has checked by their signature, and unpacked into the cache.
//! Without a network, or when apt's lists have gone, what the cache has of that series is used.

use std::fs;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::{GuestError, run, whole};

/// A kernel that QEMU can start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// For people: `debian-6.1 (linux-image-…)`, or the image's path.
    pub name: String,
    /// The bzImage.
    pub image: PathBuf,
    /// `lib/modules/VERSION`; none: everything that a guest needs is built in.
    pub modules: Option<PathBuf>,
}

/// The ending of the packages that are made for virtual machines: small, and with everything that a guest needs.
const FLAVOUR: &str = "-cloud-amd64";
const FOLDER: &str = "kernels";

impl Kernel {
    /// The user's own: a bzImage, and the folder with its modules: `lib/modules/VERSION` itself, or whatever was
    /// INSTALL_MOD_PATH when they were installed.
    ///
    /// # Errors
    /// One of them is not there, or several versions are.
    pub fn own(image: &Path, modules: Option<&Path>) -> Result<Kernel, GuestError> {
        if !image.is_file() {
            return Err(GuestError::Missing(format!("there is no kernel {}", image.display())));
        }
        let modules = modules.map(modules_folder).transpose()?;
        Ok(Kernel { name: image.display().to_string(), image: image.to_path_buf(), modules })
    }

    /// Debian's newest kernel of a series, e.g. `6.1`, in the cache.
    ///
    /// # Errors
    /// The series is not in apt's lists, can't be fetched or is not what the lists say, and the cache has none either.
    pub fn debian(series: &str, cache: &Path) -> Result<Kernel, GuestError> {
        let folder = cache.join(FOLDER);
        let fetched = Package::newest(series).and_then(|package| {
            let unpacked = folder.join(package.folder());
            whole(&unpacked, |part| package.unpack(part))?;
            Ok(unpacked)
        });
        let unpacked = match fetched {
            Ok(unpacked) => unpacked,
            Err(error) => newest_cached(&folder, series).ok_or(error)?,
        };
        Kernel::unpacked(series, &unpacked)
    }

    /// A kernel by the name that the command line uses: `debian-SERIES`.
    ///
    /// # Errors
    /// The name is none, or as [`Kernel::debian`].
    pub fn by_name(name: &str, cache: &Path) -> Result<Kernel, GuestError> {
        match name.strip_prefix("debian-") {
            Some(series) => Kernel::debian(series, cache),
            None => Err(GuestError::Missing(format!("no kernel is called {name}; debian-6.1 and debian-6.12 are"))),
        }
    }

    fn unpacked(series: &str, folder: &Path) -> Result<Kernel, GuestError> {
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        let image = fs::read_dir(folder.join("boot")).into_iter().flatten().flatten().map(|entry| entry.path());
        let image = image
            .into_iter()
            .find(|path| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with("vmlinuz-")));
        let image = image.ok_or_else(|| GuestError::Missing(format!("{} has no boot/vmlinuz-…", folder.display())))?;
        let modules = Some(modules_folder(folder)?);
        Ok(Kernel { name: format!("debian-{series} ({name})"), image, modules })
    }
}

/// The unpacked package that the cache has of a series.
pub(super) fn cached(series: &str, cache: &Path) -> Option<String> {
    let folder = newest_cached(&cache.join(FOLDER), series)?;
    Some(folder.file_name()?.to_string_lossy().into_owned())
}

/// The package that would be fetched for a series.
///
/// # Errors
/// apt's lists have none.
pub(super) fn package(series: &str) -> Result<String, GuestError> {
    Package::newest(series).map(|package| package.name)
}

/// The one `lib/modules/VERSION` in `folder`, or `folder` itself if it is one.
fn modules_folder(folder: &Path) -> Result<PathBuf, GuestError> {
    let is_one = |path: &Path| path.join("kernel").is_dir() || path.join("modules.builtin").is_file();
    if is_one(folder) {
        return Ok(folder.to_path_buf());
    }
    let mut found: Vec<PathBuf> = ["lib/modules", "usr/lib/modules", "."]
        .iter()
        .flat_map(|place| fs::read_dir(folder.join(place)).into_iter().flatten().flatten())
        .map(|entry| entry.path())
        .filter(|path| is_one(path))
        .collect();
    match (found.pop(), found.is_empty()) {
        (Some(only), true) => Ok(only),
        (Some(_), false) => {
            Err(GuestError::Missing(format!("{} has modules of several kernels: name one's folder", folder.display())))
        }
        (None, _) => Err(GuestError::Missing(format!("there are no kernel modules in {}", folder.display()))),
    }
}

/// A package as apt's lists have it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Package {
    name: String,
    version: String,
    sha256: String,
}

impl Package {
    fn newest(series: &str) -> Result<Package, GuestError> {
        let prefix = format!("linux-image-{series}.");
        let names = run("apt-cache", &["pkgnames", &prefix], Path::new("/"), "apt")?;
        let mut names: Vec<&str> = names.lines().filter(|name| is_of_series(name, &prefix)).collect();
        names.sort_by_key(|name| numbers(name));
        // Names without a package are those of old kernels that something still mentions.
        let packages = names.into_iter().rev().filter_map(|name| {
            let shown = run("apt-cache", &["show", "--no-all-versions", name], Path::new("/"), "apt").ok()?;
            Package::parse(&shown)
        });
        packages.into_iter().next().ok_or_else(|| {
            let text = format!(
                "apt's lists have no {prefix}…{FLAVOUR}: run apt-get update, or add a Debian suite that has Linux {series} \
                 (backports, security), or give a kernel and its modules of your own"
            );
            GuestError::Missing(text)
        })
    }

    fn parse(shown: &str) -> Option<Package> {
        let field = |name: &str| {
            let value = shown.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
            value.map(|value| value.trim().to_string())
        };
        Some(Package { name: field("Package")?, version: field("Version")?, sha256: field("SHA256")? })
    }

    fn folder(&self) -> String {
        format!("{}_{}", self.name, self.version.replace(['/', ':'], "_"))
    }

    fn unpack(&self, to: &Path) -> Result<(), GuestError> {
        let place = to.parent().unwrap_or(Path::new("/"));
        run("apt-get", &["download", &format!("{}={}", self.name, self.version)], place, "apt")?;
        let files = fs::read_dir(place).into_iter().flatten().flatten().map(|entry| entry.path());
        let package = files.into_iter().find(|path| path.extension().is_some_and(|ending| ending == "deb"));
        let package = package.ok_or_else(|| GuestError::failed("fetch a kernel", "apt-get download made no file"))?;
        self.check(&package)?;
        let (from, into) = (package.display().to_string(), to.display().to_string());
        run("dpkg-deb", &["-x", &from, &into], place, "dpkg").map(drop)
    }

    fn check(&self, file: &Path) -> Result<(), GuestError> {
        let bytes = fs::read(file).map_err(|e| GuestError::failed(format!("read {}", file.display()), e))?;
        let digest: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        if digest == self.sha256 {
            return Ok(());
        }
        let reason = format!("its SHA256 is {digest}, and apt's lists say {}: run apt-get update", self.sha256);
        Err(GuestError::failed(format!("check {}", self.name), reason))
    }
}

/// Not `-unsigned`, `-rt`, `-dbg` and the like: between the version and the flavour are digits, or Debian's own suffix.
fn is_of_series(name: &str, prefix: &str) -> bool {
    let version = name.strip_prefix(prefix).and_then(|rest| rest.strip_suffix(FLAVOUR));
    let version = version.map(|version| version.split('+').next().unwrap_or_default());
    version.is_some_and(|v| !v.is_empty() && v.bytes().all(|byte| byte.is_ascii_digit() || b".-".contains(&byte)))
}

/// The numbers in a name, by which 6.1.0-57 is newer than 6.1.0-9.
fn numbers(name: &str) -> Vec<u64> {
    name.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse().ok()).collect()
}

fn newest_cached(folder: &Path, series: &str) -> Option<PathBuf> {
    let prefix = format!("linux-image-{series}.");
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let named = entries.filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&prefix)));
    named.max_by_key(|path| numbers(&path.file_name().unwrap_or_default().to_string_lossy()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_of_a_series_is_chosen_by_number() {
        let prefix = "linux-image-6.1.";
        for name in ["linux-image-6.1.0-57-cloud-amd64", "linux-image-6.1.9+deb12-cloud-amd64"] {
            assert!(is_of_series(name, prefix), "{name}");
        }
        for name in [
            "linux-image-6.1.0-57-cloud-amd64-unsigned",
            "linux-image-6.1.0-57-amd64",
            "linux-image-6.1.0-57-rt-cloud-amd64",
            "linux-image-6.12.1-cloud-amd64",
        ] {
            assert!(!is_of_series(name, prefix), "{name}");
        }
        let folder = tempfile::tempdir().unwrap();
        for name in ["linux-image-6.1.0-9-cloud-amd64_6.1.9-1", "linux-image-6.1.0-57-cloud-amd64_6.1.192-3"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        let newest = newest_cached(folder.path(), "6.1").unwrap();
        assert!(newest.ends_with("linux-image-6.1.0-57-cloud-amd64_6.1.192-3"));
        assert_eq!(newest_cached(folder.path(), "6.12"), None);
    }

    #[test]
    fn a_package_that_is_not_what_the_lists_say_is_refused() {
        let shown = "Package: linux-image-x\nVersion: 1:2-3\nSHA256: 00ff\nDescription: text\n";
        let package = Package::parse(shown).unwrap();
        assert_eq!(package.folder(), "linux-image-x_1_2-3");
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = package.check(file.path()).unwrap_err();
        // The digest of nothing.
        assert!(
            error.to_string().contains("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
            "{error}"
        );
        assert_eq!(Package::parse("Package: virtual\n"), None);
    }

    #[test]
    fn own_modules_are_found_where_they_were_installed() {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("bzImage");
        assert!(Kernel::own(&image, None).unwrap_err().to_string().contains("there is no kernel"));
        fs::write(&image, "x").unwrap();
        assert_eq!(Kernel::own(&image, None).unwrap().modules, None);
        assert!(Kernel::own(&image, Some(folder.path())).unwrap_err().to_string().contains("no kernel modules"));
        let version = folder.path().join("lib/modules/6.19-mine");
        fs::create_dir_all(version.join("kernel")).unwrap();
        for named in [folder.path(), &version, &folder.path().join("lib/modules")] {
            assert_eq!(
                Kernel::own(&image, Some(named)).unwrap().modules.unwrap().canonicalize().unwrap(),
                version.canonicalize().unwrap()
            );
        }
        fs::create_dir_all(folder.path().join("lib/modules/6.20/kernel")).unwrap();
        assert!(Kernel::own(&image, Some(folder.path())).unwrap_err().to_string().contains("several"));
    }
}
