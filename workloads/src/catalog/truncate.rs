//! `truncate`: sizes up and down, holes, and `fallocate` in all its modes, with syncs between them.
//!
//! What belonged to the file once must not come back, what never did must not appear, and a promised size stays. A file system
//! without a mode (ext2 and ext3 have no `fallocate`) refuses it; the worker then goes on without that mode.

use super::Workload;
use super::kit::{Desk, Live, Plan, Player, options, usual};
use crate::steps::{Allocate, Op, Steps};
use powerfail_seed::below;
use rand_chacha::ChaCha8Rng;

options! {
    "truncate",
    /// Options of `truncate`.
    Truncate {
        workers: 3, seconds: 3,
        /// Files of each worker.
        files: u32 = 10,
        /// Largest file, in blocks of 512 bytes.
        blocks: u64 = 160,
        /// Percent of the steps that are followed by a sync.
        sync_percent: u32 = 45,
    }
}

impl Workload for Truncate {
    usual!();

    fn directories(&self) -> Vec<String> {
        (0..self.workers).map(|worker| format!("w{worker}")).collect()
    }

    fn steps(&self, worker: u32) -> Box<dyn Steps> {
        let modes = vec![
            Allocate::Extend,
            Allocate::KeepSize,
            Allocate::Punch,
            Allocate::Punch,
            Allocate::Zero,
            Allocate::ZeroKeepSize,
        ];
        let plan = Sizes { options: self.clone(), dir: format!("w{worker}"), live: Vec::new(), modes };
        Player::boxed(self.seed, "truncate", worker, plan)
    }

    fn check(&self) -> Result<(), String> {
        self.usual_check()?;
        if self.files == 0 || self.blocks < 16 {
            return Err("truncate needs at least one file, and 16 blocks for the largest".into());
        }
        Ok(())
    }
}

#[derive(Clone)]
struct Sizes {
    options: Truncate,
    dir: String,
    live: Vec<Live>,
    /// Those that were not refused.
    modes: Vec<Allocate>,
}

impl Plan for Sizes {
    fn plan(&mut self, desk: &mut Desk, rng: &mut ChaCha8Rng) {
        if self.live.len() < self.options.files as usize {
            let path = desk.fresh(&self.dir);
            let mut live = desk.file(path);
            desk.push(live.create());
            desk.push(live.append(1 + below(rng, self.options.blocks / 2)));
            desk.push(live.fsync());
            self.live.push(live);
            return;
        }
        let at = below(rng, self.live.len() as u64) as usize;
        let most = self.options.blocks;
        let live = &mut self.live[at];
        let block = below(rng, most - 1);
        let blocks = 1 + below(rng, (most - block).min(40));
        match below(rng, 12) {
            0..2 => desk.push(live.truncate(below(rng, live.blocks + 1))),
            2 => desk.push(live.truncate(below(rng, most))),
            3..5 => desk.push(live.write(block, blocks)),
            5 => desk.push(live.write(below(rng, live.blocks + 1).min(block), blocks)),
            6 if live.blocks < most => desk.push(live.append(1 + below(rng, 8))),
            7 => {
                // Cut and grown again at once: what was cut must not show.
                desk.push(live.truncate(live.blocks / 2));
                desk.push(live.truncate(live.blocks + 1 + below(rng, 16)));
            }
            8 if below(rng, 8) == 0 => {
                desk.push(live.unlink());
                self.live.swap_remove(at);
                return;
            }
            _ if self.modes.is_empty() => desk.push(live.write(block, blocks)),
            _ => {
                let mode = self.modes[below(rng, self.modes.len() as u64) as usize];
                desk.push(live.allocate(mode, block, blocks));
            }
        }
        if below(rng, 100) < u64::from(self.options.sync_percent) {
            desk.push(if below(rng, 3) == 0 { live.fdatasync() } else { live.fsync() });
        }
    }

    fn failed(&mut self, _: &mut Desk, op: &Op, errno: i32) -> bool {
        let Op::Allocate { file, mode, .. } = op else { return false };
        if errno != libc::EOPNOTSUPP {
            return false;
        }
        self.modes.retain(|known| known != mode);
        // What its size is now is known again when it is set.
        let at = self.live.iter().position(|live| live.file == *file);
        at.into_iter().for_each(|at| drop(self.live.swap_remove(at)));
        true
    }
}
