//! Marks: what a worker says when a step has returned.
//!
//! The text of a mark is `w3 s41 ok`, or `w3 s41 errno=28` for a step that failed. A worker stops after a failure,
//! unless its workload goes on after this very error (`Steps::failed`), as `full` does after `ENOSPC`.
//! `w0 s0 ok` says that the directories exist and are synced; it comes before every other mark of the run.

use std::fmt;
use std::io;
use std::str::FromStr;

/// The return of one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mark {
    /// The worker, from 0.
    pub worker: u32,
    /// The step, from 1; step 0 of worker 0 is the making of the directories.
    pub step: u64,
    /// 0, or the error number that the step returned.
    pub errno: i32,
}

/// Where marks go.
pub trait Marks: Sync {
    /// Reports a mark and returns when it has been acknowledged, i.e. when it is in the recording: the worker begins its
    /// next step only then, so at any cut each worker has at most one step that may or may not have happened.
    fn returned(&self, mark: &Mark) -> io::Result<()>;
}

/// A text that is no mark.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a mark like \"w3 s41 ok\" or \"w3 s41 errno=28\"")]
pub struct NotAMark(String);

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "w{} s{} ", self.worker, self.step)?;
        if self.errno == 0 { f.write_str("ok") } else { write!(f, "errno={}", self.errno) }
    }
}

impl FromStr for Mark {
    type Err = NotAMark;

    fn from_str(text: &str) -> Result<Mark, NotAMark> {
        parse(text).filter(|mark| mark.to_string() == text).ok_or_else(|| NotAMark(text.to_owned()))
    }
}

fn parse(text: &str) -> Option<Mark> {
    let mut words = text.split(' ');
    let worker = words.next()?.strip_prefix('w')?.parse().ok()?;
    let step = words.next()?.strip_prefix('s')?.parse().ok()?;
    let errno = match words.next()? {
        "ok" => 0,
        other => other.strip_prefix("errno=")?.parse().ok()?,
    };
    Some(Mark { worker, step, errno })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_the_exact_text_is_a_mark() {
        for text in ["", "w1 s2", "w1 s2 ok ", "w1 s2 errno=0", "w01 s2 ok", "w1 s+2 ok", "s2 w1 ok", "w1 s2 ok x"] {
            assert!(text.parse::<Mark>().is_err(), "{text:?}");
        }
        assert_eq!("w3 s41 errno=28".parse(), Ok(Mark { worker: 3, step: 41, errno: 28 }));
    }

    proptest! {
        #[test]
        fn a_mark_survives_its_text(worker: u32, step: u64, errno: i32) {
            let mark = Mark { worker, step, errno };
            prop_assert_eq!(mark.to_string().parse(), Ok(mark));
        }
    }
}
