//! Which explorers a run has, and what they are given beside the recording.

use std::path::{Path, PathBuf};

use clap::Args;
use powerfail_drive::crash::Recipe;
use powerfail_drive::explore::{DEFAULT, Explorer, Material, Outline, explorers, named};
use serde::{Deserialize, Serialize};

use crate::folder::Usage;
use crate::roles::roles;

/// The explorers of a run, as they are kept in its configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exploring {
    /// Names; `default` and `all` stand for several.
    pub explorers: Vec<String>,
    /// The recipes of `replay`, as text.
    #[serde(default)]
    pub recipes: Vec<String>,
}

/// Options that choose explorers.
#[derive(Clone, Debug, Default, Args)]
pub struct ExploreArgs {
    /// Explorers, separated by commas, that share the states evenly: every-cut, sampled, exhaustive, torn, journal-aware,
    /// edges, mkfs, unmount, replay; `default` is every-cut,sampled, `all` is every one that cuts within the workload
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub explorers: Vec<String>,
    /// A file of recipes, one a line, for the explorer replay
    #[arg(long, value_name = "FILE")]
    pub recipes: Option<PathBuf>,
}

impl Default for Exploring {
    fn default() -> Exploring {
        Exploring { explorers: DEFAULT.map(String::from).to_vec(), recipes: Vec::new() }
    }
}

impl ExploreArgs {
    /// What was asked for; nothing if no explorer was named.
    ///
    /// # Errors
    /// [`Usage`] if a name is unknown or the recipes can't be read.
    pub fn exploring(&self) -> anyhow::Result<Option<Exploring>> {
        let recipes = self.recipes.as_deref().map(read_recipes).transpose()?.unwrap_or_default();
        let list = match (self.explorers.is_empty(), recipes.is_empty()) {
            (true, true) => return Ok(None),
            (true, false) => vec!["replay".to_owned()],
            (false, _) => self.explorers.clone(),
        };
        let names = named(&list).map_err(|error| Usage(error.to_string()))?;
        let exploring = Exploring { explorers: names.into_iter().map(String::from).collect(), recipes };
        exploring.check().map_err(|error| Usage(error.to_string()))?;
        Ok(Some(exploring))
    }
}

impl Exploring {
    /// Refuses names that are unknown and recipes that nobody reads.
    ///
    /// # Errors
    /// The sentence for the user.
    pub fn check(&self) -> anyhow::Result<()> {
        let names = named(&self.explorers)?;
        let replays = names.contains(&"replay");
        if names.is_empty() {
            anyhow::bail!("--explorers names none; say for example --explorers default");
        }
        if replays && self.recipes.is_empty() {
            anyhow::bail!("the explorer replay needs states; say --recipes FILE, one recipe (`pf1 rec=…`) a line");
        }
        if !replays && !self.recipes.is_empty() {
            anyhow::bail!("--recipes is for the explorer replay; say --explorers replay, with others if you like");
        }
        for recipe in &self.recipes {
            recipe.parse::<Recipe>().map_err(|error| anyhow::anyhow!("`{recipe}`: {error}"))?;
        }
        Ok(())
    }

    /// The names, with those spelt out that stand for several.
    pub fn names(&self) -> Vec<&'static str> {
        named(&self.explorers).expect("checked when the configuration was read")
    }

    /// Digest of the recipes, hexadecimal; empty if there are none.
    pub fn recipes_digest(&self) -> String {
        if self.recipes.is_empty() {
            return String::new();
        }
        blake3::hash(self.recipes.join("\n").as_bytes()).to_hex().to_string()
    }

    /// The explorers for one recording. `name` is the recording's as recipes give it, `journal` where its journal is.
    ///
    /// # Errors
    /// [`Usage`] if a recipe is for another drive.
    pub fn explorers(&self, of: &Subject<'_>) -> anyhow::Result<Vec<Box<dyn Explorer>>> {
        let aware = self.names().contains(&"journal-aware");
        let roles = if aware { roles(of.recording, of.outline, of.journal) } else { Default::default() };
        let mut recipes = Vec::new();
        for text in &self.recipes {
            let recipe: Recipe = text.parse().map_err(|error| Usage(format!("{error}")))?;
            // One file may hold recipes of several cells.
            if recipe.recording == of.name {
                if recipe.drive != of.drive {
                    return Err(Usage(format!("`{text}` is for another drive than the one of this cell")).into());
                }
                recipes.push(recipe);
            }
        }
        Ok(explorers(&self.explorers, of.outline, Material { roles, recipes })?)
    }
}

/// The recording that explorers are for.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// All of it.
    pub recording: &'a [u8],
    /// Its name, as recipes give it.
    pub name: &'a str,
    /// What it holds.
    pub outline: &'a Outline,
    /// The drive.
    pub drive: powerfail_drive::cache::Description,
    /// Blocks of 4 KiB that the journal is in.
    pub journal: &'a [(u64, u64)],
}

/// Recipes, one a line; empty lines and lines that begin with `#` are left out.
fn read_recipes(path: &Path) -> anyhow::Result<Vec<String>> {
    let usage = |why: String| Usage(format!("{}: {why}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| usage(error.to_string()))?;
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let recipes: Vec<String> = lines.map(String::from).collect();
    if recipes.is_empty() {
        return Err(usage("it holds no recipe; one a line, each begins with `pf1`".into()).into());
    }
    Ok(recipes)
}
