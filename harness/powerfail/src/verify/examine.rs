//! One image and one agent: mount, walk, unmount, fsck, mount again. Only looks; judges nothing.

use std::time::Duration;

use powerfail_agent::protocol::Log;
use powerfail_rig::{Agent, Asked, MountOutcome, UnmountOutcome};

use super::stopped;
use crate::broken::Broke;
use crate::cell::Cell;
use crate::evidence::{Evidence, Fsck, Mounting, Walking};
use crate::rigs::{Seat, ServedImage};

/// How long each part may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Recovery of a small journal is a matter of milliseconds; a mount that takes this long hangs.
    pub mount: Duration,
    /// For the lock that keeps the kernel's nameless lines apart: others hold it for one mount each.
    pub lock: Duration,
    /// Listing and reading a thousand files.
    pub walk: Duration,
    /// fsck of a small disk.
    pub fsck: Duration,
    /// Everything else.
    pub other: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        let [mount, lock, walk, fsck, other] = [60, 300, 120, 120, 60].map(Duration::from_secs);
        Limits { mount, lock, walk, fsck, other }
    }
}

/// Where an examination is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The device is being made, or given back.
    Device,
    /// The mount that recovers.
    Recovery,
    /// Everything is listed and read.
    Walk,
    /// The unmount.
    Unmount,
    /// fsck, which is a program and no part of the kernel.
    Fsck,
    /// The second mount.
    Again,
}

impl Step {
    /// Whether a call into the file system is running.
    pub(super) fn is_of_the_file_system(self) -> bool {
        matches!(self, Step::Recovery | Step::Walk | Step::Unmount | Step::Again)
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Step::Device => "the attachment",
            Step::Recovery => "recovery",
            Step::Walk => "listing and reading",
            Step::Unmount => "the unmount",
            Step::Fsck => "fsck",
            Step::Again => "the second mount",
        }
    }
}

/// How an examination ended.
#[derive(Debug)]
pub enum Examined {
    /// Everything that could be seen was seen; the agent goes on.
    Whole(Evidence),
    /// The kernel crashed or hangs in the file system; the agent is not to be used further.
    Stopped(Evidence),
}

/// How much is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Recovery, everything that is listed, the unmount, fsck and a second mount.
    Everything,
    /// A file system whose making was cut short: a mount, which may be refused, and fsck.
    Unfinished,
}

/// Examines the image of a seat, which is one of a cell's.
///
/// # Errors
/// If the agent or its guest fails: that says nothing about the file system.
pub fn examine(seat: &mut Seat, cell: &Cell, extent: Extent, limits: &Limits) -> Result<Examined, Broke> {
    let mut evidence = Evidence::default();
    let mut step = Step::Device;
    let printed = seat.agent.printed();
    let looked = match extent {
        Extent::Everything => look(seat, cell, limits, &mut evidence, &mut step),
        Extent::Unfinished => look_at_unfinished(seat, cell, limits, &mut evidence, &mut step),
    };
    match looked {
        Ok(()) => {
            stopped::flood(&mut seat.agent)?;
            Ok(Examined::Whole(evidence))
        }
        Err(error) => {
            let owes = || seat.served.as_ref().map_or(0, ServedImage::owes);
            stopped::finding(error, step, &mut evidence, &seat.agent, (printed, cell.fs.kernel_name()), owes)?;
            Ok(Examined::Stopped(evidence))
        }
    }
}

fn look(seat: &mut Seat, cell: &Cell, limits: &Limits, evidence: &mut Evidence, step: &mut Step) -> Result<(), Asked> {
    let agent = &mut seat.agent;
    let attached = agent.attach(seat.source.clone(), limits.other)?;
    evidence.device = attached.device.trim_start_matches("/dev/").to_owned();
    *step = Step::Recovery;
    let recovery = mount(agent, cell, limits)?;
    let mounted = matches!(recovery, Mounting::Mounted { .. });
    evidence.recovery = Some(recovery);
    if mounted {
        *step = Step::Walk;
        let (observation, log) = agent.observe(limits.walk)?;
        evidence.walk = Some(Walking::Seen { observation, log });
        *step = Step::Unmount;
        evidence.unmount = Some(unmount(agent, limits)?);
        *step = Step::Fsck;
        evidence.fsck = Some(Fsck::of(cell.fs, agent.tool(cell.fs.fsck(), limits.fsck)?));
        *step = Step::Again;
        let again = mount(agent, cell, limits)?;
        let mounted = matches!(again, Mounting::Mounted { .. });
        evidence.again = Some(again);
        if mounted {
            *step = Step::Unmount;
            unmount(agent, limits)?;
        }
    }
    *step = Step::Device;
    agent.detach(limits.other)?;
    Ok(())
}

fn look_at_unfinished(
    seat: &mut Seat,
    cell: &Cell,
    limits: &Limits,
    evidence: &mut Evidence,
    step: &mut Step,
) -> Result<(), Asked> {
    let agent = &mut seat.agent;
    let attached = agent.attach(seat.source.clone(), limits.other)?;
    evidence.device = attached.device.trim_start_matches("/dev/").to_owned();
    *step = Step::Recovery;
    let recovery = mount(agent, cell, limits)?;
    let mounted = matches!(recovery, Mounting::Mounted { .. });
    evidence.recovery = Some(recovery);
    if mounted {
        *step = Step::Unmount;
        evidence.unmount = Some(unmount(agent, limits)?);
    }
    *step = Step::Fsck;
    evidence.fsck = Some(Fsck::of(cell.fs, agent.tool(cell.fs.fsck(), limits.fsck)?));
    *step = Step::Device;
    agent.detach(limits.other)?;
    Ok(())
}

fn mount(agent: &mut Agent, cell: &Cell, limits: &Limits) -> Result<Mounting, Asked> {
    match agent.mount(cell.fs.kernel_name(), &cell.judge_mount(), limits.lock, limits.mount)? {
        MountOutcome::Mounted { log, .. } => Ok(Mounting::Mounted { log }),
        MountOutcome::Refused { message, log, .. } => Ok(Mounting::Refused { message, log }),
    }
}

/// An unmount that the kernel refuses is the harness's fault: somebody of ours holds the file system.
fn unmount(agent: &mut Agent, limits: &Limits) -> Result<Log, Asked> {
    match agent.unmount(limits.other)? {
        UnmountOutcome::Unmounted { log, .. } => Ok(log),
        UnmountOutcome::Failed { errno, message, .. } => Err(Asked::Failed(powerfail_agent::protocol::Failure {
            doing: "unmount".into(),
            reason: message,
            errno: Some(errno),
        })),
    }
}
