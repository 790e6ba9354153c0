//! Real ext4 on nbdfuse + loop over a real NBD server that is not ours.

mod common;

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use common::*;
use powerfail_rig::workdir::Workdir;
use powerfail_rig::{Asked, RunOutcome};

const TOOLS: &[&str] = &["nbdfuse", "nbdkit", "mkfs.ext4", "e2fsck"];

#[test]
fn an_export_is_made_mounted_worked_on_and_given_back_twice() {
    if !ready(TOOLS) {
        return;
    }
    let folder = Workdir::make().unwrap();
    let log = folder.path().join("requests.log");
    let logfile = format!("logfile={}", log.display());
    let server = Server::start(folder.path(), "nbd.sock", &["--filter=log", "memory", "256M", &logfile]);
    let mut agent = spawn(&folder, &[]);
    for round in 0..2 {
        let attached = agent.attach_nbd(&server.socket, LIMIT).unwrap();
        assert_eq!((attached.write_cache.as_str(), attached.fua, attached.direct_io), ("write back", false, true));
        if round == 0 {
            mkfs(&mut agent);
        }
        mount(&mut agent);
        if round == 0 {
            let outcome = agent.run(&small(20), LIMIT, |_| ()).unwrap();
            assert!(matches!(outcome, RunOutcome::Done { .. }), "{outcome:?}");
        } else {
            // The same export, attached anew, holds what the first round wrote.
            let (seen, _) = agent.observe(LIMIT).unwrap();
            assert!(seen.errors.is_empty() && seen.entries.len() > 10, "{} entries", seen.entries.len());
        }
        unmount(&mut agent);
        fsck(&mut agent);
        agent.detach(LIMIT).unwrap();
    }
    agent.quit(LIMIT).unwrap();
    let requests = fs::read_to_string(&log).unwrap();
    assert!(requests.lines().any(|line| line.contains(" Flush ")), "no flush arrived:\n{requests}");
}

#[test]
fn a_dead_server_gives_errors_and_everything_can_be_undone() {
    if !ready(TOOLS) {
        return;
    }
    let folder = Workdir::make().unwrap();
    let mut server = Server::start(folder.path(), "nbd.sock", &["memory", "256M"]);
    let mut agent = spawn(&folder, &[]);
    let attached = agent.attach_nbd(&server.socket, LIMIT).unwrap();
    mkfs(&mut agent);
    mount(&mut agent);
    let started = Instant::now();
    // In the middle of the workload: the marks tell that it is under way.
    let mut marks = 0;
    let outcome = agent.run(&small(100_000), LIMIT, |_| {
        marks += 1;
        if marks == 100 {
            server.kill();
        }
    });
    let outcome = outcome.unwrap();
    let (RunOutcome::Done { log, .. } | RunOutcome::Failed { log, .. }) = outcome;
    assert!(log.lines.iter().any(|line| line.names_device), "the kernel says that its disk is gone");
    match agent.sync(LIMIT) {
        // The file system may have shut down already, and then has nothing to sync.
        Ok(_) => {}
        // EIO, EROFS, or ESHUTDOWN, by how far its shutdown has come.
        Err(Asked::Failed(failure)) => assert!(matches!(failure.errno, Some(5 | 30 | 108)), "{failure}"),
        Err(e) => panic!("{e}"),
    }
    unmount(&mut agent);
    let said = agent.detach(LIMIT).unwrap();
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}, {said}", started.elapsed());

    // The same agent goes on with another server.
    let server = Server::start(folder.path(), "second.sock", &["memory", "64M"]);
    agent.attach_nbd(&server.socket, LIMIT).unwrap();
    mkfs(&mut agent);
    let namespace = namespace_of(agent.pid());
    agent.quit(LIMIT).unwrap();
    assert_eq!(remains(namespace, &folder.agents(), &attached.tag), Vec::<String>::new());
}

#[test]
fn no_server_is_a_failure_with_what_nbdfuse_said() {
    if !ready(TOOLS) {
        return;
    }
    let folder = Workdir::make().unwrap();
    let mut agent = spawn(&folder, &[]);
    match agent.attach_nbd(Path::new("/run/no/such socket"), LIMIT) {
        Err(Asked::Failed(failure)) => assert!(failure.reason.contains("No such file"), "{failure}"),
        other => panic!("{other:?}"),
    }
    agent.quit(LIMIT).unwrap();
}

#[test]
fn a_killed_agent_leaves_nothing_whether_its_server_lives_or_not() {
    if !ready(TOOLS) {
        return;
    }
    for alive in [true, false] {
        let folder = Workdir::make().unwrap();
        let mut server = Server::start(folder.path(), "nbd.sock", &["memory", "64M"]);
        let mut agent = spawn(&folder, &[]);
        let attached = agent.attach_nbd(&server.socket, LIMIT).unwrap();
        mkfs(&mut agent);
        mount(&mut agent);
        agent.run(&small(20), LIMIT, |_| ()).unwrap();
        let namespace = namespace_of(agent.pid());
        if !alive {
            server.kill();
        }
        let started = Instant::now();
        agent.kill().unwrap();
        assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
        assert_eq!(remains(namespace, &folder.agents(), &attached.tag), Vec::<String>::new());
    }
}
