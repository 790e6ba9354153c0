//! What the tests of `powerfail serve` share: a served drive, tools run within deadlines, a client that says exactly the
//! bytes that it is told to.
#![allow(dead_code, reason = "each test program uses a part")]

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// For anything that a tool or the server does in these tests; none takes a tenth of it on an idle machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// For a whole page of commands, on a busy machine.
const PAGE: Duration = Duration::from_secs(240);

/// Whether a tool is here; says so if not.
pub(crate) fn here(tool: &str, package: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    let found = folders.into_iter().any(|folder| folder.join(tool).is_file());
    if !found {
        println!("SKIPPED: {tool} is missing; install {package}");
    }
    found
}

/// Whether this machine can mount a drive with nbdfuse; says so if not.
pub(crate) fn can_mount() -> bool {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: mounts and loop devices need root");
        return false;
    }
    for needed in ["/dev/fuse", "/dev/loop-control"] {
        if !Path::new(needed).exists() {
            println!("SKIPPED: there is no {needed} on this machine");
            return false;
        }
    }
    here("nbdfuse", "libnbd-bin") && here("nbdinfo", "libnbd-bin") && here("mkfs.ext4", "e2fsprogs")
}

/// The program.
pub(crate) fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_powerfail"))
}

/// What a tool said.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) status: ExitStatus,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Said {
    /// It must have ended with this code.
    #[track_caller]
    pub(crate) fn expect(self, code: i32) -> Said {
        assert_eq!(self.status.code(), Some(code), "-- stdout\n{}\n-- stderr\n{}", self.out, self.err);
        self
    }
}

/// Runs a command to its end; it dies with this process, and after [`LIMIT`].
pub(crate) fn run(command: &mut Command) -> Said {
    run_within(LIMIT, command)
}

fn run_within(limit: Duration, command: &mut Command) -> Said {
    let (out, err) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
    command.stdin(Stdio::null()).stdout(out.try_clone().unwrap()).stderr(err.try_clone().unwrap());
    let path = std::env::var("PATH").unwrap_or_default();
    let own = Path::new(env!("CARGO_BIN_EXE_powerfail")).parent().unwrap().display().to_string();
    command.env("PATH", format!("{own}:{path}:/usr/sbin:/sbin"));
    let mut child = Guarded(spawn(command));
    let ended = wait(&mut child.0, limit);
    let Some(status) = ended else { panic!("{command:?} hangs; it said {}{}", text(&out), text(&err)) };
    Said { status, out: text(&out), err: text(&err) }
}

/// Runs a tool with words.
pub(crate) fn tool(name: &str, words: &[&str]) -> Said {
    run(Command::new(name).args(words))
}

/// A script of bash, in a mount namespace of its own: no test mount is ever seen by another test's agents.
pub(crate) fn script(text: &str, words: &[&str]) -> Said {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "bash", "-euo", "pipefail", "-c", text, "script"]);
    run_within(PAGE, command.args(words).current_dir(root))
}

fn spawn(command: &mut Command) -> Child {
    // SAFETY: one system call between fork and exec: no allocation, no lock.
    unsafe {
        command.pre_exec(|| Ok(rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?));
    }
    command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

fn wait(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    let mut status = None;
    within(limit, || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    status
}

/// Looks until `look` sees it or the time is over; gives whether it did.
pub(crate) fn within(limit: Duration, mut look: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + limit;
    loop {
        if look() {
            return true;
        }
        if Instant::now() >= end {
            return false;
        }
        // Between two looks; never the proof of anything.
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn text(file: &File) -> String {
    use std::os::unix::fs::FileExt;
    let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A child that does not outlive its guard.
struct Guarded(Child);

impl Drop for Guarded {
    fn drop(&mut self) {
        // It has mostly ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A served drive with its sockets in a folder of the test's.
pub(crate) struct Served {
    child: Guarded,
    pub(crate) folder: tempfile::TempDir,
    pub(crate) uri: String,
    pub(crate) said: Value,
}

impl Served {
    /// Serves with these words beside the sockets'.
    pub(crate) fn start(words: &[&str]) -> Served {
        let folder = tempfile::tempdir().unwrap();
        Served::start_in(folder, words)
    }

    /// The same in a folder that is there.
    pub(crate) fn start_in(folder: tempfile::TempDir, words: &[&str]) -> Served {
        let mut command = program();
        command.arg("serve").arg("--json").arg("--control").arg(folder.path().join("control"));
        if !words.contains(&"--listen") {
            command.arg("--unix").arg(folder.path().join("drive.sock"));
        }
        let mut child = Guarded(spawn(command.args(words).stdin(Stdio::null()).stdout(Stdio::piped())));
        let mut line = String::new();
        BufReader::new(child.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let said: Value = serde_json::from_str(&line).expect("a line of JSON once it serves");
        Served { child, folder, uri: said["uri"].as_str().unwrap().into(), said }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("drive.sock")
    }

    pub(crate) fn control(&self) -> PathBuf {
        self.folder.path().join("control")
    }

    pub(crate) fn file(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().into()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.0.id()
    }

    /// `powerfail ctl`: whether it was done, and the answer.
    pub(crate) fn ctl(&self, words: &[&str]) -> (bool, Value) {
        let said = run(program().arg("ctl").arg("--json").arg("--control").arg(self.control()).args(words));
        let answer: Value = serde_json::from_str(&said.out).unwrap_or_else(|error| panic!("{error}: {said:?}"));
        assert_eq!(said.status.code(), Some(if answer["ok"] == true { 0 } else { 1 }), "{said:?}");
        (answer["ok"] == true, answer)
    }

    /// The same, which must be done.
    #[track_caller]
    pub(crate) fn done(&self, words: &[&str]) -> Value {
        let (done, answer) = self.ctl(words);
        assert!(done, "{words:?}: {answer}");
        answer
    }

    /// The same, which must be refused; gives the sentence.
    #[track_caller]
    pub(crate) fn refused(&self, words: &[&str]) -> String {
        let (done, answer) = self.ctl(words);
        assert!(!done, "{words:?}: {answer}");
        answer["error"].as_str().unwrap().into()
    }

    /// Brings the power back as soon as all hosts have let go.
    pub(crate) fn restore(&self) -> Value {
        let mut answer = Value::Null;
        let restored = within(LIMIT, || {
            let (done, said) = self.ctl(&["restore"]);
            answer = said;
            done
        });
        assert!(restored, "{answer}");
        answer
    }

    /// Whether who connects is refused.
    pub(crate) fn is_closed(&self) -> bool {
        UnixStream::connect(self.socket()).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
    }

    /// What `ctl snapshot` writes.
    pub(crate) fn snapshot(&self) -> Vec<u8> {
        let file = self.file("snapshot.img");
        self.done(&["snapshot", &file]);
        let bytes = std::fs::read(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        bytes
    }

    /// Ends it with SIGTERM; it must end well. Gives the folder.
    pub(crate) fn end(mut self) -> tempfile::TempDir {
        kill_process(Pid::from_child(&self.child.0), Signal::TERM).unwrap();
        let status = wait(&mut self.child.0, LIMIT).expect("it ends");
        assert_eq!(status.code(), Some(0));
        self.folder
    }

    /// Kills it.
    pub(crate) fn kill(mut self) -> tempfile::TempDir {
        self.child.0.kill().unwrap();
        self.child.0.wait().unwrap();
        self.folder
    }
}

pub(crate) const READ: u16 = 0;
pub(crate) const WRITE: u16 = 1;
pub(crate) const FLUSH: u16 = 3;
pub(crate) const EIO: u32 = 5;

/// A connection in the transmission phase, with simple replies.
pub(crate) struct Raw(pub(crate) UnixStream);

/// What comes next on a connection.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// A simple reply: cookie and error number.
    Reply(u64, u32),
    /// The server has ended the connection.
    End,
    /// Nothing came in time.
    Silence,
}

impl Raw {
    /// Connects, takes the greeting, says that it speaks fixed newstyle and wants no zeroes.
    pub(crate) fn greeted(socket: &Path) -> Raw {
        let mut stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting).unwrap();
        stream.write_all(&3u32.to_be_bytes()).unwrap();
        Raw(stream)
    }

    /// The same and chooses the default export.
    pub(crate) fn attached(socket: &Path) -> Raw {
        let mut raw = Raw::greeted(socket);
        raw.ask_for_export();
        // NBD_REP_INFO with 12 bytes, NBD_REP_ACK.
        raw.0.read_exact(&mut [0; 20 + 12 + 20]).unwrap();
        raw
    }

    /// NBD_OPT_GO of the default export, without its answer.
    pub(crate) fn ask_for_export(&mut self) {
        let mut option = b"IHAVEOPT".to_vec();
        option.extend(7u32.to_be_bytes());
        option.extend(6u32.to_be_bytes());
        option.extend([0; 6]);
        self.0.write_all(&option).unwrap();
    }

    pub(crate) fn send(&mut self, command: u16, cookie: u64, offset: u64, length: u32, data: &[u8]) {
        let mut bytes = 0x2560_9513u32.to_be_bytes().to_vec();
        bytes.extend(0u16.to_be_bytes());
        bytes.extend(command.to_be_bytes());
        bytes.extend(cookie.to_be_bytes());
        bytes.extend(offset.to_be_bytes());
        bytes.extend(length.to_be_bytes());
        bytes.extend(data);
        self.0.write_all(&bytes).unwrap();
    }

    pub(crate) fn write(&mut self, cookie: u64, offset: u64, data: &[u8]) {
        self.send(WRITE, cookie, offset, data.len() as u32, data);
    }

    /// The next reply, of a request without data.
    pub(crate) fn next(&mut self, limit: Duration) -> Next {
        self.0.set_read_timeout(Some(limit)).unwrap();
        let mut reply = [0; 16];
        match self.0.read(&mut reply) {
            Ok(0) => return Next::End,
            Ok(got) => self.0.read_exact(&mut reply[got..]).unwrap(),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Next::Silence,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return Next::End,
            Err(error) => panic!("{error}"),
        }
        assert_eq!(reply[..4], 0x6744_6698u32.to_be_bytes());
        let errno = u32::from_be_bytes(reply[4..8].try_into().unwrap());
        Next::Reply(u64::from_be_bytes(reply[8..].try_into().unwrap()), errno)
    }

    /// Reads, which must succeed.
    pub(crate) fn read(&mut self, offset: u64, length: u32) -> Vec<u8> {
        self.send(READ, 1, offset, length, &[]);
        assert_eq!(self.next(LIMIT), Next::Reply(1, 0));
        let mut data = vec![0; length as usize];
        self.0.read_exact(&mut data).unwrap();
        data
    }
}
