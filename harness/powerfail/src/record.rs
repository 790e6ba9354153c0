//! The first phase: a real kernel, a real file system and a workload on a recorded drive.

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use powerfail_agent::protocol::{Attached, Source};
use powerfail_drive::history::{MOUNTED, WORKLOAD_END};
use powerfail_drive::live::Sink;
use powerfail_nbd::{Config as Serving, Exports, Farewell};
use powerfail_rig::{Agent, MountOutcome, RunOutcome, UnmountOutcome};
use powerfail_workloads::Summary;
use powerfail_workloads::catalog::Workload;
use serde::{Deserialize, Serialize};

use crate::broken::Broke;
use crate::cell::Cell;
use crate::folder::{CellFolder, write_whole};
use crate::recording_file::FileSink;
use crate::rigs::Rig;
use crate::served_drive::ServedDrive;
use crate::stop::{Stop, Stopped};

/// For attaching, making, mounting and unmounting; each is a fraction of a second on an idle machine.
const LIMIT: Duration = Duration::from_secs(60);
/// For a workload beyond the seconds that it was given: its last steps wait for the drive.
pub(crate) const WORKLOAD_GRACE: Duration = Duration::from_secs(120);

/// What the rig said of a recording.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct About {
    /// The kernel that made it.
    pub kernel: String,
    /// The device as the kernel saw it.
    pub attached: Attached,
    /// Blocks of 4 KiB that the journal is in: first and last, inclusive.
    pub journal: Vec<(u64, u64)>,
    /// Steps that returned.
    pub steps: u64,
    /// Milliseconds that the workload took.
    pub workload_ms: u64,
    /// Milliseconds for all of it.
    pub took_ms: u64,
    /// What the workload did.
    #[serde(default)]
    pub summary: Summary,
}

impl About {
    /// What the workload could not do, for people: steps that were refused, and workers that ended early.
    pub fn shortcomings(&self) -> Vec<String> {
        let refused = self.summary.refused.iter().map(|(what, count)| format!("refused {count} times: {what}"));
        let failed = (0..).zip(&self.summary.workers).filter_map(|(number, worker): (u32, _)| {
            let (step, errno) = worker.failed.as_ref()?;
            let error = std::io::Error::from_raw_os_error(*errno);
            Some(format!("worker {number} ended at step {}, {step}: {error}", worker.steps))
        });
        refused.chain(failed).collect()
    }
}

/// Records a cell; the recording is there, whole and synced, when this returns.
///
/// # Errors
/// If the rig or the harness fails, or the user stops it; then nothing is left of it.
pub fn record(cell: &Cell, folder: &CellFolder, rig: &dyn Rig, stop: &Stop) -> anyhow::Result<About> {
    let started = Instant::now();
    let part = folder.recording_part();
    match fs::remove_file(&part) {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => bail!("can't remove {}: {error}", part.display()),
    }
    let sink = FileSink::create(&part, cell.header).with_context(|| format!("can't write {}", part.display()))?;
    let drive = Arc::new(ServedDrive::new(cell.header, cell.offers_flush(), sink));
    let recorded = serve_and_run(cell, rig, stop, &drive);
    let sink = drive.close();
    let mut about = match recorded {
        Ok(about) => about,
        Err(error) => {
            drop(sink);
            let _ = fs::remove_file(&part);
            return Err(error);
        }
    };
    sink?.finish().with_context(|| format!("can't write {}", part.display()))?;
    about.took_ms = started.elapsed().as_millis() as u64;
    // Whoever finds the recording finds what was said of it.
    write_whole(&folder.about(), &serde_json::to_vec_pretty(&about)?)?;
    fs::rename(&part, folder.recording())?;
    Ok(about)
}

/// Serves a drive and runs a cell's workload on it, from mkfs to the unmount.
///
/// # Errors
/// If the rig fails or the user stops it.
pub fn serve_and_run<S: Sink + 'static>(
    cell: &Cell,
    rig: &dyn Rig,
    stop: &Stop,
    drive: &Arc<ServedDrive<S>>,
) -> anyhow::Result<About> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let server = {
        let _inside = runtime.enter();
        let serving = Serving { hold: cell.hold, ..Serving::default() };
        rig.bind(&cell.name)?.serve(Exports::one(drive.clone()), serving)?
    };
    let result = run_on(cell, rig, stop, drive, rig.drive(server.address()));
    runtime.block_on(server.shutdown(Farewell::Answer));
    result
}

fn run_on<S: Sink>(
    cell: &Cell,
    rig: &dyn Rig,
    stop: &Stop,
    drive: &ServedDrive<S>,
    source: Source,
) -> anyhow::Result<About> {
    stop.check()?;
    let mut agent = rig.agent()?;
    let about = begin_on(cell, stop, drive, source, &mut agent)
        .and_then(|about| work_on(cell, stop, drive, &mut agent, about))
        .map_err(|error| with_console(error, &agent))?;
    agent.quit(LIMIT)?;
    Ok(about)
}

/// What a guest printed goes with the error, or nobody would see why it broke.
pub(crate) fn with_console(error: anyhow::Error, agent: &Agent) -> anyhow::Error {
    match agent.console_since(0) {
        Some(console) if !error.is::<Stopped>() => {
            Broke { reason: format!("{error:#}"), console: Some(console) }.into()
        }
        _ => error,
    }
}

/// From the attachment to the mark `mounted`.
///
/// # Errors
/// If the rig fails or the user stops it.
pub(crate) fn begin_on<S: Sink>(
    cell: &Cell,
    stop: &Stop,
    drive: &ServedDrive<S>,
    source: Source,
    agent: &mut Agent,
) -> anyhow::Result<About> {
    let attached = agent.attach(source, LIMIT)?;
    let ran = agent.tool(&cell.mkfs_argv(), LIMIT)?;
    if ran.code != Some(0) {
        bail!("{} failed: {}{}", cell.mkfs_argv().join(" "), ran.stdout, ran.stderr);
    }
    let journal = match cell.fs.journal() {
        Some(place) => (place.blocks)(&agent.tool(place.argv, LIMIT)?.stdout),
        None => Vec::new(),
    };
    drive.mark("mkfs-end")?;
    stop.check()?;
    match agent.mount(cell.fs.kernel_name(), &cell.mount, LIMIT, LIMIT)? {
        MountOutcome::Mounted { .. } => {}
        MountOutcome::Refused { message, log, .. } => {
            let said: Vec<_> = log.lines.iter().map(|line| line.text.as_str()).collect();
            bail!("the new file system can't be mounted with `{}` ({message}): {}", cell.mount, said.join(" | "));
        }
    }
    drive.mark(MOUNTED)?;
    let kernel = agent.hello().kernel.clone();
    Ok(About { kernel, attached, journal, steps: 0, workload_ms: 0, took_ms: 0, summary: Summary::default() })
}

fn work_on<S: Sink>(
    cell: &Cell,
    stop: &Stop,
    drive: &ServedDrive<S>,
    agent: &mut Agent,
    about: About,
) -> anyhow::Result<About> {
    stop.check()?;
    let mut steps = 0;
    let mut unmarked = None;
    let limit = Duration::from_secs(u64::from(cell.spec.limits().seconds)) + WORKLOAD_GRACE;
    let started = Instant::now();
    let outcome = agent.run(&cell.spec, limit, |label| {
        steps += 1;
        if let Err(refusal) = drive.mark(label) {
            unmarked.get_or_insert(refusal);
        }
    })?;
    let workload_ms = started.elapsed().as_millis() as u64;
    if let Some(refusal) = unmarked {
        bail!("a mark could not be recorded: {refusal}");
    }
    let (summary, log) = match outcome {
        RunOutcome::Done { summary, log } => (*summary, log),
        RunOutcome::Failed { message, .. } => bail!("the workload failed: {message}"),
    };
    if let Some(line) = log.lines.iter().find(|line| crate::check::kernel::complains(line)) {
        bail!("the kernel complained before any power was cut: {}", line.text);
    }
    drive.mark(WORKLOAD_END)?;
    stop.check()?;
    match agent.unmount(LIMIT)? {
        UnmountOutcome::Unmounted { .. } => {}
        UnmountOutcome::Failed { message, .. } => bail!("the file system can't be unmounted: {message}"),
    }
    agent.detach(LIMIT)?;
    Ok(About { steps, workload_ms, summary, ..about })
}
