//! Aims at commits, where journals are decided.
//!
//! What is known of the journal's writes comes from outside ([`Roles`]). Each class of states below has its share of the
//! budget, by its weight; a class that a recording has no state for leaves its share to the others. A state in which the aimed-at
//! block is settled already would be an ordinary one, so it is not made.

use powerfail_seed::Seed;
use rustc_hash::FxHashSet;

use super::journal::block_of;
use super::{Aim, Block, Choice, Explorer, Journal, Outline, Role, Roles, Span, View, cut_in, strata};
use crate::history::Loose;

/// What is done to the blocks of one transaction, or to one write of the journal's superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Pattern {
    /// The commit block survives, and one descriptor or log block does not; all else survives.
    LogBlockLost(u32),
    /// Of all that is loose only this transaction survives, but for one of its descriptors or log blocks.
    AloneWithoutLogBlock(u32),
    /// The commit block is lost, all else survives.
    CommitLost,
    /// Of all that is loose only this transaction survives.
    Alone,
    /// The commit block survives and none of its log blocks: the previous lap's stand in their places.
    LogLost,
    /// Of a transaction around the journal's end, the blocks before the wrap are lost.
    LostBeforeWrap,
    /// And those behind it, but for the commit block.
    LostBehindWrap,
    /// The blocks of revokes are lost, all else survives.
    RevokesLost,
    /// What goes in place survives, and nothing in the journal.
    HomeAlone,
    /// The journal's superblock is lost, all else survives.
    SuperblockLost,
    /// Of all that is loose only the journal's superblock survives.
    SuperblockAlone,
    /// Only the first sector of the commit block survives, with all else; on drives that tear so.
    CommitTorn,
}

/// One thing to aim at.
#[derive(Clone, Copy, Debug)]
struct Target {
    pattern: Pattern,
    /// Number of the transaction, or of the superblock's write.
    subject: u32,
    /// Cuts at which it makes sense.
    window: Span,
}

/// A share of the budget.
#[derive(Clone, Debug)]
struct Class {
    weight: u64,
    /// The first number of its targets.
    first: u64,
    count: u64,
}

/// States around commits.
#[derive(Clone, Debug)]
pub struct JournalAware {
    roles: Roles,
    journal: Journal,
    targets: Vec<Target>,
    classes: Vec<Class>,
}

impl JournalAware {
    /// Works out what can be aimed at.
    pub fn of(outline: &Outline, roles: Roles) -> JournalAware {
        let journal = Journal::of(&roles);
        let mut explorer = JournalAware { roles, journal, targets: Vec::new(), classes: Vec::new() };
        let scout = Scout { outline, journal: &explorer.journal };
        let classes = [
            // There are as many of these as log blocks, of the others one a transaction.
            (4, scout.log_blocks(Pattern::LogBlockLost)),
            (2, scout.log_blocks(Pattern::AloneWithoutLogBlock)),
            (1, scout.commits(Pattern::CommitLost)),
            (1, scout.commits(Pattern::Alone)),
            (1, scout.parts(Pattern::LogLost)),
            (1, scout.parts(Pattern::LostBeforeWrap)),
            (1, scout.parts(Pattern::LostBehindWrap)),
            (1, scout.parts(Pattern::RevokesLost)),
            (1, scout.commits(Pattern::HomeAlone)),
            (1, scout.superblocks(Pattern::SuperblockLost)),
            (1, scout.superblocks(Pattern::SuperblockAlone)),
            (1, if outline.unit().sectors() == 1 { scout.commits(Pattern::CommitTorn) } else { Vec::new() }),
        ];
        for (weight, targets) in classes {
            if !targets.is_empty() {
                let (first, count) = (explorer.targets.len() as u64, targets.len() as u64);
                explorer.classes.push(Class { weight, first, count });
                explorer.targets.extend(targets);
            }
        }
        explorer
    }

    /// What is known of the journal.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    fn choice(&self, view: &View<'_>, target: Target) -> Option<Choice> {
        let is = |block: Block| move |loose: &Loose| block.holds(loose, view.unit_sectors);
        let there = |block: Block| view.loose.iter().any(is(block));
        if let Pattern::SuperblockLost | Pattern::SuperblockAlone = target.pattern {
            let superblock = self.journal.superblocks[target.subject as usize];
            let alone = target.pattern == Pattern::SuperblockAlone;
            return there(superblock).then(|| view.choice(|loose| is(superblock)(loose) == alone));
        }
        let transaction = &self.journal.transactions[target.subject as usize];
        let place = |loose: &Loose| Block { write: loose.write, block: block_of(loose.unit, view.unit_sectors) };
        let all_but = |lost: FxHashSet<Block>| {
            let some = view.loose.iter().any(|loose| lost.contains(&place(loose)));
            some.then(|| view.choice(|loose| !lost.contains(&place(loose))))
        };
        let alone = |kept: FxHashSet<Block>| Some(view.choice(|loose| kept.contains(&place(loose))));
        let commit = transaction.commit;
        let before_wrap = |block: &&Block| block.block > commit.block;
        let blocks = || transaction.log.iter().chain(&transaction.revokes);
        match target.pattern {
            Pattern::LogBlockLost(which) => all_but([transaction.log[which as usize]].into_iter().collect()),
            Pattern::AloneWithoutLogBlock(which) => {
                let without = transaction.log[which as usize];
                let kept = blocks().copied().filter(|block| *block != without).chain([commit]).collect();
                if there(without) { alone(kept) } else { None }
            }
            Pattern::CommitLost => all_but([commit].into_iter().collect()),
            Pattern::Alone => alone(blocks().copied().chain([commit]).collect()),
            Pattern::LogLost => all_but(transaction.log.iter().copied().collect()),
            Pattern::LostBeforeWrap => all_but(blocks().filter(before_wrap).copied().collect()),
            Pattern::LostBehindWrap => all_but(blocks().filter(|block| !before_wrap(block)).copied().collect()),
            Pattern::RevokesLost => all_but(transaction.revokes.iter().copied().collect()),
            Pattern::HomeAlone => {
                let home = |loose: &Loose| {
                    let Block { write, block } = place(loose);
                    self.roles.of(write, block) == Role::Home
                };
                let homes = view.loose.iter().filter(|loose| home(loose)).count();
                (homes > 0 && homes < view.loose.len()).then(|| view.choice(home))
            }
            Pattern::CommitTorn => {
                let first_sector = |loose: &Loose| loose.unit.is_multiple_of(8);
                there(commit).then(|| view.choice(|loose| !is(commit)(loose) || first_sector(loose)))
            }
            Pattern::SuperblockLost | Pattern::SuperblockAlone => unreachable!("returned above"),
        }
    }
}

impl Explorer for JournalAware {
    fn name(&self) -> &'static str {
        "journal-aware"
    }

    fn aims(&self, seed: Seed, _: &Outline, want: u64, round: u64) -> Vec<Aim> {
        let weights: u64 = self.classes.iter().map(|class| class.weight).sum();
        let mut aims = Vec::new();
        for class in &self.classes {
            let share = (want * class.weight).div_ceil(weights);
            for number in strata(seed.at("class", &[class.first]), self.name(), class.count, share, round) {
                let target = class.first + number;
                let window = self.targets[target as usize].window;
                aims.push(Aim { cut: cut_in(seed, self.name(), &[target, round], window), target });
            }
        }
        aims
    }

    fn choices(&self, _: Seed, view: &View<'_>, target: u64, _: u64) -> Vec<Choice> {
        self.choice(view, self.targets[target as usize]).into_iter().collect()
    }
}

/// Finds the targets of a class.
struct Scout<'a> {
    outline: &'a Outline,
    journal: &'a Journal,
}

impl Scout<'_> {
    /// One target for each log block that is still loose when its commit block has come.
    fn log_blocks(&self, pattern: fn(u32) -> Pattern) -> Vec<Target> {
        let mut targets = Vec::new();
        for (subject, transaction) in (0..).zip(&self.journal.transactions) {
            for (which, block) in (0..).zip(&transaction.log) {
                let window = self.since(transaction.commit, &[*block]);
                targets.extend(window.map(|window| Target { pattern: pattern(which), subject, window }));
            }
        }
        targets
    }

    /// One for each commit block, while it is loose.
    fn commits(&self, pattern: Pattern) -> Vec<Target> {
        let transactions = (0..).zip(&self.journal.transactions);
        let target = |(subject, transaction): (u32, &super::Transaction)| {
            Some(Target { pattern, subject, window: self.window(transaction.commit)? })
        };
        transactions.filter_map(target).collect()
    }

    /// One for each transaction of which such blocks are loose when its commit block has come.
    fn parts(&self, pattern: Pattern) -> Vec<Target> {
        let mut targets = Vec::new();
        for (subject, transaction) in (0..).zip(&self.journal.transactions) {
            let blocks = match pattern {
                Pattern::LogLost => transaction.log.clone(),
                Pattern::RevokesLost => transaction.revokes.clone(),
                Pattern::LostBeforeWrap | Pattern::LostBehindWrap if transaction.wraps => {
                    let before = |block: &&Block| {
                        (block.block > transaction.commit.block) == (pattern == Pattern::LostBeforeWrap)
                    };
                    transaction.log.iter().chain(&transaction.revokes).filter(before).copied().collect()
                }
                _ => continue,
            };
            let window = self.since(transaction.commit, &blocks);
            targets.extend(window.map(|window| Target { pattern, subject, window }));
        }
        targets
    }

    fn superblocks(&self, pattern: Pattern) -> Vec<Target> {
        let superblocks = (0..).zip(&self.journal.superblocks);
        let target = |(subject, block): (u32, &Block)| Some(Target { pattern, subject, window: self.window(*block)? });
        superblocks.filter_map(target).collect()
    }

    /// While a block is loose.
    fn window(&self, block: Block) -> Option<Span> {
        self.outline.window(self.outline.op(block.write)?)
    }

    /// While the commit block is there and the first to settle of the others is still loose.
    fn since(&self, commit: Block, blocks: &[Block]) -> Option<Span> {
        let windows: Option<Vec<Span>> = blocks.iter().map(|block| self.window(*block)).collect();
        let windows = windows?;
        let first = windows.iter().map(|window| window.first).max()?.max(commit.write + 1);
        let last = windows.iter().map(|window| window.last).min()?;
        (first <= last).then_some(Span { first, last })
    }
}
