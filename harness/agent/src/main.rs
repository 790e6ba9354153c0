//! The agent as a program of its own, for guests and for tests.

use std::process::ExitCode;

fn main() -> ExitCode {
    powerfail_agent::main(std::env::args_os().skip(1))
}
