//! `powerfail bench guest`: from a guest's start to a drive attached in it, verified states a second over guests, and where
//! the time of one state goes.

use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use powerfail_drive::crash::Recipe;
use powerfail_drive::explore::Walk;
use powerfail_ledger::{Line, Outcome};
use powerfail_rig::{Agent, MountOutcome};

use super::{median, scratch};
use crate::cell::Cell;
use crate::cli::{Cli, Verb};
use crate::folder::Folder;
use crate::image::Image;
use crate::plan_file::{self, Entry};
use crate::progress::say;
use crate::record::record;
use crate::recording_file::Mapped;
use crate::rigs::{self, Rig};
use crate::run::header;
use crate::stop::Stop;
use crate::verify::{Job, verify};

/// Seconds from a guest's start to a drive that is attached in it, on two cores under TCG.
const ATTACHED: f64 = 12.0;
/// States a second over two guests, with about 300 files.
const RATE: f64 = 3.0;
/// For each part of a state.
const LIMIT: Duration = Duration::from_secs(120);
/// States that are looked at part by part; the median counts.
const ROUNDS: usize = 5;
/// The parts of a state, in order.
const PARTS: [&str; 8] = ["attach", "mount", "observe", "unmount", "fsck", "mount again", "unmount again", "detach"];

/// Runs it and prints the figures; the exit code says whether both bounds are kept.
///
/// # Errors
/// If anything breaks, or a state of the mode `barrier` is not held.
pub fn bench(states: u64, guests: usize, files: u32, json: bool) -> anyhow::Result<u8> {
    let stop = Stop::listen()?;
    let scratch = scratch()?;
    let config = config(states, files)?;
    let folder = Folder::begin(&scratch.path().join("run"), &config, false)?;
    let cell = Cell::all(&config).remove(0);
    let cell_folder = folder.cell(&cell.name)?;
    let rig = rigs::Pool::default().get(&cell)?;
    let about = record(&cell, &cell_folder, &*rig, &stop)?;
    let recording = Mapped::open(&cell_folder.recording())?;
    let plan = plan_file::plan_cell(&cell, &cell_folder, &recording, &about)?;
    let (mut ledger, _) = folder.ledger(|| header(&config))?;
    let last = plan.entries.last().context("no state was planned")?;
    let (attached, parts) = profile(&cell, &recording, last, &*rig, &stop)?;

    let job = Job {
        cell: &cell,
        folder: &cell_folder,
        recording: &recording,
        about: &about,
        rig: &*rig,
        jobs: guests,
        until_found: false,
        end: None,
    };
    let mut judged = Vec::new();
    verify(&job, &plan.entries, &stop, |line| {
        if let Line::State(state) = line {
            if !matches!(state.outcome, Outcome::Held) {
                bail!("a state of the mode barrier was not held: {:?}", state.outcome);
            }
            judged.push(Instant::now());
        }
        Ok(ledger.append(line)?)
    })?;
    let rate = rate(&judged, guests).context("too few states for a rate; say more --states")?;

    if json {
        let parts: serde_json::Map<_, _> =
            PARTS.iter().zip(parts).map(|(part, seconds)| ((*part).to_owned(), seconds.into())).collect();
        println!(
            "{}",
            serde_json::json!({ "start_to_attached_s": attached, "states_per_second": rate, "guests": guests, "states": judged.len(), "files": files, "parts_s": parts })
        );
    } else {
        println!("from a guest's start to a drive attached in it: {attached:.1} s (bound {ATTACHED})");
        println!(
            "{rate:.2} states a second over {guests} guests, {files} files (bound {RATE} with 2 guests, 300 files)"
        );
        let whole: f64 = parts.iter().sum();
        println!("one state, in one guest alone, transport included: {:.0} ms", whole * 1e3);
        for (part, seconds) in PARTS.iter().zip(parts) {
            println!("  {part:14} {:5.0} ms  {:3.0} %", seconds * 1e3, seconds / whole * 100.0);
        }
    }
    Ok(u8::from(attached > ATTACHED || rate < RATE))
}

fn config(states: u64, files: u32) -> anyhow::Result<crate::config::Config> {
    let (states, files) = (states.to_string(), files.to_string());
    let words = [
        "powerfail",
        "run",
        "--rig",
        "guest",
        "--mode",
        "barrier",
        "--states",
        &states,
        "--files",
        &files,
        "--hog",
        "0",
    ];
    let cli = <Cli as clap::Parser>::try_parse_from(words).context("our own words")?;
    let Verb::Run(args) = cli.verb else { bail!("our own words") };
    args.config()
}

/// Guests are kept, so their starts are no part of the rate: it counts from the verdict by which each can have given one.
fn rate(judged: &[Instant], guests: usize) -> Option<f64> {
    let (first, last) = (judged.get(guests.checked_sub(1)?)?, judged.last()?);
    let seconds = last.duration_since(*first).as_secs_f64();
    (seconds > 0.0).then(|| (judged.len() - guests) as f64 / seconds)
}

/// Seconds from the start of a guest to a drive attached in it, and seconds of each part of a state there.
fn profile(
    cell: &Cell,
    recording: &Mapped,
    entry: &Entry,
    rig: &dyn Rig,
    stop: &Stop,
) -> anyhow::Result<(f64, Vec<f64>)> {
    let recipe: Recipe = entry.state.parse()?;
    let mut walk = Walk::new(recording.bytes(), cell.drive)?;
    walk.advance(recipe.cut)?;
    let mut image = Image::new(cell.header.geometry.bytes())?;
    image.become_state(&walk.history, recording.bytes(), &recipe.kept, recipe.order)?;
    let started = Instant::now();
    let mut seat = rig.seat(&image)?;
    seat.agent.attach(seat.source.clone(), LIMIT)?;
    let attached = started.elapsed().as_secs_f64();
    seat.agent.detach(LIMIT)?;
    let mut rounds: Vec<[f64; PARTS.len()]> = Vec::new();
    for round in 0..ROUNDS {
        stop.check()?;
        // The round before has recovered it.
        image.become_state(&walk.history, recording.bytes(), &recipe.kept, recipe.order)?;
        let laps = look(&mut seat, cell)?;
        say(&format!("state {} of {ROUNDS}: {:.0} ms", round + 1, laps.iter().sum::<f64>() * 1e3));
        rounds.push(laps);
    }
    seat.agent.quit(LIMIT)?;
    let parts = (0..PARTS.len()).map(|part| median(rounds.iter().map(|laps| laps[part]).collect())).collect();
    Ok((attached, parts))
}

/// One state as it is examined, with the seconds of each part.
fn look(seat: &mut rigs::Seat, cell: &Cell) -> anyhow::Result<[f64; PARTS.len()]> {
    let agent = &mut seat.agent;
    let mut last = Instant::now();
    let mut lap = || {
        let seconds = last.elapsed().as_secs_f64();
        last = Instant::now();
        seconds
    };
    agent.attach(seat.source.clone(), LIMIT)?;
    let attach = lap();
    mount(agent, cell)?;
    let mounted = lap();
    agent.observe(LIMIT)?;
    let observe = lap();
    agent.unmount(LIMIT)?;
    let unmount = lap();
    let fsck = agent.tool(cell.fs.fsck(), LIMIT)?;
    ensure!(fsck.code == Some(0), "fsck of a state of the mode barrier: {}{}", fsck.stdout, fsck.stderr);
    let checked = lap();
    mount(agent, cell)?;
    let again = lap();
    agent.unmount(LIMIT)?;
    let unmount_again = lap();
    agent.detach(LIMIT)?;
    Ok([attach, mounted, observe, unmount, checked, again, unmount_again, lap()])
}

fn mount(agent: &mut Agent, cell: &Cell) -> anyhow::Result<()> {
    match agent.mount(cell.fs.kernel_name(), &cell.judge_mount(), LIMIT, LIMIT)? {
        MountOutcome::Mounted { .. } => Ok(()),
        MountOutcome::Refused { message, .. } => bail!("a state of the mode barrier can't be mounted: {message}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_leaves_the_start_of_the_guests_out() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let judged = [at(9_000), at(10_000), at(10_500), at(11_000), at(11_500), at(12_000)];
        assert_eq!(rate(&judged, 2), Some(2.0));
        assert_eq!(rate(&judged[..2], 2), None);
        assert_eq!(rate(&judged[..1], 2), None);
    }
}
