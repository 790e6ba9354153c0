//! `replace`: a file is replaced the way that careful programs do it: write a new one, fsync it, rename it over the old
//! one, fsync the directory.
//!
//! After each return the name holds the old file or the new one, whole. Some rounds leave out the fsync of the directory, which
//! leaves the choice open, and some the fsync of the file, after which the new name may hold an empty file; the
//! oracle asks for what each round was promised and no more.

use super::Workload;
use super::kit::{Desk, Live, Plan, Player, options, usual};
use crate::steps::Steps;
use powerfail_seed::below;
use rand_chacha::ChaCha8Rng;

options! {
    "replace",
    /// Options of `replace`.
    Replace {
        workers: 3, seconds: 3,
        /// Names of each worker that are replaced again and again.
        files: u32 = 12,
        /// Largest file, in blocks of 512 bytes.
        blocks: u64 = 48,
        /// Percent of the rounds that leave out the fsync of the file.
        careless_percent: u32 = 15,
        /// Percent of the rounds that leave out the fsync of the directory.
        no_dir_percent: u32 = 25,
    }
}

impl Workload for Replace {
    usual!();

    fn directories(&self) -> Vec<String> {
        (0..self.workers).map(|worker| format!("w{worker}")).collect()
    }

    fn steps(&self, worker: u32) -> Box<dyn Steps> {
        let plan = Names { options: self.clone(), dir: format!("w{worker}"), names: Vec::new() };
        Player::boxed(self.seed, "replace", worker, plan)
    }

    fn check(&self) -> Result<(), String> {
        self.usual_check()?;
        if self.files == 0 || self.blocks == 0 {
            return Err("replace needs at least one file of at least one block".into());
        }
        Ok(())
    }
}

#[derive(Clone)]
struct Names {
    options: Replace,
    dir: String,
    names: Vec<Live>,
}

impl Plan for Names {
    fn plan(&mut self, desk: &mut Desk, rng: &mut ChaCha8Rng) {
        let first = self.names.len() < self.options.files as usize;
        let path = desk.fresh(&self.dir);
        let mut new = desk.file(path);
        desk.push(new.create());
        desk.push(new.append(1 + below(rng, self.options.blocks)));
        if below(rng, 100) >= u64::from(self.options.careless_percent) {
            desk.push(new.fsync());
        }
        if first {
            self.names.push(new);
            return;
        }
        let at = below(rng, self.names.len() as u64) as usize;
        let old = &self.names[at];
        desk.push(new.rename(old.path.clone(), Some(old.file)));
        if below(rng, 100) >= u64::from(self.options.no_dir_percent) {
            desk.push(new.sync_dir());
        }
        self.names[at] = new;
    }
}
