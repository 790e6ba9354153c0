//! `quota`: a quota of many small transactions, so that the journal wraps again and again.
//!
//! Each step changes as little as it can, a record of one block or one name, and is synced by itself. What makes
//! recovery go wrong, if anything does, is then a matter of where the log begins and ends: old transactions behind new ones,
//! revoked blocks, a tail that moved.

use super::Workload;
use super::kit::{Desk, Live, Plan, Player, options, usual};
use crate::steps::{Op, Steps};
use powerfail_seed::below;
use rand_chacha::ChaCha8Rng;

options! {
    "quota",
    /// Options of `quota`.
    Quota {
        workers: 2, seconds: 4,
        /// Files of each worker.
        files: u32 = 24,
        /// Largest file, in blocks of 512 bytes.
        blocks: u64 = 32,
    }
}

impl Workload for Quota {
    usual!();

    fn directories(&self) -> Vec<String> {
        (0..self.workers).flat_map(own).collect()
    }

    fn steps(&self, worker: u32) -> Box<dyn Steps> {
        let plan = Small { options: self.clone(), dirs: own(worker), live: Vec::new() };
        Player::boxed(self.seed, "quota", worker, plan)
    }

    fn check(&self) -> Result<(), String> {
        self.usual_check()?;
        if self.files == 0 || self.blocks == 0 {
            return Err("quota needs at least one file of at least one block".into());
        }
        Ok(())
    }
}

fn own(worker: u32) -> [String; 2] {
    [format!("w{worker}-a"), format!("w{worker}-b")]
}

#[derive(Clone)]
struct Small {
    options: Quota,
    dirs: [String; 2],
    live: Vec<Live>,
}

impl Plan for Small {
    fn plan(&mut self, desk: &mut Desk, rng: &mut ChaCha8Rng) {
        let dir = self.dirs[below(rng, 2) as usize].clone();
        if self.live.len() < self.options.files as usize {
            let path = desk.fresh(&dir);
            let mut live = desk.file(path);
            desk.push(live.create());
            desk.push(live.append(1));
            desk.push(live.fsync());
            self.live.push(live);
            return;
        }
        let at = below(rng, self.live.len() as u64) as usize;
        let live = &mut self.live[at];
        match below(rng, 6) {
            0 if live.blocks >= self.options.blocks => {
                desk.push(live.truncate(1));
                desk.push(live.fsync());
            }
            0..2 => {
                desk.push(live.append(1));
                desk.push(live.fdatasync());
            }
            2 => {
                desk.push(live.write(below(rng, live.blocks), 1));
                desk.push(live.fsync());
            }
            3 => {
                // Directory blocks that are freed and used again are what revocation is for.
                let path = desk.fresh(&dir);
                let from = live.sync_dir();
                desk.push(live.rename(path, None));
                desk.push(live.sync_dir());
                desk.push(from);
            }
            4 => {
                desk.push(live.unlink());
                desk.push(live.sync_dir());
                self.live.swap_remove(at);
            }
            _ => {
                let id = desk.id();
                let path = desk.fresh(&dir);
                desk.push(Op::Mkdir { dir: id, path: path.clone() });
                desk.push(Op::SyncDir { dir: dir.clone() });
                desk.push(Op::Rmdir { dir: id, path });
                desk.push(Op::SyncDir { dir });
            }
        }
    }
}
