//! Real ext4 on loop devices over memory files.

mod common;

use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use common::*;
use powerfail_rig::protocol::{Command, Event, Log};
use powerfail_rig::workdir::Workdir;
use powerfail_rig::{Agent, Asked, LinkError, MountOutcome, RunOutcome};

#[test]
fn a_memory_file_is_made_mounted_worked_on_checked_and_used_again() {
    if !ready(&["mkfs.ext4", "e2fsck"]) {
        return;
    }
    let folder = Workdir::make().unwrap();
    let image = memory(64 * MIB);
    let mut agent = spawn(&folder, &[&image]);
    assert!(agent.hello().namespaced);

    let attached = agent.attach_image(0, 64 * MIB, LIMIT).unwrap();
    assert_eq!((attached.write_cache.as_str(), attached.direct_io), ("write back", false));
    mkfs(&mut agent);
    assert_eq!(mount(&mut agent).lost, 0);

    let mut marks = Vec::new();
    let outcome = agent.run(&small(40), LIMIT, |label| marks.push(label.to_string())).unwrap();
    let RunOutcome::Done { summary, .. } = outcome else { panic!("{outcome:?}") };
    let steps: u64 = summary.workers.iter().map(|worker| worker.steps).sum();
    assert_eq!(marks.len() as u64, steps + 1, "one mark a step, and one for the directories");
    assert_eq!(marks[0], "w0 s0 ok");
    agent.sync(LIMIT).unwrap();
    let (seen, _) = agent.observe(LIMIT).unwrap();
    assert!(seen.errors.is_empty() && seen.entries.len() > 10, "{} entries", seen.entries.len());
    unmount(&mut agent);
    fsck(&mut agent);
    agent.detach(LIMIT).unwrap();

    // What the kernel wrote is in the file; and what is put there now is what the kernel sees next, not a cache.
    let mut magic = [0; 2];
    image.read_exact_at(&mut magic, 1024 + 56).unwrap();
    assert_eq!(magic, [0x53, 0xEF]);
    image.set_len(0).unwrap();
    image.set_len(64 * MIB).unwrap();
    agent.attach_image(0, 64 * MIB, LIMIT).unwrap();
    let outcome = agent.mount("ext4", "", LIMIT, LIMIT).unwrap();
    assert!(matches!(outcome, MountOutcome::Refused { errno: 22, .. }), "{outcome:?}");
    mkfs(&mut agent);
    mount(&mut agent);
    let (seen, _) = agent.observe(LIMIT).unwrap();
    assert!(seen.entries.iter().all(|entry| entry.path == "lost+found"), "{:?}", seen.entries);
    unmount(&mut agent);
    fsck(&mut agent);
    agent.detach(LIMIT).unwrap();
    agent.quit(LIMIT).unwrap();
}

#[test]
fn four_agents_mount_at_a_time_and_hear_only_of_their_own_device() {
    if !ready(&["mkfs.ext4", "e2fsck", "debugfs"]) {
        return;
    }
    let folder = Workdir::make().unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let image = memory(32 * MIB);
                let mut agent = spawn(&folder, &[&image]);
                for _ in 0..5 {
                    mount_and_break(&mut agent);
                }
                agent.quit(LIMIT).unwrap();
            });
        }
    });
}

/// Once in good order, without a word of anybody's troubles; then with a broken journal, of which recovery complains
/// in one line that names no device.
fn mount_and_break(agent: &mut Agent) {
    let attached = agent.attach_image(0, 32 * MIB, LIMIT).unwrap();
    let own = format!("({})", attached.device.strip_prefix("/dev/").unwrap());
    let nameless = |log: &Log| log.lines.iter().filter(|line| line.text.starts_with("JBD2:")).count();
    let foreign = |log: &Log| log.lines.iter().any(|line| line.text.contains("(loop") && !line.text.contains(&own));
    mkfs(agent);
    let log = mount(agent);
    assert!(nameless(&log) == 0 && !foreign(&log), "{own}: {log:?}");
    unmount(agent);
    fsck(agent);
    break_journal(agent);
    let outcome = agent.mount("ext4", "", LIMIT, LIMIT).unwrap();
    let MountOutcome::Refused { log, .. } = outcome else { panic!("{outcome:?}") };
    assert!(nameless(&log) == 1 && !foreign(&log), "{own}: {log:?}");
    assert!(log.lines.iter().any(|line| line.names_device && line.text.contains(&own)), "{own}: {log:?}");
    agent.detach(LIMIT).unwrap();
}

/// The first block of the journal's inode is the journal's superblock.
fn break_journal(agent: &mut Agent) {
    let ran = agent.tool(&["debugfs", "-w", "-R", "zap_block -f <8> 0", "{device}"], LIMIT).unwrap();
    assert_eq!(ran.code, Some(0), "{ran:?}");
}

#[test]
fn a_refused_mount_carries_the_lines_of_this_very_mount() {
    if !ready(&["mkfs.ext4", "debugfs"]) {
        return;
    }
    let folder = Workdir::make().unwrap();
    let (image, other_image) = (memory(32 * MIB), memory(32 * MIB));
    let mut agent = spawn(&folder, &[&image]);
    let mut other = spawn(&folder, &[&other_image]);
    let attached = agent.attach_image(0, 32 * MIB, LIMIT).unwrap();
    let theirs = other.attach_image(0, 32 * MIB, LIMIT).unwrap();
    mkfs(&mut agent);
    mkfs(&mut other);
    break_journal(&mut agent);
    mount(&mut other);
    std::fs::write("/dev/kmsg", format!("<3>EXT4-fs error ({}): said by a program, not the kernel", attached.device))
        .unwrap();

    let outcome = agent.mount("ext4", "", LIMIT, LIMIT).unwrap();
    let MountOutcome::Refused { log, message, .. } = outcome else { panic!("{outcome:?}") };
    assert!(!message.is_empty());
    let texts: Vec<&str> = log.lines.iter().map(|line| line.text.as_str()).collect();
    let name = attached.device.strip_prefix("/dev/").unwrap();
    let their_name = theirs.device.strip_prefix("/dev/").unwrap();
    assert!(texts.iter().any(|text| text.starts_with("EXT4-fs") && text.contains(name)), "{texts:?}");
    assert!(texts.iter().any(|text| text.starts_with("JBD2:")), "a line without a device: {texts:?}");
    assert!(!texts.iter().any(|text| text.contains(their_name) || text.contains("said by a program")), "{texts:?}");
    let later = agent.kernel_log(LIMIT).unwrap();
    assert!(later.lines.iter().all(|line| !log.lines.contains(line)), "handed over once: {later:?}");
    unmount(&mut other);
}

#[test]
fn too_late_kills_the_agent_and_all_it_has() {
    if !ready(&["mkfs.ext4"]) {
        return;
    }
    let folder = Workdir::make().unwrap();
    let image = memory(32 * MIB);
    let mut agent = spawn(&folder, &[&image]);
    let attached = agent.attach_image(0, 32 * MIB, LIMIT).unwrap();
    mkfs(&mut agent);
    mount(&mut agent);
    let slow = agent.tool(&["sleep", "1000"], Duration::from_millis(100)).unwrap();
    assert!(slow.timed_out, "a tool's own deadline ends the tool alone: {slow:?}");

    let namespace = namespace_of(agent.pid());
    let command = Command::Tool { argv: vec!["sleep".into(), "1000".into()], deadline_ms: 1_000_000 };
    let started = Instant::now();
    let error = agent.call(&command, Duration::from_millis(200)).unwrap_err();
    assert!(matches!(error, LinkError::Deadline { .. }), "{error}");
    assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());
    // Already now, not some time later: the image may be written again.
    assert_eq!(remains(namespace, &folder.agents(), &attached.tag), Vec::<String>::new());
    let again = agent.call(&Command::Hello, LIMIT).unwrap_err();
    assert!(matches!(again, LinkError::Died { .. }), "{again}");
}

/// A mount namespace that was copied while the file system was mounted keeps it alive after its unmount.
#[test]
fn a_copy_of_the_mount_in_a_foreign_namespace_is_noticed() {
    if !ready(&["mkfs.ext4", "unshare"]) {
        return;
    }
    let folder = Workdir::make().unwrap();
    let image = memory(32 * MIB);
    let mut agent = spawn(&folder, &[&image]);
    let attached = agent.attach_image(0, 32 * MIB, LIMIT).unwrap();
    mkfs(&mut agent);
    mount(&mut agent);
    // Returns when the copy is made, and leaves it behind.
    let held = folder.agents().join("held").display().to_string();
    let copy = format!("unshare -m sh -c 'touch {held}; exec sleep 1000' & while [ ! -e {held} ]; do :; done");
    let ran = agent.tool(&["sh", "-c", &copy], LIMIT).unwrap();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    match agent.unmount(LIMIT) {
        Err(Asked::Failed(failure)) => assert!(failure.reason.contains("a file system is still on it"), "{failure}"),
        other => panic!("{other:?}"),
    }
    let namespace = namespace_of(agent.pid());
    agent.kill().unwrap();
    assert_eq!(remains(namespace, &folder.agents(), &attached.tag), Vec::<String>::new());
}

#[test]
fn an_agent_outlives_the_thread_that_started_it_and_dies_with_its_guard() {
    if !ready(&[]) {
        return;
    }
    let folder = Workdir::make().unwrap();
    let image = memory(8 * MIB);
    let mut agent = std::thread::scope(|scope| scope.spawn(|| spawn(&folder, &[&image])).join().unwrap());
    let attached = agent.attach_image(0, 8 * MIB, LIMIT).unwrap();
    let namespace = namespace_of(agent.pid());
    drop(agent);
    assert_eq!(remains(namespace, &folder.agents(), &attached.tag), Vec::<String>::new());
}

#[test]
fn wrong_commands_are_failures_and_the_agent_lives_on() {
    if !ready(&["mkfs.ext4"]) {
        return;
    }
    let folder = Workdir::make().unwrap();
    let image = memory(32 * MIB);
    let mut agent = spawn(&folder, &[&image]);
    let failed = |result: Result<Event, LinkError>| match result.unwrap() {
        Event::Failed(failure) => failure.to_string(),
        other => panic!("{other:?}"),
    };
    assert_eq!(failed(agent.call(&Command::Unmount, LIMIT)), "unmount: nothing is mounted");
    assert_eq!(failed(agent.call(&Command::Detach, LIMIT)), "detach: no device is attached");
    assert!(agent.tool(MKFS, LIMIT).is_err());
    assert!(agent.mount("ext4", "", LIMIT, LIMIT).is_err());
    assert!(agent.attach_image(1, 32 * MIB, LIMIT).is_err(), "only one image was handed over");
    assert!(agent.attach_image(0, 64 * MIB, LIMIT).is_err(), "larger than its file");
    assert!(agent.attach_image(0, 1000, LIMIT).is_err(), "no multiple of a sector");

    agent.attach_image(0, 32 * MIB, LIMIT).unwrap();
    let mut second = spawn(&folder, &[&image]);
    match second.attach_image(0, 32 * MIB, LIMIT) {
        Err(Asked::Failed(failure)) => assert!(failure.reason.contains("behind /dev/loop"), "{failure}"),
        other => panic!("{other:?}"),
    }
    mkfs(&mut agent);
    assert!(matches!(agent.mount("no-such-fs", "", LIMIT, LIMIT), Ok(MountOutcome::Refused { errno: 19, .. })));
    mount(&mut agent);
    assert_eq!(failed(agent.call(&Command::Detach, LIMIT)), "detach: a file system is still mounted");
    agent.quit(LIMIT).unwrap();
    second.attach_image(0, 32 * MIB, LIMIT).unwrap();
    second.quit(LIMIT).unwrap();
}

#[test]
fn an_agent_that_cannot_start_says_why() {
    if !ready(&[]) {
        return;
    }
    let folder = Workdir::make().unwrap();
    let setup = powerfail_rig::AgentSetup {
        program: env!("CARGO_BIN_EXE_powerfail-agent").into(),
        arguments: vec!["--frob".into()],
        folder: folder.agents(),
        images: Vec::new(),
    };
    let error = Agent::spawn(&setup).unwrap_err().to_string();
    assert!(error.contains("unknown argument --frob"), "{error}");
}

#[test]
fn the_doctor_finds_this_machine_fit() {
    if !ready(&["nbdfuse", "mkfs.ext4", "e2fsck", "dumpe2fs"]) {
        return;
    }
    let probes = powerfail_rig::doctor::probe_host_loop(env!("CARGO_BIN_EXE_powerfail-agent").as_ref(), &[]);
    let broken: Vec<_> = probes.iter().filter(|probe| probe.required && !probe.works()).collect();
    assert!(broken.is_empty(), "{broken:?}");
}
