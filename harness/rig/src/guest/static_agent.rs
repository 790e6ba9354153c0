//! Finding the agent that runs in guests: a static binary, for there are no libraries for it there.

use std::fs;
use std::path::{Path, PathBuf};

use super::GuestError;

/// The environment variable that names it.
const VARIABLE: &str = "POWERFAIL_GUEST_AGENT";
/// Its name next to the program.
const NAME: &str = "powerfail-agent-static";

const HOW: &str = "build it with RUSTFLAGS='-C target-feature=+crt-static -C strip=symbols' cargo build --release -p powerfail-agent \
                   --target x86_64-unknown-linux-gnu --target-dir target/static";

/// Finds it: `asked`, else by `POWERFAIL_GUEST_AGENT`, else next to this program as `powerfail-agent-static`, else where
/// the build that the error names has put it.
///
/// # Errors
/// It is nowhere, or what is there is no static program.
pub fn find(asked: Option<&Path>) -> Result<PathBuf, GuestError> {
    let named = asked.map(Path::to_path_buf).or_else(|| std::env::var_os(VARIABLE).map(PathBuf::from));
    if let Some(path) = named {
        check(&path)?;
        return Ok(path);
    }
    let program = std::env::current_exe().unwrap_or_default();
    let near: Vec<PathBuf> = program
        .ancestors()
        .skip(1)
        .take(3)
        .flat_map(|folder| [folder.join(NAME), folder.join("static/x86_64-unknown-linux-gnu/release/powerfail-agent")])
        .collect();
    let Some(path) = near.into_iter().find(|path| path.is_file()) else {
        let text = format!(
            "there is no static agent for guests: {HOW}, and name it in {VARIABLE} or put it next to the program as {NAME}"
        );
        return Err(GuestError::Missing(text));
    };
    check(&path)?;
    Ok(path)
}

fn check(path: &Path) -> Result<(), GuestError> {
    let bytes = fs::read(path).map_err(|e| GuestError::failed(format!("read the agent {}", path.display()), e))?;
    let elf = goblin::elf::Elf::parse(&bytes)
        .map_err(|e| GuestError::failed(format!("read the agent {}", path.display()), e))?;
    // A static program that can be loaded anywhere has no interpreter either.
    if elf.interpreter.is_none() && elf.libraries.is_empty() {
        return Ok(());
    }
    Err(GuestError::Missing(format!("{} is not a static program and can't run in a guest: {HOW}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_needs_libraries_is_refused_with_how_to_build_another() {
        let this = std::env::current_exe().unwrap();
        let error = find(Some(&this)).unwrap_err();
        assert!(error.to_string().contains("crt-static"), "{error}");
        assert!(find(Some(Path::new("/no/such/agent"))).is_err());
    }
}
