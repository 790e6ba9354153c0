//! The axis of rates: linear near zero, which it shows, and logarithmic above.
//!
//! It is that of the inverse hyperbolic sine, with its knee at 0.1 %: 0 of 1,000 and 3 of 1,000 are apart, and 100 % is
//! still there.

/// Where the axis turns from linear to logarithmic.
const KNEE: f64 = 0.001;

/// Where a rate lies on the axis, 0 to 1.
pub(crate) fn place(rate: f64) -> f64 {
    (rate / KNEE).asinh() / (1.0 / KNEE).asinh()
}

/// A tick's label.
pub(crate) fn tick(rate: f64) -> String {
    if rate == 0.0 { "0".into() } else { format!("{}\u{a0}%", rate * 100.0) }
}
