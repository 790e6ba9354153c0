//! The history as the template is given it.

use serde::Serialize;

use crate::charts;
use crate::history::{History, LEVEL, Series};
use crate::text::{count, percent, percent_range};

use super::Limits;
use super::view::left_out;

/// Nights listed in the table, the newest first.
const NIGHTS: usize = 31;

#[derive(Serialize)]
pub(super) struct Past {
    headline: String,
    level: String,
    /// Each change: the cell, and the sentence.
    changes: Vec<(String, String, bool)>,
    series: Vec<SeriesView>,
    series_left_out: Option<String>,
    nights: Vec<NightView>,
    nights_left_out: Option<String>,
}

#[derive(Serialize)]
struct SeriesView {
    name: String,
    newest: String,
    changed: bool,
    chart: String,
}

#[derive(Serialize)]
struct NightView {
    name: String,
    sum: String,
    as_expected: String,
    exit_code: u8,
}

impl Past {
    pub(super) fn of(history: &History, limits: Limits) -> Past {
        let changed = history.changed();
        let changes = changed.iter().flat_map(|series| series.changes.iter().rev().map(move |change| (series, change)));
        let mut drawn: Vec<&Series> = changed.clone();
        let rest = || history.series.iter().filter(|series| series.changes.is_empty() && !series.points.is_empty());
        let violated = |series: &&Series| series.points.iter().any(|point| point.violated > 0);
        drawn.extend(rest().filter(violated));
        drawn.extend(rest().filter(|series| !violated(series)));
        Past {
            headline: history.headline(),
            level: LEVEL.to_string(),
            changes: changes
                .map(|(series, change)| (series.name.clone(), history.describe(change), change.rose()))
                .collect(),
            series_left_out: left_out(drawn.len(), limits.series, "cells did not change and are not drawn"),
            series: drawn.into_iter().take(limits.series).map(|series| SeriesView::of(history, series)).collect(),
            nights_left_out: left_out(history.nights.len(), NIGHTS, "nights are older"),
            nights: history.nights.iter().rev().take(NIGHTS).map(NightView::of).collect(),
        }
    }
}

impl SeriesView {
    fn of(history: &History, series: &Series) -> SeriesView {
        let newest = series.points.last().map_or(String::new(), |point| {
            format!("{} ({})", percent(point.rate), percent_range(point.interval.low, point.interval.high))
        });
        SeriesView {
            name: series.name.clone(),
            newest,
            changed: !series.changes.is_empty(),
            chart: charts::history::chart(history, series),
        }
    }
}

impl NightView {
    fn of(night: &crate::history::Head) -> NightView {
        let (as_expected, cells) = night.as_expected;
        NightView {
            name: night.name.clone(),
            sum: format!("{} of {}", count(night.violated), count(night.judged)),
            as_expected: format!("{as_expected} of {cells}"),
            exit_code: night.exit_code,
        }
    }
}
