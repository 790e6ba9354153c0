//! The result as JUnit XML, which CI systems show: a suite for each row of the matrix, a test for each cell.
//!
//! *Worse*, *better* and *inconclusive* fail the test, *broken* is an error, *skipped* is skipped; so a CI that looks at
//! this file alone comes to the same end as one that looks at the exit code, but for a run of which all was skipped.

use std::time::Duration;

use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};

use crate::headline::headline;
use crate::labels::{Label, labels};
use crate::notes::notes;
use crate::tally::{Cell, Tally};
use crate::text::{count, elide, percent, percent_range};
use crate::verdict::{Verdict, describe};

/// Distinct findings that a test names.
const FINDINGS: usize = 3;
/// Characters of each.
const DETAIL: usize = 600;

/// The XML.
///
/// # Panics
/// If the library can't write into a string.
pub fn junit(tally: &Tally) -> String {
    let labels = labels(&tally.cells);
    let mut report = Report::new(format!("powerfail: {}", headline(tally)));
    let mut suites: Vec<TestSuite> = Vec::new();
    let mut took = Duration::ZERO;
    for (cell, label) in tally.cells.iter().zip(&labels) {
        let row = label.row();
        if suites.last().is_none_or(|suite| suite.name.as_str() != row) {
            suites.push(TestSuite::new(row));
        }
        let suite = suites.last_mut().expect("just pushed");
        let test = test(cell, label);
        let time = test.time.unwrap_or_default();
        took += time;
        suite.set_time(suite.time.unwrap_or_default() + time);
        suite.add_test_case(test);
    }
    report.set_time(took);
    report.add_test_suites(suites);
    report.to_string().expect("writing XML into a string does not fail")
}

fn test(cell: &Cell, label: &Label) -> TestCase {
    let failed = |kind| {
        let mut status = TestCaseStatus::non_success(kind);
        status.set_type(cell.verdict.name()).set_message(cell.verdict.why()).set_description(details(cell));
        status
    };
    let status = match &cell.verdict {
        Verdict::AsExpected => TestCaseStatus::success(),
        Verdict::Worse { .. } | Verdict::Better { .. } | Verdict::Inconclusive { .. } => {
            failed(NonSuccessKind::Failure)
        }
        Verdict::Broken { .. } => failed(NonSuccessKind::Error),
        Verdict::Skipped { why } => {
            let mut status = TestCaseStatus::skipped();
            status.set_message(why.as_str());
            status
        }
    };
    let mut test = TestCase::new(label.mode.as_str(), status);
    test.set_classname(label.row()).set_time(Duration::from_millis(cell.counts.took_ms)).set_system_out(sum(cell));
    test
}

fn sum(cell: &Cell) -> String {
    let mut lines =
        vec![format!("expected: {}", cell.expectations.iter().map(describe).collect::<Vec<_>>().join(" or "))];
    if let (Some(rate), Some(interval)) = (cell.rate, cell.interval) {
        lines.push(format!(
            "violated: {} of {}, {}, 95 % interval {}",
            count(cell.counts.violated),
            count(cell.counts.judged()),
            percent(rate),
            percent_range(interval.low, interval.high)
        ));
    }
    lines.extend(cell.counts.kinds.iter().map(|(kind, &states)| format!("{}: {}", kind.name(), count(states))));
    lines.extend(notes(cell));
    lines.join("\n")
}

/// What a person needs to go on: the most frequent findings, each with the command that shows it again.
fn details(cell: &Cell) -> String {
    let mut lines = vec![cell.verdict.why().to_string()];
    for group in cell.groups.iter().take(FINDINGS) {
        lines.push(format!("\n{} in {}: {}", group.kind.name(), count(group.states), elide(&group.detail, DETAIL)));
        lines.extend(cell.violations[group.example].replay.clone());
    }
    if cell.groups.len() > FINDINGS {
        lines.push(format!("\n{} more distinct findings", cell.groups.len() - FINDINGS));
    }
    lines.join("\n")
}
