//! QEMU: its command line, whether KVM works, and the start of a guest on a leash.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;

use powerfail_agent::guest::PORT;

use super::{Guest, GuestError};
use crate::agent::{Agent, LinkError};

/// Who executes the guest's instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accel {
    /// KVM if a guest boots with it in time, else TCG. Tried once for each start of this machine.
    Auto,
    /// The processor, by KVM.
    Kvm,
    /// QEMU's translator: slower, works everywhere.
    Tcg,
}

impl fmt::Display for Accel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Accel::Auto => "auto",
            Accel::Kvm => "KVM",
            Accel::Tcg => "TCG",
        })
    }
}

const PROGRAM: &str = "qemu-system-x86_64";
const DEVICE: &str = "/dev/kvm";

/// Where KVM works a guest has booted long before this; where it only seems to, it never does.
const KVM_LIMIT: Duration = Duration::from_secs(6);

/// Finds QEMU.
pub(super) fn find() -> Result<PathBuf, GuestError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join(PROGRAM)).find(|path| path.is_file());
    found.ok_or_else(|| GuestError::Missing(format!("{PROGRAM} is not installed: apt-get install qemu-system-x86")))
}

/// Boots a guest with the setup's accelerator.
pub(super) fn start(guest: &Guest) -> Result<Agent, GuestError> {
    let limit = guest.setup.boot_limit;
    match chosen(guest) {
        Accel::Auto => {
            let tried = may_use_kvm().then(|| boot(guest, Accel::Kvm, KVM_LIMIT.min(limit)));
            let with_kvm = matches!(tried, Some(Ok(_)));
            let booted = match tried {
                Some(Ok(agent)) => Ok(agent),
                _ => boot(guest, Accel::Tcg, limit),
            };
            // A guest that starts in neither way says nothing of KVM.
            if booted.is_ok() {
                remember(&memory(guest), with_kvm);
            }
            booted
        }
        accel => boot(guest, accel, limit),
    }
}

/// The setup's accelerator, or what was found to work.
pub(super) fn chosen(guest: &Guest) -> Accel {
    match (guest.setup.accel, recall(&memory(guest))) {
        (Accel::Auto, Some(true)) => Accel::Kvm,
        (Accel::Auto, Some(false)) => Accel::Tcg,
        (accel, _) => accel,
    }
}

/// What was found out about KVM since this machine's start, if anything.
pub(super) fn kvm_works(cache: &Path) -> Option<bool> {
    recall(&cache.join(MEMORY))
}

fn memory(guest: &Guest) -> PathBuf {
    guest.setup.cache.join(MEMORY)
}

/// The file, in the cache, that keeps it.
const MEMORY: &str = "kvm-works";

fn boot(guest: &Guest, accel: Accel, limit: Duration) -> Result<Agent, GuestError> {
    let start = |(source, console): (LinkError, String)| GuestError::Start {
        kernel: guest.setup.kernel.name.clone(),
        accel,
        source,
        console,
    };
    let mut leash = Command::new(&guest.setup.agent);
    leash.arg("--leash").arg(&guest.qemu).args(arguments(guest, accel));
    leash.env_clear().current_dir("/");
    Agent::in_guest(leash, limit).map_err(start)
}

/// The command line. Nothing that a guest does not need: each device and each of the firmware's menus costs time.
fn arguments(guest: &Guest, accel: Accel) -> Vec<String> {
    let setup = &guest.setup;
    let mut words: Vec<String> = Vec::new();
    let mut add = |name: &str, value: String| words.extend([format!("-{name}"), value]);
    let (accel, cpu) = match accel {
        Accel::Kvm | Accel::Auto => ("kvm", "host"),
        Accel::Tcg => ("tcg,thread=multi", TCG_CPU),
    };
    add("accel", accel.to_string());
    add("machine", "pc,usb=off,vmport=off".to_string());
    add("cpu", cpu.to_string());
    add("smp", setup.cpus.to_string());
    add("m", format!("{}M", setup.memory_mib));
    add("kernel", setup.kernel.image.display().to_string());
    add("initrd", guest.initramfs.display().to_string());
    add("append", KERNEL_ARGUMENTS.to_string());
    add("display", "none".to_string());
    // The console goes where QEMU's own complaints go, so that both are in order.
    add("chardev", "file,id=console,path=/dev/stderr".to_string());
    add("serial", "chardev:console".to_string());
    add("chardev", "stdio,id=line,signal=off".to_string());
    add("device", "virtio-serial-pci".to_string());
    add("device", format!("virtserialport,chardev=line,name={PORT}"));
    // A guest talks to nobody but this machine, and nobody talks to it.
    add("netdev", "user,id=net".to_string());
    add("device", "virtio-net-pci,netdev=net,romfile=".to_string());
    words.extend(["-nodefaults", "-no-user-config", "-no-reboot"].map(str::to_string));
    words
}

/// The translator's default processor with what the file systems' checksums and the random numbers want.
const TCG_CPU: &str = "max";

/// - the agent's `--guest` stands after the kernel's own, and reaches /init;
/// - `earlyprintk`: what goes wrong before the console is there, down to the unpacking of the kernel, is said too;
/// - a panic ends the machine at once (with `-no-reboot`), so that nobody waits for it;
/// - `random.trust_cpu`: mkfs waits for random numbers otherwise;
/// - the rest saves time: no mitigations for a machine that runs nothing foreign, no self-tests, few messages.
const KERNEL_ARGUMENTS: &str = "console=ttyS0 earlyprintk=serial,ttyS0,115200 loglevel=5 panic=-1 reboot=t mitigations=off nokaslr audit=0 \
                                random.trust_cpu=on cryptomgr.notests tsc=reliable no_timer_check 8250.nr_uarts=1 \
                                rdinit=/init -- --guest";

pub(super) fn may_use_kvm() -> bool {
    fs::OpenOptions::new().read(true).write(true).open(DEVICE).is_ok()
}

/// Whether KVM works, as far as this process knows, or a file from before that is of the same start of the machine.
static KNOWN: Mutex<Option<bool>> = Mutex::new(None);

fn recall(memory: &Path) -> Option<bool> {
    let known = *KNOWN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    known.or_else(|| {
        let text = fs::read_to_string(memory).ok()?;
        let (boot, works) = text.trim().split_once(' ')?;
        // Whoever may use the device now may not have been allowed to before.
        let works = works.parse().ok()?;
        (boot == boot_id()? && (works || may_use_kvm())).then_some(works)
    })
}

fn remember(memory: &Path, works: bool) {
    *KNOWN.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(works);
    // Without the file it is tried again, which costs time and nothing else. Without the device it cost nothing.
    if let (true, Some(boot)) = (may_use_kvm(), boot_id()) {
        let _ = fs::write(memory, format!("{boot} {works}\n"));
    }
}

/// Changes with each start of this machine.
fn boot_id() -> Option<String> {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").ok().map(|text| text.trim().to_string())
}
