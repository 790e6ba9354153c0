//! A drive that lies, as recordings and recipes name it.

use std::fmt;
use std::str::FromStr;

use powerfail_seed::Seed;

use super::{ALL, Lie, planted};

/// A lie with the seed of its draws. The drive of a normal run has none: there is no option that brings one in, a
/// recording says which one told it, and a recipe that names one fits no other recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Liar {
    name: &'static str,
    /// What its draws are keyed with.
    pub seed: Seed,
}

/// There is no such lie.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no lie with its seed; say NAME:SEED, where the names are {names}", names = names())]
pub struct NoSuchLie(pub String);

impl Liar {
    /// The drive that tells this lie.
    pub fn new(lie: &'static dyn Lie, seed: Seed) -> Liar {
        Liar { name: lie.name(), seed }
    }

    /// The one of that name.
    ///
    /// # Errors
    /// If there is none.
    pub fn named(name: &str, seed: Seed) -> Result<Liar, NoSuchLie> {
        every().find(|lie| lie.name() == name).map(|lie| Liar::new(lie, seed)).ok_or_else(|| NoSuchLie(name.into()))
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The lie.
    pub fn lie(&self) -> &'static dyn Lie {
        every().find(|lie| lie.name() == self.name).expect("a liar is made from a lie that is there")
    }
}

/// All of them, and the planted damage.
fn every() -> impl Iterator<Item = &'static dyn Lie> {
    ALL.iter().copied().chain([planted::PLANTED])
}

fn names() -> String {
    every().map(Lie::name).collect::<Vec<_>>().join(", ")
}

/// `NAME:SEED`.
impl fmt::Display for Liar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.name, self.seed)
    }
}

impl FromStr for Liar {
    type Err = NoSuchLie;

    fn from_str(text: &str) -> Result<Liar, NoSuchLie> {
        let no = || NoSuchLie(text.into());
        let (name, seed) = text.split_once(':').ok_or_else(no)?;
        Liar::named(name, Seed(seed.parse().map_err(|_| no())?)).map_err(|_| no())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_back() {
        for lie in every() {
            let liar = Liar::new(lie, Seed(u64::MAX));
            assert_eq!(liar.to_string().parse(), Ok(liar));
            assert_eq!(liar.lie().name(), lie.name());
        }
        for text in ["", "flush-ignored", "flush-ignored:", "flush-ignored:x", "honest:1", ":1"] {
            assert_eq!(text.parse::<Liar>(), Err(NoSuchLie(text.into())));
        }
    }
}
