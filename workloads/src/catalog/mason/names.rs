//! Names of one worker's files: short and long, mostly new, sometimes one that an earlier file had.

use powerfail_seed::below;
use rand_chacha::ChaCha8Rng;
use std::collections::VecDeque;

/// Makes the names of one worker. All begin with the worker, so that workers never meet in the shared directory.
#[derive(Clone)]
pub(super) struct Names {
    worker: u32,
    made: u64,
    long_percent: u32,
    /// Paths that were given up, the newest last.
    freed: VecDeque<String>,
}

/// How many freed paths are remembered: few enough that a path is often used again before its removal is synced.
const REMEMBERED: usize = 24;

impl Names {
    pub(super) fn new(worker: u32, long_percent: u32) -> Names {
        Names { worker, made: 0, long_percent, freed: VecDeque::new() }
    }

    /// A free path for a new file in `dir`, or in whatever directory a freed path was.
    pub(super) fn fresh(&mut self, rng: &mut ChaCha8Rng, dir: &str) -> String {
        if !self.freed.is_empty() && below(rng, 100) < 25 {
            let at = below(rng, self.freed.len() as u64) as usize;
            return self.freed.remove(at).expect("inside the queue");
        }
        let long = below(rng, 100) < u64::from(self.long_percent);
        self.make(rng, dir, long)
    }

    /// A free path in `dir`, long or short as asked.
    pub(super) fn make(&mut self, rng: &mut ChaCha8Rng, dir: &str, long: bool) -> String {
        self.made += 1;
        let mut name = format!("w{}-{:x}", self.worker, self.made);
        if long {
            name.push('-');
            let length = 64 + below(rng, 255 - 64 + 1) as usize;
            while name.len() < length {
                name.push(char::from(b'a' + below(rng, 26) as u8));
            }
        }
        format!("{dir}/{name}")
    }

    /// A path that no file has any more.
    pub(super) fn free(&mut self, path: String) {
        if self.freed.len() == REMEMBERED {
            self.freed.pop_front();
        }
        self.freed.push_back(path);
    }
}

/// Whether the last part of a path is a long name.
pub(super) fn is_long(path: &str) -> bool {
    path.rsplit('/').next().is_some_and(|name| name.len() >= 64)
}
