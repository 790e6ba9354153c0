//! One image and one agent: mount, walk, unmount, fsck, mount again. Only looks; judges nothing.

use std::time::Duration;

use powerfail_agent::protocol::{Log, Source};
use powerfail_rig::{Agent, Asked, LinkError, MountOutcome, UnmountOutcome};

use crate::cell::Cell;
use crate::evidence::{Evidence, Fsck, Mounting, Walking};

/// Recovery of a small journal is a matter of milliseconds; a mount that takes this long hangs.
const MOUNT: Duration = Duration::from_secs(60);
/// For the lock that keeps the kernel's nameless lines apart: others hold it for one mount each.
const LOCK: Duration = Duration::from_secs(300);
/// Listing and reading a thousand files.
const WALK: Duration = Duration::from_secs(120);
/// fsck of a small disk.
const FSCK: Duration = Duration::from_secs(120);
/// Everything else.
const LIMIT: Duration = Duration::from_secs(60);

/// How an examination ended.
#[derive(Debug)]
pub enum Examined {
    /// Everything that could be seen was seen; the agent goes on.
    Whole(Evidence),
    /// The kernel hangs in recovery or in the walk; the agent is dead.
    Hung(Evidence),
}

/// Examines the image that the agent attaches as `source`.
///
/// # Errors
/// If the agent fails: a fault of the harness, not of the file system.
pub fn examine(agent: &mut Agent, source: &Source, cell: &Cell) -> Result<Examined, Asked> {
    let mut evidence = Evidence::default();
    let options = cell.judge_mount();
    let attached = agent.attach(source.clone(), LIMIT)?;
    evidence.device = attached.device.trim_start_matches("/dev/").to_owned();
    let mounted = match mount(agent, cell, &options)? {
        hung @ Mounting::TimedOut { .. } => {
            evidence.recovery = Some(hung);
            return Ok(Examined::Hung(evidence));
        }
        refused @ Mounting::Refused { .. } => {
            evidence.recovery = Some(refused);
            false
        }
        mounted @ Mounting::Mounted { .. } => {
            evidence.recovery = Some(mounted);
            true
        }
    };
    if mounted {
        match agent.observe(WALK) {
            Ok((observation, log)) => evidence.walk = Some(Walking::Seen { observation, log }),
            Err(Asked::Link(LinkError::Deadline { limit, .. })) => {
                evidence.walk = Some(Walking::TimedOut { seconds: limit.as_secs() });
                return Ok(Examined::Hung(evidence));
            }
            Err(error) => return Err(error),
        }
        evidence.unmount = Some(unmount(agent)?);
        evidence.fsck = Some(Fsck::of(cell.fs, agent.tool(cell.fs.fsck(), FSCK)?));
        let again = mount(agent, cell, &options)?;
        let hung = matches!(again, Mounting::TimedOut { .. });
        let mounted = matches!(again, Mounting::Mounted { .. });
        evidence.again = Some(again);
        if hung {
            return Ok(Examined::Hung(evidence));
        }
        if mounted {
            unmount(agent)?;
        }
    }
    agent.detach(LIMIT)?;
    Ok(Examined::Whole(evidence))
}

fn mount(agent: &mut Agent, cell: &Cell, options: &str) -> Result<Mounting, Asked> {
    match agent.mount(cell.fs.kernel_name(), options, LOCK, MOUNT) {
        Ok(MountOutcome::Mounted { log, .. }) => Ok(Mounting::Mounted { log }),
        Ok(MountOutcome::Refused { message, log, .. }) => Ok(Mounting::Refused { message, log }),
        Err(Asked::Link(LinkError::Deadline { .. })) => Ok(Mounting::TimedOut { seconds: MOUNT.as_secs() }),
        Err(error) => Err(error),
    }
}

/// An unmount that the kernel refuses is the harness's fault: somebody of ours holds the file system.
fn unmount(agent: &mut Agent) -> Result<Log, Asked> {
    match agent.unmount(LIMIT)? {
        UnmountOutcome::Unmounted { log, .. } => Ok(log),
        UnmountOutcome::Failed { errno, message, .. } => Err(Asked::Failed(powerfail_agent::protocol::Failure {
            doing: "unmount".into(),
            reason: message,
            errno: Some(errno),
        })),
    }
}
