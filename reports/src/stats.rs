//! Rates and how far they can be trusted.
//!
//! A rate of 0 of 60 and one of 0 of 6,000 are not the same result. The Wilson score interval says how different they
//! are; unlike the normal approximation it stays inside 0..1 and says something useful at 0 and at 100 %, which is where
//! nearly every cell of the matrix lies (E. B. Wilson, "Probable inference, the law of succession, and statistical
//! inference", Journal of the American Statistical Association 22, 1927).

use serde::Serialize;

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
    fn the_median_is_in_the_middle() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![9, 1, 5]), Some(5));
        assert_eq!(median(vec![4, 1, 9, 5]), Some(4));
        assert_eq!(median(vec![u64::MAX, u64::MAX]), Some(u64::MAX));
    }
}
