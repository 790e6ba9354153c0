//! `full`: the file system runs out of space, again and again, and the workers go on.
//!
//! Worker 0 first takes nearly all of the space with `fallocate(KEEP_SIZE)`: files of size 0, so a walk has nothing to read of
//! them. Where there is no `fallocate` it writes instead; there use a small drive. Then all workers create, append,
//! overwrite, link and sync; a step that returns `ENOSPC` may have been done in part or not at all, and makes room by
//! unlinking. A worker forgets a name whose making failed: nothing more is done with it.

use super::Workload;
use super::kit::{Desk, Live, Plan, Player, options, usual};
use crate::steps::{Allocate, Op, Steps};
use powerfail_seed::below;
use rand_chacha::ChaCha8Rng;

options! {
    "full",
    /// Options of `full`.
    Full {
        workers: 3, seconds: 4,
        /// Largest write, in blocks of 512 bytes.
        blocks: u64 = 512,
        /// Percent of the writes that are followed by a sync.
        sync_percent: u32 = 40,
    }
}

impl Workload for Full {
    usual!();

    fn directories(&self) -> Vec<String> {
        let own = (0..self.workers).map(|worker| format!("w{worker}"));
        std::iter::once(FILLER.to_owned()).chain(own).collect()
    }

    fn steps(&self, worker: u32) -> Box<dyn Steps> {
        let filling = (worker == 0).then_some(Filling { blocks: LARGEST, by_writing: false });
        let plan = Crowd { options: self.clone(), dir: format!("w{worker}"), live: Vec::new(), filling, filler: None };
        Player::boxed(self.seed, "full", worker, plan)
    }

    fn check(&self) -> Result<(), String> {
        self.usual_check()?;
        if self.blocks < 8 {
            return Err("full needs writes of at least 8 blocks".into());
        }
        Ok(())
    }
}

const FILLER: &str = "filler";
/// 64 MiB at first.
const LARGEST: u64 = 64 << 11;
/// Down to half a MiB; the rest is the workers' room.
const SMALLEST: u64 = 1 << 10;
/// No walk reads more of one file.
const WRITTEN: u64 = 8 << 11;

/// How the space is taken.
#[derive(Clone)]
struct Filling {
    blocks: u64,
    by_writing: bool,
}

#[derive(Clone)]
struct Crowd {
    options: Full,
    dir: String,
    live: Vec<Live>,
    filling: Option<Filling>,
    /// The filler that is being made.
    filler: Option<Live>,
}

impl Plan for Crowd {
    fn plan(&mut self, desk: &mut Desk, rng: &mut ChaCha8Rng) {
        if let Some(filling) = self.filling.clone() {
            return self.fill(desk, &filling);
        }
        let many = 1 + below(rng, self.options.blocks);
        if self.live.is_empty() || below(rng, 4) == 0 {
            let path = desk.fresh(&self.dir);
            let live = desk.file(path);
            desk.push(live.create());
            self.live.push(live);
        }
        let at = below(rng, self.live.len() as u64) as usize;
        let crowded = self.live.len() > 40;
        let live = &mut self.live[at];
        match below(rng, 8) {
            0..4 => desk.push(live.append(many)),
            4 if live.blocks > 0 => desk.push(live.write(below(rng, live.blocks), many)),
            5 => {
                let block = live.blocks;
                desk.push(live.allocate(Allocate::Extend, block, many));
            }
            6 if live.blocks > 0 => desk.push(live.truncate(below(rng, live.blocks))),
            _ if crowded => return desk.push(self.live.swap_remove(at).unlink()),
            _ => desk.push(live.write(live.blocks + below(rng, 64), many)),
        }
        if below(rng, 100) < u64::from(self.options.sync_percent) {
            let live = &self.live[at];
            match below(rng, 4) {
                0 => desk.push(live.fdatasync()),
                1 => desk.push(live.sync_dir()),
                _ => desk.push(live.fsync()),
            }
        }
    }

    fn failed(&mut self, desk: &mut Desk, op: &Op, errno: i32) -> bool {
        if self.filling.is_some() {
            return self.filling_failed(desk, op, errno);
        }
        if errno == libc::EOPNOTSUPP && matches!(op, Op::Allocate { .. }) {
            self.forget_size(desk, op);
            return true;
        }
        if errno != libc::ENOSPC {
            return false;
        }
        match op {
            Op::Create { file, .. } | Op::Unlink { file, .. } => {
                self.live.retain(|live| live.file != *file);
                desk.drop_script();
            }
            Op::Write { .. } | Op::Truncate { .. } | Op::Allocate { .. } => self.forget_size(desk, op),
            _ => desk.drop_script(),
        }
        // Room for a while: not the file that failed alone, or the workers would only take from each other.
        for _ in 0..3 {
            if self.live.len() > 1 {
                desk.push(self.live.remove(0).unlink());
            }
        }
        true
    }
}

impl Crowd {
    /// The size of a file is in doubt until it is set.
    fn forget_size(&mut self, desk: &mut Desk, op: &Op) {
        desk.drop_script();
        let (Op::Write { file, .. } | Op::Truncate { file, .. } | Op::Allocate { file, .. }) = op else { return };
        if let Some(live) = self.live.iter_mut().find(|live| live.file == *file) {
            desk.push(live.truncate(0));
        }
    }

    fn fill(&mut self, desk: &mut Desk, filling: &Filling) {
        let path = desk.fresh(FILLER);
        let mut live = desk.file(path);
        desk.push(live.create());
        if filling.by_writing {
            desk.push(live.append(filling.blocks.min(WRITTEN)));
        } else {
            desk.push(live.allocate(Allocate::KeepSize, 0, filling.blocks));
        }
        desk.push(live.fsync());
        self.filler = Some(live);
    }

    fn filling_failed(&mut self, desk: &mut Desk, op: &Op, errno: i32) -> bool {
        let filling = self.filling.as_mut().expect("asked before");
        match (op, errno) {
            (Op::Allocate { .. }, libc::EOPNOTSUPP) => filling.by_writing = true,
            (_, libc::ENOSPC) => filling.blocks = filling.blocks.min(WRITTEN * 8) / 4,
            _ => return false,
        }
        desk.drop_script();
        // What a half-made filler took it keeps, in part; a name is all that is given back.
        let filler = self.filler.take().filter(|_| !matches!(op, Op::Create { .. }));
        filler.into_iter().for_each(|filler| desk.push(filler.unlink()));
        if filling.blocks < SMALLEST {
            self.filling = None;
            desk.push(Op::SyncFs);
        }
        true
    }
}
