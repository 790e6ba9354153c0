//! What other programs read: JUnit, JSON, Markdown.

mod support;

use powerfail_ledger::{Expectation, FindingKind, Line, Outcome};
use powerfail_reports::{Summary, Tally, junit, markdown};
use quick_junit::{Report, TestCaseStatus};
use support::{Dice, Plan, case, night, states};

#[test]
fn junit_has_a_test_for_each_cell_with_its_end() {
    let tally = Tally::from_ledgers(&[night()]);
    let xml = junit(&tally);
    let report = Report::deserialize_from_str(&xml).unwrap();
    assert_eq!((report.tests, report.failures, report.errors), (20, 6, 1));
    let suites: Vec<_> = report.test_suites.iter().map(|suite| suite.name.as_str()).collect();
    assert_eq!(suites, ["ext4 default", "ext4 -O ^metadata_csum", "xfs"]);
    let tests = || report.test_suites.iter().flat_map(|suite| &suite.test_cases);
    assert_eq!(tests().filter(|test| matches!(test.status, TestCaseStatus::Skipped { .. })).count(), 1);
    let worse =
        tests().find(|test| test.classname.as_deref() == Some(suites[1]) && test.name.as_str() == "barrier").unwrap();
    let TestCaseStatus::NonSuccess { message, description, ty, .. } = &worse.status else { panic!("it fails") };
    assert_eq!(ty.as_deref(), Some("worse"));
    assert_eq!(message.as_deref(), Some("3 of 1,000 states are violated, none was expected"));
    assert!(description.as_deref().unwrap().contains("powerfail replay --dir nightly"));
    assert!(worse.time.unwrap().as_secs() > 80, "the sum of its verdicts");
}

#[test]
fn junit_takes_what_no_xml_can_hold() {
    let dice = &mut Dice(1);
    let case = case("ext4", "", "barrier", Expectation::Safe);
    let kinds = &[FindingKind::Kernel];
    let mut lines = states(&Plan { case, states: 3, violated: 3, kinds, loose_percent: 90, timeline: false }, dice);
    for line in &mut lines {
        let Line::State(state) = line else { continue };
        let Outcome::Violated { findings } = &mut state.outcome else { continue };
        findings[0].detail = "\u{0}\u{1b}[31m]]> <&\u{ffff}\u{b} \"'".into();
    }
    let ledger = powerfail_ledger::Contents { header: support::header(), lines, torn_bytes: 0 };
    let report = Report::deserialize_from_str(&junit(&Tally::from_ledgers(&[ledger]))).unwrap();
    assert_eq!(report.failures, 1);
    assert_eq!(Report::deserialize_from_str(&junit(&Tally::default())).unwrap().tests, 0);
}

#[test]
fn the_summary_is_json_with_a_line_for_each_cell() {
    let tally = Tally::from_ledgers(&[night()]);
    let json = serde_json::to_value(Summary::of(&tally)).unwrap();
    assert_eq!((&json["exit_code"], &json["judged"]), (&3.into(), &17_040.into()));
    let cells = json["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 20);
    let worse = cells.iter().find(|cell| cell["name"] == "ext4 barrier (-O ^metadata_csum)").unwrap();
    assert_eq!((&worse["verdict"], &worse["violated"], &worse["departing"]), (&"worse".into(), &3.into(), &3.into()));
    assert_eq!(worse["wilson_95"].as_array().unwrap().len(), 2);
    assert_eq!(worse["kinds"]["promises"], 3);
}

#[test]
fn markdown_begins_with_the_headline_and_what_needs_a_look() {
    let text = markdown(&Tally::from_ledgers(&[night()]));
    let mut lines = text.lines();
    assert!(lines.next().unwrap().starts_with("**Out of 17,040 power cuts 3,440 ended in a violation; 12 of 20"));
    assert_eq!(text.lines().filter(|line| line.starts_with("- ")).count(), 8);
    assert_eq!(text.lines().filter(|line| line.starts_with('|')).count(), 22);
    assert!(text.contains("- ▼ xfs async-commit-nobarrier: better: the control fails no more"));
}
