//! `powerfail bench record`: the same steps on the same drive, recorded and not, in turn.

use std::sync::Arc;

use anyhow::{Context, bail};
use powerfail_drive::live::Unrecorded;

use super::{median, scratch};
use crate::cell::Cell;
use crate::cli::{Cli, Verb};
use crate::progress::say;
use crate::record::serve_and_run;
use crate::recording_file::FileSink;
use crate::rigs;
use crate::served_drive::ServedDrive;
use crate::stop::Stop;

/// Runs it and prints the figures; the exit code says whether the bound is kept.
///
/// # Errors
/// If anything breaks.
pub fn bench(steps: u64, rounds: usize, json: bool) -> anyhow::Result<u8> {
    let stop = Stop::listen()?;
    let steps = steps.to_string();
    let words = ["powerfail", "run", "--mode", "barrier", "--steps", &steps, "--seconds", "600", "--hog", "0"];
    let cli = <Cli as clap::Parser>::try_parse_from(words).context("our own words")?;
    let Verb::Run(args) = cli.verb else { bail!("our own words") };
    let config = args.config()?;
    let cell = Cell::all(&config).remove(0);
    let rig = rigs::Pool::default().get(&cell)?;
    let scratch = scratch()?;
    let (mut recorded, mut plain) = (Vec::new(), Vec::new());
    for round in 0..rounds.max(1) {
        let drive = Arc::new(ServedDrive::new(cell.header, true, Unrecorded));
        let without = serve_and_run(&cell, &*rig, &stop, &drive)?.workload_ms as f64;
        let path = scratch.path().join(format!("recording-{round}"));
        let drive = Arc::new(ServedDrive::new(cell.header, true, FileSink::create(&path, cell.header)?));
        let with = serve_and_run(&cell, &*rig, &stop, &drive)?.workload_ms as f64;
        drive.close()?.finish()?;
        std::fs::remove_file(&path)?;
        say(&format!("round {}: {with:.0} ms recorded, {without:.0} ms not", round + 1));
        recorded.push(with);
        plain.push(without);
    }
    let ratio = median(recorded.iter().zip(&plain).map(|(with, without)| with / without).collect());
    let (recorded, plain) = (median(recorded), median(plain));
    if json {
        println!(
            "{}",
            serde_json::json!({ "recorded_ms": recorded, "plain_ms": plain, "ratio": ratio, "steps": steps })
        );
    } else {
        println!("{steps} steps of each worker: {recorded:.0} ms recorded, {plain:.0} ms not");
        println!("ratio {ratio:.2} (bound 1.3)");
    }
    Ok(u8::from(ratio > 1.3))
}
