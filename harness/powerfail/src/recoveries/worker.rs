//! One state, recovered three times: by the kernel at a mount of a watched drive, by e2fsck, and by our own replay.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use powerfail_agent::protocol::{Source, ToolRan};
use powerfail_drive::crash::Recipe;
use powerfail_drive::explore::Walk;
use powerfail_jbd2::{Error, Layout, LogBlock, NoRecovery, Refused, Rules, Why, replay_by};
use powerfail_nbd::{Config, Exports, Farewell, Handle};
use powerfail_rig::{MountOutcome, UnmountOutcome};

use super::compare::{Difference, End, Left, Three, compare};
use super::replay_mask::Who;
use super::watched::{Pages, Watched};
use crate::cell::Cell;
use crate::folder::Usage;
use crate::image::Image;
use crate::recording_file::Mapped;
use crate::rigs::{Rig, Seat};

const LIMIT: Duration = Duration::from_secs(60);
/// For the lock that keeps the kernel's nameless lines apart.
const LOCK: Duration = Duration::from_secs(300);

/// How one state came out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// All three did the same.
    Agree {
        /// Blocks that were compared.
        blocks: usize,
        /// Transactions that were replayed.
        transactions: usize,
        /// All three refused, and wrote the same before.
        refused: bool,
        /// e2fsck did more than to replay, so only what it wrote before it emptied the log was compared.
        e2fsck_watched: bool,
    },
    /// They did not: a finding.
    Differ {
        /// What is different, and who stands alone.
        detail: String,
        /// The blocks; none if it is who refuses.
        blocks: Vec<Difference>,
    },
    /// There was nothing that could be compared.
    NotCompared {
        /// Why.
        reason: String,
    },
}

/// A worker with its place in the recording, its images and its agent.
pub(super) struct Worker<'a> {
    cell: &'a Cell,
    recording: &'a Mapped,
    rig: &'a dyn Rig,
    name: String,
    walk: Option<Walk<'a>>,
    tools: Option<Tools>,
}

/// What lives from state to state: two images, an agent that has one of them, and a server of the other.
struct Tools {
    /// The image that is only read; the kernel's writes are kept apart.
    image: Image,
    /// The image that e2fsck writes to.
    checked: Image,
    seat: Seat,
    watched: Arc<Watched>,
    source: Source,
    rules: Rules,
    server: Option<Handle>,
    runtime: tokio::runtime::Runtime,
}

impl Drop for Tools {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            self.runtime.block_on(server.shutdown(Farewell::Answer));
        }
    }
}

impl<'a> Worker<'a> {
    /// A worker at the start of a recording; `name` is one of its own among all.
    pub(super) fn new(cell: &'a Cell, recording: &'a Mapped, rig: &'a dyn Rig, name: String) -> Worker<'a> {
        Worker { cell, recording, rig, name, walk: None, tools: None }
    }

    /// Recovers a state three times, and compares. A failure of the harness is tried once more, with a new agent.
    ///
    /// # Errors
    /// If the recipe is none of this recording's, or the harness fails again.
    pub(super) fn look(&mut self, recipe: &Recipe) -> anyhow::Result<Outcome> {
        let mut outcome = self.recover(recipe);
        if outcome.as_ref().is_err_and(|error| !error.is::<Usage>()) {
            // Nobody knows in what state the agent is.
            self.tools = None;
            outcome = self.recover(recipe);
        }
        if outcome.is_err() {
            self.tools = None;
        }
        outcome
    }

    fn recover(&mut self, recipe: &Recipe) -> anyhow::Result<Outcome> {
        self.go_to(recipe)?;
        if self.tools.is_none() {
            let size = self.cell.header.geometry.bytes();
            self.tools = Some(Tools::new(size, self.rig, &self.name)?);
        }
        let (Some(walk), Some(tools)) = (&self.walk, &mut self.tools) else { unreachable!("both were just made") };
        let recording = self.recording.bytes();
        tools.recover(self.cell.fs.kernel_name(), &mut |image| {
            image.become_state(&walk.history, recording, &recipe.kept, recipe.order).map(|_| ())
        })
    }

    fn go_to(&mut self, recipe: &Recipe) -> anyhow::Result<()> {
        if self.walk.as_ref().is_none_or(|walk| walk.history.next_event() > recipe.cut) {
            self.walk = Some(Walk::new(self.recording.bytes(), recipe.drive)?);
        }
        let walk = self.walk.as_mut().expect("just made");
        walk.advance(recipe.cut)?;
        if walk.history.loose().len() != recipe.kept.len() || walk.history.next_event() != recipe.cut {
            bail!(Usage("the recipe is of another recording or another drive".into()));
        }
        Ok(())
    }
}

/// Recovers the image in a file three times, and compares.
///
/// # Errors
/// If it can't be read, or the harness fails.
pub(super) fn look_at_image(file: &File, size: u64, rig: &dyn Rig) -> anyhow::Result<Outcome> {
    let mut tools = Tools::new(size, rig, "image-recoveries")?;
    tools.recover("ext4", &mut |image| image.become_file(file))
}

impl Tools {
    /// Recovers what `make` makes of an image.
    fn recover(&mut self, driver: &str, make: &mut dyn FnMut(&mut Image) -> io::Result<()>) -> anyhow::Result<Outcome> {
        make(&mut self.image).context("can't make the image")?;
        let tools = self;
        let ours = replay_by(tools.rules, &tools.image.bytes());
        if let Some(reason) = nothing_to_compare(&ours) {
            return Ok(Outcome::NotCompared { reason });
        }
        let layout = match Layout::read(&tools.image.bytes()) {
            Ok(layout) => layout,
            Err(error) => return Ok(Outcome::NotCompared { reason: error.to_string() }),
        };
        let (kernel, pages) = tools.by_kernel(driver)?;
        make(&mut tools.checked).context("can't make the image")?;
        let alone = tools.by_e2fsck()?;
        let watched = match &alone {
            Some(_) => None,
            None => Some(tools.by_watched_e2fsck(&layout)?),
        };
        let extents = tools.checked.extents()?;
        let e2fsck = match (alone, &watched) {
            (_, Some((end, pages))) => (end.clone(), Left::Pages(pages)),
            (Some(end), None) => (end, Left::Image { bytes: tools.checked.bytes(), extents: &extents }),
            (None, None) => unreachable!("one of the two"),
        };
        let (end, replay) = match &ours {
            Ok(replay) => (None, Some(replay)),
            Err(refused) => (Some(refused.why.to_string()), refused.partial.as_deref()),
        };
        let comparison = compare(&Three {
            before: tools.image.bytes(),
            kernel: (kernel, &pages),
            e2fsck,
            ours: (End { who: Who::Ours, refused: end }, replay),
            layout: &layout,
        });
        Ok(match comparison.finding {
            Some((detail, blocks)) => Outcome::Differ { detail, blocks },
            None => Outcome::Agree {
                blocks: comparison.blocks,
                transactions: replay.map_or(0, |replay| replay.transactions.len()),
                refused: comparison.refused,
                e2fsck_watched: watched.is_some(),
            },
        })
    }
}

impl Tools {
    fn new(size: u64, rig: &dyn Rig, name: &str) -> anyhow::Result<Tools> {
        let (image, checked) = (Image::new(size)?, Image::new(size)?);
        let seat = rig.seat(&checked)?;
        let watched = Arc::new(Watched::new(&image)?);
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let server = {
            let _inside = runtime.enter();
            rig.bind(name)?.serve(Exports::one(watched.clone()), Config::default())?
        };
        let source = rig.drive(server.address());
        let rules = rules(&seat.agent.hello().kernel);
        Ok(Tools { image, checked, seat, watched, source, rules, server: Some(server), runtime })
    }

    /// Mounts the watched drive. The options are the defaults, whatever the cell's: what replay does is decided by what is
    /// on the disk, and without barriers no flush would tell where it ends.
    fn by_kernel(&mut self, driver: &str) -> anyhow::Result<(End, Pages)> {
        let agent = &mut self.seat.agent;
        self.watched.reset();
        agent.attach(self.source.clone(), LIMIT)?;
        self.watched.watch();
        let refused = match agent.mount(driver, "", LOCK, LIMIT)? {
            MountOutcome::Mounted { .. } => None,
            MountOutcome::Refused { message, log, .. } => {
                let said: Vec<&str> = log.lines.iter().map(|line| line.text.as_str()).collect();
                Some(format!("{message}: {}", said.join(" | ")))
            }
        };
        let (pages, flushed) = self.watched.seen();
        if refused.is_none() {
            match agent.unmount(LIMIT)? {
                UnmountOutcome::Unmounted { .. } => {}
                UnmountOutcome::Failed { message, .. } => bail!("can't unmount: {message}"),
            }
        }
        agent.detach(LIMIT)?;
        if refused.is_none() && !flushed {
            bail!("the kernel mounted without a flush, so nobody knows where its replay ended");
        }
        Ok((End { who: Who::Kernel, refused }, pages))
    }

    /// None: it did more than to replay. Even with `journal_only` it cleans up orphans.
    fn by_e2fsck(&mut self) -> anyhow::Result<Option<End>> {
        let ran = self.tool(E2FSCK)?;
        if lines(&ran).any(|line| line.contains("orphan")) {
            return Ok(None);
        }
        Ok(Some(End { who: Who::E2fsck, refused: refusal(&ran)? }))
    }

    /// e2fsck on the watched drive: its replay ends with a flush too, before it empties the log and goes on to orphans and
    /// to its own bookkeeping.
    fn by_watched_e2fsck(&mut self, layout: &Layout) -> anyhow::Result<(End, Pages)> {
        let journal = layout.journal().and_then(|journal| journal.place(LogBlock(0)));
        let journal = journal.context("a file system whose journal was replayed has one")?;
        self.watched.reset();
        let agent = &mut self.seat.agent;
        agent.attach(self.source.clone(), LIMIT)?;
        self.watched.watch_until_before(journal.0 * u64::from(layout.superblock.block_size));
        let ran = agent.tool(E2FSCK, LIMIT)?;
        let (pages, flushed) = self.watched.seen();
        agent.detach(LIMIT)?;
        if !flushed {
            bail!("e2fsck ended without a flush, so nobody knows where its replay ended");
        }
        Ok((End { who: Who::E2fsck, refused: refusal(&ran)? }, pages))
    }

    fn tool(&mut self, argv: &[&str]) -> anyhow::Result<ToolRan> {
        let agent = &mut self.seat.agent;
        agent.attach(self.seat.source.clone(), LIMIT)?;
        let ran = agent.tool(argv, LIMIT)?;
        agent.detach(LIMIT)?;
        Ok(ran)
    }
}

/// It replays the journal, and cleans up orphans.
const E2FSCK: &[&str] = &["e2fsck", "-E", "journal_only", "-y", "{device}"];

/// What e2fsck says when a replay fails; its exit code does not tell.
const REFUSALS: &[&str] = &[
    "Journal checksum error found",
    "Journal corrupted in",
    "while recovering journal",
    "was corrupt, replay was aborted",
    "journal superblock is corrupt",
];

/// Why e2fsck's replay failed, if it did.
fn refusal(ran: &ToolRan) -> anyhow::Result<Option<String>> {
    if let Some(line) = lines(ran).find(|line| REFUSALS.iter().any(|refusal| line.contains(refusal))) {
        return Ok(Some(line.to_owned()));
    }
    match ran.code {
        // 0: nothing to do; 1 and 2: it did something.
        Some(0..=2) => Ok(None),
        _ => bail!("e2fsck failed: {}", lines(ran).collect::<Vec<_>>().join(" | ")),
    }
}

fn lines(ran: &ToolRan) -> impl Iterator<Item = &str> {
    ran.stdout.lines().chain(ran.stderr.lines()).map(str::trim)
}

/// Whether a state has nothing to compare, and why.
fn nothing_to_compare(ours: &Result<powerfail_jbd2::Replay, Refused>) -> Option<String> {
    match ours {
        Ok(replay) => match (replay.nothing, &replay.fast_commit) {
            (Some(NoRecovery::Empty), _) => Some("the log is empty, so there is nothing to replay".into()),
            (Some(NoRecovery::NotAsked), _) => Some("the superblock does not ask for recovery".into()),
            (None, Some(_)) => Some("fast commit present: powerfail does not replay those".into()),
            (None, None) => None,
        },
        Err(refused) => match &refused.why {
            Why::Journal(error @ (Error::NoJournal | Error::NotExt(_) | Error::External | Error::Unknown(_))) => {
                Some(error.to_string())
            }
            _ => None,
        },
    }
}

/// The rules of a kernel, by its release such as `6.1.0-57-amd64`.
fn rules(release: &str) -> Rules {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|part| part.parse::<u32>().ok());
    match (numbers.next(), numbers.next()) {
        (Some(major), Some(minor)) if (major, minor) < (6, 11) => Rules::RefuseTornCommit,
        _ => Rules::AcceptTornCommit,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_those_of_the_kernel() {
        assert_eq!(rules("6.1.0-57-amd64"), Rules::RefuseTornCommit);
        assert_eq!(rules("6.11.2"), Rules::AcceptTornCommit);
        assert_eq!(rules("6.18.44"), Rules::AcceptTornCommit);
        assert_eq!(rules("7.0-rc1"), Rules::AcceptTornCommit);
    }
}
