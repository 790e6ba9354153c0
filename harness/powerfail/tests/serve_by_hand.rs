//! Runs the commands of `docs/by-hand.md` as they stand there: on this machine, and in a guest those that need a kernel with
//! the nbd module.

mod common;
mod serve_support;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use powerfail_rig::GuestError;
use powerfail_rig::guest::{Guest, GuestSetup, Kernel, cache_folder};
use serve_support::{can_mount, here, script};

/// The kinds of blocks that a reader may meet; each is run by a test here.
const KINDS: [&str; 3] = ["sh run", "sh guest", "sh postgresql"];

/// The commands of the page in a guest whose instructions are all emulated.
const IN_GUEST: Duration = Duration::from_secs(240);

/// Whatever fails, nothing stays attached or running.
const CLEANUP: &str = r#"
    trap '[ -z "${postmaster:-}" ] || { kill -QUIT $postmaster; wait $postmaster; } 2>/dev/null || true
          for device in ${device:-} ${second:-}; do scripts/attach --detach $device >/dev/null 2>&1 || true; done
          [ -z "${server:-}" ] || kill $server 2>/dev/null || true' EXIT
"#;

/// The page, as its blocks with the kind of each.
struct Page(Vec<(String, String)>);

impl Page {
    fn read() -> Page {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/by-hand.md");
        let page = std::fs::read_to_string(path).unwrap();
        let mut found = Vec::new();
        let mut lines = page.lines();
        while let Some(line) = lines.next() {
            if let Some(kind) = line.strip_prefix("```") {
                let block: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
                assert!(KINDS.contains(&kind), "a block of the kind {kind:?}: {block:?}");
                found.push((kind.to_owned(), block.join("\n")));
            }
        }
        Page(found)
    }

    fn of(&self, wanted: &str) -> Vec<&str> {
        self.0.iter().filter(|(kind, _)| kind == wanted).map(|(_, block)| block.as_str()).collect()
    }

    /// What makes the folder, and what serves in it: every other part of the page stands on them.
    fn beginning(&self) -> String {
        let run = self.of("sh run");
        assert!(run[0].contains("mktemp") && run[1].contains("powerfail serve"), "{run:?}");
        run[..2].join("\n")
    }
}

#[test]
fn every_command_for_any_machine_works() {
    let page = Page::read();
    let run = page.of("sh run");
    assert!(run.len() >= 15, "{} blocks are run", run.len());
    let needed = [
        ("sqlite3", "sqlite3"),
        ("python3", "python3"),
        ("blkid", "util-linux"),
        ("dmesg", "util-linux"),
        ("qemu-system-x86_64", "qemu-system-x86"),
    ];
    if !can_mount() || !needed.iter().all(|(tool, package)| here(tool, package)) {
        return;
    }
    let said = script(&format!("{CLEANUP}\n{}", run.join("\n")), &[]).expect(0);
    let sentences = [
        "67108864",
        "TYPE=\"ext4\"",
        "fragments are lost",
        "disk I/O error",
        "generation 2",
        "ok\n",
        "read 1024/1024 bytes at offset 1024",
    ];
    for sentence in sentences {
        assert!(said.out.contains(sentence), "{sentence} is not in\n{}", said.out);
    }
}

#[test]
fn postgresql_keeps_on_the_drive_what_it_has_committed() {
    let page = Page::read();
    let blocks = page.of("sh postgresql");
    assert_eq!(blocks.len(), 3);
    if !can_mount() || !here("setpriv", "util-linux") || !has_postgresql() {
        return;
    }
    let end = "kill $server\nwait $server\nrm -r $work";
    let text = format!("{CLEANUP}\n{}\n{}\n{end}", page.beginning(), blocks.join("\n"));
    let said = script(&text, &[]).expect(0);
    for sentence in ["PANIC", "Input/output error", "generation 2", "Bad checksums:  0"] {
        assert!(said.out.contains(sentence), "{sentence} is not in\n{}", said.out);
    }
}

/// Whether PostgreSQL's server is here; says so if not.
fn has_postgresql() -> bool {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let found = versions.into_iter().any(|version| version.path().join("bin/postgres").is_file());
    if !found {
        println!("SKIPPED: PostgreSQL's server is missing; install postgresql-15");
    }
    found
}

/// Around the page's blocks for a kernel with nbd: something on the drive that must be there afterwards. Then the same with
/// `scripts/attach`, which takes this way where it can; the script's text is the first word.
const BEFORE: &str = r#"
mkfs.ext4 -q /dev/nbd0
mount /dev/nbd0 $work/mnt
echo 'synced before the first cut' > $work/mnt/first
sync
ctl cut
"#;
const AFTER: &str = r#"
cat $work/mnt/first
umount $work/mnt
nbd-client -d /dev/nbd0
while nbd-client -c /dev/nbd0; do sleep 0.1; done
attach() { bash -c "$attach" scripts/attach "$@"; }
device=$(attach "$uri")
mount $device $work/mnt
echo 'synced before the second cut' > $work/mnt/second
sync
ctl cut
attach --detach $device
ctl restore
device=$(attach "$uri")
mount $device $work/mnt
cat $work/mnt/second
attach --detach $device
kill $server
wait $server
echo "$device was used"
"#;

#[test]
fn the_commands_for_a_kernel_with_nbd_work() {
    let page = Page::read();
    let blocks = page.of("sh guest");
    let [attach, again] = blocks[..] else { panic!("{} blocks for a kernel with nbd", blocks.len()) };
    let Some((guest, programs)) = machine() else { return };
    let script = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/attach")).unwrap();
    let mut agent = guest.spawn().unwrap();
    let path = format!("export PATH={}:$PATH\nattach=$1", programs.display());
    let text = [&path, page.beginning().as_str(), attach, BEFORE, again, AFTER].join("\n");
    let ran = agent.tool(&["bash", "-euo", "pipefail", "-c", &text, "by-hand", &script], IN_GUEST).unwrap();
    assert_eq!(ran.code, Some(0), "-- stdout\n{}\n-- stderr\n{}", ran.stdout, ran.stderr);
    let sentences =
        ["synced before the first cut", "synced before the second cut", "generation 3", "/dev/nbd0 was used"];
    for sentence in sentences {
        assert!(ran.stdout.contains(sentence), "{sentence} is not in\n{}", ran.stdout);
    }
    agent.quit(serve_support::LIMIT).unwrap();
}

/// A guest with the program and a shell, and the folder that the program is in; a skip with its reason where that can't be.
fn machine() -> Option<(Guest, PathBuf)> {
    const SHELL: &[&str] = &[
        "bash", "mktemp", "mkdir", "cat", "rm", "sleep", "sync", "id", "cut", "tac", "awk", "mount", "umount",
        "nbdinfo",
    ];
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("by-hand");
    let made = || -> Result<Guest, GuestError> {
        let kernel = Kernel::debian("6.1", &cache_folder(None)?)?;
        let mut setup = GuestSetup::with_agent(kernel, "ext4", common::static_agent(), cache_folder(None)?);
        setup.tools.push(stripped(&folder));
        setup.tools.extend(SHELL.iter().map(ToString::to_string));
        setup.memory_mib = 1536;
        Guest::prepare(setup)
    };
    match made() {
        Ok(guest) => Some((guest, folder)),
        Err(GuestError::Missing(reason)) => {
            println!("SKIPPED: {reason}.");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// The program without what only debuggers read: each megabyte of a guest's image costs time.
fn stripped(folder: &Path) -> String {
    std::fs::create_dir_all(folder).unwrap();
    let to = folder.join("powerfail");
    let ran = Command::new("strip").arg("-o").arg(&to).arg(env!("CARGO_BIN_EXE_powerfail")).status();
    if !ran.is_ok_and(|status| status.success()) {
        std::fs::copy(env!("CARGO_BIN_EXE_powerfail"), &to).unwrap();
    }
    to.display().to_string()
}
