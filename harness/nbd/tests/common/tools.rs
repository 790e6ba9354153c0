//! Other people's clients, run as they are.

use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

/// What a tool said.
#[derive(Debug)]
pub struct Said {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Said {
    /// It must have succeeded.
    #[track_caller]
    pub fn ok(self) -> String {
        assert_eq!(self.code, 0, "{self:?}");
        self.out
    }
}

/// Whether the tool is here; says loudly if not.
pub fn here(tool: &str, package: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found =
        std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]).any(|dir| dir.join(tool).is_file());
    if !found {
        eprintln!("SKIPPED: {tool} is missing; install {package}");
    }
    found
}

/// Runs a tool to its end, for half a minute at most.
pub async fn run(tool: &str, arguments: &[&str]) -> Said {
    let mut command = command(tool);
    command.args(arguments).stdin(Stdio::null()).kill_on_drop(true);
    let ended = tokio::time::timeout(Duration::from_secs(30), command.output()).await;
    let output = ended.unwrap_or_else(|_| panic!("{tool} {arguments:?} hangs")).expect("it runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Said { code: output.status.code().unwrap_or(-1), out: text(&output.stdout), err: text(&output.stderr) }
}

/// A tool, found where administrators' tools are too.
pub fn command(tool: &str) -> Command {
    let mut command = Command::new(tool);
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/sbin:/sbin"));
    command
}
