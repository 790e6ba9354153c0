//! `fs-mark`: small files spread over many directories, synced as fs_mark (Ric Wheeler) can be told to.
//!
//! Its methods, by the names that its options have there, and what a round of `batch` files is here:
//!
//! | method | a round |
//! | --- | --- |
//! | `no-sync` | create and write each |
//! | `in-band` | create, write and fsync each |
//! | `one-fsync` | create and write each; `syncfs`; fsync of one of them |
//! | `post-reverse` | create and write each; fsync each, the last first |
//! | `sync-post-reverse` | the same with a `syncfs` before the fsyncs |
//! | `post` | create and write each; fsync each |
//! | `sync-post` | the same with a `syncfs` before the fsyncs |
//! | `mixed` | another of them in each round |
//!
//! A worker that has its share of files unlinks the oldest in each round.

use super::Workload;
use super::kit::{Desk, Live, Plan, Player, options, usual};
use crate::steps::{Op, Steps};
use powerfail_seed::below;
use rand_chacha::ChaCha8Rng;
use std::collections::VecDeque;

options! {
    "fs-mark",
    /// Options of `fs-mark`.
    FsMark {
        workers: 3, seconds: 3,
        /// Files of a round.
        batch: u32 = 8,
        /// Directories of each worker.
        directories: u32 = 8,
        /// Blocks of 512 bytes of a file.
        blocks: u64 = 8,
        /// Live files that a worker keeps at most.
        files: u32 = 200,
        /// The sync method.
        sync: String = "mixed".to_owned(),
    }
}

const METHODS: [&str; 7] =
    ["no-sync", "in-band", "one-fsync", "post-reverse", "sync-post-reverse", "post", "sync-post"];

impl Workload for FsMark {
    usual!();

    fn directories(&self) -> Vec<String> {
        (0..self.workers).flat_map(|worker| self.own(worker)).collect()
    }

    fn steps(&self, worker: u32) -> Box<dyn Steps> {
        let plan = Rounds { options: self.clone(), dirs: self.own(worker), live: VecDeque::new() };
        Player::boxed(self.seed, "fs-mark", worker, plan)
    }

    fn check(&self) -> Result<(), String> {
        self.usual_check()?;
        if self.batch == 0 || self.directories == 0 || self.blocks == 0 {
            return Err("fs-mark needs at least one file a round, one directory and one block a file".into());
        }
        if self.sync != "mixed" && !METHODS.contains(&self.sync.as_str()) {
            return Err(format!("fs-mark has no sync method `{}`; it has mixed, {}", self.sync, METHODS.join(", ")));
        }
        Ok(())
    }
}

impl FsMark {
    fn own(&self, worker: u32) -> Vec<String> {
        (0..self.directories).map(|dir| format!("w{worker}-{dir:02}")).collect()
    }
}

#[derive(Clone)]
struct Rounds {
    options: FsMark,
    dirs: Vec<String>,
    live: VecDeque<Live>,
}

impl Plan for Rounds {
    fn plan(&mut self, desk: &mut Desk, rng: &mut ChaCha8Rng) {
        let method = match self.options.sync.as_str() {
            "mixed" => METHODS[below(rng, METHODS.len() as u64) as usize],
            method => method,
        };
        let mut batch: Vec<Live> = Vec::new();
        for _ in 0..self.options.batch {
            let dir = &self.dirs[below(rng, self.dirs.len() as u64) as usize];
            let path = desk.fresh(dir);
            let mut live = desk.file(path);
            desk.push(live.create());
            desk.push(live.append(self.options.blocks));
            if method == "in-band" {
                desk.push(live.fsync());
            }
            batch.push(live);
        }
        if method == "one-fsync" || method.starts_with("sync-") {
            desk.push(Op::SyncFs);
        }
        match method {
            "one-fsync" => desk.push(batch[0].fsync()),
            "post-reverse" | "sync-post-reverse" => batch.iter().rev().for_each(|live| desk.push(live.fsync())),
            "post" | "sync-post" => batch.iter().for_each(|live| desk.push(live.fsync())),
            _ => {}
        }
        self.live.extend(batch);
        while self.live.len() > self.options.files as usize {
            desk.push(self.live.pop_front().expect("more than none").unlink());
        }
    }
}
