//! Numbers of sequences: which sequence a number stands for, and how many there are.

use super::actions::{Action, Persist, Place, State};
use powerfail_seed::{Seed, below};
use std::sync::OnceLock;

/// Sequences of length 3 that are drawn.
pub const LENGTH_3: u64 = 100_000;

/// An action and what is synced after it.
type Choice = (Action, Option<Persist>);

/// How many sequences there are: of length 1, of length 2, and with the drawn ones in all.
pub fn size() -> [u64; 3] {
    let counts = counts();
    let (one, two) = (counts.one, *counts.ends.last().expect("there are first choices"));
    [one, two, one + two + LENGTH_3]
}

/// A sequence in words, one for each action and persistence point; none for a number that is none.
pub fn sequence(number: u64) -> Option<Vec<String>> {
    let words = decode(number)?.into_iter().flat_map(|(action, persist)| {
        [Some(action.to_string()), persist.map(|persist| persist.to_string())].into_iter().flatten()
    });
    Some(words.collect())
}

/// The choices that a number stands for.
pub(super) fn decode(number: u64) -> Option<Vec<Choice>> {
    let counts = counts();
    let [one, two, all] = size();
    if number < one {
        return choice(&begin(), false, number).map(|only| vec![only]);
    }
    if number < one + two {
        let number = number - one;
        let first = counts.ends.partition_point(|end| *end <= number);
        let before = if first == 0 { 0 } else { counts.ends[first - 1] };
        let first = choice(&begin(), true, first as u64)?;
        let second = choice(&after(&begin(), &first), false, number - before)?;
        return Some(vec![first, second]);
    }
    (number < all).then(|| drawn(number))
}

/// Of length 3: each choice is drawn among those that are possible.
fn drawn(number: u64) -> Vec<Choice> {
    let mut rng = Seed(0).rng("bounded sequence", &[number]);
    let mut state = begin();
    let mut choices = Vec::new();
    for place in 0..3 {
        let with_none = place < 2;
        let next = below(&mut rng, count(&state, with_none));
        let next = choice(&state, with_none, next).expect("one of those that were counted");
        state = after(&state, &next);
        choices.push(next);
    }
    choices
}

/// What a sequence finds.
fn begin() -> State {
    let mut state = State::default();
    for place in [Place::AFoo, Place::BFoo] {
        state = after(&state, &(Action::Create(place), None));
        state = after(&state, &(Action::Append(place), None));
    }
    state
}

fn after(state: &State, (action, _): &Choice) -> State {
    let mut next = state.clone();
    next.apply(action, "", &mut || 0);
    next
}

/// Choices in a state; `with_none` counts those without a persistence point too.
fn count(state: &State, with_none: bool) -> u64 {
    let each = state
        .actions()
        .into_iter()
        .map(|action| after(state, &(action, None)).persists().len() as u64 + u64::from(with_none));
    each.sum()
}

/// The `number`th choice in a state.
fn choice(state: &State, with_none: bool, mut number: u64) -> Option<Choice> {
    for action in state.actions() {
        let mut persists: Vec<Option<Persist>> =
            after(state, &(action, None)).persists().into_iter().map(Some).collect();
        if with_none {
            persists.push(None);
        }
        match persists.get(number as usize) {
            Some(persist) => return Some((action, *persist)),
            None => number -= persists.len() as u64,
        }
    }
    None
}

struct Counts {
    one: u64,
    /// By first choice: the sequences of length 2 that begin with it or one before it.
    ends: Vec<u64>,
}

fn counts() -> &'static Counts {
    static COUNTS: OnceLock<Counts> = OnceLock::new();
    COUNTS.get_or_init(|| {
        let state = begin();
        let mut end = 0;
        let ends = (0..count(&state, true)).map(|first| {
            let first = choice(&state, true, first).expect("one of those that were counted");
            end += count(&after(&state, &first), false);
            end
        });
        Counts { ends: ends.collect(), one: count(&state, false) }
    })
}
