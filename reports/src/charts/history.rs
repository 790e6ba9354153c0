//! One cell over the nights: its rate with intervals, and the nights on which it changed.
//!
//! Small, for many beside each other: the axis of rates is that of the chart of rates, nights are equally far apart
//! whatever the time between them, and a night that did not judge the cell leaves a gap.

use crate::history::{History, Series};
use crate::text::{count, counted};

use super::canvas::{At, SMALL, draw, fit, text_width};
use super::ink::Ink;
use super::scale::{place, tick};

const SIZE: (i32, i32) = (320, 156);
const LEFT: i32 = 44;
const RIGHT: i32 = SIZE.0 - 10;
const TOP: i32 = 20;
const BOTTOM: i32 = SIZE.1 - 26;
/// Above so many nights an interval is a line, and below it has ends.
const ENDS: usize = 30;

/// Draws it.
pub fn chart(history: &History, series: &Series) -> String {
    let nights = history.nights.len();
    let x = |night: usize| {
        let share = if nights > 1 { night as f64 / (nights - 1) as f64 } else { 0.5 };
        LEFT + 8 + (share * f64::from(RIGHT - LEFT - 16)).round() as i32
    };
    let y = |rate: f64| BOTTOM - (place(rate) * f64::from(BOTTOM - TOP)).round() as i32;
    draw(SIZE, &format!("{}: rate by night", series.name), &describe(history, series), |canvas| {
        for rate in [0.0, 0.001, 0.01, 0.1, 1.0] {
            canvas.rect((LEFT, y(rate)), (RIGHT - LEFT, 1), Ink::GRID);
            canvas.text(&tick(rate), (LEFT - 6, y(rate)), At::Right, 10, Ink::MUTED);
        }
        for change in &series.changes {
            // Between the last night before it and the first since.
            let before = series.points.iter().rev().find(|point| point.night < change.night);
            let middle = before.map_or(x(change.night), |point| (x(point.night) + x(change.night)) / 2);
            canvas.rect((middle - 1, TOP - 6), (2, BOTTOM - TOP + 6), Ink::CUT);
            let name = fit(&history.nights[change.night].name, 10, 130);
            let room = text_width(&name, 10) / 2;
            canvas.bold(&name, (middle.clamp(LEFT + room, RIGHT - room), TOP - 13), At::Centre, 10, Ink::TEXT);
        }
        let line: Vec<(i32, i32)> = series.points.iter().map(|point| (x(point.night), y(point.rate))).collect();
        for point in &series.points {
            let (at, low, high) = (x(point.night), y(point.interval.low), y(point.interval.high));
            canvas.rect((at - 1, high), (2, (low - high).max(1)), Ink::SERIES_PALE);
            if nights <= ENDS {
                canvas.rect((at - 4, high), (8, 2), Ink::SERIES_PALE);
                canvas.rect((at - 4, low - 1), (8, 2), Ink::SERIES_PALE);
            }
        }
        // A gap is a night that is not there: no line over it.
        let mut run: Vec<(i32, i32)> = Vec::new();
        let mut last = None;
        for (point, &at) in series.points.iter().zip(&line) {
            if last.is_some_and(|last| last + 1 != point.night) && run.len() > 1 {
                canvas.line(&run, 2, Ink::SERIES);
            }
            if last.is_some_and(|last| last + 1 != point.night) {
                run.clear();
            }
            run.push(at);
            last = Some(point.night);
        }
        if run.len() > 1 {
            canvas.line(&run, 2, Ink::SERIES);
        }
        for &at in &line {
            canvas.circle(at, if nights <= ENDS { 4 } else { 2 }, Ink::SERIES);
        }
        let name = |night: usize| fit(&history.nights[night].name, SMALL, 130);
        if nights > 1 {
            canvas.text(&name(0), (LEFT, SIZE.1 - 10), At::Left, SMALL, Ink::MUTED);
        }
        canvas.text(&name(nights - 1), (RIGHT, SIZE.1 - 10), At::Right, SMALL, Ink::MUTED);
    })
}

fn describe(history: &History, series: &Series) -> String {
    let nights = counted(series.points.len() as u64, "night", "nights");
    let newest = series.points.last().map_or(String::new(), |point| {
        format!(" Newest: {} of {} violated.", count(point.violated), count(point.judged))
    });
    let changes: Vec<String> =
        series.changes.iter().map(|change| format!(" It {}.", history.describe(change))).collect();
    format!("{nights}.{newest}{}", changes.concat())
}
