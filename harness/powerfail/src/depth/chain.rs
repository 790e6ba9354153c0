//! A state of any depth as text: the recipe of the first crash, and then that of each recovery that was cut.

use std::fmt;
use std::str::FromStr;

use powerfail_drive::crash::{NotARecipe, Recipe};

use crate::folder::Usage;

/// Between two recipes of one state.
const THEN: &str = ">>";

/// A state: what each crash left, one over the other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Chain {
    /// The cut of the workload.
    pub first: Recipe,
    /// The cut of the recovery from it, and so on.
    pub deeper: Vec<Recipe>,
}

impl Chain {
    /// How many crashes.
    pub fn depth(&self) -> u32 {
        1 + self.deeper.len() as u32
    }

    /// The recipe of a state of depth 1.
    ///
    /// # Errors
    /// [`Usage`] if there are more crashes than one.
    pub fn only(&self) -> Result<&Recipe, Usage> {
        match self.depth() {
            1 => Ok(&self.first),
            depth => Err(Usage(format!(
                "the state is a crash during recovery (depth {depth}); only `replay` and `materialise` take those"
            ))),
        }
    }

    /// The last crash.
    pub fn last(&self) -> &Recipe {
        self.deeper.last().unwrap_or(&self.first)
    }
}

impl From<Recipe> for Chain {
    fn from(first: Recipe) -> Chain {
        Chain { first, deeper: Vec::new() }
    }
}

/// How many crashes a state's text is of.
pub fn depth_of(state: &str) -> u32 {
    1 + state.matches(THEN).count() as u32
}

impl fmt::Display for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.first.fmt(f)?;
        self.deeper.iter().try_for_each(|recipe| write!(f, " {THEN} {recipe}"))
    }
}

impl FromStr for Chain {
    type Err = NotARecipe;

    fn from_str(text: &str) -> Result<Chain, NotARecipe> {
        let mut parts = text.split(THEN);
        let first = parts.next().unwrap_or_default().parse()?;
        Ok(Chain { first, deeper: parts.map(str::parse).collect::<Result<_, _>>()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "pf1 rec=0123456789abcdef cut=7 unit=4096 cache=8388608,fifo loose=4 keep=r:0 order=receipt";

    #[test]
    fn text_and_back() {
        for depth in 1..4 {
            let text = vec![ONE; depth as usize].join(" >> ");
            let chain: Chain = text.parse().unwrap();
            assert_eq!((chain.depth(), depth_of(&text), chain.to_string()), (depth, depth, text));
        }
        for bad in ["", ">>", "pf1", &format!("{ONE} >>"), &format!(">> {ONE}"), &format!("{ONE} > {ONE}")] {
            assert!(bad.parse::<Chain>().is_err(), "{bad}");
        }
    }
}
