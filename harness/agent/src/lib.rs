//! The agent: the small program on the rig that attaches a drive, makes and mounts a file system on it, tortures it,
//! observes what is there, and undoes it all.
//!
//! [`protocol`] is what it understands and answers; [`main`] is the whole program, which the static binary
//! `powerfail-agent` (for guests) and the hidden subcommand `powerfail agent` (for host rigs) share.
//!
//! ```text
//! main -> namespaces (leash | agent), or in a guest: guest (init | agent) -> serve: one command, one event
//!           attach  nbdfuse + loop, a loop over a handed-over image, or nbd-client and the kernel's nbd
//!           tool    mkfs, fsck, dumpe2fs ... within a deadline
//!           mount   mount(2) under the machine's lock, with the kernel's lines of that time (kernel_log, attribution)
//!           supervised  mount(2) and the walk in threads of their own, since the kernel may not come back from them
//!           link    workload -> Mark -> harness -> Ack -> workload
//! ```

pub mod attach;
mod attribution;
pub mod guest;
mod kernel_log;
pub mod leash;
mod link;
mod mount;
mod namespaces;
pub mod protocol;
pub mod serve;
mod supervised;
mod tool;

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::path::PathBuf;
use std::process::ExitCode;

pub use attribution::is_dump;
pub use mount::MOUNT_LOCK;
use protocol::Failure;
use serve::Setup;

/// How the program is called.
pub const USAGE: &str = "usage: powerfail-agent [--namespaces] [--image PATH]... --folder DIR
       powerfail-agent --guest
       powerfail-agent --leash PROGRAM [ARGUMENT]...
  speaks JSON lines on standard input and output; ends, and undoes everything, when its input ends
  --folder DIR   a folder of its own, for mount points
  --image PATH   an image that may be attached by its place in this list
  --namespaces   PID and mount namespaces of its own (needs root); DIR is covered by a tmpfs
  --guest        be the first process of a machine that was made for this: mount, load modules, bring the network up
  --leash        run a program that dies with the parent of this one or with the other end of standard input";

/// The program: `arguments` are those after its name. Must be called before any thread is made.
pub fn main(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let setup = match Arguments::parse(arguments) {
        Ok(Arguments { leash: Some(program), .. }) => {
            return match leash::run(&program) {
                Ok(()) => ExitCode::SUCCESS,
                Err(failure) => complain(&failure),
            };
        }
        Ok(arguments) if arguments.guest => guest::boot(),
        Ok(arguments) => arguments.prepare(),
        Err(reason) => {
            eprintln!("powerfail-agent: {reason}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match setup.and_then(|setup| serve::serve(setup).map_err(|e| Failure::io("talk to the harness", e))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => complain(&failure),
    }
}

fn complain(failure: &Failure) -> ExitCode {
    eprintln!("powerfail-agent: {failure}");
    ExitCode::from(3)
}

#[derive(Debug, Default)]
struct Arguments {
    folder: Option<PathBuf>,
    images: Vec<PathBuf>,
    namespaces: bool,
    guest: bool,
    /// The program and its arguments.
    leash: Option<Vec<OsString>>,
}

impl Arguments {
    fn parse(mut words: impl Iterator<Item = OsString>) -> Result<Arguments, String> {
        let mut arguments = Arguments::default();
        while let Some(word) = words.next() {
            let mut value = |name: &str| words.next().map(PathBuf::from).ok_or(format!("{name} needs a value"));
            match word.to_str() {
                Some("--namespaces") => arguments.namespaces = true,
                Some("--guest") => arguments.guest = true,
                Some("--leash") => arguments.leash = Some(words.by_ref().collect()),
                Some("--folder") => arguments.folder = Some(value("--folder")?),
                Some("--image") => arguments.images.push(value("--image")?),
                _ => return Err(format!("unknown argument {}", word.display())),
            }
        }
        if arguments.folder.is_none() && !arguments.guest && arguments.leash.is_none() {
            return Err("--folder is missing".to_string());
        }
        Ok(arguments)
    }

    fn prepare(self) -> Result<Setup, Failure> {
        // nbdfuse aborts when its server goes away; that is expected and no reason for a core file.
        let no_core = rustix::process::Rlimit { current: Some(0), maximum: Some(0) };
        rustix::process::setrlimit(rustix::process::Resource::Core, no_core)
            .map_err(|e| Failure::io("forbid core files", e))?;
        // Before the namespaces: an image may be a path below the harness's /proc.
        let open = |path: &PathBuf| {
            let file = OpenOptions::new().read(true).write(true).open(path);
            file.map_err(|e| Failure::io(format!("open the image {}", path.display()), e))
        };
        let images = self.images.iter().map(open).collect::<Result<Vec<File>, Failure>>()?;
        let folder = self.folder.unwrap_or_default();
        fs::create_dir_all(&folder).map_err(|e| Failure::io(format!("make {}", folder.display()), e))?;
        let folder = folder.canonicalize().map_err(|e| Failure::io("find the folder", e))?;
        std::env::set_current_dir("/").map_err(|e| Failure::io("go to /", e))?;
        if self.namespaces {
            namespaces::enter(&folder)?;
        }
        Ok(Setup { folder, images, namespaced: self.namespaces, own_machine: false })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Arguments, String> {
        Arguments::parse(words.iter().map(OsString::from))
    }

    #[test]
    fn arguments_are_understood_or_refused_in_words() {
        let arguments = parse(&["--namespaces", "--image", "/a", "--folder", "/d", "--image", "/b"]).unwrap();
        assert!(arguments.namespaces);
        assert_eq!(arguments.images, [PathBuf::from("/a"), PathBuf::from("/b")]);
        assert_eq!(parse(&[]).unwrap_err(), "--folder is missing");
        assert_eq!(parse(&["--folder"]).unwrap_err(), "--folder needs a value");
        assert_eq!(parse(&["--frob"]).unwrap_err(), "unknown argument --frob");
        assert!(parse(&["--guest"]).unwrap().guest);
        let leash = parse(&["--leash", "qemu", "--folder"]).unwrap().leash;
        assert_eq!(leash.unwrap(), ["qemu", "--folder"].map(OsString::from), "all words after it are the program's");
    }
}
