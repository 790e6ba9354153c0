//! The program around a served drive: what it refuses, how it ends, what a killed one leaves.

mod serve_support;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use serve_support::{LIMIT, Next, Raw, Served, program, run, within};

#[test]
fn what_can_not_be_served_is_refused_with_what_to_say_instead() {
    let folder = tempfile::tempdir().unwrap();
    let full = folder.path().join("full");
    std::fs::create_dir_all(full.join("something")).unwrap();
    let full = full.to_str().unwrap();
    let cases: [(&[&str], &str); 8] = [
        (&["--size", "1000"], "512-byte sectors"),
        (&["--atomic", "1024"], "512 or 4096"),
        (&["--cache", "512"], "--write-cache off"),
        (&["--cache-policy", "lifo"], "fifo, elevator and random"),
        (&["--hold", "100000"], "at most 4096"),
        (&["--listen", "0.0.0.0:0"], "--anywhere"),
        (&["--record", full], "not empty"),
        (&["--unix", full], "not a socket"),
    ];
    for (words, sentence) in cases {
        let said = run(program().arg("serve").args(words)).expect(2);
        assert!(said.err.contains(sentence), "{words:?}: {}", said.err);
        assert_eq!(said.out, "");
    }
    assert_eq!(std::fs::read_dir(full).unwrap().count(), 1, "what was there is left alone");
    let nobody = folder.path().join("nobody");
    let said = run(program().args(["ctl", "status", "--control"]).arg(&nobody)).expect(2);
    assert!(said.err.contains("no `powerfail serve` listens there"), "{}", said.err);
}

#[test]
fn requests_that_make_no_sense_are_refused_one_by_one() {
    let served = Served::start(&["--size", "1M"]);
    assert!(served.refused(&["mark", "mounted"]).contains("meaning of its own"));
    assert!(served.refused(&["mark", &"x".repeat(401)]).contains("at most 400"));
    assert!(served.refused(&["restore"]).contains("the power is on"));
    let there = served.file("there");
    std::fs::write(&there, "mine").unwrap();
    for verb in ["snapshot", "export"] {
        assert!(served.refused(&[verb, &there]).contains("is there already"));
    }
    assert_eq!(std::fs::read(&there).unwrap(), b"mine");

    let mut control = UnixStream::connect(served.control()).unwrap();
    control.set_read_timeout(Some(LIMIT)).unwrap();
    let mut answers = BufReader::new(control.try_clone().unwrap());
    let lines: [(&str, &str); 6] = [
        ("nonsense", "this is no request"),
        (r#"{"verb": "explode"}"#, "this is no request"),
        (r#"{"verb": "cut", "style": "soft"}"#, "this is no request"),
        (r#"{"verb": "cut", "sede": 3}"#, "this is no request"),
        (r#"{"verb": "snapshot", "file": "relative"}"#, "not an absolute path"),
        (r#"{"verb": "status"}"#, ""),
    ];
    for (line, sentence) in lines {
        control.write_all(format!("{line}\n").as_bytes()).unwrap();
        let mut answer = String::new();
        answers.read_line(&mut answer).unwrap();
        let answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
        assert_eq!(answer["ok"], sentence.is_empty(), "{line}: {answer}");
        assert!(answer["error"].as_str().unwrap_or("").contains(sentence), "{line}: {answer}");
    }
    // A line without end is given up, and the next client is served.
    let _ = control.write_all(&vec![b'x'; 100 << 10]);
    let mut answer = String::new();
    answers.read_line(&mut answer).unwrap();
    assert!(answer.contains("at most 65536 bytes"), "{answer}");
    assert_eq!(served.done(&["status"])["power"], "on");
    served.end();
}

#[test]
fn it_ends_in_good_order() {
    let folder = tempfile::tempdir().unwrap();
    let record = folder.path().join("record");
    let served = Served::start(&["--size", "1M", "--record", record.to_str().unwrap()]);
    let mut raw = Raw::attached(&served.socket());
    raw.write(1, 0, &[1; 4096]);
    // SIGTERM comes while the host is connected and may still have an answer to get.
    let (socket, control) = (served.socket(), served.control());
    let _folder = served.end();
    assert_eq!(raw.next(LIMIT), Next::Reply(1, 0));
    assert_eq!(raw.next(LIMIT), Next::End);
    assert!(!socket.exists() && !control.exists());
    assert!(!record.join("1/recording.part").exists());
    let said = run(program().args(["recording", "show", "--json"]).arg(record.join("1"))).expect(0);
    let shown: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(shown["counts"]["writes"], 1);
}

/// Folders below the runtime folder that belong to a process.
fn own_folders(pid: u32) -> Vec<PathBuf> {
    let root = rustix::process::geteuid().is_root();
    let below = if root { "/run".into() } else { std::env::var("XDG_RUNTIME_DIR").unwrap_or("/tmp".into()) };
    let prefix = format!("powerfail-{pid}-");
    let entries = std::fs::read_dir(below).unwrap().flatten();
    entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix)).map(|e| e.path()).collect()
}

#[test]
fn a_killed_server_is_in_nobodys_way() {
    let served = Served::start(&["--size", "1M"]);
    let first = served.pid();
    assert_eq!(own_folders(first).len(), 1);
    // A living one is not pushed aside, whichever socket it is.
    for (socket, other) in [("--unix", "--control"), ("--control", "--unix")] {
        let path = if socket == "--unix" { served.socket() } else { served.control() };
        let said = run(program().arg("serve").arg(socket).arg(path).arg(other).arg(served.file("other"))).expect(2);
        assert!(said.err.contains("already listens"), "{}", said.err);
    }
    assert_eq!(served.done(&["status"])["power"], "on");

    let folder = served.kill();
    assert!(folder.path().join("drive.sock").exists() && folder.path().join("control").exists());
    let served = Served::start_in(folder, &["--size", "1M"]);
    Raw::attached(&served.socket()).read(0, 512);
    // Another server that starts at this moment may be the one that removes it.
    assert!(within(LIMIT, || own_folders(first).is_empty()));
    let second = served.pid();
    // The same while the power is off: the socket's file stands for a closed door.
    served.done(&["cut"]);
    let folder = served.kill();
    let served = Served::start_in(folder, &["--size", "1M"]);
    Raw::attached(&served.socket()).read(0, 512);
    // Another server that starts at this moment may be the one that removes it.
    assert!(within(LIMIT, || own_folders(second).is_empty()));
    let third = served.pid();
    served.end();
    assert!(within(LIMIT, || own_folders(third).is_empty()));
}

#[test]
fn a_port_is_closed_without_power_and_the_same_afterwards() {
    let served = Served::start(&["--size", "1M", "--listen", "127.0.0.1:0", "--export", "one"]);
    let address = served.uri.strip_prefix("nbd://").unwrap().strip_suffix("/one").unwrap().to_owned();
    let connect = || std::net::TcpStream::connect(&address);
    drop(connect().unwrap());
    served.done(&["cut"]);
    assert_eq!(connect().unwrap_err().kind(), std::io::ErrorKind::ConnectionRefused);
    served.restore();
    drop(connect().unwrap());
    served.end();
}
