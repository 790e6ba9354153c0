//! `overwrite`: in place, by every way to write that there is: buffered, `O_DIRECT`, `O_DSYNC`, `O_SYNC`, a shared mapping with and
//! without `msync`, io_uring with and without `RWF_DSYNC`.
//!
//! A write that promises itself promises its own blocks and nothing else; next to it lie buffered writes that are promised nothing
//! until a sync covers them. A way that the kernel or the file system does not have is refused; the worker goes on
//! without it, and the summary of the run says so.

use super::Workload;
use super::kit::{Desk, Live, Plan, Player, options, usual};
use crate::steps::{How, Op, Steps};
use powerfail_seed::below;
use rand_chacha::ChaCha8Rng;

options! {
    "overwrite",
    /// Options of `overwrite`.
    Overwrite {
        workers: 3, seconds: 3,
        /// Files of each worker.
        files: u32 = 4,
        /// Blocks of 512 bytes of each file; a multiple of 8.
        blocks: u64 = 256,
        /// Percent of the writes that append instead, each time to half of the size at most.
        append_percent: u32 = 10,
        /// Percent of the writes that are followed by a sync of the whole file.
        sync_percent: u32 = 15,
    }
}

impl Workload for Overwrite {
    usual!();

    fn directories(&self) -> Vec<String> {
        (0..self.workers).map(|worker| format!("w{worker}")).collect()
    }

    fn steps(&self, worker: u32) -> Box<dyn Steps> {
        let ways = How::ALL.to_vec();
        let plan = InPlace { options: self.clone(), dir: format!("w{worker}"), live: Vec::new(), ways };
        Player::boxed(self.seed, "overwrite", worker, plan)
    }

    fn check(&self) -> Result<(), String> {
        self.usual_check()?;
        if self.files == 0 || self.blocks == 0 || !self.blocks.is_multiple_of(PAGE) {
            return Err("overwrite needs at least one file, and a multiple of 8 blocks in each".into());
        }
        Ok(())
    }
}

/// Blocks of a page; `O_DIRECT` is asked for whole pages, which suits every device.
const PAGE: u64 = 8;

#[derive(Clone)]
struct InPlace {
    options: Overwrite,
    dir: String,
    live: Vec<Live>,
    /// Those that were not refused.
    ways: Vec<How>,
}

impl Plan for InPlace {
    fn plan(&mut self, desk: &mut Desk, rng: &mut ChaCha8Rng) {
        if self.live.len() < self.options.files as usize {
            let path = desk.fresh(&self.dir);
            let mut live = desk.file(path);
            desk.push(live.create());
            desk.push(live.append(self.options.blocks));
            self.live.push(live);
            if self.live.len() == self.options.files as usize {
                desk.push(Op::SyncFs);
            }
            return;
        }
        let at = below(rng, self.live.len() as u64) as usize;
        let live = &mut self.live[at];
        let how = self.ways[below(rng, self.ways.len() as u64) as usize];
        if live.blocks > self.options.blocks * 2 {
            desk.push(live.truncate(self.options.blocks));
        }
        let appends = below(rng, 100) < u64::from(self.options.append_percent);
        if appends && !matches!(how, How::Mapped | How::Msync) {
            let blocks = (1 + below(rng, self.options.blocks / PAGE / 4 + 1)) * PAGE;
            desk.push(live.write_by(live.blocks, blocks, how));
        } else {
            let pages = self.options.blocks / PAGE;
            let page = below(rng, pages);
            let many = 1 + below(rng, (pages - page).min(4));
            let (block, blocks) = if how.is_direct() || below(rng, 2) == 0 {
                (page * PAGE, many * PAGE)
            } else {
                let block = page * PAGE + below(rng, PAGE);
                (block, 1 + below(rng, self.options.blocks - block).min(20))
            };
            desk.push(live.write_by(block, blocks, how));
        }
        if below(rng, 100) < u64::from(self.options.sync_percent) {
            desk.push(if below(rng, 2) == 0 { live.fsync() } else { live.fdatasync() });
        }
    }

    fn failed(&mut self, _: &mut Desk, op: &Op, errno: i32) -> bool {
        let Op::Write { file, block, blocks, how, .. } = op else { return false };
        let refused = match errno {
            libc::ENOSYS | libc::EPERM | libc::ENOMEM => how.is_uring(),
            libc::EINVAL | libc::EOPNOTSUPP => *how != How::Buffered,
            _ => false,
        };
        if refused {
            self.ways.retain(|known| known != how);
            // The size may be the old or the new one; larger than any, it is set before the next write.
            let live = self.live.iter_mut().find(|live| live.file == *file);
            live.into_iter().filter(|live| live.blocks == block + blocks).for_each(|live| live.blocks = u64::MAX);
        }
        refused
    }
}
