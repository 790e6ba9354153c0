//! plotters' SVG rewritten for a page.
//!
//! plotters writes one element a line, with presentation attributes. A colour there can't be a CSS variable, so the
//! inks' colours become classes. What is the default anyway is dropped, and neighbours that look alike are joined into
//! one path: rectangles of one fill, and lines of one stroke.

use std::fmt::Write;

use super::ink::Ink;

/// A rectangle that leads to a place on the page.
pub(crate) struct Link {
    pub(crate) at: (i32, i32),
    pub(crate) size: (i32, i32),
    /// The id of the element.
    pub(crate) target: String,
    /// What is there.
    pub(crate) says: String,
}

/// The finished SVG; `raw` is what plotters wrote.
///
/// # Panics
/// If plotters wrote a colour that is no ink: such a colour would be wrong in dark or in light.
pub(crate) fn finish(raw: &str, (width, height): (u32, u32), title: &str, describe: &str, links: &[Link]) -> String {
    let mut svg = String::with_capacity(raw.len() / 2);
    // What is inside an image is not read out, and links must be.
    let role = if links.is_empty() { "img" } else { "group" };
    write!(
        svg,
        r#"<svg viewBox="0 0 {width} {height}" width="100%" role="{role}"><title>{}</title><desc>{}</desc>"#,
        escaped(title),
        escaped(describe)
    )
    .expect("into a string");
    let mut open: Option<Joined> = None;
    let mut lines = raw.lines();
    while let Some(line) = lines.next() {
        let Some(element) = Element::parse(line) else { continue };
        let shape = element.shape();
        if let (Some(joined), Some((paint, path))) = (&mut open, &shape)
            && joined.paint == *paint
        {
            joined.path.push_str(path);
            continue;
        }
        if let Some(joined) = open.take() {
            joined.write(&mut svg);
        }
        match (shape, element.tag) {
            (Some((paint, path)), _) => open = Some(Joined { paint, path }),
            (None, "text") => {
                let body: Vec<&str> = lines.by_ref().take_while(|line| *line != "</text>").collect();
                element.write(&mut svg, Some(&body.join(" ")));
            }
            (None, "svg") => {}
            (None, _) => element.write(&mut svg, None),
        }
    }
    if let Some(joined) = open {
        joined.write(&mut svg);
    }
    for link in links {
        link.write(&mut svg);
    }
    svg.push_str("</svg>");
    svg
}

impl Link {
    fn write(&self, svg: &mut String) {
        let ((x, y), (width, height)) = (self.at, self.size);
        write!(
            svg,
            r##"<a href="#{}"><title>{}</title><rect class="hit" x="{x}" y="{y}" width="{width}" height="{height}"/></a>"##,
            escaped(&self.target),
            escaped(&self.says)
        )
        .expect("into a string");
    }
}

/// A path that is still growing.
struct Joined {
    paint: String,
    path: String,
}

impl Joined {
    fn write(&self, svg: &mut String) {
        write!(svg, r#"<path{} d="{}"/>"#, self.paint, self.path).expect("into a string");
    }
}

/// One line of plotters' output.
struct Element<'a> {
    tag: &'a str,
    attributes: Vec<(&'a str, &'a str)>,
}

impl<'a> Element<'a> {
    fn parse(line: &'a str) -> Option<Element<'a>> {
        let line = line.strip_prefix('<')?;
        if line.starts_with('/') {
            return None;
        }
        let (tag, mut rest) = line.split_once(' ')?;
        let mut attributes = Vec::new();
        // Values are escaped, so a quote ends one.
        while let Some((name, after)) = rest.split_once("=\"") {
            let (value, after) = after.split_once('"')?;
            attributes.push((name.trim_start(), value));
            rest = after;
        }
        Some(Element { tag, attributes })
    }

    fn get(&self, name: &str) -> &'a str {
        self.attributes.iter().find(|(known, _)| *known == name).map_or("", |(_, value)| value)
    }

    /// How it is painted and its outline, if it may become a part of a path.
    fn shape(&self) -> Option<(String, String)> {
        let path = match self.tag {
            "rect" => {
                let (x, y, w, h) = (self.get("x"), self.get("y"), self.get("width"), self.get("height"));
                format!("M{x} {y}h{w}v{h}h-{w}z")
            }
            "line" => {
                let (x1, y1, x2, y2) = (self.get("x1"), self.get("y1"), self.get("x2"), self.get("y2"));
                format!("M{x1} {y1}L{x2} {y2}")
            }
            "polyline" => format!("M{}", self.get("points").trim_end().replace(',', " ")),
            "polygon" => format!("M{}z", self.get("points").trim_end().replace(',', " ")),
            _ => return None,
        };
        Some((self.paint(), path))
    }

    /// Classes and attributes of its paint.
    fn paint(&self) -> String {
        let mut classes = Vec::new();
        let (fill, stroke) = (self.get("fill"), self.get("stroke"));
        classes.extend(ink(fill).map(|ink| format!("f-{}", ink.name())));
        classes.extend(ink(stroke).map(|ink| format!("s-{}", ink.name())));
        let mut paint = format!(r#" class="{}""#, classes.join(" "));
        if fill == "none" || self.tag == "line" {
            paint.push_str(r#" fill="none""#);
        }
        let width = self.get("stroke-width");
        if ink(stroke).is_some() && !matches!(width, "" | "1") {
            write!(paint, r#" stroke-width="{width}""#).expect("into a string");
        }
        let opacity = self.get("opacity");
        if !matches!(opacity, "" | "1") {
            write!(paint, r#" opacity="{opacity}""#).expect("into a string");
        }
        paint
    }

    fn write(&self, svg: &mut String, body: Option<&str>) {
        write!(svg, "<{}{}", self.tag, self.paint()).expect("into a string");
        for (name, value) in &self.attributes {
            // The family is the page's, and the left end is where text begins anyway.
            let dropped = matches!(*name, "fill" | "stroke" | "stroke-width" | "opacity" | "font-family")
                || (*name, *value) == ("text-anchor", "start");
            if dropped {
                continue;
            }
            let rounded = value.parse::<f64>().map(|number| format!("{}", (number * 10.0).round() / 10.0));
            write!(svg, r#" {name}="{}""#, rounded.as_deref().unwrap_or(value)).expect("into a string");
        }
        match body {
            Some(body) => write!(svg, ">{body}</{}>", self.tag).expect("into a string"),
            None => svg.push_str("/>"),
        }
    }
}

fn ink(colour: &str) -> Option<Ink> {
    if matches!(colour, "" | "none") {
        return None;
    }
    Some(Ink::of_colour(colour).unwrap_or_else(|| panic!("{colour} is no ink")))
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_become_classes_and_like_neighbours_one_path() {
        let raw = concat!(
            "<svg width=\"9\" height=\"9\" viewBox=\"0 0 9 9\" xmlns=\"http://www.w3.org/2000/svg\">\n",
            "<rect x=\"1\" y=\"2\" width=\"3\" height=\"4\" opacity=\"1\" fill=\"#FE0100\" stroke=\"none\"/>\n",
            "<rect x=\"5\" y=\"6\" width=\"7\" height=\"8\" opacity=\"1\" fill=\"#FE0100\" stroke=\"none\"/>\n",
            "<text x=\"1\" y=\"1\" dy=\"0.76em\" text-anchor=\"start\" font-family=\"sans-serif\" ",
            "font-size=\"12.0001\" opacity=\"1\" fill=\"#FE0101\">\na &lt; b\n</text>\n",
            "<polyline fill=\"none\" opacity=\"1\" stroke=\"#FE0102\" stroke-width=\"2\" points=\"1,2 3,4 \"/>\n",
            "</svg>\n",
        );
        let expected = concat!(
            r#"<svg viewBox="0 0 9 9" width="100%" role="img"><title>a &amp; b</title><desc>c</desc>"#,
            r#"<path class="f-text" d="M1 2h3v4h-3zM5 6h7v8h-7z"/>"#,
            r#"<text class="f-muted" x="1" y="1" dy="0.76em" font-size="12">a &lt; b</text>"#,
            r#"<path class="s-grid" fill="none" stroke-width="2" d="M1 2 3 4"/></svg>"#,
        );
        assert_eq!(finish(raw, (9, 9), "a & b", "c", &[]), expected);
    }

    #[test]
    #[should_panic(expected = "#123456 is no ink")]
    fn a_colour_that_is_no_ink_is_refused() {
        finish("<circle cx=\"1\" fill=\"#123456\"/>\n", (1, 1), "", "", &[]);
    }
}
