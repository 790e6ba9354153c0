//! What the rig `guest` needs, asked without booting one.

use std::path::Path;
use std::process::Command;

use super::{GuestError, cache_folder, find_static_agent, kernel, qemu};
use crate::doctor::{NBD_CLIENT, Probe, State};

/// Everything that the rig `guest` uses. The kernels are Debian's of these series; a cell can do without all but the first,
/// which is the default.
pub fn probe_guest(series: &[&str]) -> Vec<Probe> {
    let mut probes = vec![emulator(), agent(), NBD_CLIENT.probe()];
    match cache_folder(None) {
        Ok(cache) => {
            probes.push(kvm(&cache));
            probes.extend(series.iter().enumerate().map(|(index, series)| kernel(series, &cache, index == 0)));
        }
        Err(error) => probes.push(refused("cache for kernels", true, None, &error)),
    }
    probes
}

fn emulator() -> Probe {
    let name = "QEMU";
    let path = match qemu::find() {
        Ok(path) => path,
        Err(error) => return refused(name, true, Some("qemu-system-x86"), &error),
    };
    let said = Command::new(&path).arg("--version").output();
    let version = said.as_ref().ok().filter(|said| said.status.success());
    let version = version.and_then(|said| String::from_utf8_lossy(&said.stdout).lines().next().map(str::to_string));
    match version {
        Some(version) => probe(name, State::Works, true, format!("{} runs guests: {version}.", path.display())),
        None => {
            let reason = format!("{} --version fails", path.display());
            probe(name, State::Failed { reason: reason.clone() }, true, format!("{reason}."))
        }
    }
}

fn agent() -> Probe {
    let name = "static agent";
    match find_static_agent(None) {
        Ok(path) => probe(name, State::Works, true, format!("{} is a guest's first program.", path.display())),
        Err(error) => refused(name, true, None, &error),
    }
}

/// What is known of KVM. Nobody needs it.
fn kvm(cache: &Path) -> Probe {
    let (state, detail) = match qemu::kvm_works(cache) {
        Some(true) => (State::Works, "A guest has booted with it since this machine's start.".to_string()),
        Some(false) => {
            let reason = "No guest boots with it on this machine; they run with TCG, which is slower".to_string();
            (State::Failed { reason: reason.clone() }, format!("{reason}."))
        }
        None if qemu::may_use_kvm() => {
            (State::Untried, "/dev/kvm opens; whether guests boot with it is found out at the first start.".to_string())
        }
        None => {
            let state = State::Missing { what: "/dev/kvm".into(), package: None };
            (state, "/dev/kvm can't be opened, so guests run with TCG, which is slower.".to_string())
        }
    };
    probe("KVM", state, false, detail)
}

/// A kernel that is there, or the package that will bring it.
fn kernel(series: &str, cache: &Path, required: bool) -> Probe {
    let name = format!("kernel debian-{series}");
    if let Some(cached) = kernel::cached(series, cache) {
        return probe(&name, State::Works, required, format!("{cached} is in the cache."));
    }
    match kernel::package(series) {
        Ok(package) => {
            let detail = format!("{package} is fetched and unpacked when it is first used.");
            probe(&name, State::Untried, required, detail)
        }
        Err(error) => refused(&name, required, Some(&format!("linux-image-{series}.…-cloud-amd64")), &error),
    }
}

fn refused(name: &str, required: bool, package: Option<&str>, error: &GuestError) -> Probe {
    let state = match error {
        GuestError::Missing(_) => State::Missing { what: name.into(), package: package.map(str::to_string) },
        other => State::Failed { reason: other.to_string() },
    };
    probe(name, state, required, format!("{error}."))
}

fn probe(name: &str, state: State, required: bool, detail: String) -> Probe {
    Probe { name: name.to_string(), state, required, detail }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_that_apt_does_not_have_is_missing_with_its_package() {
        let cache = tempfile::tempdir().unwrap();
        let found = kernel("0.1", cache.path(), true);
        assert!(found.blocks(), "{found:?}");
        let unpacked = cache.path().join("kernels/linux-image-0.1.0-1-cloud-amd64_1");
        std::fs::create_dir_all(unpacked).unwrap();
        let found = kernel("0.1", cache.path(), true);
        assert_eq!(found.state, State::Works);
        assert!(found.detail.starts_with("linux-image-0.1.0-1-cloud-amd64_1 "), "{found:?}");
    }

    #[test]
    fn nobody_needs_kvm_and_every_answer_is_a_sentence() {
        let cache = tempfile::tempdir().unwrap();
        assert!(!kvm(cache.path()).blocks());
        assert!(probe_guest(&["6.1"]).iter().all(|probe| probe.detail.ends_with('.')));
    }
}
