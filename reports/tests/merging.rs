//! Ledgers as they lie on disks after a night on several machines: overlapping, torn, of another version.

mod support;

use std::io::Write;
use std::path::Path;

use powerfail_ledger::{Contents, Header, LedgerError, Line, read};
use powerfail_reports::{Tally, merging};
use support::matrix;

/// Writes a ledger as a run would, but syncs once.
fn write(path: &Path, header: &Header, lines: &[Line], torn: &str) {
    let mut file = std::io::BufWriter::new(std::fs::File::create(path).unwrap());
    for line in std::iter::once(&Line::Header(header.clone())).chain(lines) {
        serde_json::to_writer(&mut file, line).unwrap();
        file.write_all(b"\n").unwrap();
    }
    file.write_all(torn.as_bytes()).unwrap();
    file.flush().unwrap();
}

#[test]
fn three_hundred_cells_from_overlapping_and_torn_ledgers_are_one_result() {
    let whole = matrix();
    let expected = Tally::from_ledgers(std::slice::from_ref(&whole));
    assert!(expected.cells.len() >= 300 && expected.judged() >= 100_000);
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    // Two parts that overlap by a fifth, and the torn rest.
    let lines = &whole.lines;
    let (first, second) = (lines.len() * 3 / 5, lines.len() * 2 / 5);
    let last = lines.len() - 1_000;
    write(&path("a"), &whole.header, &lines[..first], "");
    write(
        &path("b"),
        &Header { started: "2026-01-05T03:00:00Z".into(), ..whole.header.clone() },
        &lines[second..last],
        "",
    );
    let torn = "{\"line\":\"state\",\"case\":{\"fs\":\"ext4\"";
    write(&path("c"), &Header { seed: 3, ..whole.header.clone() }, &lines[last..], torn);
    let mut ledgers: Vec<Contents> = ["a", "b", "c"].iter().map(|name| read(&path(name)).unwrap()).collect();
    let merged = Tally::from_ledgers(&ledgers);
    // How long a case took to its first violation is not known of one that was cut in two; all else is the same.
    let cells = |tally: &Tally| {
        let mut cells = tally.cells.clone();
        cells.iter_mut().for_each(|cell| cell.firsts.clear());
        cells
    };
    assert!(cells(&merged) == cells(&expected), "the cells are those of the whole");
    assert_eq!(
        merged.duplicates,
        lines[second..first].iter().filter(|line| matches!(line, Line::State(_))).count() as u64
    );
    assert_eq!(merged.runs.iter().map(|run| run.torn_bytes).sum::<u64>(), torn.len() as u64);
    let sentences = merging(&merged);
    assert_eq!(sentences.len(), 2, "{sentences:?}");
    assert!(sentences[1].starts_with("1 ledger ends with a torn line"));
    ledgers.reverse();
    assert!(Tally::from_ledgers(&ledgers) == merged, "in any order");
    ledgers.pop();
    let missing: u64 = Tally::from_ledgers(&ledgers).cells.iter().map(|cell| cell.missing()).sum();
    assert_eq!(missing, 0, "what a ledger does not know it does not miss");
}

#[test]
fn states_that_were_planned_and_are_in_no_ledger_are_missed() {
    let whole = matrix();
    let mut part = whole.clone();
    part.lines.truncate(1_000);
    let tally = Tally::from_ledgers(&[part]);
    let missing: u64 = tally.cells.iter().map(|cell| cell.missing()).sum();
    assert!(missing > 0);
    assert_eq!(merging(&tally), [format!("{missing} states of 1 cell were planned and not judged")]);
}

#[test]
fn a_ledger_of_a_newer_version_is_refused_with_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.jsonl");
    write(&path, &Header { schema: 99, ..support::header() }, &[], "");
    let error = read(&path).unwrap_err();
    assert!(matches!(error, LedgerError::Newer { found: 99, .. }));
    assert!(error.to_string().contains("use the newer powerfail that wrote it"));
}
