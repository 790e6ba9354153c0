//! Numbers and sentences as a person reads them; one way of writing each, for all views.

/// No-break space: between a number and its unit.
const NBSP: char = '\u{a0}';

/// `1234567` as `1,234,567`.
pub(crate) fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// At most four characters or so: `999`, `1k`, `12.3k`, `4M`; for places where [`count`] does not fit.
pub(crate) fn short_count(value: u64) -> String {
    let (unit, suffix) = match value {
        0..1_000 => return value.to_string(),
        1_000..1_000_000 => (1_000, 'k'),
        _ => (1_000_000, 'M'),
    };
    match (value / unit, value % unit * 10 / unit) {
        (whole, 0) => format!("{whole}{suffix}"),
        (whole, tenth) => format!("{whole}.{tenth}{suffix}"),
    }
}

/// `1 state`, `2 states`.
pub(crate) fn counted(value: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(value), if value == 1 { one } else { many })
}

/// A share as a percentage, with the digits that matter; 0 and 100 only when they are exact.
pub(crate) fn percent(share: f64) -> String {
    format!("{}{NBSP}%", percent_digits(share))
}

/// `0.10–0.88 %`.
pub(crate) fn percent_range(low: f64, high: f64) -> String {
    format!("{}–{}{NBSP}%", percent_digits(low), percent_digits(high))
}

/// A difference of shares in percentage points.
pub(crate) fn points(difference: f64) -> String {
    format!("{:.1} points", difference * 100.0)
}

/// `p = 0.0032`, `p < 0.0001`.
pub(crate) fn p_value(p: f64) -> String {
    match p {
        small if small < 0.0001 => "p < 0.0001".into(),
        small if small < 0.01 => format!("p = {small:.4}"),
        _ => format!("p = {p:.2}"),
    }
}

fn percent_digits(share: f64) -> String {
    let percent = share * 100.0;
    match percent {
        exact if exact == 0.0 || exact == 100.0 => format!("{exact:.0}"),
        small if small < 0.001 => "<0.001".into(),
        small if small < 0.1 => format!("{small:.3}"),
        middle if middle < 10.0 => format!("{middle:.2}"),
        large if large < 99.95 => format!("{large:.1}"),
        _ => ">99.9".into(),
    }
}

/// Milliseconds as `38 ms`, `1.2 s`, `4 min 10 s`.
pub(crate) fn duration(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms}{NBSP}ms"),
        1_000..60_000 => format!("{:.1}{NBSP}s", ms as f64 / 1000.0),
        60_000..3_600_000 => format!("{}{NBSP}min {}{NBSP}s", ms / 60_000, ms / 1000 % 60),
        _ => format!("{}{NBSP}h {}{NBSP}min", ms / 3_600_000, ms / 60_000 % 60),
    }
}

/// Bytes as `4.0 KiB`, `1.2 GiB`.
pub(crate) fn bytes(value: u64) -> String {
    let mut scaled = value as f64;
    let mut unit = "B";
    for larger in ["KiB", "MiB", "GiB", "TiB"] {
        if scaled < 1024.0 {
            break;
        }
        scaled /= 1024.0;
        unit = larger;
    }
    if unit == "B" { format!("{value}{NBSP}B") } else { format!("{scaled:.1}{NBSP}{unit}") }
}

/// A measured value with at most two decimals and no trailing zeroes.
pub(crate) fn figure(value: f64) -> String {
    if value.fract() == 0.0 && value.abs() < 1e15 {
        let whole = count(value.abs() as u64);
        return if value < 0.0 { format!("-{whole}") } else { whole };
    }
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

/// The first `limit` characters, with `…` in the place of what was left out.
pub(crate) fn elide(text: &str, limit: usize) -> String {
    if text.chars().nth(limit).is_none() {
        return text.to_string();
    }
    let mut kept: String = text.chars().take(limit.saturating_sub(1)).collect();
    kept.truncate(kept.trim_end().len());
    kept.push('…');
    kept
}

/// `a`, `a and b`, `a, b and c`.
pub(crate) fn listed(items: &[String]) -> String {
    match items {
        [] => String::new(),
        [only] => only.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_grouped() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1_000), "1,000");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(short_count(1_000), "1k");
        assert_eq!(short_count(12_345), "12.3k");
    }

    #[test]
    fn percentages_are_exact_at_the_ends_only() {
        assert_eq!(percent(0.0), "0\u{a0}%");
        assert_eq!(percent(1.0), "100\u{a0}%");
        assert_eq!(percent(0.9999), ">99.9\u{a0}%");
        assert_eq!(percent(0.003), "0.30\u{a0}%");
        assert_eq!(percent(0.000_25), "0.025\u{a0}%");
        assert_eq!(percent(0.000_000_1), "<0.001\u{a0}%");
        assert_eq!(percent(0.5), "50.0\u{a0}%");
    }

    #[test]
    fn units_and_lists_read_well() {
        assert_eq!(duration(38), "38\u{a0}ms");
        assert_eq!(duration(250_000), "4\u{a0}min 10\u{a0}s");
        assert_eq!(bytes(512), "512\u{a0}B");
        assert_eq!(bytes(4096), "4.0\u{a0}KiB");
        assert_eq!(figure(15.2), "15.2");
        assert_eq!(figure(1500.0), "1,500");
        assert_eq!(listed(&["a".into(), "b".into(), "c".into()]), "a, b and c");
        assert_eq!(elide("größer als", 7), "größer…");
        assert_eq!(elide("short", 5), "short");
    }
}
