//! When one run is worse than another, and when nobody can tell.

mod support;

use powerfail_ledger::{Case, Contents, Expectation, Finding, FindingKind, KnownFinding, Line, Outcome};
use powerfail_reports::Tally;
use powerfail_reports::compare::{Change, Comparison, Thresholds};
use powerfail_reports::table::{Screen, comparison};
use support::{case, header};

/// `(violated, judged)` states of a case, violated in the named way.
fn run(cells: &[(Case, (u64, u64), FindingKind)]) -> Tally {
    let mut lines = Vec::new();
    for (case, (violated, judged), kind) in cells {
        for index in 0..*judged {
            let finding = Finding { kind: *kind, detail: "wrong".into() };
            let held = index >= *violated;
            let outcome = if held { Outcome::Held } else { Outcome::Violated { findings: vec![finding] } };
            lines.push(Line::State(Box::new(support::state(case, index, outcome))));
        }
    }
    Tally::from_ledgers(&[Contents { header: header(), lines, torn_bytes: 0 }])
}

fn safe() -> Case {
    case("ext4", "", "barrier", Expectation::Safe)
}

fn control() -> Case {
    case("ext4", "", "nobarrier-w1", Expectation::Unsafe)
}

fn refused() -> Case {
    let findings = vec![KnownFinding { kind: FindingKind::Mounts, says: String::new() }];
    let expectation = Expectation::Known { findings, reference: "r".into(), at_most_ppm: None };
    case("ext4", "", "async-commit", expectation)
}

fn compare(case: &Case, before: (u64, u64), after: (u64, u64)) -> Comparison {
    let side = |counts| run(&[(case.clone(), counts, FindingKind::Mounts)]);
    Comparison::of(&side(before), &side(after), Thresholds::default())
}

fn settled(comparison: &Comparison) -> (&'static str, u8) {
    (comparison.cells[0].change.name(), comparison.exit_code())
}

#[test]
fn a_rate_that_rises_is_worse_and_one_that_falls_better() {
    let worse = compare(&safe(), (0, 200), (12, 200));
    assert_eq!(settled(&worse), ("worse", 1));
    let Change::Worse(why) = &worse.cells[0].change else { unreachable!() };
    assert_eq!(why, "0 of 200 violated before, 12 of 200 after; p = 0.0004");
    assert_eq!(worse.headline(), "1 of 1 cell is worse.");
    assert_eq!(settled(&compare(&refused(), (40, 200), (10, 200))), ("better", 0));
    assert_eq!(settled(&compare(&refused(), (20, 400), (22, 400))), ("no worse", 0));
    assert_eq!(settled(&compare(&safe(), (0, 200), (0, 200))), ("no worse", 0));
}

#[test]
fn too_few_states_are_no_proof_of_anything() {
    // 0 of 60 does not exclude 5 points more.
    assert_eq!(settled(&compare(&safe(), (0, 60), (0, 60))), ("cannot tell", 125));
    assert_eq!(settled(&compare(&safe(), (0, 60), (3, 60))), ("cannot tell", 125));
    // A first violation of a safe cell is not significant, and not no worse.
    let one = compare(&safe(), (0, 1000), (1, 1000));
    assert_eq!(settled(&one), ("cannot tell", 125));
    assert!(one.cells[0].change.why().contains("1 of 1,000 have unexpected findings and none had before"));
    let side = |counts| run(&[(safe(), counts, FindingKind::Mounts)]);
    let loose = Comparison::of(&side((0, 60)), &side((0, 60)), Thresholds { margin: 0.1, ..Thresholds::default() });
    assert_eq!(settled(&loose), ("no worse", 0));
}

#[test]
fn other_findings_at_the_same_rate_are_worse() {
    let before = run(&[(refused(), (30, 200), FindingKind::Mounts)]);
    let after = run(&[(refused(), (30, 200), FindingKind::Fsck)]);
    let compared = Comparison::of(&before, &after, Thresholds::default());
    assert_eq!(settled(&compared), ("worse", 1));
    assert!(compared.cells[0].change.why().starts_with("0 of 200 with unexpected findings before, 30 of 200 after"));
}

#[test]
fn a_control_must_fail_on_both_sides_and_is_not_judged() {
    assert_eq!(compare(&control(), (50, 100), (99, 100)).cells[0].change, Change::Control);
    let blind = compare(&control(), (50, 100), (0, 100));
    assert_eq!(settled(&blind), ("cannot tell", 125));
    assert_eq!(compare(&control(), (50, 100), (50, 100)).exit_code(), 125, "a control alone says nothing");
    let side = |counts| run(&[(control(), counts, FindingKind::Walk), (safe(), (0, 300), FindingKind::Walk)]);
    assert_eq!(Comparison::of(&side((50, 100)), &side((80, 100)), Thresholds::default()).exit_code(), 0);
}

#[test]
fn many_cells_make_chance_no_difference() {
    let modes: Vec<Case> = (0..100).map(|index| case("ext4", "", &format!("m{index:03}"), Expectation::Open)).collect();
    let side = |first: (u64, u64)| {
        let cells = modes.iter().enumerate();
        let cells =
            cells.map(|(index, case)| (case.clone(), if index == 0 { first } else { (10, 300) }, FindingKind::Walk));
        run(&cells.collect::<Vec<_>>())
    };
    let alone = compare(&modes[0], (10, 300), (29, 300));
    assert_eq!(settled(&alone), ("worse", 1));
    let among = Comparison::of(&side((10, 300)), &side((29, 300)), Thresholds::default());
    assert_ne!(
        settled(&among).0,
        "worse",
        "p was {:?} alone and is {:?} among 100",
        alone.cells[0].p,
        among.cells[0].p
    );
}

#[test]
fn cells_are_paired_over_kernels_and_what_is_missing_is_told() {
    let on = |case: Case, kernel: &str| Case { kernel: kernel.into(), ..case };
    let counts = ((0, 300), FindingKind::Walk);
    let one = |kernel: &str| run(&[(on(safe(), kernel), counts.0, counts.1)]);
    let updated = Comparison::of(&one("6.18.44"), &one("6.19.0-rc1+"), Thresholds::default());
    assert_eq!((updated.cells.len(), settled(&updated)), (1, ("no worse", 0)));
    let two = run(&[(on(safe(), "6.18.44"), counts.0, counts.1), (on(safe(), "6.12.1"), counts.0, counts.1)]);
    let partly = Comparison::of(&two, &one("6.12.1"), Thresholds::default());
    let names: Vec<_> = partly.cells.iter().map(|cell| cell.change.name()).collect();
    assert_eq!((names, partly.exit_code()), (vec!["no worse", "cannot tell"], 125));
    let grown = Comparison::of(&one("6.12.1"), &two, Thresholds::default());
    let names: Vec<_> = grown.cells.iter().map(|cell| cell.change.name()).collect();
    assert_eq!((names, grown.exit_code()), (vec!["no worse", "new"], 0));
    let empty = Tally::from_ledgers(&[]);
    assert_eq!(Comparison::of(&empty, &empty, Thresholds::default()).exit_code(), 125);
}

#[test]
fn the_table_fits_and_ends_with_the_result() {
    let text = comparison(&compare(&safe(), (0, 200), (12, 200)), Screen { width: 80, colours: false });
    assert!(text.lines().all(|line| line.chars().count() <= 80 || line.starts_with("ext4 barrier")), "{text}");
    assert!(text.ends_with("1 of 1 cell is worse.\n") && text.contains("12/200"), "{text}");
}
