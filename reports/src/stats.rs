//! Rates and how far they can be trusted.
//!
//! A rate of 0 of 60 and one of 0 of 6,000 are not the same result. The Wilson score interval says how different they
//! are; unlike the normal approximation it stays inside 0..1 and says something useful at 0 and at 100 %, which is where
//! nearly every cell of the matrix lies (E. B. Wilson, "Probable inference, the law of succession, and statistical
//! inference", Journal of the American Statistical Association 22, 1927).

mod fisher;

use serde::Serialize;

pub use fisher::fisher;

/// The 97.5 % quantile of the normal distribution: two-sided 95 %.
const Z95: f64 = 1.959_963_984_540_054;

/// Two shares between 0 and 1 with the true rate between them, at 95 % confidence.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// The share `hits / trials`; none of no trials.
pub fn rate(hits: u64, trials: u64) -> Option<f64> {
    (trials > 0).then(|| hits as f64 / trials as f64)
}

/// The Wilson score interval at 95 % of `hits` in `trials`, without continuity correction; none of no trials.
///
/// # Panics
/// If there are more hits than trials.
pub fn wilson(hits: u64, trials: u64) -> Option<Interval> {
    assert!(hits <= trials, "{hits} hits in {trials} trials");
    let share = rate(hits, trials)?;
    let trials_f = trials as f64;
    let z2 = Z95 * Z95;
    let scale = 1.0 + z2 / trials_f;
    let centre = (share + z2 / (2.0 * trials_f)) / scale;
    let half = Z95 / scale * (share * (1.0 - share) / trials_f + z2 / (4.0 * trials_f * trials_f)).sqrt();
    // At the ends the formula gives 0 and 1 exactly; rounding must not make them -1e-19 or 0.9999999.
    let low = if hits == 0 { 0.0 } else { centre - half };
    let high = if hits == trials { 1.0 } else { centre + half };
    Some(Interval { low, high })
}

/// The interval at 95 % of the second share less the first, each given as hits and trials; none if one has no trials.
///
/// Newcombe's hybrid of two score intervals (R. G. Newcombe, "Interval estimation for the difference between independent
/// proportions", Statistics in Medicine 17, 1998, method 10): between -1 and 1, and of use where both shares are 0.
pub fn difference(first: (u64, u64), second: (u64, u64)) -> Option<(f64, f64)> {
    let (a, b) = (rate(first.0, first.1)?, rate(second.0, second.1)?);
    let (in_a, in_b) = (wilson(first.0, first.1)?, wilson(second.0, second.1)?);
    let low = b - a - (b - in_b.low).hypot(in_a.high - a);
    let high = b - a + (in_b.high - b).hypot(a - in_a.low);
    Some((low, high))
}

/// Holm's correction: the same p-values, each as it counts among all of them (S. Holm, "A simple sequentially rejective
/// multiple test procedure", Scandinavian Journal of Statistics 6, 1979). One below a level is significant at that
/// level for the family as a whole.
pub fn holm(p_values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p_values.len()).collect();
    order.sort_by(|&a, &b| p_values[a].total_cmp(&p_values[b]));
    let mut adjusted = vec![0.0; p_values.len()];
    let mut least: f64 = 0.0;
    for (rank, &index) in order.iter().enumerate() {
        least = least.max(p_values[index] * (p_values.len() - rank) as f64).min(1.0);
        adjusted[index] = least;
    }
    adjusted
}

/// How many states are judged until the first violated one, if `hits` of `trials` are violated and they are judged in
/// any order alike: the smallest number by which a violation was seen with probability `share`; none if none is violated.
///
/// The number of states until the first hit is negative hypergeometric; that none is among the first k has the
/// probability (trials - hits choose k) / (trials choose k).
pub fn until_first(hits: u64, trials: u64, share: f64) -> Option<u64> {
    if hits == 0 {
        return None;
    }
    let mut unseen = 1.0;
    for judged in 0..trials {
        // What is a half in truth must not be less by rounding.
        if 1.0 - unseen >= share - 1e-12 {
            return Some(judged);
        }
        unseen *= (trials - hits).saturating_sub(judged) as f64 / (trials - judged) as f64;
    }
    Some(trials)
}

/// The median, the mean of the two in the middle rounded down; none of nothing.
pub fn median(mut values: Vec<u64>) -> Option<u64> {
    values.sort_unstable();
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(values[middle]),
        _ => Some(u64::midpoint(values[middle - 1], values[middle])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(hits: u64, trials: u64, low: f64, high: f64) {
        let interval = wilson(hits, trials).unwrap();
        assert!((interval.low - low).abs() < 5e-5, "{hits}/{trials}: low {}", interval.low);
        assert!((interval.high - high).abs() < 5e-5, "{hits}/{trials}: high {}", interval.high);
    }

    #[test]
    fn wilson_agrees_with_published_values() {
        // R. G. Newcombe, "Two-sided confidence intervals for the single proportion", Statistics in Medicine 17, 1998,
        // table I, method 3 (score without continuity correction).
        close(81, 263, 0.2553, 0.3662);
        close(15, 148, 0.0624, 0.1605);
        close(0, 20, 0.0, 0.1611);
        close(1, 29, 0.0061, 0.1718);
    }

    #[test]
    fn at_zero_and_at_all_the_interval_is_its_closed_form() {
        for trials in [1, 20, 1000, 100_000] {
            let edge = Z95 * Z95 / (trials as f64 + Z95 * Z95);
            let none = wilson(0, trials).unwrap();
            let all = wilson(trials, trials).unwrap();
            assert_eq!(none.low, 0.0);
            assert!((none.high - edge).abs() < 1e-12);
            assert_eq!(all.high, 1.0);
            assert!((all.low - (1.0 - edge)).abs() < 1e-12);
        }
        assert_eq!(wilson(0, 0), None);
    }

    #[test]
    fn the_interval_holds_the_rate_and_narrows() {
        for (hits, trials) in [(1, 3), (3, 1000), (500, 1000), (999, 1000)] {
            let interval = wilson(hits, trials).unwrap();
            let share = rate(hits, trials).unwrap();
            assert!(interval.low < share && share < interval.high);
            let tenfold = wilson(hits * 10, trials * 10).unwrap();
            assert!(tenfold.high - tenfold.low < interval.high - interval.low);
        }
    }

    #[test]
    fn differences_are_the_published_ones() {
        // Newcombe, the second paper of 1998, table II, method 10: examples (a), (b), (d) and (g), there first less second.
        for (second, first, low, high) in [
            ((56, 70), (48, 80), 0.0524, 0.3339),
            ((9, 10), (3, 10), 0.1705, 0.8090),
            ((5, 56), (0, 29), -0.0381, 0.1926),
            ((10, 10), (0, 10), 0.6075, 1.0),
        ] {
            let found = difference(first, second).unwrap();
            assert!((found.0 - low).abs() < 1e-4 && (found.1 - high).abs() < 1e-4, "{second:?} {first:?}: {found:?}");
        }
        assert_eq!(difference((0, 0), (1, 2)), None);
    }

    #[test]
    fn holm_counts_the_others_and_keeps_the_order() {
        // Worked by hand: 0.01 * 4, 0.02 * 3, then 0.03 * 2 which equals it, then 0.04 * 1 which may not be below.
        let adjusted = holm(&[0.04, 0.01, 0.03, 0.02]);
        for (found, expected) in adjusted.iter().zip([0.06, 0.04, 0.06, 0.06]) {
            assert!((found - expected).abs() < 1e-12, "{adjusted:?}");
        }
        assert_eq!(holm(&[0.6, 0.9]), [1.0, 1.0]);
        assert!(holm(&[]).is_empty());
    }

    #[test]
    fn the_first_violation_is_waited_for_as_long_as_the_urn_says() {
        assert_eq!(until_first(0, 100, 0.5), None);
        assert_eq!(until_first(100, 100, 0.95), Some(1));
        // One of a hundred is equally likely in each place.
        assert_eq!(until_first(1, 100, 0.5), Some(50));
        assert_eq!(until_first(1, 100, 0.95), Some(95));
        // Two of four: seen first with 1/2, by the second with 1 - 1/2 * 1/3, by the third for certain.
        assert_eq!([0.5, 0.51, 0.83, 0.84].map(|share| until_first(2, 4, share)), [1, 2, 2, 3].map(Some));
    }

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![9, 1, 5]), Some(5));
        assert_eq!(median(vec![4, 1, 9, 5]), Some(4));
        assert_eq!(median(vec![u64::MAX, u64::MAX]), Some(u64::MAX));
    }
}
