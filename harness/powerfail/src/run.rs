//! `powerfail run`: the phases one after the other, for each cell, with one ledger.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

use anyhow::Context;
use powerfail_drive::crash::Recipe;
use powerfail_drive::explore::Span;
use powerfail_ledger::{Case, CaseEnd, Contents, Header, Line, Measured, Outcome, PathKeeps, Recording, State, Writer};
use powerfail_reports::Tally;

use crate::broken::{self, Broke};
use crate::cell::Cell;
use crate::cli::Keep;
use crate::config::Config;
use crate::depth;
use crate::doctor::{self, CantTest};
use crate::folder::{CellFolder, Folder, Usage, write_whole};
use crate::investigate::{groups, investigate, write_index};
use crate::kernels::Kernel;
use crate::live::{self, Cuts};
use crate::plan_file::{self, Entry, PlanFile};
use crate::progress::say;
use crate::record::{About, record};
use crate::recording_file::Mapped;
use crate::rigs;
use crate::selftest::told;
use crate::stop::{Stop, Stopped};
use crate::timeline::timeline;
use crate::verify::{Job, verify};

/// What of a run is not part of its identity: it may differ when the run is resumed.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// States verified at a time, in each cell.
    pub jobs: usize,
    /// Stop each cell at its first violation.
    pub until_found: bool,
    /// Cells at a time.
    pub cells: usize,
    /// Which recordings stay.
    pub keep: Keep,
    /// Groups of violated states of which one is shrunk and explained; none: what suits the rig.
    pub shrink: Option<usize>,
}

impl Effort {
    /// One after the other, and everything stays.
    pub fn least() -> Effort {
        Effort { jobs: 1, until_found: false, cells: 1, keep: Keep::All, shrink: None }
    }
}

/// Which phases to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Until {
    /// Record only.
    Recorded,
    /// Record and plan.
    Planned,
    /// All of it.
    Verified,
}

/// The disk is full; the run has stopped with what it has.
#[derive(Debug, thiserror::Error)]
#[error(
    "{folder} has {free} MiB of disk left, and a recording may take {NEEDED_MIB}; what is done is kept: make room and go on \
     with --resume, or look at it with `powerfail report`"
)]
pub struct DiskFull {
    folder: String,
    free: u64,
}

/// Verdicts that looking into one state may take.
const VERDICTS: u64 = 200;

/// Room that a recording may need, MiB: a workload of some seconds on a fast machine.
const NEEDED_MIB: u64 = 600;
/// With less than this left, MiB, a failure is the full disk's.
const FULL_MIB: u64 = 64;

/// Runs all cells of a folder up to a phase; gives the tally of its ledger.
///
/// # Errors
/// If the folder can't be used, the disk is full, the user stops it, or a result can't be kept. A cell that breaks is
/// tried once more and is then in the ledger as broken, and the others go on.
pub fn run(folder: &Folder, effort: Effort, until: Until, stop: &Stop) -> anyhow::Result<Tally> {
    let rigs = rigs::Pool::default();
    let (ledger, contents) = folder.ledger(|| header(&folder.config))?;
    let keeper = Mutex::new(Keeper { ledger, known: Known::of(&contents) });
    let cells = Cell::all(&folder.config);
    let next = AtomicUsize::new(0);
    let end: Mutex<Option<anyhow::Error>> = Mutex::new(None);
    let turn = Turn { folder, effort, until, stop, rigs: &rigs, keeper: &keeper };
    std::thread::scope(|scope| {
        for _ in 0..effort.cells.clamp(1, cells.len().max(1)) {
            scope.spawn(|| {
                while let Some(cell) = cells.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if end.lock().expect("nobody panics with it").is_some() {
                        break;
                    }
                    if let Err(error) = turn.take(cell) {
                        end.lock().expect("nobody panics with it").get_or_insert(error);
                    }
                }
            });
        }
    });
    match end.into_inner().expect("nobody panics with it") {
        Some(error) => Err(error),
        None => tally(folder.path()),
    }
}

/// What the cells of a run share.
struct Turn<'a> {
    folder: &'a Folder,
    effort: Effort,
    until: Until,
    stop: &'a Stop,
    rigs: &'a rigs::Pool,
    keeper: &'a Mutex<Keeper>,
}

impl Turn<'_> {
    /// Runs one cell; an error ends the whole run.
    fn take(&self, cell: &Cell) -> anyhow::Result<()> {
        self.stop.check()?;
        let outcome = match self.try_cell(cell)? {
            Ok(()) => return Ok(()),
            Err(outcome @ Outcome::Skipped { .. }) => outcome,
            Err(Outcome::Broken { reason }) => {
                say(&format!("{}: broken: {reason}; once more", cell.name));
                match self.try_cell(cell)? {
                    Ok(()) => return Ok(()),
                    Err(outcome) => outcome,
                }
            }
            Err(other) => unreachable!("a cell ends skipped or broken, not {other:?}"),
        };
        if let Outcome::Skipped { reason } | Outcome::Broken { reason } = &outcome {
            let how = if matches!(outcome, Outcome::Broken { .. }) { "broken" } else { "skipped" };
            say(&format!("{}: {how}: {reason}", cell.name));
        }
        let case = cell.case(&kernel_of(self.folder, cell));
        self.keeper().append(&Line::Case(CaseEnd { case, outcome }))
    }

    /// The inner result is how a cell ended that did not come to its end; the outer one ends the run.
    fn try_cell(&self, cell: &Cell) -> anyhow::Result<Result<(), Outcome>> {
        match self.run_cell(cell) {
            Ok(()) => Ok(Ok(())),
            Err(error) if error.is::<Stopped>() || error.is::<Usage>() || error.is::<DiskFull>() => Err(error),
            Err(error) if error.is::<CantTest>() => {
                Ok(Err(Outcome::Skipped { reason: error.downcast::<CantTest>()?.0 }))
            }
            Err(error) => {
                // A full disk shows itself in many ways, most of which look like a fault of something else.
                self.room(FULL_MIB)?;
                let broke = Broke::of(&error);
                broke.keep(&broken::folder(&self.folder.cell(&cell.name)?.path, "recording"), 1)?;
                Ok(Err(Outcome::Broken { reason: broke.reason }))
            }
        }
    }

    fn room(&self, needed_mib: u64) -> anyhow::Result<()> {
        let free = rustix::fs::statvfs(self.folder.path()).map_or(u64::MAX, |fs| (fs.f_bavail * fs.f_frsize) >> 20);
        if free < needed_mib {
            return Err(DiskFull { folder: self.folder.path().display().to_string(), free }.into());
        }
        Ok(())
    }

    fn keeper(&self) -> MutexGuard<'_, Keeper> {
        self.keeper.lock().expect("nobody panics while appending")
    }

    fn run_cell(&self, cell: &Cell) -> anyhow::Result<()> {
        if self.until == Until::Verified {
            doctor::require(cell)?;
        }
        let files = self.folder.cell(&cell.name)?;
        if self.until == Until::Verified && files.done().exists() && !files.recording().exists() {
            return Ok(());
        }
        if cell.live {
            return self.live(cell, &files);
        }
        let about = self.recorded(cell, &files)?;
        if self.until < Until::Planned {
            return Ok(());
        }
        let recording = Mapped::open(&files.recording()).context("can't open the recording")?;
        self.keeper().known.check_recording(cell, &recording)?;
        cell.check_drive(&recording)?;
        let plan = plan_file::plan_cell(cell, &files, &recording, &about)?;
        self.keeper().recording(cell, &about, &recording, &plan)?;
        if self.until < Until::Verified {
            return Ok(());
        }
        let (left, found_before) = {
            let known = &self.keeper().known;
            let left = plan.entries.iter().filter(|entry| !known.judged.contains(&entry.state)).cloned();
            (left.collect::<Vec<_>>(), self.effort.until_found && known.violated.contains(&cell.name))
        };
        if !left.is_empty() && !found_before {
            self.judge(cell, &files, &recording, &about, left)?;
        }
        self.deeper(cell, &files, &recording, &about, &plan)?;
        self.answer(cell, &files, &recording, &about)?;
        self.keeper().timeline(cell, &about, &recording, &plan)?;
        write_whole(&files.done(), b"")?;
        if self.effort.keep == Keep::Violated && !self.keeper().known.violated.contains(&cell.name) {
            fs::remove_file(files.recording()).context("can't remove a recording that nobody needs any more")?;
            depth::forget(&files)?;
        }
        Ok(())
    }

    /// Crashes during the recoveries from states that held, depth by depth.
    fn deeper(
        &self,
        cell: &Cell,
        files: &CellFolder,
        recording: &Mapped,
        about: &About,
        plan: &PlanFile,
    ) -> anyhow::Result<()> {
        let (mut above, mut seal) = (depth::within(plan)?, plan.head.seal.clone());
        for depth in 2..=cell.depth {
            if self.effort.until_found && self.keeper().known.violated.contains(&cell.name) {
                break;
            }
            above.retain(|entry| self.keeper().known.held.contains(&entry.state));
            let rig = self.rigs.get(cell)?;
            let asked = depth::Asked { cell, files, recording, rig: &*rig, depth, above: &seal };
            let deeper = depth::plan(&asked, &above, self.stop)?;
            say(&format!("{}: {}", cell.name, deeper.head));
            let judged = |entry: &Entry| self.keeper().known.judged.contains(&entry.state);
            let left: Vec<Entry> = deeper.entries.iter().filter(|entry| !judged(entry)).cloned().collect();
            if !left.is_empty() {
                self.judge(cell, files, recording, about, left)?;
            }
            (above, seal) = (deeper.entries, deeper.head.seal);
        }
        Ok(())
    }

    /// Live cuts are recorded and judged one by one.
    fn live(&self, cell: &Cell, files: &CellFolder) -> anyhow::Result<()> {
        self.room(NEEDED_MIB)?;
        let (done, found_before) = {
            let known = &self.keeper().known;
            let found = self.effort.until_found && known.violated.contains(&cell.name);
            (live::done(cell, &known.recordings, &known.judged), found)
        };
        if found_before {
            return Ok(());
        }
        let rig = self.rigs.get(cell)?;
        let cuts = Cuts { cell, files, rig: &*rig, until_found: self.effort.until_found };
        cuts.run(&done, self.stop, |line| self.keeper().append(line))
    }

    fn judge(
        &self,
        cell: &Cell,
        files: &CellFolder,
        recording: &Mapped,
        about: &About,
        mut left: Vec<Entry>,
    ) -> anyhow::Result<()> {
        say(&format!("{}: verifying {} states", cell.name, left.len()));
        let started = Instant::now();
        if cell.limit.is_some() {
            interleave(&mut left);
        }
        let share = depth::share_of_time(cell, &left);
        let deep = match left.first().map(|entry| depth::depth_of(&entry.state)) {
            Some(depth) if depth > 1 => format!(" of depth {depth}"),
            _ => String::new(),
        };
        let rig = self.rigs.get(cell)?;
        let job = Job {
            cell,
            folder: files,
            recording,
            about,
            rig: &*rig,
            jobs: self.effort.jobs,
            until_found: self.effort.until_found,
            end: cell.limit.map(|limit| started + limit.mul_f64(share)),
        };
        let mut judged = 0u32;
        verify(&job, &left, self.stop, |line| {
            judged += 1;
            self.keeper().append(line)
        })?;
        let value = f64::from(judged) / started.elapsed().as_secs_f64();
        let what = format!("{}: states{deep} verified", cell.name);
        self.keeper().append(&Line::Measured(Measured { what, value, unit: "per second".into() }))
    }

    /// Groups what is violated, and looks into one state of the largest groups.
    fn answer(&self, cell: &Cell, files: &CellFolder, recording: &Mapped, about: &About) -> anyhow::Result<()> {
        let case = cell.case(&about.kernel);
        let states = || -> anyhow::Result<Vec<State>> {
            let lines = powerfail_ledger::read(&self.folder.ledger_path()).map_err(|e| Usage(e.to_string()))?.lines;
            let mut at: HashMap<String, usize> = HashMap::new();
            let mut mine: Vec<State> = Vec::new();
            for line in lines {
                let Line::State(state) = line else { continue };
                if state.case != case {
                    continue;
                }
                // A later line about a state says more.
                match at.get(&state.state) {
                    Some(&index) => mine[index] = *state,
                    None => {
                        at.insert(state.state.clone(), mine.len());
                        mine.push(*state);
                    }
                }
            }
            Ok(mine)
        };
        let mut known = states()?;
        let usual = usize::from(cell.kernel == Kernel::Host);
        let most = if cell.live { 0 } else { self.effort.shrink.unwrap_or(usual) };
        for (_, group) in groups(known.iter()).into_iter().take(most).filter(|(_, group)| group.role.is_none()) {
            let Some(state) = known.iter().find(|one| one.image == group.first && one.depth.is_none()) else {
                continue;
            };
            say(&format!("{}: looking into {}", cell.name, &group.first[..16]));
            let rig = self.rigs.get(cell)?;
            let job = Job { cell, folder: files, recording, about, rig: &*rig, jobs: 1, until_found: false, end: None };
            match investigate(&job, state, VERDICTS, self.stop, |_, _| ()) {
                Ok(found) => {
                    say(&format!("{}: lost was {}; {}", cell.name, found.explanation.role, found.folder.display()));
                    let (role, explanation) = (found.state.role, found.state.explanation);
                    let line = State { role, explanation, ..state.clone() };
                    self.keeper().append(&Line::State(Box::new(line)))?;
                }
                Err(error) if error.is::<Stopped>() => return Err(error),
                // The verdicts stand without it.
                Err(error) => say(&format!("{}: {} can't be shrunk: {error:#}", cell.name, &group.first[..16])),
            }
        }
        if most > 0 {
            known = states()?;
        }
        write_index(&files.path.join("casebooks"), &groups(known.iter()))
    }

    /// The recording of a cell, made if it is not there.
    fn recorded(&self, cell: &Cell, files: &CellFolder) -> anyhow::Result<About> {
        if files.recording().exists() {
            return about(files);
        }
        self.room(NEEDED_MIB)?;
        if let Some(honest) = &cell.told_over {
            return told::tell(cell, &self.folder.cell(honest)?, files);
        }
        say(&format!("{}: recording", cell.name));
        record(cell, files, &*self.rigs.get(cell)?, self.stop).context("recording")
    }
}

/// Puts states, which are in the order of their cuts, in an order whose every beginning is spread over the recording: when
/// time is over, no part of the workload was left out. Each pass still goes forward only.
fn interleave(entries: &mut Vec<Entry>) {
    const PASSES: [usize; 8] = [0, 4, 2, 6, 1, 5, 3, 7];
    let place = |index: usize| PASSES.iter().position(|pass| *pass == index % PASSES.len()).unwrap_or(0);
    let mut placed: Vec<_> = std::mem::take(entries).into_iter().enumerate().collect();
    placed.sort_by_key(|(index, _)| place(*index));
    entries.extend(placed.into_iter().map(|(_, entry)| entry));
}

/// Reads the ledger of a folder and adds it up.
///
/// # Errors
/// [`Usage`] if it can't be read.
pub fn tally(folder: &Path) -> anyhow::Result<Tally> {
    let contents = powerfail_ledger::read(&folder.join("ledger.jsonl")).map_err(|error| Usage(error.to_string()))?;
    Ok(Tally::from_ledgers(&[contents]))
}

/// Writes the page of a tally.
///
/// # Errors
/// If it can't be written.
pub fn write_page(tally: &Tally, path: &Path) -> anyhow::Result<()> {
    write_whole(path, powerfail_reports::render(tally).as_bytes())
}

/// What the rig said of a cell's recording.
///
/// # Errors
/// [`Usage`] if it is missing or damaged.
pub fn about(files: &CellFolder) -> anyhow::Result<About> {
    let usage = |why: String| Usage(format!("{}: {why}", files.about().display()));
    let text = std::fs::read(files.about()).map_err(|error| usage(error.to_string()))?;
    Ok(serde_json::from_slice(&text).map_err(|error| usage(error.to_string()))?)
}

fn kernel_of(folder: &Folder, cell: &Cell) -> String {
    let about = folder.cell(&cell.name).and_then(|files| about(&files));
    let asked = || match &cell.kernel {
        Kernel::Host => rustix::system::uname().release().to_string_lossy().into_owned(),
        other => other.to_string(),
    };
    about.map(|about| about.kernel).unwrap_or_else(|_| asked())
}

/// The first line of a ledger.
pub fn header(config: &Config) -> Header {
    let uname = rustix::system::uname();
    let memory = rustix::system::sysinfo().totalram >> 20;
    let processors = std::thread::available_parallelism().map_or(0, usize::from);
    Header {
        schema: powerfail_ledger::SCHEMA,
        tool: format!("powerfail {}", env!("CARGO_PKG_VERSION")),
        seed: config.seed,
        command: std::env::args().collect::<Vec<_>>().join(" "),
        started: humantime::format_rfc3339_seconds(std::time::SystemTime::now()).to_string(),
        machine: format!(
            "Linux {} ({}), {processors} processors, {memory} MiB of memory",
            uname.release().to_string_lossy(),
            uname.machine().to_string_lossy()
        ),
        shard: config.shard.clone(),
    }
}

/// What the ledger held when the run began or was resumed.
#[derive(Debug, Default)]
struct Known {
    /// Recipes with a verdict. A broken state has none and is tried again.
    judged: HashSet<String>,
    /// Those of them that held: recovery from them can be cut.
    held: HashSet<String>,
    /// Recipes that were violated, one a cell.
    violated: HashSet<String>,
    recordings: Vec<Recording>,
    timelines: HashSet<Case>,
    /// The first violated state of each cell, for its picture.
    shown: Vec<(Case, String)>,
}

impl Known {
    fn of(contents: &Contents) -> Known {
        let mut known = Known::default();
        contents.lines.iter().for_each(|line| known.add(line));
        known
    }

    fn add(&mut self, line: &Line) {
        match line {
            Line::State(state) => {
                let judged = matches!(state.outcome, Outcome::Held | Outcome::Violated { .. });
                if judged {
                    self.judged.insert(state.state.clone());
                }
                if state.outcome == Outcome::Held {
                    self.held.insert(state.state.clone());
                }
                let violated = matches!(state.outcome, Outcome::Violated { .. });
                // A picture is of the workload's recording.
                if violated && state.depth.is_none() && !self.shown.iter().any(|(case, _)| *case == state.case) {
                    self.shown.push((state.case.clone(), state.state.clone()));
                }
                if violated && let Some(recording) = self.recordings.iter().find(|r| r.case == state.case) {
                    let cell = recording.path.split('/').next().unwrap_or_default();
                    self.violated.insert(cell.to_owned());
                }
            }
            Line::Recording(recording) => self.recordings.push((**recording).clone()),
            Line::Timeline(timeline) => {
                self.timelines.insert(timeline.case.clone());
            }
            Line::Case(_) | Line::Measured(_) | Line::Selftest(_) | Line::Header(_) => {}
        }
    }

    fn of_cell(&self, cell: &Cell) -> Option<&Recording> {
        let path = recording_path(cell);
        self.recordings.iter().find(|recording| recording.path == path)
    }

    /// A recording that the ledger knows must still be the same file.
    fn check_recording(&self, cell: &Cell, recording: &Mapped) -> anyhow::Result<()> {
        match self.of_cell(cell) {
            Some(known) if known.digest != recording.digest() => {
                let text = format!(
                    "{} was altered since it was recorded: its BLAKE3 is not the ledger's; restore it or start a new folder",
                    recording.path().display()
                );
                Err(Usage(text).into())
            }
            _ => Ok(()),
        }
    }
}

fn recording_path(cell: &Cell) -> String {
    format!("{}/recording", cell.name)
}

/// The ledger together with what it is known to hold.
struct Keeper {
    ledger: Writer,
    known: Known,
}

impl Keeper {
    fn append(&mut self, line: &Line) -> anyhow::Result<()> {
        self.ledger.append(line)?;
        self.known.add(line);
        Ok(())
    }

    /// Says what was recorded and planned, once.
    fn recording(&mut self, cell: &Cell, about: &About, file: &Mapped, plan: &PlanFile) -> anyhow::Result<()> {
        if self.known.of_cell(cell).is_some() {
            return Ok(());
        }
        let counts = crate::recording_cmd::count(file.bytes())?;
        let mut loose = 0;
        for entry in &plan.entries {
            loose += u64::from(!entry.state.parse::<Recipe>()?.kept.is_empty());
        }
        let line = Recording {
            case: cell.case(&about.kernel),
            path: recording_path(cell),
            digest: plan.head.recording.clone(),
            events: counts.events,
            writes: counts.writes,
            written_bytes: counts.written_bytes,
            flushes: counts.flushes,
            fua: counts.fua,
            trims: counts.trims,
            steps: about.steps,
            first_cut: plan.head.cuts.0,
            last_cut: plan.head.cuts.1,
            planned: plan.head.states,
            loose_permille: (loose * 1000).checked_div(plan.head.states).unwrap_or(0),
            path_keeps: path_keeps(about, &counts, cell),
            took_ms: about.took_ms,
        };
        let in_flight = plan.entries.iter().filter(|entry| entry.in_flight > 0).count() as u64;
        let in_flight = (in_flight * 1000).checked_div(plan.head.states).unwrap_or(0);
        say(&format!(
            "{}: {} events, {} writes, {} flushes, {} steps; {} states planned ({} duplicates left out), {:.1} % with loose \
             fragments, {:.1} % with a write in flight",
            cell.name,
            line.events,
            line.writes,
            line.flushes,
            line.steps,
            line.planned,
            plan.head.duplicates,
            line.loose_permille as f64 / 10.0,
            in_flight as f64 / 10.0
        ));
        for shortcoming in about.shortcomings() {
            say(&format!("{}: {shortcoming}", cell.name));
        }
        self.append(&Line::Recording(Box::new(line)))?;
        say(&format!("{}: {}", cell.name, plan.head.shares_text()));
        if let Some(torn) = plan.head.torn_superblocks {
            say(&format!("{}: {torn} of the states tear the superblock between its two sectors", cell.name));
            let what = format!("{}: states with a torn superblock", cell.name);
            self.append(&Line::Measured(Measured { what, value: torn as f64, unit: "states".into() }))?;
        }
        Ok(())
    }

    /// One picture a cell: of the first violated state, or else of one in the middle that lost something.
    fn timeline(&mut self, cell: &Cell, about: &About, file: &Mapped, plan: &PlanFile) -> anyhow::Result<()> {
        let case = cell.case(&about.kernel);
        if self.known.timelines.contains(&case) {
            return Ok(());
        }
        let shown = self.known.shown.iter().find(|(shown, _)| *shown == case).map(|(_, state)| state.clone());
        let middle = plan.entries.len() / 2;
        let lossy = |entry: &&plan_file::Entry| entry.explorer == "sampled";
        let state = shown
            .or_else(|| plan.entries[middle..].iter().find(lossy).map(|entry| entry.state.clone()))
            .or_else(|| plan.entries.last().map(|entry| entry.state.clone()));
        let Some(state) = state else { return Ok(()) };
        let recipe: Recipe = state.parse()?;
        let (first, last) = plan.head.cuts;
        // A cut outside the workload is shown with what is around it.
        let inside = (first..=last).contains(&recipe.cut);
        let span = if inside { Span { first, last } } else { Span { first: 0, last: u64::MAX } };
        let line = timeline(file.bytes(), case, &recipe, span, &about.journal)?;
        self.append(&Line::Timeline(Box::new(line)))
    }
}

/// What of FLUSH, FUA and TRIM arrived, as far as this recording shows.
pub(crate) fn path_keeps(about: &About, counts: &crate::recording_cmd::Counts, cell: &Cell) -> PathKeeps {
    let flush = if counts.flushes > 0 { "native" } else { "not seen" };
    let fua = match (counts.fua > 0, cell.mode.write_cache) {
        (true, _) => "native",
        (false, true) if about.attached.write_cache == "write back" && !about.attached.fua => "as-flush",
        (false, _) => "not seen",
    };
    let trim = match (counts.trims > 0, about.attached.discard_max_bytes > 0) {
        (true, _) => "native",
        (false, true) => "not seen",
        (false, false) => "lost",
    };
    PathKeeps { flush: flush.into(), fua: fua.into(), trim: trim.into() }
}
