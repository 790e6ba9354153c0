//! `append`: growing logs, synced every so many records; what is recovered of each is a prefix of it.
//!
//! A record is some blocks of 512 bytes with a generation of its own, so the oracle knows which records are there: those
//! before the last sync are, and of the later ones there may be any, block by block, up to any size in between. A log
//! that has grown to its limit is left and the next one begun; every so often the oldest is unlinked.

use super::Workload;
use super::kit::{Desk, Live, Plan, Player, options, usual};
use crate::steps::Steps;
use powerfail_seed::below;
use rand_chacha::ChaCha8Rng;
use std::collections::VecDeque;

options! {
    "append",
    /// Options of `append`.
    Append {
        workers: 3, seconds: 3,
        /// Records between two syncs.
        every: u32 = 4,
        /// Largest record, in blocks of 512 bytes.
        record: u64 = 6,
        /// A log of so many blocks is full.
        log_blocks: u64 = 1024,
        /// Logs that a worker keeps.
        logs: u32 = 6,
    }
}

impl Workload for Append {
    usual!();

    fn directories(&self) -> Vec<String> {
        (0..self.workers).map(|worker| format!("w{worker}")).collect()
    }

    fn steps(&self, worker: u32) -> Box<dyn Steps> {
        let plan = Logs { options: self.clone(), dir: format!("w{worker}"), logs: VecDeque::new() };
        Player::boxed(self.seed, "append", worker, plan)
    }

    fn check(&self) -> Result<(), String> {
        self.usual_check()?;
        if self.every == 0 || self.record == 0 || self.logs == 0 || self.log_blocks == 0 {
            return Err("append needs at least one record between syncs, one block a record and one log".into());
        }
        Ok(())
    }
}

#[derive(Clone)]
struct Logs {
    options: Append,
    dir: String,
    /// The newest last.
    logs: VecDeque<Live>,
}

impl Plan for Logs {
    fn plan(&mut self, desk: &mut Desk, rng: &mut ChaCha8Rng) {
        if self.logs.back().is_none_or(|log| log.blocks >= self.options.log_blocks) {
            let path = desk.fresh(&self.dir);
            let log = desk.file(path);
            desk.push(log.create());
            self.logs.push_back(log);
            if self.logs.len() > self.options.logs as usize {
                desk.push(self.logs.pop_front().expect("more than none").unlink());
            }
        }
        let log = self.logs.back_mut().expect("one is open");
        for _ in 0..self.options.every {
            desk.push(log.append(1 + below(rng, self.options.record)));
        }
        // A log of a constant size needs no more than its data; this one grows, so both calls promise the same.
        desk.push(if below(rng, 2) == 0 { log.fsync() } else { log.fdatasync() });
        if below(rng, 16) == 0 {
            desk.push(log.sync_dir());
        }
    }
}
