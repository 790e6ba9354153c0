//! A casebook: the folder that a violation becomes, with all that a person needs to look at it again.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use powerfail_ledger::{Outcome, State};

use crate::evidence::{Evidence, Walking};
use crate::folder::{Usage, write_whole};

/// Writes the casebook of a violated state; the same state again overwrites it.
///
/// # Errors
/// If it can't be written.
pub fn write(folder: &Path, state: &State, evidence: &Evidence) -> anyhow::Result<()> {
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    let kernel: Vec<_> =
        evidence.logs().flat_map(|log| &log.lines).map(|line| format!("<{}> {}\n", line.level, line.text)).collect();
    write_whole(&folder.join("kernel.log"), kernel.concat().as_bytes())?;
    if let Some(ran) = evidence.fsck.as_ref().map(|fsck| &fsck.ran) {
        write_whole(&folder.join("fsck.txt"), format!("{}{}", ran.stdout, ran.stderr).as_bytes())?;
    }
    if let Some(Walking::Seen { observation, .. }) = &evidence.walk {
        write_whole(&folder.join("tree.json"), &serde_json::to_vec(observation)?)?;
    }
    let stopped = &evidence.stopped;
    let last = stopped.log.iter().flat_map(|log| &log.lines).map(|line| format!("<{}> {}\n", line.level, line.text));
    let (last, console) = (last.collect::<String>(), stopped.console.as_deref().unwrap_or_default());
    for (name, text) in [("stopped.log", &*last), ("stack.txt", &*stopped.stack), ("console.log", console)] {
        if !text.is_empty() {
            write_whole(&folder.join(name), text.as_bytes())?;
        }
    }
    write_whole(&folder.join("README.md"), readme(state).as_bytes())?;
    // Last: a casebook with its state is whole.
    write_whole(&folder.join("state.json"), &serde_json::to_vec_pretty(state)?)
}

/// Reads the state of a casebook.
///
/// # Errors
/// [`Usage`] if the folder is no casebook.
pub fn read(folder: &Path) -> anyhow::Result<State> {
    let path = folder.join("state.json");
    let usage = |why: String| Usage(format!("{} is no casebook ({why})", folder.display()));
    let text = fs::read(&path).map_err(|error| usage(error.to_string()))?;
    Ok(serde_json::from_slice(&text).map_err(|error| usage(error.to_string()))?)
}

/// The run and the cell that a casebook lies in.
///
/// # Errors
/// [`Usage`] if it lies elsewhere.
pub fn place(folder: &Path) -> anyhow::Result<(PathBuf, String)> {
    let usage = || Usage(format!("{} does not lie in the folder of a run", folder.display()));
    let folder = folder.canonicalize().map_err(|_| usage())?;
    let cell = folder.parent().and_then(Path::parent).ok_or_else(usage)?;
    let run = cell.parent().ok_or_else(usage)?;
    let name = cell.file_name().and_then(|name| name.to_str()).ok_or_else(usage)?;
    Ok((run.to_owned(), name.to_owned()))
}

fn readme(state: &State) -> String {
    let case = &state.case;
    let mut text = format!("# {} {}: a violated crash state\n\n", case.fs, case.mode);
    if let Outcome::Violated { findings } = &state.outcome {
        for finding in findings {
            text.push_str(&format!("- **{}**: {}\n", finding.kind.name(), finding.detail));
        }
    }
    text.push_str(&format!(
        "\nCut at event {} with {} loose fragments, of which {} were lost; kernel {}, mount options `{}`, mkfs options `{}`.\n\n",
        state.cut, state.loose, state.lost, case.kernel, case.mount, case.mkfs
    ));
    text.push_str(&format!("The recipe:\n\n```\n{}\n```\n\n", state.state));
    if let Some(replay) = &state.replay {
        let folder = replay.trim_start_matches("powerfail replay ");
        text.push_str(&format!(
            "Judge it again, or make its image and look by hand:\n\n```\n{replay}\npowerfail materialise {folder} -o image\n```\n"
        ));
    }
    text
}
