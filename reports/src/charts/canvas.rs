//! A sheet to draw on, in pixels, with inks in the place of colours.

use std::cell::RefCell;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::ink::Ink;
use super::svg::{Link, finish};

/// For which width a chart is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// A desk or a sheet of paper.
    Wide,
    /// A phone.
    Narrow,
}

impl Width {
    pub(crate) fn pixels(self) -> i32 {
        match self {
            Width::Wide => 960,
            Width::Narrow => 400,
        }
    }
}

/// Where on a text its position is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum At {
    Left,
    Centre,
    Right,
}

/// The font size of most text, in pixels.
pub(crate) const BODY: i32 = 13;
/// That of what is less important.
pub(crate) const SMALL: i32 = 11;

/// Drawing into a string can't fail.
const NEVER: &str = "drawing into a string does not fail";

pub(crate) struct Canvas<'a> {
    area: DrawingArea<SVGBackend<'a>, Shift>,
    links: RefCell<Vec<Link>>,
}

/// Draws a chart: its size, what it is called, what it says in one sentence, and its shapes.
pub(crate) fn draw(size: (i32, i32), title: &str, describe: &str, shapes: impl FnOnce(&Canvas<'_>)) -> String {
    let size = (size.0 as u32, size.1 as u32);
    let mut raw = String::new();
    let links = {
        let area = SVGBackend::with_string(&mut raw, size).into_drawing_area();
        let canvas = Canvas { area, links: RefCell::default() };
        shapes(&canvas);
        canvas.area.present().expect(NEVER);
        canvas.links.into_inner()
    };
    finish(&raw, size, title, describe, &links)
}

impl Canvas<'_> {
    /// A filled rectangle from its upper left corner.
    pub(crate) fn rect(&self, (x, y): (i32, i32), (width, height): (i32, i32), ink: Ink) {
        let shape = Rectangle::new([(x, y), (x + width, y + height)], ink.colour().filled());
        self.area.draw(&shape).expect(NEVER);
    }

    /// The same, hardly to be seen.
    pub(crate) fn faint_rect(&self, (x, y): (i32, i32), (width, height): (i32, i32), ink: Ink) {
        let shape = Rectangle::new([(x, y), (x + width, y + height)], ink.colour().mix(0.35).filled());
        self.area.draw(&shape).expect(NEVER);
    }

    /// Makes a rectangle lead to a place on the page; `says` is what is there, for who can't see the rectangle.
    pub(crate) fn link(&self, at: (i32, i32), size: (i32, i32), target: String, says: String) {
        self.links.borrow_mut().push(Link { at, size, target, says });
    }

    /// A line through points.
    pub(crate) fn line(&self, points: &[(i32, i32)], thick: u32, ink: Ink) {
        self.area.draw(&PathElement::new(points.to_vec(), ink.colour().stroke_width(thick))).expect(NEVER);
    }

    pub(crate) fn circle(&self, centre: (i32, i32), radius: i32, ink: Ink) {
        self.area.draw(&Circle::new(centre, radius, ink.colour().filled())).expect(NEVER);
    }

    pub(crate) fn polygon(&self, points: &[(i32, i32)], ink: Ink) {
        self.area.draw(&Polygon::new(points.to_vec(), ink.colour())).expect(NEVER);
    }

    /// A cross of two diagonals.
    pub(crate) fn cross(&self, (x, y): (i32, i32), arm: i32, thick: u32, ink: Ink) {
        self.line(&[(x - arm, y - arm), (x + arm, y + arm)], thick, ink);
        self.line(&[(x - arm, y + arm), (x + arm, y - arm)], thick, ink);
    }

    /// Text whose vertical middle is at `y`.
    pub(crate) fn text(&self, text: &str, (x, y): (i32, i32), at: At, size: i32, ink: Ink) {
        self.write(text, (x, y), at, size, FontStyle::Normal, ink);
    }

    /// The same in bold.
    pub(crate) fn bold(&self, text: &str, (x, y): (i32, i32), at: At, size: i32, ink: Ink) {
        self.write(text, (x, y), at, size, FontStyle::Bold, ink);
    }

    fn write(&self, text: &str, position: (i32, i32), at: At, size: i32, weight: FontStyle, ink: Ink) {
        let h_pos = match at {
            At::Left => HPos::Left,
            At::Centre => HPos::Center,
            At::Right => HPos::Right,
        };
        // plotters' sizes are those of a line of its own metrics, 1.24 times the font's.
        let font = FontDesc::new(FontFamily::SansSerif, f64::from(size) * 1.24, weight);
        let colour = ink.colour();
        let style = TextStyle::from(font).color(&colour).pos(Pos::new(h_pos, VPos::Center));
        self.area.draw_text(text, &style, position).expect(NEVER);
    }
}

/// About how wide a text is, in pixels. Fonts differ; this is on the wide side, so that what fits by it fits.
pub(crate) fn text_width(text: &str, size: i32) -> i32 {
    let tenths: i32 =
        text.chars().map(|character| if matches!(character, 'i' | 'l' | '.' | ',' | ' ') { 4 } else { 6 }).sum();
    (tenths * size + 9) / 10
}

/// The text, cut off with `…` if it is wider than that.
pub(crate) fn fit(text: &str, size: i32, width: i32) -> String {
    let mut limit = text.chars().count();
    let mut fitted = text.to_string();
    while text_width(&fitted, size) > width && limit > 1 {
        limit -= 1;
        fitted = crate::text::elide(text, limit);
    }
    fitted
}

/// The text in lines no wider than that, broken after hyphens and spaces.
pub(crate) fn wrap(text: &str, size: i32, width: i32) -> Vec<String> {
    let mut lines: Vec<String> = vec![String::new()];
    for part in text.split_inclusive(['-', ' ']) {
        let line = lines.last_mut().expect("never empty");
        if line.is_empty() || text_width(&format!("{line}{}", part.trim_end()), size) <= width {
            line.push_str(part);
        } else {
            lines.push(part.to_string());
        }
    }
    lines.iter().map(|line| fit(line.trim_end(), size, width)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_wrapped_at_hyphens_and_fitted() {
        assert_eq!(wrap("async-commit-nobarrier", 12, 80), ["async-", "commit-", "nobarrier"]);
        assert_eq!(wrap("barrier", 12, 80), ["barrier"]);
        let fitted = fit("a_word_that_is_far_too_long", 12, 80);
        assert!(fitted.ends_with('…') && text_width(&fitted, 12) <= 80, "{fitted}");
    }
}
