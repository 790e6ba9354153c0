//! The recipes that it is given, and nothing else.

use powerfail_seed::Seed;

use super::{Aim, Choice, Explorer, Outline, View};
use crate::crash::Recipe;

/// Given states.
#[derive(Clone, Debug)]
pub struct Replay {
    recipes: Vec<Recipe>,
}

impl Replay {
    /// The explorer of these recipes. A plan refuses those that are none of its recording's.
    pub fn new(recipes: Vec<Recipe>) -> Replay {
        Replay { recipes }
    }
}

impl Explorer for Replay {
    fn name(&self) -> &'static str {
        "replay"
    }

    fn aims(&self, _: Seed, _: &Outline, _: u64, round: u64) -> Vec<Aim> {
        if round > 0 {
            return Vec::new();
        }
        let aim = |(target, recipe): (u64, &Recipe)| Aim { cut: recipe.cut, target };
        (0..).zip(&self.recipes).map(aim).collect()
    }

    fn choices(&self, _: Seed, _: &View<'_>, target: u64, _: u64) -> Vec<Choice> {
        let recipe = &self.recipes[target as usize];
        vec![Choice { kept: recipe.kept.clone(), order: recipe.order }]
    }
}
