//! A crash state as text: small, exact, the same image on any machine.
//!
//! ```text
//! pf1 rec=0123456789abcdef cut=8123 unit=4096 cache=8388608,fifo loose=512 keep=r:0-3,9 order=receipt
//! ```
//!
//! | part | meaning |
//! | --- | --- |
//! | `rec` | the first 16 hexadecimal digits of the recording's BLAKE3 |
//! | `cut` | events with smaller numbers happened, no others |
//! | `unit` | the atomic unit in bytes |
//! | `cache` | size in bytes and policy: `fifo`, `elevator`, `random:SEED` |
//! | `loose` | how many fragments are loose at the cut, as a check |
//! | `keep` | which of them survive, in the order of [`crate::history::History::loose`]: `all`, `none`, `r:` and ranges, or `x:` and a bitmap in hexadecimal, first fragment in the top bit |
//! | `order` | the order in which survivors land: `receipt`, or `k:SEED` |
//! | `lie` | of a drive that lies ([`crate::lies`]), and only then: which lie, as `NAME:SEED` |

use std::fmt::{self, Write as _};
use std::str::FromStr;

use powerfail_seed::Seed;

use crate::cache::{Cache, Description, Policy};
use crate::lies::NoSuchLie;
use crate::units::AtomicUnit;
use crate::versions::Order;

/// A crash state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Recipe {
    /// Which recording: the first 16 hexadecimal digits of its BLAKE3.
    pub recording: String,
    /// The event at which the power fails.
    pub cut: u64,
    /// The drive.
    pub drive: Description,
    /// Which of the loose fragments survive.
    pub kept: Vec<bool>,
    /// In which order they land.
    pub order: Order,
}

/// Why a text is no recipe.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a crash state: {0}")]
pub struct NotARecipe(String);

impl Recipe {
    /// How many loose fragments do not survive.
    pub fn lost(&self) -> u64 {
        self.kept.iter().filter(|kept| !**kept).count() as u64
    }
}

impl fmt::Display for Recipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Recipe { recording, cut, drive, kept, order } = self;
        write!(f, "pf1 rec={recording} cut={cut} unit={} cache={},", drive.unit.bytes(), drive.cache.bytes)?;
        match drive.cache.policy {
            Policy::Fifo => f.write_str("fifo")?,
            Policy::Elevator => f.write_str("elevator")?,
            Policy::Random(seed) => write!(f, "random:{seed}")?,
        }
        write!(f, " loose={} keep={}", kept.len(), kept_text(kept))?;
        match order {
            Order::Receipt => f.write_str(" order=receipt")?,
            Order::Keyed(seed) => write!(f, " order=k:{seed}")?,
        }
        match drive.lie {
            Some(lie) => write!(f, " lie={lie}"),
            None => Ok(()),
        }
    }
}

impl FromStr for Recipe {
    type Err = NotARecipe;

    fn from_str(text: &str) -> Result<Recipe, NotARecipe> {
        let mut words = text.split_whitespace();
        if words.next() != Some("pf1") {
            return Err(NotARecipe("it does not begin with `pf1`".into()));
        }
        let mut field = |name: &str| -> Result<String, NotARecipe> {
            let word = words.next().ok_or_else(|| NotARecipe(format!("`{name}=` is missing")))?;
            let value = word.strip_prefix(name).and_then(|rest| rest.strip_prefix('='));
            Ok(value.ok_or_else(|| NotARecipe(format!("`{name}=` belongs where `{word}` is")))?.to_owned())
        };
        let recording = field("rec")?;
        if recording.len() != 16 || !recording.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(NotARecipe("`rec` is 16 hexadecimal digits".into()));
        }
        let cut = number("cut", &field("cut")?)?;
        let unit = AtomicUnit::from_bytes(number("unit", &field("unit")?)?);
        let unit = unit.ok_or_else(|| NotARecipe("`unit` is 512 or 4096".into()))?;
        let cache = cache_of(&field("cache")?)?;
        let loose: usize = number("loose", &field("loose")?)?.try_into().unwrap_or(usize::MAX);
        // A recipe is small; a count beyond any cache would only make us allocate.
        if loose > 1 << 26 {
            return Err(NotARecipe(format!("`loose={loose}` is more than any recording has")));
        }
        let kept = kept_of(&field("keep")?, loose)?;
        let order = match field("order")?.as_str() {
            "receipt" => Order::Receipt,
            other => match other.strip_prefix("k:") {
                Some(seed) => Order::Keyed(number("order", seed)?),
                None => return Err(NotARecipe(format!("`order={other}` is neither `receipt` nor `k:SEED`"))),
            },
        };
        let mut words = words.peekable();
        let lie = match words.next_if(|word| word.starts_with("lie=")) {
            Some(word) => Some(word["lie=".len()..].parse().map_err(|error: NoSuchLie| NotARecipe(error.to_string()))?),
            None => None,
        };
        match words.next() {
            None => Ok(Recipe { recording, cut, drive: Description { unit, cache, lie }, kept, order }),
            Some(word) => Err(NotARecipe(format!("`{word}` is too much"))),
        }
    }
}

fn number(name: &str, text: &str) -> Result<u64, NotARecipe> {
    text.parse().map_err(|_| NotARecipe(format!("`{name}={text}` is no number")))
}

fn cache_of(text: &str) -> Result<Cache, NotARecipe> {
    let (bytes, policy) = text.split_once(',').ok_or_else(|| NotARecipe("`cache` is BYTES,POLICY".into()))?;
    let policy = match policy {
        "fifo" => Policy::Fifo,
        "elevator" => Policy::Elevator,
        other => match other.strip_prefix("random:") {
            Some(seed) => Policy::Random(Seed(number("cache", seed)?)),
            None => return Err(NotARecipe(format!("there is no cache policy `{other}`"))),
        },
    };
    Ok(Cache { bytes: number("cache", bytes)?, policy })
}

/// The shorter of ranges and bitmap.
fn kept_text(kept: &[bool]) -> String {
    if kept.iter().all(|kept| *kept) {
        return "all".into();
    }
    if !kept.iter().any(|kept| *kept) {
        return "none".into();
    }
    let mut ranges = String::from("r:");
    let mut at = 0;
    while at < kept.len() {
        let run = kept[at..].iter().take_while(|kept| **kept).count();
        if run > 0 {
            let comma = if ranges.len() > 2 { "," } else { "" };
            let _ =
                if run == 1 { write!(ranges, "{comma}{at}") } else { write!(ranges, "{comma}{at}-{}", at + run - 1) };
        }
        at += run.max(1);
    }
    if ranges.len() <= 2 + kept.len().div_ceil(4) {
        return ranges;
    }
    let mut bitmap = String::from("x:");
    for four in kept.chunks(4) {
        let digit = four.iter().enumerate().fold(0, |digit, (bit, kept)| digit | (u32::from(*kept) << (3 - bit)));
        bitmap.push(char::from_digit(digit, 16).expect("four bits"));
    }
    bitmap
}

fn kept_of(text: &str, loose: usize) -> Result<Vec<bool>, NotARecipe> {
    let mut kept = vec![false; loose];
    match text {
        "none" => return Ok(kept),
        "all" => return Ok(vec![true; loose]),
        _ => {}
    }
    if let Some(ranges) = text.strip_prefix("r:") {
        for range in ranges.split(',') {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (first, last) = (number("keep", first)? as usize, number("keep", last)? as usize);
            if first > last || last >= loose {
                return Err(NotARecipe(format!("`keep` names fragments {range} of {loose}")));
            }
            kept[first..=last].fill(true);
        }
        return Ok(kept);
    }
    let Some(digits) = text.strip_prefix("x:").filter(|digits| digits.len() == loose.div_ceil(4)) else {
        return Err(NotARecipe(format!("`keep` is neither `all`, `none`, ranges nor a bitmap of {loose} bits")));
    };
    for (index, digit) in digits.chars().enumerate() {
        let digit = digit.to_digit(16).ok_or_else(|| NotARecipe("`keep=x:` is hexadecimal".into()))?;
        for bit in 0..4 {
            let set = digit & (8 >> bit) != 0;
            match kept.get_mut(index * 4 + bit) {
                Some(kept) => *kept = set,
                None if set => return Err(NotARecipe("`keep=x:` has bits beyond the last fragment".into())),
                None => {}
            }
        }
    }
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lies::{ALL, Liar};
    use proptest::prelude::*;

    fn recipe(kept: Vec<bool>, policy: Policy, order: Order) -> Recipe {
        let drive = Description::honest(AtomicUnit::B4096, Cache { bytes: 8 << 20, policy });
        Recipe { recording: "0123456789abcdef".into(), cut: 7, drive, kept, order }
    }

    proptest! {
        #[test]
        fn text_and_back(kept in prop::collection::vec(any::<bool>(), 0..300), seed in any::<u64>()) {
            for policy in [Policy::Fifo, Policy::Elevator, Policy::Random(Seed(seed))] {
                for order in [Order::Receipt, Order::Keyed(seed)] {
                    let honest = recipe(kept.clone(), policy, order);
                    let mut lying = honest.clone();
                    lying.drive.lie = Some(Liar::new(ALL[kept.len() % ALL.len()], Seed(seed)));
                    for recipe in [honest, lying] {
                        prop_assert_eq!(recipe.to_string().parse::<Recipe>(), Ok(recipe));
                    }
                }
            }
        }

        #[test]
        fn no_text_is_a_panic(text in "pf1 rec=[0-9a-f]{16} cut=[0-9]{1,30} unit=(512|4096|9) cache=[0-9a-z,:]{0,12} loose=[0-9]{1,9} keep=[rx]:[0-9a-f,-]{0,12} order=(receipt|k:[0-9]{1,3})") {
            let _ = text.parse::<Recipe>();
        }
    }

    #[test]
    fn the_text_is_what_the_documentation_shows() {
        let mut kept = vec![false; 512];
        kept[..4].fill(true);
        kept[9] = true;
        let text = "pf1 rec=0123456789abcdef cut=7 unit=4096 cache=8388608,fifo loose=512 keep=r:0-3,9 order=receipt";
        let mut recipe = recipe(kept, Policy::Fifo, Order::Receipt);
        assert_eq!(recipe.to_string(), text);
        recipe.drive.lie = Some(Liar::named("flush-ignored", Seed(3)).unwrap());
        assert_eq!(recipe.to_string(), format!("{text} lie=flush-ignored:3"));
    }
}
