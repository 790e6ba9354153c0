//! `powerfail bench verify`: states a second, beside the floor, in turn.

use std::process::Command;
use std::time::Instant;

use anyhow::{Context, bail};
use powerfail_drive::crash::Recipe;
use powerfail_drive::explore::Walk;
use powerfail_ledger::{Line, Outcome};
use std::os::fd::AsRawFd;

use super::{median, scratch};
use crate::cell::Cell;
use crate::cli::{Cli, Verb};
use crate::folder::Folder;
use crate::image::Image;
use crate::plan_file::{self, Entry};
use crate::progress::say;
use crate::record::record;
use crate::recording_file::Mapped;
use crate::rigs;
use crate::run::header;
use crate::stop::Stop;
use crate::verify::{Job, verify};

/// Images that the floor holds in memory at a time.
const HELD: usize = 40;

/// Runs it and prints the figures; the exit code says whether the bound is kept.
///
/// # Errors
/// If anything breaks.
pub fn bench(states: u64, jobs: usize, files: u32, rounds: usize, json: bool) -> anyhow::Result<u8> {
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
    let job = Job {
        cell: &cell,
        folder: &cell_folder,
        recording: &recording,
        about: &about,
        rig: &*rig,
        jobs,
        until_found: false,
        end: None,
    };
    let (mut ours, mut floors) = (Vec::new(), Vec::new());
    for round in 0..rounds.max(1) {
        let floor = floor(&cell, &recording, &plan.entries, jobs, &stop)?;
        let started = Instant::now();
        verify(&job, &plan.entries, &stop, |line| {
            if let Line::State(state) = line
                && !matches!(state.outcome, Outcome::Held)
            {
                bail!("a state of the mode barrier was not held: {:?}", state.outcome);
            }
            Ok(ledger.append(line)?)
        })?;
        let count = plan.entries.len() as f64;
        let rate = count / started.elapsed().as_secs_f64();
        say(&format!("round {}: {rate:.1} states a second, floor {:.1}", round + 1, count / floor));
        ours.push(rate);
        floors.push(count / floor);
    }
    let ratios = floors.iter().zip(&ours).map(|(floor, ours)| floor / ours).collect();
    let (ours, floor, ratio) = (median(ours), median(floors), median(ratios));
    if json {
        println!(
            "{}",
            serde_json::json!({ "states_per_second": ours, "floor_per_second": floor, "ratio": ratio, "jobs": jobs, "states": plan.entries.len(), "files": files })
        );
    } else {
        println!("{} states with about {files} files, {jobs} at a time", plan.entries.len());
        println!("powerfail verifies {ours:.1} a second; a bare loop device over the same images {floor:.1} a second");
        println!("ratio {ratio:.2} (bound 1.5)");
    }
    Ok(u8::from(ratio > 1.5))
}

fn config(states: u64, files: u32) -> anyhow::Result<crate::config::Config> {
    let words =
        ["powerfail", "run", "--mode", "barrier", "--states", &states.to_string(), "--files", &files.to_string()];
    let cli = <Cli as clap::Parser>::try_parse_from(words).context("our own words")?;
    let Verb::Run(args) = cli.verb else { bail!("our own words") };
    args.config()
}

/// Seconds that the floor takes for all states; making the images is not counted.
fn floor(cell: &Cell, recording: &Mapped, entries: &[Entry], jobs: usize, stop: &Stop) -> anyhow::Result<f64> {
    let folder = tempfile::tempdir()?;
    let mut walk = Walk::new(recording.bytes(), cell.drive)?;
    let mut seconds = 0.0;
    for some in entries.chunks(HELD) {
        stop.check()?;
        let mut images = Vec::new();
        for entry in some {
            let recipe: Recipe = entry.state.parse()?;
            walk.advance(recipe.cut)?;
            let mut image = Image::new(cell.header.geometry.bytes())?;
            image.become_state(&walk.history, recording.bytes(), &recipe.kept, recipe.order)?;
            images.push(image);
        }
        let paths = images.iter().map(|image| format!("/proc/{}/fd/{}", std::process::id(), image.fd().as_raw_fd()));
        let program = std::env::current_exe()?;
        let ran = Command::new(program).arg("floor").arg(folder.path()).arg(jobs.to_string()).args(paths).output()?;
        if !ran.status.success() {
            bail!("the floor failed: {}", String::from_utf8_lossy(&ran.stderr));
        }
        seconds += String::from_utf8_lossy(&ran.stdout).trim().parse::<f64>().context("seconds")?;
    }
    Ok(seconds)
}
