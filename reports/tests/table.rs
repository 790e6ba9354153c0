//! The table on terminals of several widths, and as Markdown.

mod support;

use powerfail_reports::Tally;
use powerfail_reports::table::{Screen, markdown, terminal};
use support::night;

#[test]
fn no_line_of_the_table_is_wider_than_the_terminal() {
    let tally = Tally::from_ledgers(&[night()]);
    for width in [80, 100, 120, 139, 140, 160] {
        let text = terminal(&tally, Screen { width, colours: false });
        let (table, sentences) = text.rsplit_once('─').unwrap();
        for line in table.lines() {
            assert!(line.chars().count() <= usize::from(width), "{width}: {line}");
        }
        for part in
            ["871/1,000", "87.1\u{a0}%", "84.9–89.0\u{a0}%", "promises\u{a0}", "inconclusive", "as expected", "broken"]
        {
            assert!(table.contains(part), "{width}: {part} is missing or broken in two\n{table}");
        }
        assert!(sentences.contains("the control was not seen to fail"));
        assert!(!text.contains('\u{1b}'), "no colours were asked for");
    }
    assert!(terminal(&tally, Screen { width: 100, colours: true }).contains('\u{1b}'));
}

#[test]
fn markdown_has_a_row_for_each_cell_and_escapes() {
    let text = markdown(&Tally::from_ledgers(&[night()]));
    let rows: Vec<&str> = text.lines().collect();
    assert_eq!(rows.len(), 2 + 20);
    let bars = rows[0].matches('|').count();
    assert!(rows.iter().all(|row| row.matches('|').count() == bars));
    assert!(text.contains(r"ext4 -O \^metadata\_csum"));
}
