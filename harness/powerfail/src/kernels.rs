//! Which kernel a cell's rig runs, as text: `host`, `debian-6.1`, or the path of the user's own bzImage.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::bail;
use serde::{Deserialize, Serialize};

use crate::folder::Usage;

/// A kernel.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Kernel {
    /// The machine's own.
    Host,
    /// Debian's newest of a series, such as `6.1`.
    Debian(String),
    /// The user's own, with the folder of its modules; without one everything that a guest needs is built in.
    Own {
        /// The bzImage.
        image: PathBuf,
        /// `lib/modules/VERSION`, or what INSTALL_MOD_PATH was.
        modules: Option<PathBuf>,
    },
}

/// Between image and modules in a kernel's text.
const WITH: &str = " with ";

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kernel::Host => f.write_str("host"),
            Kernel::Debian(series) => write!(f, "debian-{series}"),
            Kernel::Own { image, modules: None } => write!(f, "{}", image.display()),
            Kernel::Own { image, modules: Some(modules) } => {
                write!(f, "{}{WITH}{}", image.display(), modules.display())
            }
        }
    }
}

impl From<Kernel> for String {
    fn from(kernel: Kernel) -> String {
        kernel.to_string()
    }
}

impl TryFrom<String> for Kernel {
    type Error = anyhow::Error;

    fn try_from(text: String) -> anyhow::Result<Kernel> {
        text.parse()
    }
}

impl FromStr for Kernel {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Kernel> {
        if text == "host" {
            return Ok(Kernel::Host);
        }
        let series = text.strip_prefix("debian-");
        if let Some(series) = series
            && !series.is_empty()
            && series.chars().all(|c| c.is_ascii_digit() || c == '.')
        {
            return Ok(Kernel::Debian(series.into()));
        }
        if text.contains('/') {
            let (image, modules) = match text.split_once(WITH) {
                Some((image, modules)) => (image, Some(PathBuf::from(modules))),
                None => (text, None),
            };
            return Ok(Kernel::Own { image: image.into(), modules });
        }
        bail!(Usage(format!(
            "there is no kernel `{text}`; say host, debian-6.1, debian-6.12, or the path of a bzImage (./bzImage) with its \
             --modules DIR"
        )))
    }
}

impl Kernel {
    /// Gives the modules to a kernel of the user's own.
    #[must_use]
    pub fn with_modules(self, folder: Option<&Path>) -> Kernel {
        match self {
            Kernel::Own { image, modules: None } => Kernel::Own { image, modules: folder.map(Path::to_path_buf) },
            other => other,
        }
    }

    /// Makes the paths absolute, so that a run is resumed from anywhere.
    ///
    /// # Errors
    /// [`Usage`] if one is not there.
    pub fn absolute(self) -> anyhow::Result<Kernel> {
        let whole = |path: PathBuf| {
            path.canonicalize().map_err(|error| Usage(format!("there is no kernel at {} ({error})", path.display())))
        };
        Ok(match self {
            Kernel::Own { image, modules } => {
                Kernel::Own { image: whole(image)?, modules: modules.map(whole).transpose()? }
            }
            other => other,
        })
    }

    /// A short word for a cell's folder: `debian-6.1`; of the user's own the file's name.
    pub fn word(&self) -> String {
        match self {
            Kernel::Own { image, .. } => {
                let name = image.file_name().unwrap_or_default().to_string_lossy();
                let plain = |c: char| if c.is_ascii_alphanumeric() || "-._".contains(c) { c } else { '-' };
                name.chars().map(plain).collect()
            }
            other => other.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_is_its_text() {
        let own = Kernel::Own { image: "/boot/b z".into(), modules: Some("/lib/m".into()) };
        for kernel in [Kernel::Host, Kernel::Debian("6.1".into()), own] {
            assert_eq!(kernel.to_string().parse::<Kernel>().unwrap(), kernel);
        }
        for wrong in ["", "debian-", "debian-bookworm", "6.1", "hosts"] {
            assert!(wrong.parse::<Kernel>().unwrap_err().is::<Usage>(), "{wrong}");
        }
        assert_eq!("./x/bzImage-6.1+".parse::<Kernel>().unwrap().word(), "bzImage-6.1-");
    }
}
