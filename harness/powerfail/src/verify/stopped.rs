//! An examination that stopped: is that the file system's doing, or did the rig break by itself?
//!
//! It is a finding, whatever else happened, only in one of these cases, and only while a call into the file system was
//! running (the mount, the walk, the unmount, the second mount):
//!
//! | what was seen | what it is |
//! | --- | --- |
//! | the agent says that its thread was killed, and the kernel's log has a crash of the file system's ([`super::crash`]) | a crash: `kernel` |
//! | the agent is dead or silent, and what the guest printed since the call began has such a crash | a crash: `kernel` |
//! | the agent says that the call did not come back, and nobody owes the disk an answer | a hang: `mounts`, `walk` or `quiet` |
//!
//! Everything else is broken: a guest that ends or falls silent without such a crash, a crash of something else, a drive
//! that owes answers (the kernel's count of the disk's requests, and our server's own count), a process that was killed
//! without an oops. So is a guest that prints without end, even if it answers.

use powerfail_rig::{Agent, Asked, Stuck};

use super::crash;
use super::examine::Step;
use crate::broken::Broke;
use crate::evidence::{Crash, Evidence, Mounting, Stopped, Walking};

/// What an examination that stopped with `error` in `step` is worth. `printed` is what the guest had printed before it;
/// `owes` asks our own server, which may be stuck too.
pub(super) fn finding(
    error: Asked,
    step: Step,
    evidence: &mut Evidence,
    agent: &Agent,
    (printed, fs): (u64, &str),
    owes: impl FnOnce() -> u64,
) -> Result<(), Broke> {
    // All of it is kept: what broke a guest may have been said before.
    let console = agent.console_since(0);
    if !step.is_of_the_file_system() {
        return Err(broke(&error, console));
    }
    let device = evidence.device.clone();
    let crashed = match &error {
        Asked::Stuck { stuck: Stuck::Killed { log } | Stuck::Hung { log, .. }, .. } => {
            crash::find(log.lines.iter().map(|line| line.text.as_str()), &device, fs)
        }
        Asked::Link(_) => agent.console_since(printed).and_then(|text| crash::find(text.lines(), &device, fs)),
        Asked::Failed(_) => None,
    };
    if let Some(what) = crashed {
        evidence.stopped.console = console;
        if let Asked::Stuck { stuck: Stuck::Killed { log } | Stuck::Hung { log, .. }, .. } = error {
            evidence.stopped.log = Some(log);
        }
        evidence.crash = Some(Crash { during: step.name(), what });
        return Ok(());
    }
    let Asked::Stuck { stuck: Stuck::Hung { limit, owed: 0, stack, log }, .. } = &error else {
        return Err(broke(&error, console));
    };
    let owed = owes();
    if owed > 0 {
        return Err(Broke { reason: format!("{error}, and the image's server owes {owed}"), console });
    }
    let seconds = limit.as_secs();
    match step {
        Step::Recovery => evidence.recovery = Some(Mounting::TimedOut { seconds }),
        Step::Again => evidence.again = Some(Mounting::TimedOut { seconds }),
        _ => evidence.walk = Some(Walking::TimedOut { seconds }),
    }
    evidence.stopped = Stopped { log: Some(log.clone()), stack: stack.clone(), console };
    Ok(())
}

/// A guest may have answered everything and print without end all the same: more than the kernel's own log holds, since the
/// last state.
pub(super) fn flood(agent: &mut Agent) -> Result<(), Broke> {
    const MOST: u64 = 128 << 10;
    let bytes = agent.printed_anew();
    if bytes <= MOST {
        return Ok(());
    }
    let reason = format!("the guest printed {bytes} bytes since the last state");
    Err(Broke { reason, console: agent.console_since(0) })
}

fn broke(error: &Asked, console: Option<String>) -> Broke {
    Broke { reason: error.to_string(), console }
}
