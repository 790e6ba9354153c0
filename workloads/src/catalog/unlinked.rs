//! `unlinked`: files that have no name but are still open: written, cut and synced, so that recovery finds orphans; files
//! that never had a name and get one late (`O_TMPFILE` and `linkat`); and names that are used again meanwhile.
//!
//! Nothing is promised of a file without a name, but all else is: the names around it, the file that has its name now, and
//! that the file system recovers at all.

use super::Workload;
use super::kit::{Desk, Live, Plan, Player, options, usual};
use crate::steps::{Op, Steps};
use powerfail_seed::below;
use rand_chacha::ChaCha8Rng;

options! {
    "unlinked",
    /// Options of `unlinked`.
    Unlinked {
        workers: 3, seconds: 3,
        /// Named files that each worker keeps about.
        files: u32 = 8,
        /// Files without a name that each worker holds open at most.
        orphans: u32 = 6,
        /// Largest write, in blocks of 512 bytes.
        blocks: u64 = 48,
    }
}

impl Workload for Unlinked {
    usual!();

    fn directories(&self) -> Vec<String> {
        (0..self.workers).map(|worker| format!("w{worker}")).collect()
    }

    fn steps(&self, worker: u32) -> Box<dyn Steps> {
        let plan = Orphans {
            options: self.clone(),
            dir: format!("w{worker}"),
            named: Vec::new(),
            orphans: Vec::new(),
            tmpfile: true,
        };
        Player::boxed(self.seed, "unlinked", worker, plan)
    }

    fn check(&self) -> Result<(), String> {
        self.usual_check()?;
        if self.files == 0 || self.orphans == 0 || self.blocks == 0 {
            return Err("unlinked needs at least one file with a name, one without, and one block a write".into());
        }
        Ok(())
    }
}

#[derive(Clone)]
struct Orphans {
    options: Unlinked,
    dir: String,
    named: Vec<Live>,
    /// Each with whether it never had a name.
    orphans: Vec<(Live, bool)>,
    /// Whether the file system has `O_TMPFILE`, as far as is known.
    tmpfile: bool,
}

impl Plan for Orphans {
    fn plan(&mut self, desk: &mut Desk, rng: &mut ChaCha8Rng) {
        let many = 1 + below(rng, self.options.blocks);
        if self.named.len() < self.options.files as usize {
            let path = desk.fresh(&self.dir);
            return self.create(desk, path, many);
        }
        if self.orphans.len() >= self.options.orphans as usize {
            let at = below(rng, self.orphans.len() as u64) as usize;
            let (orphan, never_named) = self.orphans.swap_remove(at);
            return self.let_go(desk, rng, orphan, never_named);
        }
        match below(rng, 10) {
            0..4 => {
                let at = below(rng, self.named.len() as u64) as usize;
                let mut live = self.named.swap_remove(at);
                desk.push(live.open());
                desk.push(live.unlink());
                self.work(desk, rng, &mut live, many);
                // The name is free: every other time it is used again at once.
                if below(rng, 2) == 0 {
                    self.create(desk, live.path.clone(), many);
                }
                self.orphans.push((live, false));
            }
            4..6 if self.tmpfile => {
                let mut live = desk.file(format!("{}/tmpfile", self.dir));
                desk.push(Op::Tmpfile { file: live.file, dir: self.dir.clone() });
                self.work(desk, rng, &mut live, many);
                self.orphans.push((live, true));
            }
            6..9 if !self.orphans.is_empty() => {
                let at = below(rng, self.orphans.len() as u64) as usize;
                let (mut live, never_named) = self.orphans.swap_remove(at);
                self.work(desk, rng, &mut live, many);
                self.orphans.push((live, never_named));
            }
            _ => desk.push(Op::SyncDir { dir: self.dir.clone() }),
        }
    }

    fn failed(&mut self, desk: &mut Desk, op: &Op, errno: i32) -> bool {
        let Op::Tmpfile { file, .. } = op else { return false };
        self.tmpfile = false;
        self.orphans.retain(|(live, _)| live.file != *file);
        desk.drop_script();
        errno == libc::EOPNOTSUPP
    }
}

impl Orphans {
    fn create(&mut self, desk: &mut Desk, path: String, blocks: u64) {
        let mut live = desk.file(path);
        desk.push(live.create());
        desk.push(live.append(blocks));
        desk.push(live.fsync());
        self.named.push(live);
    }

    /// Something is done to a file that is held open.
    fn work(&self, desk: &mut Desk, rng: &mut ChaCha8Rng, live: &mut Live, blocks: u64) {
        match below(rng, 4) {
            0 if live.blocks > 0 => desk.push(live.truncate(below(rng, live.blocks))),
            1 if live.blocks > 0 => {
                let block = below(rng, live.blocks);
                desk.push(live.write(block, blocks));
            }
            _ => desk.push(live.append(blocks)),
        }
        match below(rng, 3) {
            0 => desk.push(live.fsync()),
            1 => desk.push(live.fdatasync()),
            _ => {}
        }
    }

    /// The file gets a name, if it may, or is closed and gone.
    fn let_go(&mut self, desk: &mut Desk, rng: &mut ChaCha8Rng, mut orphan: Live, never_named: bool) {
        if never_named && below(rng, 3) > 0 {
            let synced = below(rng, 2) == 0;
            if synced {
                desk.push(orphan.fsync());
            }
            orphan.path = desk.fresh(&self.dir);
            desk.push(Op::Link { file: orphan.file, from: None, to: orphan.path.clone() });
            desk.push(if synced { orphan.sync_dir() } else { orphan.fsync() });
            desk.push(orphan.close());
            self.named.push(orphan);
            // The tree keeps its size.
            desk.push(self.named.remove(0).unlink());
        } else {
            desk.push(orphan.close());
        }
    }
}
