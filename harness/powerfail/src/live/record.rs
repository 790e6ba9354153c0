//! One live cut: a workload on a fresh drive and a fresh guest, until both lose their power.

use std::fs;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use powerfail_drive::live::Sink;
use powerfail_nbd::{Config as Serving, Exports, Farewell};
use powerfail_rig::{Agent, RunOutcome};
use powerfail_seed::{Seed, below};
use powerfail_workloads::Spec;
use powerfail_workloads::catalog::Workload;

use super::cut_drive::{CutDrive, Point};
use crate::cell::Cell;
use crate::folder::{CellFolder, write_whole};
use crate::record::{self, About};
use crate::recording_file::FileSink;
use crate::rigs::Rig;
use crate::served_drive::ServedDrive;
use crate::stop::Stop;

/// Marks before the cut, at most, where no number of steps says how many there are.
const MARKS: u64 = 400;
/// Events between the last of these marks and the cut, at most.
const EVENTS: u64 = 64;

/// Where the power fails: after a number of marks that is uniform from 1 to all that the workload makes (of a workload that
/// only time ends, to [`MARKS`]), and then a number of events that is uniform from 0 to [`EVENTS`].
pub(super) fn point(seed: Seed, spec: &Spec) -> Point {
    let mut rng = seed.rng("point", &[]);
    let all = spec.limits().steps.map_or(MARKS, |steps| steps.saturating_mul(u64::from(spec.workers())));
    Point { marks: 1 + below(&mut rng, all.max(1)), events: below(&mut rng, EVENTS + 1) }
}

/// Makes the recording of one live cut in `folder`; it is whole and synced when this returns.
///
/// # Errors
/// If the rig or the harness fails, or the user stops it; then nothing is left of it.
pub(super) fn record(
    cell: &Cell,
    point: Point,
    folder: &CellFolder,
    rig: &dyn Rig,
    stop: &Stop,
) -> anyhow::Result<About> {
    let started = Instant::now();
    let part = folder.recording_part();
    if part.exists() {
        fs::remove_file(&part).with_context(|| format!("can't remove {}", part.display()))?;
    }
    let sink = FileSink::create(&part, cell.header).with_context(|| format!("can't write {}", part.display()))?;
    let drive = Arc::new(CutDrive::new(ServedDrive::new(cell.header, cell.offers_flush(), sink), point));
    let recorded = serve_and_cut(cell, rig, stop, &drive);
    let finish = |about: About| -> anyhow::Result<About> {
        let (_, sink) = drive.take().context("the power was never cut")??;
        sink.finish().with_context(|| format!("can't write {}", part.display()))?;
        let about = About { took_ms: started.elapsed().as_millis() as u64, ..about };
        write_whole(&folder.about(), &serde_json::to_vec_pretty(&about)?)?;
        fs::rename(&part, folder.recording())?;
        Ok(about)
    };
    let result = recorded.and_then(finish);
    if result.is_err() {
        let _ = fs::remove_file(&part);
    }
    result
}

fn serve_and_cut<S: Sink + 'static>(
    cell: &Cell,
    rig: &dyn Rig,
    stop: &Stop,
    drive: &Arc<CutDrive<S>>,
) -> anyhow::Result<About> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let server = {
        let _inside = runtime.enter();
        let serving = Serving { hold: cell.hold, ..Serving::default() };
        rig.bind(&cell.name)?.serve(Exports::one(drive.clone()), serving)?
    };
    let begin = || -> anyhow::Result<About> {
        stop.check()?;
        let mut agent = rig.agent()?;
        let result = record::begin_on(cell, stop, drive.served(), rig.drive(server.address()), &mut agent)
            .and_then(|about| work_until_cut(cell, stop, drive, &mut agent, about));
        result.map_err(|error| record::with_console(error, &agent))
    };
    let result = begin();
    runtime.block_on(server.shutdown(Farewell::Drop));
    result
}

fn work_until_cut<S: Sink + 'static>(
    cell: &Cell,
    stop: &Stop,
    drive: &CutDrive<S>,
    agent: &mut Agent,
    about: About,
) -> anyhow::Result<About> {
    stop.check()?;
    let Some(switch) = agent.power_switch() else {
        bail!("the kernel of this rig can't be cut: it is the machine's own");
    };
    let limit = Duration::from_secs(u64::from(cell.spec.limits().seconds)) + record::WORKLOAD_GRACE;
    let (started, mut steps) = (Instant::now(), 0);
    let (outcome, early, killed) = thread::scope(|scope| {
        // The drive first, then the machine: nothing that it does in its last moment reaches the drive.
        let cutter = scope.spawn(|| {
            drive.wait();
            switch.cut()
        });
        let outcome = agent.run(&cell.spec, limit, |label| steps += u64::from(drive.mark(label).is_ok()));
        let early = drive.cut_now();
        (outcome, early, cutter.join().expect("it only waits and kills"))
    });
    killed?;
    match outcome {
        // The drive had no power any more: that is why, whatever the guest made of it.
        _ if !early => {}
        // The workload ended before its point, so the power failed at its end.
        Ok(RunOutcome::Done { .. }) => {}
        Ok(RunOutcome::Failed { message, .. }) => bail!("the workload failed before the power was cut: {message}"),
        Err(error) => return Err(anyhow::Error::new(error).context("before the power was cut")),
    }
    Ok(About { steps, workload_ms: started.elapsed().as_millis() as u64, ..about })
}
