//! From a violated state to an answer: shrunk, explained, and written down so that a maintainer of the file system can see it
//! without this project.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context;
use powerfail_ledger::{Outcome, State};
use serde::Serialize;

use crate::depth::Chain;
use crate::explain::{Explanation, explain};
use crate::folder::write_whole;
use crate::shrink::{REPLAYS, Shrunk, Signature, shrink};
use crate::stop::Stop;
use crate::verify::{Job, Worker, replay_command};
use crate::{casebook, journal_cmd, reproduce};

/// A state that was looked into.
#[derive(Debug)]
pub struct Investigated {
    /// The casebook of the small state.
    pub folder: PathBuf,
    /// The small state, as a casebook has it.
    pub state: State,
    /// How it was found.
    pub shrunk: Shrunk,
    /// Why it is violated.
    pub explanation: Explanation,
}

/// Shrinks and explains a violated state, within `most` verdicts, and writes the casebook of what it was shrunk to.
///
/// # Errors
/// If it is not violated when it is judged again, the user stops it, or something can't be written.
pub fn investigate(
    job: &Job<'_>,
    state: &State,
    most: u64,
    stop: &Stop,
    told: impl FnMut(u64, usize),
) -> anyhow::Result<Investigated> {
    let chain: Chain = state.state.parse()?;
    let recipe = chain.only()?;
    let mut worker = Worker::new(job);
    let shrunk = shrink(&mut worker, job.recording, recipe, most, stop, told)?;
    let explanation = explain(job.cell, job.recording, job.about, &shrunk.recipe, &shrunk.judged)?;
    let folder = job.folder.casebook(&shrunk.image);
    let small = State {
        state: shrunk.recipe.to_string(),
        image: shrunk.image.clone(),
        explorer: "shrink".into(),
        cut: shrunk.recipe.cut,
        loose: shrunk.recipe.kept.len() as u64,
        lost: shrunk.lost.len() as u64,
        outcome: shrunk.judged.outcome.clone(),
        replay: Some(replay_command(&folder)),
        role: Some(explanation.role.clone()),
        explanation: Some(explanation.story.join(" ")),
        ..state.clone()
    };
    casebook::write(&folder, &small, &shrunk.judged.evidence)?;
    write_whole(&folder.join("explanation.md"), explanation.markdown().as_bytes())?;
    if let Some(journal) = &explanation.journal {
        write_whole(&folder.join("journal.txt"), format!("{}\n", journal_cmd::text(journal, None)).as_bytes())?;
    }
    reproduce::write(&folder, job.cell, &small, worker.image(&shrunk.recipe)?)?;
    write_whole(&folder.join("shrunk.json"), &serde_json::to_vec_pretty(&Origin::of(state, &shrunk))?)?;
    Ok(Investigated { folder, state: small, shrunk, explanation })
}

/// Where a small state comes from, as its casebook says it.
#[derive(Debug, Serialize)]
struct Origin<'a> {
    from: &'a str,
    from_image: &'a str,
    lost_before: u64,
    lost: usize,
    verdicts: u64,
    stable: String,
}

impl<'a> Origin<'a> {
    fn of(state: &'a State, shrunk: &Shrunk) -> Origin<'a> {
        Origin {
            from: &state.state,
            from_image: &state.image,
            lost_before: state.lost,
            lost: shrunk.lost.len(),
            verdicts: shrunk.verdicts,
            stable: format!("{} of {REPLAYS}", shrunk.stable),
        }
    }
}

/// Violated states that are wrong in the same way.
#[derive(Clone, Debug, Serialize)]
pub struct Group {
    /// How many.
    pub states: u64,
    /// What is found, of the first.
    pub says: Vec<String>,
    /// The image of the first: its casebook is named so.
    pub first: String,
    /// The role of what was lost, once one of them was explained.
    pub role: Option<String>,
}

/// The violated states of a cell by signature, the most frequent first.
pub fn groups<'a>(states: impl Iterator<Item = &'a State>) -> Vec<(Signature, Group)> {
    let mut groups: BTreeMap<Signature, Group> = BTreeMap::new();
    for state in states {
        let Outcome::Violated { findings } = &state.outcome else { continue };
        let group = groups.entry(Signature::main(findings)).or_insert_with(|| Group {
            states: 0,
            says: findings.iter().map(|finding| format!("{}: {}", finding.kind.name(), finding.detail)).collect(),
            first: state.image.clone(),
            role: None,
        });
        group.states += 1;
        group.role = group.role.take().or_else(|| state.role.clone());
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by(|a, b| b.1.states.cmp(&a.1.states).then_with(|| a.0.cmp(&b.0)));
    groups
}

/// Writes what groups a cell's casebooks stand for.
///
/// # Errors
/// If it can't be written.
pub fn write_index(casebooks: &Path, groups: &[(Signature, Group)]) -> anyhow::Result<()> {
    if groups.is_empty() {
        return Ok(());
    }
    std::fs::create_dir_all(casebooks).with_context(|| casebooks.display().to_string())?;
    let mut text = String::from(
        "# Violated states, grouped by what is wrong\n\n| states | group | first casebook | lost | says |\n",
    );
    text.push_str("| --- | --- | --- | --- | --- |\n");
    for (signature, group) in groups {
        let says = group.says.first().map_or("", String::as_str).replace('|', "\\|");
        let role = group.role.as_deref().unwrap_or("");
        let first = &group.first[..16.min(group.first.len())];
        let _ = writeln!(text, "| {} | {} | {first} | {role} | {says} |", group.states, signature.word());
    }
    write_whole(&casebooks.join("README.md"), text.as_bytes())?;
    let list: Vec<_> = groups.iter().map(|(signature, group)| (signature.word(), group)).collect();
    write_whole(&casebooks.join("index.json"), &serde_json::to_vec_pretty(&list)?)
}
