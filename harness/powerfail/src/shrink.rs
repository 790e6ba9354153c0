//! `powerfail shrink`: from a violated state to the few lost fragments that matter.
//!
//! A state of a recording is a cut and what did not survive it. Shrinking looks for the fewest lost fragments, and then for
//! the earliest cut, with which the same kind of thing is still wrong; each step is a verdict of a real kernel, and the
//! result must come out the same several times running. Lost fragments are minimised by delta debugging (Zeller and
//! Hildebrandt, "Simplifying and isolating failure-inducing input", 2002): halves, quarters … of what is still thought to
//! matter, and their complements. The result is minimal in this sense: with any one of its fragments on the platter, the
//! finding is gone.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::bail;
use powerfail_drive::crash::Recipe;
use powerfail_drive::explore::Walk;
use powerfail_drive::history::Loose;
use powerfail_drive::versions::Order;
use powerfail_ledger::{Finding, Outcome};

use crate::folder::Usage;
use crate::plan_file::Entry;
use crate::recording_file::Mapped;
use crate::stop::Stop;
use crate::verify::{Judged, Worker};

/// What is wrong, without what differs from state to state: numbers, names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Signature(BTreeSet<String>);

/// Characters of a finding's detail that its signature has.
const SIGNIFICANT: usize = 60;

impl Signature {
    /// The signature of findings: of each its kind and the beginning of its words, digits and names left out.
    pub fn of(findings: &[Finding]) -> Signature {
        Signature(findings.iter().map(one).collect())
    }

    /// The signature of the first of them alone, by which states are grouped: the others mostly follow from it.
    pub fn main(findings: &[Finding]) -> Signature {
        Signature::of(&findings[..findings.len().min(1)])
    }

    /// Whether this says at least one thing that the other says, too.
    pub fn shares(&self, other: &Signature) -> bool {
        self.0.intersection(&other.0).next().is_some()
    }

    /// As one word, for a folder's name.
    pub fn word(&self) -> String {
        let text: Vec<_> = self.0.iter().map(String::as_str).collect();
        let kinds: BTreeSet<_> = self.0.iter().filter_map(|one| one.split(':').next()).collect();
        let kinds: Vec<_> = kinds.into_iter().collect();
        format!("{}-{}", kinds.join("+"), &blake3::hash(text.join("\n").as_bytes()).to_hex()[..8])
    }
}

/// Of a promise the name of the file comes first, which says nothing; of everything else the words do.
fn one(finding: &Finding) -> String {
    let detail = match finding.kind {
        powerfail_ledger::FindingKind::Promises => finding.detail.split_once(": ").map_or("", |(_, said)| said),
        _ => finding.detail.as_str(),
    };
    let words = detail.split(|c: char| !(c.is_ascii_alphabetic() || c == '-' || c == '\''));
    let mut said = String::new();
    for word in words.filter(|word| word.len() > 1) {
        if said.len() + word.len() > SIGNIFICANT {
            break;
        }
        said.push(' ');
        said.push_str(word);
    }
    format!("{}:{said}", finding.kind.name())
}

/// A state that was shrunk.
#[derive(Debug)]
pub struct Shrunk {
    /// The state.
    pub recipe: Recipe,
    /// Digest of its image, hexadecimal.
    pub image: String,
    /// What did not survive.
    pub lost: Vec<Loose>,
    /// What is found.
    pub judged: Judged,
    /// Verdicts that it took.
    pub verdicts: u64,
    /// Of the last replays, how many came to the same findings; all of them, or the result is not stable.
    pub stable: u32,
}

/// How often the result is judged again.
pub const REPLAYS: u32 = 5;

/// Shrinks a state that is violated; `wanted` is what must still be found.
///
/// # Errors
/// [`Usage`] if the state is not violated (any more), or the user stops it.
pub fn shrink(
    worker: &mut Worker<'_>,
    recording: &Mapped,
    from: &Recipe,
    most: u64,
    stop: &Stop,
    mut told: impl FnMut(u64, usize),
) -> anyhow::Result<Shrunk> {
    let mut search = Search { worker, recording, stop, verdicts: 0, most, signature: None, best: None };
    let Some(signature) = search.violated(from)? else {
        bail!(Usage("the state is not violated when it is judged again, so there is nothing to shrink".into()));
    };
    search.signature = Some(signature);
    let mut recipe = from.clone();
    // In the order of receipt, if the order of landing is of no matter.
    if recipe.order != Order::Receipt {
        let plain = Recipe { order: Order::Receipt, ..recipe.clone() };
        if search.still(&plain)? {
            recipe = plain;
        }
    }
    let lost = search.fewest(&recipe, &mut told)?;
    recipe = keeping_all_but(&recipe, &lost);
    recipe = search.earliest(&recipe, &mut told)?;
    let verdicts = search.verdicts;
    search.finish(recipe, verdicts)
}

/// The state in which everything survives but the fragments of these places.
fn keeping_all_but(recipe: &Recipe, lost: &[usize]) -> Recipe {
    let mut kept = vec![true; recipe.kept.len()];
    lost.iter().for_each(|&at| kept[at] = false);
    Recipe { kept, ..recipe.clone() }
}

struct Search<'a, 'w> {
    worker: &'a mut Worker<'w>,
    recording: &'a Mapped,
    stop: &'a Stop,
    verdicts: u64,
    /// Verdicts after which the best so far is the result.
    most: u64,
    signature: Option<Signature>,
    best: Option<(Recipe, Judged)>,
}

impl Search<'_, '_> {
    fn judge(&mut self, recipe: &Recipe) -> anyhow::Result<Judged> {
        self.stop.check()?;
        self.verdicts += 1;
        let entry = Entry { state: recipe.to_string(), image: String::new(), explorer: "shrink".into(), in_flight: 0 };
        self.worker.judge(&entry)
    }

    /// What is wrong with a state; none: nothing, or nobody knows.
    fn violated(&mut self, recipe: &Recipe) -> anyhow::Result<Option<Signature>> {
        let judged = self.judge(recipe)?;
        let Outcome::Violated { findings } = &judged.outcome else { return Ok(None) };
        let signature = Signature::of(findings);
        self.best = Some((recipe.clone(), judged));
        Ok(Some(signature))
    }

    /// Whether a state is still wrong in the same way.
    fn still(&mut self, recipe: &Recipe) -> anyhow::Result<bool> {
        if self.verdicts >= self.most {
            return Ok(false);
        }
        let judged = self.judge(recipe)?;
        let Outcome::Violated { findings } = &judged.outcome else { return Ok(false) };
        let same = self.signature.as_ref().is_none_or(|wanted| wanted.shares(&Signature::of(findings)));
        if same {
            self.best = Some((recipe.clone(), judged));
        }
        Ok(same)
    }

    /// The places of the fewest fragments that must be lost.
    fn fewest(&mut self, recipe: &Recipe, told: &mut impl FnMut(u64, usize)) -> anyhow::Result<Vec<usize>> {
        let mut lost: Vec<usize> = (0..recipe.kept.len()).filter(|&at| !recipe.kept[at]).collect();
        // Sometimes nothing need be lost at all: that the cut was there is enough.
        if self.still(&keeping_all_but(recipe, &[]))? {
            return Ok(Vec::new());
        }
        let mut parts = 2;
        while lost.len() > 1 && self.verdicts < self.most {
            told(self.verdicts, lost.len());
            let size = lost.len().div_ceil(parts);
            let chunks: Vec<Vec<usize>> = lost.chunks(size).map(<[usize]>::to_vec).collect();
            let mut smaller = None;
            for chunk in &chunks {
                if self.still(&keeping_all_but(recipe, chunk))? {
                    smaller = Some((chunk.clone(), 2));
                    break;
                }
            }
            if smaller.is_none() && chunks.len() > 2 {
                for chunk in &chunks {
                    let rest: Vec<usize> = lost.iter().copied().filter(|at| !chunk.contains(at)).collect();
                    if self.still(&keeping_all_but(recipe, &rest))? {
                        smaller = Some((rest, (parts - 1).max(2)));
                        break;
                    }
                }
            }
            match smaller {
                Some((fewer, next)) => (lost, parts) = (fewer, next),
                None if parts >= lost.len() => break,
                None => parts = (parts * 2).min(lost.len()),
            }
        }
        told(self.verdicts, lost.len());
        Ok(lost)
    }

    /// The earliest cut at which losing the same fragments, and nothing else, is still as wrong. What is settled later was
    /// loose earlier, so it is one step after the last of them was received, or somewhere from there to here; where the
    /// verdict changes only once, bisection finds it.
    fn earliest(&mut self, recipe: &Recipe, told: &mut impl FnMut(u64, usize)) -> anyhow::Result<Recipe> {
        let lost: BTreeSet<(u64, u64)> = lost_of(self.recording, recipe)?.iter().map(|l| (l.write, l.unit)).collect();
        let first = lost.iter().map(|(write, _)| write + 1).max().unwrap_or(recipe.cut);
        let (mut low, mut best) = (first, recipe.clone());
        while low < best.cut && self.verdicts < self.most {
            told(self.verdicts, lost.len());
            let cut = low + (best.cut - low) / 2;
            match moved(self.recording, recipe, cut, &lost)? {
                Some(earlier) if self.still(&earlier)? => best = earlier,
                _ => low = cut + 1,
            }
        }
        Ok(best)
    }

    fn finish(self, recipe: Recipe, verdicts: u64) -> anyhow::Result<Shrunk> {
        let Some((best, judged)) = self.best.filter(|(best, _)| *best == recipe) else {
            bail!("the smallest state was not the last one that was judged: this is a bug of powerfail's");
        };
        let lost = lost_of(self.recording, &best)?;
        let entry = Entry { state: best.to_string(), image: String::new(), explorer: "shrink".into(), in_flight: 0 };
        let mut stable = 0;
        for _ in 0..REPLAYS {
            self.stop.check()?;
            stable += u32::from(self.worker.judge(&entry)?.outcome == judged.outcome);
        }
        let image = self.worker.image(&best)?.digest()?.to_string();
        Ok(Shrunk { recipe: best, image, lost, judged, verdicts, stable })
    }
}

/// The fragments that a state loses.
///
/// # Errors
/// If the recording can't be read, or the recipe is not of it.
pub fn lost_of(recording: &Mapped, recipe: &Recipe) -> anyhow::Result<Vec<Loose>> {
    let loose = loose_at(recording, recipe, recipe.cut)?;
    if loose.len() != recipe.kept.len() {
        bail!(Usage("the recipe is of another recording or another drive".into()));
    }
    Ok(loose.into_iter().zip(&recipe.kept).filter(|(_, kept)| !**kept).map(|(loose, _)| loose).collect())
}

fn loose_at(recording: &Mapped, recipe: &Recipe, cut: u64) -> anyhow::Result<Vec<Loose>> {
    let mut walk = Walk::new(recording.bytes(), recipe.drive)?;
    walk.advance(cut)?;
    Ok(walk.history.loose())
}

/// The state that loses the same fragments at another cut; none if they are not all loose there.
fn moved(recording: &Mapped, recipe: &Recipe, cut: u64, lost: &BTreeSet<(u64, u64)>) -> anyhow::Result<Option<Recipe>> {
    let loose = loose_at(recording, recipe, cut)?;
    let kept: Vec<bool> = loose.iter().map(|loose| !lost.contains(&(loose.write, loose.unit))).collect();
    let all_there = kept.iter().filter(|kept| !**kept).count() == lost.len();
    Ok(all_there.then(|| Recipe { cut, kept, ..recipe.clone() }))
}

/// Where a casebook keeps what it was shrunk to.
pub fn folder(casebook: &Path) -> std::path::PathBuf {
    casebook.join("shrunk")
}

#[cfg(test)]
mod tests {
    use super::*;
    use powerfail_ledger::FindingKind;

    fn finding(kind: FindingKind, detail: &str) -> Finding {
        Finding { kind, detail: detail.into() }
    }

    #[test]
    fn a_signature_is_what_is_said_without_whom_it_is_said_of() {
        let lost = |name: &str, step: u32| {
            let detail =
                format!("{name}: the name is gone; it must hold file 3:{step} (this name was synced by step {step})");
            Signature::of(&[finding(FindingKind::Promises, &detail)])
        };
        assert_eq!(lost("w3-0/w3-95", 583), lost("shared/x (166 bytes)", 7));
        let refused = |block: u32| {
            let detail = format!(
                "the mount is refused (EIO); the kernel says: JBD2: Invalid checksum recovering data block {block} in journal block {block}"
            );
            finding(FindingKind::Mounts, &detail)
        };
        let other =
            finding(FindingKind::Mounts, "the mount is refused (EUCLEAN); the kernel says: superblock checksum");
        let both = Signature::of(&[refused(1), finding(FindingKind::Fsck, "e2fsck -fn is not clean")]);
        assert!(both.shares(&Signature::of(&[refused(99)])));
        assert!(!both.shares(&Signature::of(&[other])));
        assert!(both.word().starts_with("fsck+mounts-"), "{}", both.word());
    }
}
