//! What the tests of guests share: what they need, a drive, guests.
#![allow(dead_code, reason = "each test program uses a part")]

pub(crate) mod drive;

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use powerfail_rig::guest::{Accel, Kernel, find_static_agent};
use powerfail_rig::{Guest, GuestError, GuestSetup};

pub(crate) const LIMIT: Duration = Duration::from_secs(60);
pub(crate) const MIB: u64 = 1 << 20;

/// The cache that all tests share; the unprivileged ones are told of another.
pub(crate) const CACHE: &str = "POWERFAIL_TEST_CACHE";

pub(crate) fn cache() -> PathBuf {
    std::env::var_os(CACHE).map_or_else(|| temporary().join("guest-cache"), PathBuf::from)
}

/// Cargo's folder for what tests make; examples are not told of it.
fn temporary() -> PathBuf {
    option_env!("CARGO_TARGET_TMPDIR").map_or_else(|| std::env::temp_dir().join("powerfail-guest-times"), PathBuf::from)
}

/// The kernel by its name; says why and returns none where it can't be had.
pub(crate) fn kernel(name: &str) -> Option<Kernel> {
    skip_or(Kernel::by_name(name, &cache()))
}

/// A guest of the kernel; none where this machine has no QEMU or not the tools.
pub(crate) fn guest(kernel: &Kernel) -> Option<Guest> {
    skip_or(setup(kernel).and_then(Guest::prepare))
}

pub(crate) fn setup(kernel: &Kernel) -> Result<GuestSetup, GuestError> {
    let setup = GuestSetup::with_agent(kernel.clone(), "ext4", find_static_agent(Some(&static_agent()))?, cache());
    Ok(GuestSetup { accel: Accel::Tcg, ..setup })
}

fn skip_or<T>(result: Result<T, GuestError>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(GuestError::Missing(reason)) => {
            println!("SKIPPED: {reason}.");
            None
        }
        Err(e) => panic!("{e}"),
    }
}

/// The agent for guests, built as `powerfail_rig::guest` asks for it. `POWERFAIL_GUEST_AGENT` saves the build.
pub(crate) fn static_agent() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let build = || {
        if let Some(named) = std::env::var_os("POWERFAIL_GUEST_AGENT") {
            return named.into();
        }
        let target = "x86_64-unknown-linux-gnu";
        let folder = temporary().join("static");
        let built = Command::new(env!("CARGO"))
            .args(["build", "--release", "-p", "powerfail-agent", "--target", target, "--target-dir"])
            .arg(&folder)
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .env("RUSTFLAGS", "-C target-feature=+crt-static -C strip=symbols")
            .env_remove("CARGO_ENCODED_RUSTFLAGS")
            .status()
            .unwrap();
        assert!(built.success(), "the static agent can be built");
        folder.join(target).join("release/powerfail-agent")
    };
    BUILT.get_or_init(build).clone()
}
