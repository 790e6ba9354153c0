//! Many nights: the rate of each cell over time, and the night on which it changed.
//!
//! A cell keeps its series when its kernel is updated, unless a night has it on several kernels: those are told apart by
//! their first two numbers. A night's seeds are its own, so each night is another set of recordings.
//!
//! **When did it change?** Of all ways to split a series in two the one is taken that makes what was seen likeliest, each
//! side with a rate of its own (the likelihood ratio of a binomial changepoint). It is a change if Fisher's exact test
//! of the two sides is below the level after a correction for the number of splits looked at and for the number of
//! series (Bonferroni). Each side is then looked at for changes of its own.
//!
//! States of one night share their recordings, so nights scatter by more than chance alone, and a test that knew nothing
//! of it would find a change in any series that is long enough. By how much more they scatter is measured from night to
//! night, as the median of the chi-squares of neighbours by what it is of independent states; a few changes do not move it.
//! Both hits and trials are divided by it before the test (J. N. K. Rao and A. J. Scott, "A simple method for the analysis
//! of clustered binary data", Biometrics 48, 1992). Two nights say nothing of scatter.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::labels::{Label, of_keys};
use crate::stats::{Interval, fisher, rate, wilson};
use crate::tally::{Cell, Key, Tally};
use crate::text::{count, counted, listed, p_value};

/// Corrected p-values below it are a change.
pub const LEVEL: f64 = 0.01;

/// What a night found.
#[derive(Clone, Debug)]
pub struct Night {
    /// How it is called: the name of its folder.
    pub name: String,
    /// When its first run began: RFC 3339, UTC. Nights are in this order.
    pub started: String,
    /// Its result.
    pub tally: Tally,
}

/// Many nights.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct History {
    /// The nights, the oldest first.
    pub nights: Vec<Head>,
    /// The cells, in the order of the matrix.
    pub series: Vec<Series>,
}

/// One night, without its cells.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Head {
    /// How it is called.
    pub name: String,
    /// When it began.
    pub started: String,
    /// States that got a verdict.
    pub judged: u64,
    /// Of them, violated.
    pub violated: u64,
    /// Cells that are as expected, and all.
    pub as_expected: (u64, u64),
    /// What the program said at its end.
    pub exit_code: u8,
}

/// A cell over the nights.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Series {
    /// The cell as the newest night that has it knows it.
    pub key: Key,
    /// Its name among the others.
    pub name: String,
    /// One for each night that judged it.
    pub points: Vec<Point>,
    /// The nights on which its rate changed, in order.
    pub changes: Vec<Changed>,
    #[serde(skip)]
    pub(crate) label: Label,
}

/// A cell on one night.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Which night, from 0.
    pub night: usize,
    /// States that got a verdict.
    pub judged: u64,
    /// Of them, violated.
    pub violated: u64,
    /// The share.
    pub rate: f64,
    /// Its Wilson interval at 95 %.
    pub interval: Interval,
    /// The kernel that recovered it.
    pub kernel: String,
}

/// A change of a rate.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Changed {
    /// The first night with the new rate.
    pub night: usize,
    /// Violated and judged states from the change before, or the beginning, until then.
    pub before: (u64, u64),
    /// The same from then on, until the next change or the end.
    pub after: (u64, u64),
    /// The corrected p-value.
    pub p: f64,
    /// The kernels of the nights before and of this one, if they differ.
    pub kernels: Option<(String, String)>,
}

impl Night {
    /// A night by the name of its folder.
    pub fn new(name: String, tally: Tally) -> Night {
        let started = tally.runs.first().map(|run| run.header.started.clone()).unwrap_or_default();
        Night { name, started, tally }
    }

    /// The order of nights: by when they began.
    pub fn order(&self, other: &Night) -> std::cmp::Ordering {
        (&self.started, &self.name).cmp(&(&other.started, &other.name))
    }
}

impl Changed {
    /// Did the rate rise?
    pub fn rose(&self) -> bool {
        rate(self.after.0, self.after.1) > rate(self.before.0, self.before.1)
    }
}

impl History {
    /// Puts nights in a row; in whatever order they come, the result is the same.
    pub fn of(mut nights: Vec<Night>) -> History {
        nights.sort_by(Night::order);
        let mut cells: BTreeMap<(Key, String), Vec<(usize, &Cell)>> = BTreeMap::new();
        let split = on_several_kernels(&nights);
        for (index, night) in nights.iter().enumerate() {
            for cell in &night.tally.cells {
                let key = but_kernel(&cell.key);
                let kernel = if split.contains(&key) { release(&cell.key.kernel) } else { String::new() };
                cells.entry((key, kernel)).or_default().push((index, cell));
            }
        }
        let mut ordered: Vec<Vec<(usize, &Cell)>> = cells.into_values().collect();
        ordered.sort_by_key(|cells| cells.last().map(|(_, cell)| cell.place()));
        let names: Vec<Key> = ordered
            .iter()
            .map(|cells| {
                let key = &cells.last().expect("one at least").1.key;
                let kernel = if split.contains(&but_kernel(key)) { release(&key.kernel) } else { String::new() };
                Key { kernel, ..key.clone() }
            })
            .collect();
        let labels = of_keys(&names.iter().collect::<Vec<_>>());
        let level = LEVEL / ordered.len().max(1) as f64;
        let series = ordered.iter().zip(labels).map(|(cells, label)| Series::of(cells, label, level)).collect();
        History { nights: nights.iter().map(Head::of).collect(), series }
    }

    /// Series with a change, the newest change first.
    pub fn changed(&self) -> Vec<&Series> {
        let mut changed: Vec<&Series> = self.series.iter().filter(|series| !series.changes.is_empty()).collect();
        changed.sort_by_key(|series| std::cmp::Reverse(series.changes.last().map(|change| change.night)));
        changed
    }

    /// The whole of it in one sentence.
    pub fn headline(&self) -> String {
        const NAMED: usize = 3;
        let nights = counted(self.nights.len() as u64, "night", "nights");
        let changed = self.changed();
        if changed.is_empty() {
            return format!("Over {nights} the rate of no cell changed.");
        }
        let mut named: Vec<String> = changed
            .iter()
            .take(NAMED)
            .filter_map(|series| series.changes.last().map(|change| (series, change)))
            .map(|(series, change)| {
                let verb = if change.rose() { "rose" } else { "fell" };
                format!("that of {} {verb} on {}", series.name, self.nights[change.night].name)
            })
            .collect();
        if changed.len() > NAMED {
            named.push(format!("those of {} more changed", changed.len() - NAMED));
        }
        let rates = counted(changed.len() as u64, "rate", "rates");
        format!("Over {nights} {rates} changed: {}.", listed(&named))
    }

    /// A change in one sentence.
    pub fn describe(&self, change: &Changed) -> String {
        let verb = if change.rose() { "rose" } else { "fell" };
        let share = |(hits, trials): (u64, u64)| format!("{} of {}", count(hits), count(trials));
        let kernels = change
            .kernels
            .as_ref()
            .map_or(String::new(), |(old, new)| format!("; the kernel was {old} before and is {new} since"));
        format!(
            "{verb} on {}: {} violated before, {} since ({}){kernels}",
            self.nights[change.night].name,
            share(change.before),
            share(change.after),
            p_value(change.p)
        )
    }
}

impl Head {
    fn of(night: &Night) -> Head {
        let cells = &night.tally.cells;
        let as_expected = cells.iter().filter(|cell| cell.verdict == crate::Verdict::AsExpected).count();
        Head {
            name: night.name.clone(),
            started: night.started.clone(),
            judged: night.tally.judged(),
            violated: night.tally.violated(),
            as_expected: (as_expected as u64, cells.len() as u64),
            exit_code: night.tally.exit_code(),
        }
    }
}

fn but_kernel(key: &Key) -> Key {
    Key { kernel: String::new(), ..key.clone() }
}

/// Cells that some night has on more than one kernel.
fn on_several_kernels(nights: &[Night]) -> BTreeSet<Key> {
    let mut several = BTreeSet::new();
    for night in nights {
        let mut seen: BTreeSet<Key> = BTreeSet::new();
        several
            .extend(night.tally.cells.iter().map(|cell| but_kernel(&cell.key)).filter(|key| !seen.insert(key.clone())));
    }
    several
}

/// `6.18.44-amd64` as `6.18`.
fn release(kernel: &str) -> String {
    let mut numbers = kernel.split(['.', '-', '+']);
    match (numbers.next(), numbers.next()) {
        (Some(major), Some(minor)) => format!("{major}.{minor}"),
        _ => kernel.to_string(),
    }
}

impl Series {
    fn of(cells: &[(usize, &Cell)], label: Label, level: f64) -> Series {
        let mut points: Vec<Point> = Vec::new();
        for (night, cell) in cells {
            // Two cells of one night in one series: kernels whose first two numbers are the same. They are one there.
            let (mut violated, mut judged) = (cell.counts.violated, cell.counts.judged());
            if points.last().is_some_and(|last| last.night == *night) {
                let last = points.pop().expect("just looked at");
                violated += last.violated;
                judged += last.judged;
            }
            let (Some(rate), Some(interval)) = (rate(violated, judged), wilson(violated, judged)) else { continue };
            points.push(Point { night: *night, judged, violated, rate, interval, kernel: cell.key.kernel.clone() });
        }
        let changes = changes(&points, level);
        Series { key: cells.last().expect("one at least").1.key.clone(), name: label.whole(), points, changes, label }
    }
}

/// Where the rate changes, in order.
fn changes(points: &[Point], level: f64) -> Vec<Changed> {
    let mut places = Vec::new();
    split(points, 0, scatter(points), level, &mut places);
    places.sort_by_key(|&(place, _)| place);
    let bounds = |index: usize| places.get(index).map_or(points.len(), |&(place, _)| place);
    let mut from = 0;
    let mut changes = Vec::new();
    for (index, &(place, p)) in places.iter().enumerate() {
        let (old, new) = (&points[place - 1].kernel, &points[place].kernel);
        changes.push(Changed {
            night: points[place].night,
            before: sum(&points[from..place]),
            after: sum(&points[place..bounds(index + 1)]),
            p,
            kernels: (old != new).then(|| (old.clone(), new.clone())),
        });
        from = place;
    }
    changes
}

/// Looks for the likeliest split of a run of points that begins at `offset`, and then within its sides.
fn split(points: &[Point], offset: usize, scatter: f64, level: f64, places: &mut Vec<(usize, f64)>) {
    let likeliest = (1..points.len())
        .map(|place| (place, log_likelihood(sum(&points[..place])) + log_likelihood(sum(&points[place..]))))
        .max_by(|a, b| a.1.total_cmp(&b.1));
    let Some((place, _)) = likeliest else { return };
    let (before, after) = points.split_at(place);
    let splits = (points.len() - 1) as f64;
    let p = (fisher(effective(sum(before), scatter), effective(sum(after), scatter)) * splits).min(1.0);
    if p < level {
        places.push((offset + place, p * LEVEL / level));
        split(before, offset, scatter, level, places);
        split(after, offset + place, scatter, level, places);
    }
}

fn sum(points: &[Point]) -> (u64, u64) {
    points.iter().fold((0, 0), |(hits, trials), point| (hits + point.violated, trials + point.judged))
}

/// The logarithm of how likely hits of trials are at their own rate, but for a constant.
fn log_likelihood((hits, trials): (u64, u64)) -> f64 {
    let term = |some: u64| if some == 0 { 0.0 } else { some as f64 * (some as f64 / trials as f64).ln() };
    term(hits) + term(trials - hits)
}

/// By how much neighbouring nights differ, chance alone being 1, and never less than that.
fn scatter(points: &[Point]) -> f64 {
    /// The median of chi-square with one degree of freedom.
    const MEDIAN: f64 = 0.454_936_4;
    let mut squares: Vec<f64> = points.windows(2).map(|pair| chi_square(&pair[0], &pair[1])).collect();
    if squares.len() < 2 {
        return 1.0;
    }
    squares.sort_by(f64::total_cmp);
    // Of an even number the lower of the middle two: of two neighbours one may be the change itself.
    (squares[(squares.len() - 1) / 2] / MEDIAN).max(1.0)
}

/// Pearson's chi-square of two nights.
fn chi_square(one: &Point, other: &Point) -> f64 {
    let hits = (one.violated + other.violated) as f64;
    let trials = (one.judged + other.judged) as f64;
    let variance = hits / trials * (1.0 - hits / trials) * (1.0 / one.judged as f64 + 1.0 / other.judged as f64);
    if variance > 0.0 { (one.rate - other.rate).powi(2) / variance } else { 0.0 }
}

/// The numbers that as many independent states would have.
fn effective((hits, trials): (u64, u64), scatter: f64) -> (u64, u64) {
    let trials = (trials as f64 / scatter).round();
    ((hits as f64 / scatter).round().min(trials) as u64, trials as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(nights: &[(u64, u64)]) -> Vec<Point> {
        nights
            .iter()
            .enumerate()
            .map(|(night, &(violated, judged))| Point {
                night,
                judged,
                violated,
                rate: rate(violated, judged).unwrap(),
                interval: wilson(violated, judged).unwrap(),
                kernel: format!("6.18.{}", night / 4),
            })
            .collect()
    }

    fn nights(of: &[(u64, u64)]) -> Vec<usize> {
        changes(&points(of), LEVEL).iter().map(|change| change.night).collect()
    }

    #[test]
    fn the_night_of_the_change_is_found() {
        let mut series = vec![(0, 1000); 6];
        assert!(nights(&series).is_empty());
        series.extend([(18, 1000), (21, 1000), (25, 1000)]);
        let found = changes(&points(&series), LEVEL);
        assert_eq!((found.len(), found[0].night, found[0].before, found[0].after), (1, 6, (0, 6000), (64, 3000)));
        assert!(found[0].rose() && found[0].p < 1e-9);
        assert_eq!(found[0].kernels, None);
        // And back again, with the kernel of that night.
        series.extend([(0, 1000); 3]);
        let found = changes(&points(&series), LEVEL);
        assert_eq!(found.iter().map(|change| change.night).collect::<Vec<_>>(), [6, 9]);
        assert_eq!((found[0].after, found[1].before, found[1].after), ((64, 3000), (64, 3000), (0, 3000)));
        assert!(!found[1].rose());
    }

    #[test]
    fn chance_and_scatter_are_no_change() {
        assert!(nights(&[(0, 1000), (0, 1000), (1, 1000)]).is_empty());
        assert!(nights(&[(30, 1000), (24, 1000), (35, 1000), (28, 1000), (33, 1000)]).is_empty());
        // Recordings differ: each night would be far from the others if its states were independent.
        let wild = [(120, 1000), (40, 1000), (190, 1000), (60, 1000), (150, 1000), (30, 1000), (170, 1000)];
        assert!(nights(&wild).is_empty());
        let p = fisher((120, 1000), (40, 1000));
        assert!(p < 1e-9, "two of these nights alone look like a change: {p}");
        assert!(nights(&[(5, 10)]).is_empty() && nights(&[]).is_empty());
    }

    #[test]
    fn the_kernel_of_the_change_is_told() {
        let mut series = vec![(0, 500); 4];
        series.extend([(40, 500); 3]);
        let found = changes(&points(&series), LEVEL);
        assert_eq!(found[0].kernels, Some(("6.18.0".into(), "6.18.1".into())));
    }
}
