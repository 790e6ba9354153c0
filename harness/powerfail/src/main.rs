//! `powerfail`: the table of contents is [`powerfail::verbs`].

use std::process::ExitCode;

use clap::Parser;
use powerfail::bench::floor;
use powerfail::cli::Cli;
use powerfail::verbs;

fn main() -> ExitCode {
    // These two are the program as its own child; they make namespaces, so they come before any thread does.
    let mut words = std::env::args_os().skip(1);
    match words.next().as_deref().and_then(|word| word.to_str()) {
        Some("agent") => return powerfail_agent::main(words),
        Some("floor") => return floor::main(words),
        _ => {}
    }
    let cli = Cli::parse();
    match verbs::act(cli) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("powerfail: {error:#}");
            ExitCode::from(verbs::exit_code(&error))
        }
    }
}
