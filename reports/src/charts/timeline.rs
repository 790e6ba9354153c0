//! One recording around one cut: where each write went over the order of events.
//!
//! Two panels share the axis of events: writes in place above, the journal below on a scale of its own, since a journal
//! of 4 MiB would be a line of a drive of 512 MiB. Under them a lane of flushes, one of FUA and one of commit blocks.
//! Writes that fall on the same spot are drawn once, lost ones above the others; what the drive received after the cut is
//! no part of the crash state, and faint.

use std::collections::BTreeSet;

use powerfail_ledger::{Area, Timeline, TimelineWrite};

use crate::text::{bytes, count, counted};

use super::canvas::{At, Canvas, SMALL, Width, draw, text_width};
use super::ink::Ink;

const PAD: i32 = 8;

/// Where everything is, in pixels.
struct Layout {
    left: i32,
    right: i32,
    panels: Vec<Panel>,
    flush: i32,
    fua: i32,
    /// None where the file system has no commit blocks, or they are not known.
    commits: Option<i32>,
    bottom: i32,
    first: u64,
    last: u64,
}

struct Panel {
    name: &'static str,
    area: Area,
    top: i32,
    height: i32,
    low: u64,
    high: u64,
}

/// Draws it.
pub fn chart(timeline: &Timeline, width: Width) -> String {
    let legend = legend(width);
    let layout = Layout::of(timeline, width, legend.last().map_or(0, |&(_, _, (_, y))| y) + 18);
    let lost = timeline.writes.iter().filter(|write| write.lost).count() as u64;
    let title = format!("Recording around the cut at event {}", count(timeline.cut));
    let describe = format!(
        "{} over events {} to {}, {} of them lost in this crash state; {}, {} with FUA and {}.",
        counted(timeline.writes.len() as u64, "write", "writes"),
        count(timeline.first_event),
        count(timeline.last_event),
        count(lost),
        counted(timeline.flushes.len() as u64, "flush", "flushes"),
        counted(timeline.fua.len() as u64, "write", "writes"),
        counted(timeline.commits.len() as u64, "commit block", "commit blocks"),
    );
    draw((width.pixels(), layout.bottom + 40), &title, &describe, |canvas| {
        draw_legend(canvas, &legend);
        layout.grid(canvas, width);
        for panel in &layout.panels {
            layout.writes(canvas, panel, timeline);
        }
        layout.lane(canvas, "FLUSH", layout.flush, &timeline.flushes, Ink::FLUSH);
        layout.lane(canvas, "FUA", layout.fua, &timeline.fua, Ink::FUA);
        if let Some(y) = layout.commits {
            layout.lane(canvas, "commit", y, &timeline.commits, Ink::JOURNAL);
        }
        layout.cut(canvas, timeline.cut);
    })
}

impl Layout {
    fn of(timeline: &Timeline, width: Width, top: i32) -> Layout {
        let tall = if width == Width::Wide { [190, 110] } else { [150, 100] };
        let mut panels = Vec::new();
        let mut y = top;
        for (area, name, height) in [(Area::Home, "in place", tall[0]), (Area::Journal, "journal", tall[1])] {
            let inside = timeline.writes.iter().filter(|write| write.area == area);
            let low = inside.clone().map(|write| write.lba).min();
            let high = inside.map(|write| write.lba.saturating_add(write.sectors)).max();
            if let (Some(low), Some(high)) = (low, high) {
                panels.push(Panel { name, area, top: y + 16, height, low, high: high.max(low + 1) });
                y += height + 28;
            }
        }
        let (first, last) = (timeline.first_event.min(timeline.cut), timeline.last_event.max(timeline.cut));
        Layout {
            left: 64,
            right: width.pixels() - 12,
            panels,
            flush: y + 6,
            fua: y + 26,
            commits: (!timeline.commits.is_empty()).then_some(y + 46),
            bottom: if timeline.commits.is_empty() { y + 40 } else { y + 60 },
            first,
            last: last.max(first + 1),
        }
    }

    fn x(&self, event: u64) -> i32 {
        let event = event.clamp(self.first, self.last);
        let share = (event - self.first) as f64 / (self.last - self.first) as f64;
        self.left + (share * f64::from(self.right - self.left)).round() as i32
    }

    fn grid(&self, canvas: &Canvas<'_>, width: Width) {
        for panel in &self.panels {
            canvas.rect((self.left, panel.top), (self.right - self.left, panel.height), Ink::BAND);
            canvas.text(panel.name, (self.left, panel.top - 9), At::Left, SMALL, Ink::MUTED);
            for (lba, y) in [(panel.high, panel.top + 6), (panel.low, panel.top + panel.height - 6)] {
                canvas.text(&bytes(lba.saturating_mul(512)), (self.left - 6, y), At::Right, 10, Ink::MUTED);
            }
        }
        let steps: i32 = if width == Width::Wide { 6 } else { 2 };
        for step in 0..=steps {
            let event = self.first + (self.last - self.first) * step as u64 / steps as u64;
            let at = match step {
                0 => At::Left,
                last if last == steps => At::Right,
                _ => At::Centre,
            };
            canvas.rect((self.x(event), self.bottom - 4), (1, 5), Ink::MUTED);
            canvas.text(&count(event), (self.x(event), self.bottom + 11), at, SMALL, Ink::MUTED);
        }
        canvas.text("event", ((self.left + self.right) / 2, self.bottom + 28), At::Centre, SMALL, Ink::MUTED);
    }

    fn writes(&self, canvas: &Canvas<'_>, panel: &Panel, timeline: &Timeline) {
        let here: Vec<&TimelineWrite> = timeline.writes.iter().filter(|write| write.area == panel.area).collect();
        // What is drawn last lies on top: what came after the cut, what survived it, what was lost.
        for (after, lost) in [(true, false), (false, false), (false, true)] {
            let drawn =
                here.iter().filter(|write| (write.event > timeline.cut && !write.lost, write.lost) == (after, lost));
            // Spots two pixels apart can't be told apart.
            let spots: BTreeSet<(i32, i32, i32)> = drawn
                .map(|write| {
                    let (y, height) = panel.span(write);
                    (self.x(write.event) / 2 * 2, y / 2 * 2, height)
                })
                .collect();
            for &(x, y, height) in &spots {
                let (at, size, ink) = match panel.area {
                    Area::Journal => ((x - 1, y - 2), (2, height + 4), Ink::JOURNAL),
                    Area::Home => ((x - 1, y - 1), (3, height + 1), Ink::HOME),
                };
                match (after, lost) {
                    (_, true) => canvas.cross((x, y + height / 2), 3, 2, Ink::LOST),
                    (true, false) => canvas.faint_rect(at, size, ink),
                    (false, false) => canvas.rect(at, size, ink),
                }
            }
        }
    }

    fn lane(&self, canvas: &Canvas<'_>, name: &str, y: i32, events: &[u64], ink: Ink) {
        canvas.text(name, (self.left - 6, y), At::Right, SMALL, Ink::MUTED);
        let ticks: BTreeSet<i32> = events.iter().map(|&event| self.x(event)).collect();
        for x in ticks {
            canvas.rect((x, y - 6), (1, 12), ink);
        }
    }

    /// The line of the cut.
    fn cut(&self, canvas: &Canvas<'_>, cut: u64) {
        let x = self.x(cut);
        let Some(top) = self.panels.first().map(|panel| panel.top) else { return };
        canvas.rect((x - 1, top - 4), (2, self.bottom - top), Ink::CUT);
        let label = format!("power cut at {}", count(cut));
        let room = text_width(&label, SMALL) / 2;
        let middle = x.clamp(self.left + room + 60, self.right - room);
        canvas.bold(&label, (middle, top - 12), At::Centre, SMALL, Ink::CUT);
    }
}

impl Panel {
    /// Upper end and height of a write.
    fn span(&self, write: &TimelineWrite) -> (i32, i32) {
        let y = |lba: u64| {
            let share = (lba - self.low) as f64 / (self.high - self.low) as f64;
            self.top + self.height - 4 - (share * f64::from(self.height - 8)).round() as i32
        };
        let (top, bottom) = (y(write.lba.saturating_add(write.sectors)), y(write.lba));
        (top, (bottom - top).max(2))
    }
}

type Entry = (&'static str, Ink, (i32, i32));

fn legend(width: Width) -> Vec<Entry> {
    const ENTRIES: [(&str, Ink); 6] = [
        ("in place", Ink::HOME),
        ("journal", Ink::JOURNAL),
        ("lost in this crash state", Ink::LOST),
        ("FLUSH", Ink::FLUSH),
        ("FUA", Ink::FUA),
        ("the cut", Ink::CUT),
    ];
    let (mut x, mut y) = (0, PAD);
    ENTRIES
        .map(|(name, ink)| {
            let needed = 16 + text_width(name, SMALL) + 18;
            if x > 0 && x + needed > width.pixels() {
                (x, y) = (0, y + 20);
            }
            let place = (x, y);
            x += needed;
            (name, ink, place)
        })
        .to_vec()
}

fn draw_legend(canvas: &Canvas<'_>, legend: &[Entry]) {
    for &(name, ink, (x, y)) in legend {
        match ink {
            Ink::LOST => canvas.cross((x + 5, y), 3, 2, ink),
            Ink::HOME => canvas.rect((x + 3, y - 2), (5, 4), ink),
            Ink::JOURNAL => canvas.rect((x + 4, y - 5), (2, 10), ink),
            _ => canvas.rect((x + 4, y - 6), (if ink == Ink::CUT { 2 } else { 1 }, 12), ink),
        }
        canvas.text(name, (x + 14, y), At::Left, SMALL, Ink::TEXT);
    }
}
