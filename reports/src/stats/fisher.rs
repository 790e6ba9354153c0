//! Fisher's exact test: could two shares come of one and the same rate?
//!
//! Given both numbers of trials and all hits together, the hits of one side are hypergeometric if there is no
//! difference. The p-value is the probability of what was seen and of everything that is no more likely (two-sided, as
//! R's `fisher.test` has it). It is exact for any numbers, also for none of sixty against three of sixty, which is where
//! the usual approximations fail and where a comparison of two nights mostly is.
//!
//! No factorial is computed: neighbouring terms have a ratio of small numbers, so all are worked out from the most likely
//! one outwards, relative to it. Sums are then between the largest term, which is 1, and the number of terms.

/// Terms that are equal but for rounding are equally likely.
const ALIKE: f64 = 1.0 + 1e-7;

/// The two-sided p-value for `first` against `second`, each as hits and trials; 1 if one has no trials, 0 if it is below
/// what a double can hold.
///
/// # Panics
/// If one has more hits than trials.
pub fn fisher(first: (u64, u64), second: (u64, u64)) -> f64 {
    let ((hits, trials), (other_hits, other_trials)) = (first, second);
    assert!(hits <= trials && other_hits <= other_trials, "more hits than trials: {first:?}, {second:?}");
    let urn = Urn { hits: hits + other_hits, misses: trials + other_trials - hits - other_hits, drawn: trials };
    let (low, high) = urn.range();
    let mode = urn.mode().clamp(low, high);
    let seen = urn.relative(mode, hits);
    let (mut all, mut extreme) = (0.0, 0.0);
    let mut add = |term: f64| {
        all += term;
        if term <= seen * ALIKE {
            extreme += term;
        }
    };
    // Terms only fall on the way out, so one that is no number any more ends the walk.
    add(1.0);
    let mut term = 1.0;
    for k in mode..high {
        term *= urn.up(k);
        if term == 0.0 {
            break;
        }
        add(term);
    }
    term = 1.0;
    for k in (low..mode).rev() {
        term /= urn.up(k);
        if term == 0.0 {
            break;
        }
        add(term);
    }
    (extreme / all).min(1.0)
}

/// Hits and misses of which some are drawn for the first side.
struct Urn {
    hits: u64,
    misses: u64,
    drawn: u64,
}

impl Urn {
    /// The fewest and the most hits that the draw can have.
    fn range(&self) -> (u64, u64) {
        (self.drawn.saturating_sub(self.misses), self.hits.min(self.drawn))
    }

    /// The most likely number of hits.
    fn mode(&self) -> u64 {
        let above = (u128::from(self.drawn) + 1) * (u128::from(self.hits) + 1);
        (above / (u128::from(self.hits) + u128::from(self.misses) + 2)) as u64
    }

    /// How much likelier k + 1 hits are than k.
    fn up(&self, k: u64) -> f64 {
        let gain = (self.hits - k) as f64 * (self.drawn - k) as f64;
        gain / ((k + 1) as f64 * (self.misses + k + 1 - self.drawn) as f64)
    }

    /// The probability of k hits, that of the mode being 1.
    fn relative(&self, mode: u64, k: u64) -> f64 {
        let mut term = 1.0;
        (mode..k).for_each(|k| term *= self.up(k));
        (k..mode).rev().for_each(|k| term /= self.up(k));
        term
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(found: f64, expected: f64) {
        assert!((found - expected).abs() < expected * 1e-6, "{found} is not {expected}");
    }

    #[test]
    fn p_values_are_the_published_ones() {
        // R. A. Fisher's lady tasting tea; Fisher's twins and their convictions (1970, page 96), as in R's
        // documentation of fisher.test; the whales of SciPy's documentation of fisher_exact.
        close(fisher((3, 4), (1, 4)), 0.485_714_285_714);
        close(fisher((2, 12), (15, 18)), 0.000_536_724_1);
        close(fisher((8, 10), (1, 6)), 0.034_965_034_965);
    }

    #[test]
    fn small_tables_are_as_counting_says() {
        fn choose(n: u64, k: u64) -> u128 {
            (0..k).fold(1, |product, i| product * u128::from(n - i) / u128::from(i + 1))
        }
        for (n, m) in [(1, 1), (2, 7), (6, 6), (13, 5), (20, 20)] {
            for a in 0..=n {
                for b in 0..=m {
                    let ways =
                        |k: u64| if k > a + b || a + b - k > m { 0 } else { choose(n, k) * choose(m, a + b - k) };
                    let extreme: u128 = (0..=n).map(ways).filter(|&w| w <= ways(a)).sum();
                    let expected = extreme as f64 / choose(n + m, a + b) as f64;
                    close(fisher((a, n), (b, m)), expected);
                    close(fisher((b, m), (a, n)), expected);
                }
            }
        }
    }

    #[test]
    fn large_and_empty_tables_are_numbers_too() {
        assert_eq!(fisher((0, 0), (5, 10)), 1.0);
        assert_eq!(fisher((0, 100_000), (0, 100_000)), 1.0);
        assert_eq!(fisher((0, 100_000), (100_000, 100_000)), 0.0);
        let p = fisher((50_100, 100_000), (50_000, 100_000));
        // The normal approximation is good there: z is 0.447.
        assert!((p - 0.656).abs() < 0.005, "{p}");
        let p = fisher((0, 1000), (10, 1000));
        close(p, 2.0 * (990..1000).map(|i| f64::from(i + 1) / f64::from(i + 1001)).product::<f64>());
    }
}
