//! All explorers, by name.

use super::{Edges, EveryCut, Exhaustive, Explorer, JournalAware, Outline, Outside, Replay, Roles, Sampled, Torn};
use crate::crash::Recipe;

/// Every explorer's name.
pub const NAMES: [&str; 9] =
    ["every-cut", "sampled", "exhaustive", "torn", "journal-aware", "edges", "mkfs", "unmount", "replay"];

/// Those that aim at nothing, so that a rate of theirs is one of power cuts at random moments.
pub const DEFAULT: [&str; 2] = ["every-cut", "sampled"];

/// Those that cut within the workload.
const ALL: [&str; 6] = ["every-cut", "sampled", "exhaustive", "torn", "journal-aware", "edges"];

/// There is no such explorer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no explorer `{0}`; there are {names}, and `default` and `all` for several", names = NAMES.join(", "))]
pub struct UnknownExplorer(pub String);

/// What some explorers need beside the recording.
#[derive(Clone, Debug, Default)]
pub struct Material {
    /// What the writes are; nothing, if nobody can read the journal.
    pub roles: Roles,
    /// The states of `replay`.
    pub recipes: Vec<Recipe>,
}

/// The names that a list means: `default` and `all` spelt out, each once, in the order in which they came.
///
/// # Errors
/// If one is unknown.
pub fn named(list: &[String]) -> Result<Vec<&'static str>, UnknownExplorer> {
    let mut names: Vec<&'static str> = Vec::new();
    for word in list {
        let meant: &[&'static str] = match word.as_str() {
            "default" => &DEFAULT,
            "all" => &ALL,
            other => {
                let known = NAMES.iter().position(|name| *name == other);
                let at = known.ok_or_else(|| UnknownExplorer(other.into()))?;
                &NAMES[at..=at]
            }
        };
        for name in meant {
            if !names.contains(name) {
                names.push(name);
            }
        }
    }
    Ok(names)
}

/// The explorers of these names for one recording. Where no journal can be read, `edges` stands in for `journal-aware`.
///
/// # Errors
/// If a name is unknown.
pub fn explorers(
    list: &[String],
    outline: &Outline,
    material: Material,
) -> Result<Vec<Box<dyn Explorer>>, UnknownExplorer> {
    let mut names = named(list)?;
    if material.roles.is_empty() && names.contains(&"journal-aware") {
        names.retain(|name| *name != "edges");
        names.iter_mut().filter(|name| **name == "journal-aware").for_each(|name| *name = "edges");
    }
    let Material { roles, recipes } = material;
    let (mut roles, mut recipes) = (Some(roles), Some(recipes));
    let explorer = |name: &str| -> Box<dyn Explorer> {
        match name {
            "every-cut" => Box::new(EveryCut),
            "sampled" => Box::new(Sampled),
            "exhaustive" => Box::new(Exhaustive::of(outline)),
            "torn" => Box::new(Torn::of(outline)),
            "journal-aware" => Box::new(JournalAware::of(outline, roles.take().unwrap_or_default())),
            "edges" => Box::new(Edges::of(outline)),
            "mkfs" => Box::new(Outside::mkfs(outline)),
            "unmount" => Box::new(Outside::unmount(outline)),
            "replay" => Box::new(Replay::new(recipes.take().unwrap_or_default())),
            other => unreachable!("{other} is none of NAMES"),
        }
    };
    Ok(names.into_iter().map(explorer).collect())
}
