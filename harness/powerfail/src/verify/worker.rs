//! A worker: from a recipe to a verdict.

use std::time::Instant;

use anyhow::{Context, bail};
use powerfail_drive::crash::Recipe;
use powerfail_drive::explore::Walk;
use powerfail_drive::history::MOUNTED;
use powerfail_ledger::Outcome;
use powerfail_workloads::{Mark, Oracle};

use super::{Examined, Extent, Job, examine};
use crate::broken::{self, Broke};
use crate::check;
use crate::depth::{Chain, overlay};
use crate::evidence::Evidence;
use crate::folder::Usage;
use crate::image::Image;
use crate::plan_file::Entry;
use crate::rigs::Seat;

/// A judged state.
#[derive(Debug)]
pub struct Judged {
    /// The event of the cut.
    pub cut: u64,
    /// Loose fragments.
    pub loose: u64,
    /// Those that were lost.
    pub lost: u64,
    /// The verdict.
    pub outcome: Outcome,
    /// What it was based on.
    pub evidence: Evidence,
    /// Milliseconds from the recipe to the verdict.
    pub took_ms: u64,
}

/// A worker with its agent, its image and its place in the recording.
pub struct Worker<'a> {
    job: &'a Job<'a>,
    /// An agent and the image that it attaches. They come and go together: after an agent's death nobody knows when the
    /// kernel is done with the image.
    seat: Option<(Seat, Image)>,
    place: Option<Place<'a>>,
    /// States in a row for which no agent started.
    unstarted: u32,
}

/// How far the walk and the oracle are.
struct Place<'a> {
    walk: Walk<'a>,
    oracle: Oracle,
    /// The mark `mounted` lies behind; before it nothing was promised.
    mounted: bool,
}

impl<'a> Worker<'a> {
    /// A worker at the start of the recording; its agent is started with the first state.
    pub fn new(job: &'a Job<'a>) -> Worker<'a> {
        Worker::with_seat(job, None)
    }

    /// The same, with the agent and the image of another worker that is done.
    pub fn with_seat(job: &'a Job<'a>, seat: Option<(Seat, Image)>) -> Worker<'a> {
        Worker { job, seat, place: None, unstarted: 0 }
    }

    /// Gives the agent and the image up to another worker, if they are still good.
    pub fn into_seat(self) -> Option<(Seat, Image)> {
        self.seat
    }

    /// Judges one state. A failure of the harness is tried once more, with a new agent, and is then the outcome.
    ///
    /// # Errors
    /// If the recipe is none of this recording's: then the folder was altered. Also if no agent starts any more: nothing
    /// would come of the states that are left but the wait for each.
    pub fn judge(&mut self, entry: &Entry) -> anyhow::Result<Judged> {
        let started = Instant::now();
        let altered = |why: String| Usage(format!("{}: {why}", self.job.folder.plan().display()));
        let state: Chain = entry.state.parse().map_err(|error| altered(format!("{error}")))?;
        let recipe = state.last();
        let mut judged = Judged {
            cut: recipe.cut,
            loose: recipe.kept.len() as u64,
            lost: recipe.lost(),
            outcome: Outcome::Held,
            evidence: Evidence::default(),
            took_ms: 0,
        };
        self.go_to(&state.first)?;
        (judged.outcome, judged.evidence) = self.settle(&state, &entry.image)?;
        judged.took_ms = started.elapsed().as_millis() as u64;
        Ok(judged)
    }

    /// Examines until a verdict stands. Mostly that is once. But some lines of the kernel's name no device, and whoever
    /// mounts something on this machine without our lock can put one into our window: a verdict that rests on such lines
    /// must come out the same twice running.
    fn settle(&mut self, state: &Chain, digest: &str) -> anyhow::Result<(Outcome, Evidence)> {
        let mut before = None;
        for _ in 0..DOUBTS {
            let (outcome, evidence) = self.look(state, digest)?;
            let place = self.place.as_ref().expect("gone to");
            if before.as_ref() == Some(&outcome) || !doubtful(&outcome, &evidence, place) {
                return Ok((outcome, evidence));
            }
            before = Some(outcome);
        }
        let reason = "the kernel's lines that name no device are others at each try: something else on this machine \
                      mounts file systems meanwhile";
        Ok((Outcome::Broken { reason: reason.into() }, Evidence::default()))
    }

    /// One verdict; a failure of the harness is tried once more with a new agent. What broke is kept.
    fn look(&mut self, state: &Chain, digest: &str) -> anyhow::Result<(Outcome, Evidence)> {
        let mut reason = String::new();
        let mut started = false;
        for attempt in 1..=TRIES {
            match self.examine(state) {
                Ok(evidence) => {
                    self.unstarted = 0;
                    let place = self.place.as_ref().expect("gone to");
                    return Ok((verdict(&evidence, place), evidence));
                }
                Err(error) => {
                    // Without a seat no agent started.
                    started |= self.seat.take().is_some();
                    let broke = Broke::of(&error);
                    if !digest.is_empty() {
                        broke.keep(&broken::folder(&self.job.folder.path, digest), attempt)?;
                    }
                    reason = broke.reason;
                }
            }
        }
        self.unstarted = if started { 0 } else { self.unstarted + 1 };
        if self.unstarted == GIVE_UP {
            bail!("no agent started for {GIVE_UP} states in a row: {reason}");
        }
        Ok((Outcome::Broken { reason }, Evidence::default()))
    }

    /// The image of a recipe, in this worker's image file.
    ///
    /// # Errors
    /// If the recipe is none of this recording's, or the image can't be made.
    pub fn image(&mut self, recipe: &Recipe) -> anyhow::Result<&Image> {
        self.image_of(&recipe.clone().into())
    }

    /// The image of a state of any depth.
    ///
    /// # Errors
    /// If a recipe is none of its recording's, or the image can't be made.
    pub fn image_of(&mut self, state: &Chain) -> anyhow::Result<&Image> {
        self.go_to(&state.first)?;
        self.materialise(state)?;
        Ok(&self.seat.as_ref().expect("materialised").1)
    }

    /// Goes on to the cut; a recipe that lies behind starts from the beginning.
    fn go_to(&mut self, recipe: &Recipe) -> anyhow::Result<()> {
        let job = self.job;
        if self.place.as_ref().is_some_and(|place| place.walk.history.next_event() > recipe.cut) {
            self.place = None;
        }
        if self.place.is_none() {
            let walk = Walk::new(job.recording.bytes(), recipe.drive)?;
            self.place = Some(Place { walk, oracle: Oracle::new(&job.cell.spec, job.cell.promises()), mounted: false });
        }
        let Place { walk, oracle, mounted } = self.place.as_mut().expect("just made");
        let mut out_of_order = None;
        walk.advance_with(recipe.cut, |label| {
            *mounted |= label == MOUNTED;
            if let Ok(mark) = label.parse::<Mark>()
                && let Err(error) = oracle.returned(&mark)
            {
                out_of_order.get_or_insert(error);
            }
        })?;
        if let Some(error) = out_of_order {
            bail!("the recording's marks are none of this workload's: {error}");
        }
        let loose = walk.history.loose().len();
        if loose != recipe.kept.len() || walk.history.next_event() != recipe.cut {
            let text = format!(
                "the recipe is of another recording or another drive: at event {} {loose} fragments are loose, not {}",
                walk.history.next_event(),
                recipe.kept.len()
            );
            bail!(Usage(text));
        }
        Ok(())
    }

    fn materialise(&mut self, state: &Chain) -> anyhow::Result<()> {
        let job = self.job;
        if self.seat.is_none() {
            let image = Image::new(job.cell.header.geometry.bytes()).context("can't make an image in memory")?;
            self.seat = Some((job.rig.seat(&image)?, image));
        }
        let history = &self.place.as_ref().expect("gone to").walk.history;
        let image = &mut self.seat.as_mut().expect("just made").1;
        image
            .become_state(history, job.recording.bytes(), &state.first.kept, state.first.order)
            .context("can't make the image")?;
        overlay(image, job.folder, &state.deeper)
    }

    fn examine(&mut self, state: &Chain) -> anyhow::Result<Evidence> {
        self.materialise(state)?;
        let (seat, _) = self.seat.as_mut().expect("materialised");
        let mounted = self.place.as_ref().expect("gone to").mounted;
        let extent = if mounted { Extent::Everything } else { Extent::Unfinished };
        match examine(seat, self.job.cell, extent, &self.job.rig.limits())? {
            Examined::Whole(evidence) => Ok(evidence),
            Examined::Stopped(evidence) => {
                self.seat = None;
                Ok(evidence)
            }
        }
    }
}

/// How often a state is tried when the harness or its guest breaks.
const TRIES: u32 = 2;
/// States in a row for which no agent started, before the cell is given up.
const GIVE_UP: u32 = 3;
/// Examinations before a verdict that rests on nameless lines is given up.
const DOUBTS: usize = 4;

/// Whether a verdict rests on lines that name no device: without them it is another.
fn doubtful(outcome: &Outcome, evidence: &Evidence, place: &Place<'_>) -> bool {
    evidence.has_nameless_lines() && verdict(&evidence.without_nameless_lines(), place) != *outcome
}

fn verdict(evidence: &Evidence, place: &Place<'_>) -> Outcome {
    if let Some(log) = evidence.logs().find(|log| log.lost > 0) {
        let reason = format!("{} lines of the kernel's log were overwritten before they were read", log.lost);
        return Outcome::Broken { reason };
    }
    let findings = if place.mounted { check::findings(evidence, &place.oracle) } else { check::unfinished(evidence) };
    if findings.is_empty() { Outcome::Held } else { Outcome::Violated { findings } }
}
