//! Loading kernel modules: the list that the image's maker wrote, in its order.

use std::ffi::CString;
use std::fs::{self, File};

use super::MODULES;
use crate::protocol::Failure;

/// Loads all of the list; no list is an empty one.
///
/// # Errors
/// A module can't be loaded, with its path.
pub(super) fn load_all() -> Result<(), Failure> {
    let list = match fs::read_to_string(MODULES) {
        Ok(list) => list,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(Failure::io(format!("read {MODULES}"), e)),
    };
    list.lines().filter(|line| !line.trim().is_empty()).try_for_each(load)
}

fn load(line: &str) -> Result<(), Failure> {
    let (path, parameters) = line.split_once(' ').unwrap_or((line, ""));
    let failed = |e: std::io::Error| Failure::io(format!("load the kernel module {path}"), e);
    let file = File::open(path).map_err(failed)?;
    let parameters = CString::new(parameters).map_err(|e| failed(e.into()))?;
    match rustix::system::finit_module(&file, &parameters, 0) {
        // Another module may have brought it along.
        Ok(()) | Err(rustix::io::Errno::EXIST) => Ok(()),
        Err(e) => Err(failed(e.into())),
    }
}
