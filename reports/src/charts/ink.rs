//! The inks: what a colour means, not what it looks like.
//!
//! plotters knows RGB colours alone, so each ink is a colour that occurs nowhere else; in the finished SVG it is a class.
//! What the class looks like, in light and in dark, is said in the page's style sheet, on the base of the palette of
//! Okabe and Ito, which people with any kind of colour blindness can tell apart.

use std::fmt::Write;

use plotters::style::RGBColor;
use powerfail_ledger::FindingKind;

use crate::verdict::Verdict;

/// A colour by its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ink(u8);

#[rustfmt::skip]
/// Names of the inks; the page's style sheet has a variable `--NAME` for each.
const NAMES: [&str; 45] = [
    "text", "muted", "grid", "band", // 0
    "ok", "worse", "inconclusive", "broken", "skipped", // 4
    "heat0", "heat1", "heat2", "heat3", "heat4", "heat5", "heat6", "heat7", // 9
    "on-heat0", "on-heat1", "on-heat2", "on-heat3", "on-heat4", "on-heat5", "on-heat6", "on-heat7", // 17
    "mounts", "kernel", "walk", "promises", "fsck", "quiet", "witness", // 25
    "on-dark", "on-pale", // 32
    "journal", "home", "lost", "flush", "fua", "cut", "page", // 34
    "better", "series", "series-pale", // 41
    "replay-differs", // 44
];

impl Ink {
    pub(crate) const TEXT: Ink = Ink(0);
    pub(crate) const MUTED: Ink = Ink(1);
    pub(crate) const GRID: Ink = Ink(2);
    pub(crate) const BAND: Ink = Ink(3);
    pub(crate) const SKIPPED: Ink = Ink(8);
    pub(crate) const ON_DARK: Ink = Ink(32);
    pub(crate) const ON_PALE: Ink = Ink(33);
    pub(crate) const JOURNAL: Ink = Ink(34);
    pub(crate) const HOME: Ink = Ink(35);
    pub(crate) const LOST: Ink = Ink(36);
    pub(crate) const FLUSH: Ink = Ink(37);
    pub(crate) const FUA: Ink = Ink(38);
    pub(crate) const CUT: Ink = Ink(39);
    pub(crate) const PAGE: Ink = Ink(40);
    pub(crate) const SERIES: Ink = Ink(42);
    pub(crate) const SERIES_PALE: Ink = Ink(43);

    /// That of a verdict.
    pub(crate) fn verdict(verdict: &Verdict) -> Ink {
        match verdict {
            Verdict::AsExpected => Ink(4),
            Verdict::Worse { .. } => Ink(5),
            Verdict::Better { .. } => Ink(41),
            Verdict::Inconclusive { .. } => Ink(6),
            Verdict::Broken { .. } => Ink(7),
            Verdict::Skipped { .. } => Ink(8),
        }
    }

    /// The fill of a heat-map cell and the ink of the text on it; eight levels, 0 is no violation at all.
    pub(crate) fn heat(rate: f64) -> (Ink, Ink) {
        let level = match rate {
            0.0 => 0,
            r if r < 0.003 => 1,
            r if r < 0.01 => 2,
            r if r < 0.03 => 3,
            r if r < 0.1 => 4,
            r if r < 0.3 => 5,
            r if r < 0.6 => 6,
            _ => 7,
        };
        (Ink(9 + level), Ink(17 + level))
    }

    /// The fill of a kind of finding and the ink of the text on it.
    pub(crate) fn kind(kind: FindingKind) -> (Ink, Ink) {
        match kind {
            FindingKind::Mounts => (Ink(25), Ink::ON_DARK),
            FindingKind::Kernel => (Ink(26), Ink::ON_PALE),
            FindingKind::Walk => (Ink(27), Ink::ON_PALE),
            FindingKind::Promises => (Ink(28), Ink::ON_DARK),
            FindingKind::Fsck => (Ink(29), Ink::ON_DARK),
            FindingKind::Quiet => (Ink(30), Ink::ON_PALE),
            FindingKind::Witness => (Ink(31), Ink::ON_PALE),
            FindingKind::ReplayDiffers => (Ink(44), Ink::ON_DARK),
        }
    }

    /// The fill for the role of a lost block, by its rank among the roles, and the ink of the text on it. Roles are open, so
    /// they share the colours of the kinds; whatever comes after the seventh shares one.
    pub(crate) fn role(rank: usize) -> (Ink, Ink) {
        use FindingKind::{Fsck, Kernel, Mounts, Promises, Quiet, Walk, Witness};
        // Another order than that of the kinds, lest the most frequent role be taken for the first kind.
        let kinds = [Promises, Walk, Fsck, Kernel, Witness, Mounts, Quiet];
        kinds.get(rank).map_or((Ink::SKIPPED, Ink::ON_DARK), |&kind| Ink::kind(kind))
    }

    pub(crate) fn name(self) -> &'static str {
        NAMES[usize::from(self.0)]
    }

    /// What stands for it while plotters draws.
    pub(crate) fn colour(self) -> RGBColor {
        RGBColor(0xFE, 0x01, self.0)
    }

    /// The ink that a colour in plotters' output (`#FE0105`) stands for.
    pub(crate) fn of_colour(colour: &str) -> Option<Ink> {
        let index = u8::from_str_radix(colour.strip_prefix("#FE01")?, 16).ok()?;
        NAMES.get(usize::from(index)).map(|_| Ink(index))
    }
}

/// The classes: `f-NAME` fills, `s-NAME` strokes.
pub(crate) fn style_sheet() -> String {
    let mut css = String::new();
    for name in NAMES {
        write!(css, ".f-{name}{{fill:var(--{name})}}.s-{name}{{stroke:var(--{name})}}").expect("into a string");
    }
    css
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_ink_survives_the_way_through_its_colour() {
        for index in 0..NAMES.len() as u8 {
            let RGBColor(r, g, b) = Ink(index).colour();
            assert_eq!(Ink::of_colour(&format!("#{r:02X}{g:02X}{b:02X}")), Some(Ink(index)));
        }
        assert_eq!(Ink::of_colour("#FE01FF"), None);
        assert_eq!(Ink::of_colour("#000000"), None);
    }

    #[test]
    fn the_names_stand_where_the_constants_say() {
        let inks =
            [Ink::PAGE, Ink::SERIES_PALE, Ink::ON_DARK, Ink::JOURNAL, Ink::BAND, Ink::heat(0.0).0, Ink::heat(1.0).1];
        assert_eq!(inks.map(Ink::name), ["page", "series-pale", "on-dark", "journal", "band", "heat0", "on-heat7"]);
        for kind in FindingKind::ALL {
            assert_eq!(Ink::kind(kind).0.name(), kind.name());
        }
        assert_eq!(Ink::verdict(&Verdict::Skipped { why: String::new() }).name(), "skipped");
    }
}
