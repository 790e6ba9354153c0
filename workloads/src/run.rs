//! Runs a workload on a mounted tree and reports the return of each step.

use crate::catalog::{Limits, Spec, Workload};
use crate::exec::{self, Hands};
use crate::hog::{self, Hogged};
use crate::marks::{Mark, Marks};
use crate::steps::Steps;
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

/// What a run did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// Each worker, in order.
    pub workers: Vec<Worked>,
    /// Returned steps of all workers by kind.
    pub kinds: BTreeMap<String, u64>,
    /// Steps that returned an error after which their worker went on, by kind and error in words. A kind that
    /// is always refused is one that the kernel or the file system does not have.
    #[serde(default)]
    pub refused: BTreeMap<String, u64>,
    /// What the hog did.
    pub hog: Hogged,
}

/// What one worker did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Worked {
    /// Steps that returned, the failed one included.
    pub steps: u64,
    /// Why it stopped before its limit: the failed step in words and its error number.
    pub failed: Option<(String, i32)>,
}

/// A run that could not be made or reported. A failed step is none of these: it is in its mark and in the summary.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The root cannot be opened.
    #[error("cannot open the root of the tree: {0}")]
    Root(#[source] std::io::Error),
    /// Step 0 failed; its mark says so too.
    #[error("cannot make the directories of the workload: {0}")]
    Directories(#[source] std::io::Error),
    /// A mark was not acknowledged, so nothing after it may be done.
    #[error("cannot report mark \"{mark}\": {error}")]
    Mark {
        /// The mark.
        mark: Mark,
        /// What its door said.
        #[source]
        error: std::io::Error,
    },
}

/// Runs `spec` below `root`, which must hold none of its directories yet, until its limits are reached or all its
/// workers have failed.
pub fn run(root: &Path, spec: &Spec, marks: &dyn Marks) -> Result<Summary, RunError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(root, flags, Mode::empty()).map_err(|errno| RunError::Root(errno.into()))?;
    // The seconds count from here, so that a slow file system cannot stretch the run.
    let end = Instant::now() + Duration::from_secs(spec.limits().seconds.into());
    let made = exec::make_directories(&root, &spec.directories());
    report(marks, Mark { worker: 0, step: 0, errno: number(made) })?;
    made.map_err(|errno| RunError::Directories(errno.into()))?;

    let hog = spec.hog();
    let taken = AtomicU64::new(0);
    thread::scope(|scope| {
        // One place in the channel: a pass that is due while one is being made is the same pass.
        let (due, passes) = sync_channel(1);
        let hogging = (hog.every > 0).then(|| scope.spawn(|| hog::serve(&root, hog, passes)));
        let workers: Vec<_> = (0..spec.workers())
            .map(|number| {
                let pace = Pace { taken: &taken, every: hog.every.into(), due: due.clone() };
                let place = Place { root: &root, marks, end, limits: spec.limits() };
                let steps = spec.steps(number);
                scope.spawn(move || work(number, steps, &place, &pace))
            })
            .collect();
        drop(due);
        let done: Vec<_> = workers.into_iter().map(|worker| worker.join().expect("a worker does not panic")).collect();
        let hog = hogging.map_or_else(Hogged::default, |hog| hog.join().expect("the hog does not panic"));
        let mut summary = Summary { hog, ..Summary::default() };
        for worker in done {
            let Counted { worked, kinds, refused } = worker?;
            summary.workers.push(worked);
            for (kind, count) in kinds {
                *summary.kinds.entry(kind.to_owned()).or_default() += count;
            }
            for ((kind, errno), count) in refused {
                let words = format!("{kind}: {}", std::io::Error::from_raw_os_error(errno));
                *summary.refused.entry(words).or_default() += count;
            }
        }
        Ok(summary)
    })
}

/// Where and how long the workers work.
struct Place<'a> {
    root: &'a OwnedFd,
    marks: &'a dyn Marks,
    end: Instant,
    limits: Limits,
}

/// Tells the hog when a pass is due.
struct Pace<'a> {
    taken: &'a AtomicU64,
    every: u64,
    due: SyncSender<()>,
}

impl Pace<'_> {
    fn step(&self) {
        let taken = self.taken.fetch_add(1, Ordering::Relaxed) + 1;
        if self.every > 0 && taken.is_multiple_of(self.every) {
            let _ = self.due.try_send(());
        }
    }
}

#[derive(Default)]
struct Counted {
    worked: Worked,
    kinds: BTreeMap<&'static str, u64>,
    refused: BTreeMap<(&'static str, i32), u64>,
}

fn work(worker: u32, mut steps: Box<dyn Steps>, place: &Place<'_>, pace: &Pace<'_>) -> Result<Counted, RunError> {
    let mut hands = Hands::default();
    let Counted { mut worked, mut kinds, mut refused } = Counted::default();
    while Instant::now() < place.end && place.limits.steps.is_none_or(|limit| worked.steps < limit) {
        let Some(op) = steps.next() else { break };
        let errno = number(hands.execute(place.root, &op));
        worked.steps += 1;
        *kinds.entry(op.kind()).or_default() += 1;
        report(place.marks, Mark { worker, step: worked.steps, errno })?;
        if errno != 0 {
            if !steps.failed(errno) {
                worked.failed = Some((op.to_string(), errno));
                break;
            }
            *refused.entry((op.kind(), errno)).or_default() += 1;
        }
        pace.step();
    }
    Ok(Counted { worked, kinds, refused })
}

fn report(marks: &dyn Marks, mark: Mark) -> Result<(), RunError> {
    marks.returned(&mark).map_err(|error| RunError::Mark { mark, error })
}

fn number(result: Result<(), Errno>) -> i32 {
    result.err().map_or(0, Errno::raw_os_error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Mason;
    use std::io;
    use std::sync::Mutex;

    struct Kept(Mutex<Vec<Mark>>, Option<u64>);

    impl Marks for Kept {
        fn returned(&self, mark: &Mark) -> io::Result<()> {
            self.0.lock().unwrap().push(*mark);
            match self.1 {
                Some(step) if mark.step == step => Err(io::ErrorKind::BrokenPipe.into()),
                _ => Ok(()),
            }
        }
    }

    fn spec(steps: u64) -> Spec {
        Spec::Mason(Mason { steps: Some(steps), seconds: 60, files: 60, hog_mib: 1, ..Mason::default() })
    }

    #[test]
    fn marks_of_a_worker_come_in_order_after_the_directories() {
        let dir = tempfile::tempdir().unwrap();
        let marks = Kept(Mutex::default(), None);
        let summary = run(dir.path(), &spec(40), &marks).unwrap();
        let marks = marks.0.into_inner().unwrap();
        assert_eq!(marks[0], Mark { worker: 0, step: 0, errno: 0 });
        for worker in 0..5 {
            let steps: Vec<_> = marks[1..].iter().filter(|m| m.worker == worker).map(|m| m.step).collect();
            assert_eq!(steps, (1..=40).collect::<Vec<_>>());
        }
        assert!(marks.iter().all(|mark| mark.errno == 0));
        assert!(summary.workers.iter().all(|w| w.steps == 40 && w.failed.is_none()));
        assert_eq!(summary.kinds.values().sum::<u64>(), 200);
        assert!(summary.hog.passes > 0, "{:?}", summary.hog);
    }

    #[test]
    fn a_mark_that_is_not_acknowledged_ends_the_run() {
        let dir = tempfile::tempdir().unwrap();
        let marks = Kept(Mutex::default(), Some(7));
        let error = run(dir.path(), &spec(40), &marks).unwrap_err();
        assert!(matches!(error, RunError::Mark { mark: Mark { step: 7, .. }, .. }), "{error}");
        assert!(marks.0.into_inner().unwrap().iter().all(|mark| mark.step <= 7));
    }

    #[test]
    fn a_tree_that_is_in_use_is_refused_with_its_mark() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("shared")).unwrap();
        let marks = Kept(Mutex::default(), None);
        assert!(matches!(run(dir.path(), &spec(1), &marks), Err(RunError::Directories(_))));
        assert_eq!(marks.0.into_inner().unwrap(), [Mark { worker: 0, step: 0, errno: libc::EEXIST }]);
    }

    #[test]
    fn a_failed_step_is_in_its_mark_and_stops_its_worker() {
        let dir = tempfile::tempdir().unwrap();
        struct Saboteur(std::path::PathBuf, Kept);
        impl Marks for Saboteur {
            fn returned(&self, mark: &Mark) -> io::Result<()> {
                if mark.step == 0 {
                    std::fs::remove_dir(self.0.join("shared"))?;
                }
                self.1.returned(mark)
            }
        }
        let marks = Saboteur(dir.path().to_owned(), Kept(Mutex::default(), None));
        let summary = run(dir.path(), &spec(40), &marks).unwrap();
        assert_eq!(summary.workers[4].steps, 1);
        assert_eq!(summary.workers[4].failed.as_ref().unwrap().1, libc::ENOENT);
        let all = marks.1.0.into_inner().unwrap();
        assert!(all.contains(&Mark { worker: 4, step: 1, errno: libc::ENOENT }));
        assert_eq!(all.iter().filter(|mark| mark.worker == 4).count(), 1);
    }
}
