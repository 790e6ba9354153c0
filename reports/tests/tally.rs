//! The rules by which ledgers become cells and cells get their verdicts, one test each.

mod support;

use powerfail_ledger::{
    Case, CaseEnd, Contents, Ending, Expectation, Finding, FindingKind, KnownFinding, Line, Outcome, Selftest, State,
    Trial, TrialKind,
};
use powerfail_reports::{First, Tally, Verdict};
use support::{case, header, known, recording, state};

fn violated(kinds: &[FindingKind]) -> Outcome {
    let findings = kinds.iter().map(|&kind| Finding { kind, detail: format!("{} is wrong", kind.name()) });
    Outcome::Violated { findings: findings.collect() }
}

fn skipped(reason: &str) -> Outcome {
    Outcome::Skipped { reason: reason.into() }
}

fn broken(reason: &str) -> Outcome {
    Outcome::Broken { reason: reason.into() }
}

fn ledger(lines: impl IntoIterator<Item = Line>) -> Contents {
    Contents { header: header(), lines: lines.into_iter().collect(), torn_bytes: 0 }
}

/// A ledger of one case: its states are numbered from 0.
fn ledger_of(case: &Case, outcomes: impl IntoIterator<Item = Outcome>) -> Contents {
    let states = outcomes.into_iter().enumerate();
    ledger(states.map(|(index, outcome)| Line::State(Box::new(state(case, index as u64, outcome)))))
}

fn tally_of(case: &Case, outcomes: impl IntoIterator<Item = Outcome>) -> Tally {
    Tally::from_ledgers(&[ledger_of(case, outcomes)])
}

fn verdict(tally: &Tally) -> &Verdict {
    assert_eq!(tally.cells.len(), 1);
    &tally.cells[0].verdict
}

fn end(case: &Case, outcome: Outcome) -> Line {
    Line::Case(CaseEnd { case: case.clone(), outcome })
}

#[test]
fn safe_departs_on_one_violation() {
    let case = case("ext4", "", "barrier", Expectation::Safe);
    let all_held = tally_of(&case, vec![Outcome::Held; 50]);
    assert_eq!(verdict(&all_held), &Verdict::AsExpected);
    assert_eq!(all_held.exit_code(), 0);
    let one = tally_of(&case, [Outcome::Held, violated(&[FindingKind::Fsck])]);
    assert_eq!(verdict(&one), &Verdict::Worse { why: "1 of 2 states is violated, none was expected".into() });
    assert_eq!(one.exit_code(), 1);
}

#[test]
fn a_control_that_was_not_seen_to_fail_is_inconclusive() {
    let case = case("ext4", "", "nobarrier-w1", Expectation::Unsafe);
    let none = tally_of(&case, vec![Outcome::Held; 50]);
    assert_eq!(verdict(&none), &Verdict::Inconclusive { why: "the control was not seen to fail".into() });
    assert_eq!(none.exit_code(), 1);
    assert_eq!(verdict(&tally_of(&case, [Outcome::Held, violated(&[FindingKind::Walk])])), &Verdict::AsExpected);
}

#[test]
fn a_control_that_fails_no_more_is_better_once_enough_states_say_so() {
    let case = case("ext4", "", "nobarrier-w1", Expectation::Unsafe);
    assert!(matches!(verdict(&tally_of(&case, vec![Outcome::Held; 72])), Verdict::Inconclusive { .. }));
    let enough = tally_of(&case, vec![Outcome::Held; 73]);
    let why = "the control fails no more: none of 73 states is violated, so at most 5.00\u{a0}% are";
    assert_eq!(verdict(&enough), &Verdict::Better { why: why.into() });
    assert_eq!(enough.exit_code(), 1);
}

#[test]
fn a_bound_is_kept_passed_or_too_near_to_tell() {
    let of = |violated_states: usize, states: usize| {
        let findings = vec![KnownFinding { kind: FindingKind::Mounts, says: String::new() }];
        let expectation = Expectation::Known { findings, reference: "r".into(), at_most_ppm: Some(50_000) };
        let case = case("ext4", "", "async-commit", expectation);
        let outcomes = (0..states)
            .map(|index| if index < violated_states { violated(&[FindingKind::Mounts]) } else { Outcome::Held });
        verdict(&tally_of(&case, outcomes)).clone()
    };
    assert_eq!(of(20, 1000), Verdict::AsExpected);
    assert_eq!(of(0, 100), Verdict::AsExpected);
    let why = "3 of 60 states are violated, too few states to tell a rate of 1.71–13.7\u{a0}% from the 5.00\u{a0}% that is known";
    assert_eq!(of(3, 60), Verdict::Inconclusive { why: why.into() });
    let why = "30 of 200 states are violated, a rate of 10.7–20.6\u{a0}%; at most 5.00\u{a0}% is known";
    assert_eq!(of(30, 200), Verdict::Worse { why: why.into() });
    assert!(matches!(of(0, 20), Verdict::Inconclusive { .. }));
}

#[test]
fn known_departs_on_kinds_that_are_not_known() {
    let case = case("ext4", "", "async-commit", known(&[FindingKind::Mounts], "a reference"));
    assert_eq!(verdict(&tally_of(&case, [Outcome::Held])), &Verdict::AsExpected);
    assert_eq!(verdict(&tally_of(&case, [violated(&[FindingKind::Mounts])])), &Verdict::AsExpected);
    let other = tally_of(&case, [violated(&[FindingKind::Mounts, FindingKind::Fsck])]);
    let why = "findings that are not known here: fsck in 1 state";
    assert_eq!(verdict(&other), &Verdict::Worse { why: why.into() });
}

#[test]
fn known_departs_on_another_finding_of_a_known_kind() {
    let says = |says: &str| {
        let findings = vec![KnownFinding { kind: FindingKind::Mounts, says: says.into() }];
        let expectation = Expectation::Known { findings, reference: "a reference".into(), at_most_ppm: None };
        let found = Finding { kind: FindingKind::Mounts, detail: "the mount is refused: bad superblock".into() };
        let case = case("ext4", "", "async-commit", expectation);
        verdict(&tally_of(&case, [Outcome::Violated { findings: vec![found] }])).clone()
    };
    assert_eq!(says("bad superblock"), Verdict::AsExpected);
    let why = "findings that are not known here: mounts in 1 state";
    assert_eq!(says("invalid checksum"), Verdict::Worse { why: why.into() });
}

#[test]
fn open_never_departs() {
    let case = case("ext4", "", "fast-commit", Expectation::Open);
    assert_eq!(verdict(&tally_of(&case, [violated(&FindingKind::ALL)])), &Verdict::AsExpected);
    assert_eq!(verdict(&tally_of(&case, [Outcome::Held])), &Verdict::AsExpected);
}

#[test]
fn nothing_judged_is_no_pass_whatever_is_expected() {
    for expectation in [Expectation::Safe, Expectation::Unsafe, known(&[], ""), Expectation::Open] {
        let case = case("ext4", "", "barrier", expectation);
        let only_recorded = Tally::from_ledgers(&[ledger([recording(&case, 10)])]);
        assert_eq!(verdict(&only_recorded), &Verdict::Inconclusive { why: "no state was judged".into() });
        assert_eq!(only_recorded.exit_code(), 1);
        assert_eq!(only_recorded.cells[0].rate, None);
        let all_skipped = tally_of(&case, [skipped("no loop devices"), skipped("no loop devices")]);
        assert_eq!(verdict(&all_skipped), &Verdict::Skipped { why: "no loop devices".into() });
        assert_eq!(all_skipped.exit_code(), 4);
    }
}

#[test]
fn a_w0_cell_with_too_little_at_stake_is_inconclusive() {
    let of = |mode: &str, with_loose: u64, outcome: fn(u64) -> Outcome| {
        let case = case("ext4", "", mode, Expectation::Safe);
        let states = (0..100).map(|index| {
            let mut state = state(&case, index, outcome(index));
            state.loose = u64::from(index < with_loose);
            Line::State(Box::new(state))
        });
        Tally::from_ledgers(&[ledger(states)])
    };
    assert!(matches!(verdict(&of("nobarrier-w0", 29, |_| Outcome::Held)), Verdict::Inconclusive { .. }));
    assert_eq!(verdict(&of("nobarrier-w0", 30, |_| Outcome::Held)), &Verdict::AsExpected);
    assert_eq!(verdict(&of("barrier", 0, |_| Outcome::Held)), &Verdict::AsExpected);
    // What was seen to fail has failed, however little was at stake.
    let failed = of("nobarrier-w0", 0, |index| if index == 7 { violated(&[FindingKind::Walk]) } else { Outcome::Held });
    assert!(matches!(verdict(&failed), Verdict::Worse { .. }));
    assert_eq!(of("nobarrier-w0", 29, |_| Outcome::Held).cells[0].loose_share(), Some(0.29));
}

#[test]
fn a_harness_failure_is_never_a_verdict_and_the_counts_stay() {
    let case = case("ext4", "", "nobarrier-w1", Expectation::Unsafe);
    let tally = tally_of(&case, [violated(&[FindingKind::Fsck]), Outcome::Held, broken("the loop device is gone")]);
    let why = "the harness failed in 1 state; 1 of 2 states is violated";
    assert_eq!(verdict(&tally), &Verdict::Broken { why: why.into() });
    let counts = &tally.cells[0].counts;
    assert_eq!((counts.held, counts.violated, counts.broken, counts.judged()), (1, 1, 1, 2));
    assert_eq!(counts.break_reasons["the loop device is gone"], 1);
    let case_broke = Tally::from_ledgers(&[ledger([end(&case, broken("nbdfuse died"))])]);
    let why = "1 case broke before the end; nothing was judged";
    assert_eq!(verdict(&case_broke), &Verdict::Broken { why: why.into() });
}

#[test]
fn the_exit_code_is_that_of_the_gravest_cell() {
    let cell = |mode: &str, outcome: Outcome| ledger_of(&case("ext4", "", mode, Expectation::Safe), [outcome]);
    let held = cell("barrier", Outcome::Held);
    let departs = cell("torn-512", violated(&[FindingKind::Fsck]));
    let breaks = cell("data-journal", broken("x"));
    let skips = cell("fast-commit", skipped("y"));
    let code = |ledgers: &[&Contents]| {
        Tally::from_ledgers(&ledgers.iter().map(|&ledger| ledger.clone()).collect::<Vec<_>>()).exit_code()
    };
    assert_eq!(code(&[&held]), 0);
    assert_eq!(code(&[&held, &skips]), 0);
    assert_eq!(code(&[&skips]), 4);
    assert_eq!(code(&[]), 4);
    assert_eq!(code(&[&skips, &departs]), 1);
    assert_eq!(code(&[&held, &departs, &skips]), 1);
    assert_eq!(code(&[&held, &departs, &skips, &breaks]), 3);
}

#[test]
fn seeds_are_merged_and_duplicates_count_once() {
    let one = case("ext4", "", "barrier", Expectation::Safe);
    let other = Case { seed: 2, ..one.clone() };
    let first = ledger_of(&one, vec![Outcome::Held; 10]);
    let second = ledger_of(&other, vec![Outcome::Held; 10]);
    let tally = Tally::from_ledgers(&[first.clone(), second, first]);
    assert_eq!(tally.cells.len(), 1);
    assert_eq!(tally.cells[0].counts.held, 20);
    assert_eq!(tally.cells[0].seeds, [1, 2]);
    assert_eq!(tally.duplicates, 10);
    assert_eq!(tally.runs.len(), 1);
}

#[test]
fn a_state_that_was_tried_again_has_its_verdict() {
    let case = case("ext4", "", "barrier", Expectation::Safe);
    let before = ledger_of(&case, [broken("no space"), skipped("later")]);
    let after = ledger_of(&case, [Outcome::Held, violated(&[FindingKind::Fsck])]);
    for ledgers in [[before.clone(), after.clone()], [after, before]] {
        let tally = Tally::from_ledgers(&ledgers);
        let counts = &tally.cells[0].counts;
        assert_eq!((counts.held, counts.violated, counts.skipped, counts.broken), (1, 1, 0, 0));
        assert_eq!(tally.duplicates, 2);
    }
}

#[test]
fn contradicting_verdicts_count_as_violated_and_are_told() {
    let case = case("ext4", "", "barrier", Expectation::Open);
    let held = ledger_of(&case, [Outcome::Held]);
    let violated = ledger_of(&case, [violated(&[FindingKind::Fsck])]);
    let tally = Tally::from_ledgers(&[held.clone(), violated]);
    let counts = &tally.cells[0].counts;
    assert_eq!((counts.held, counts.violated, counts.contradictions), (0, 1, 1));
    assert_eq!(Tally::from_ledgers(&[held.clone(), held]).cells[0].counts.contradictions, 0);
}

#[test]
fn recordings_that_are_named_alike_lose_no_state() {
    let case = case("ext4", "", "barrier", Expectation::Safe);
    let one = state(&case, 5, Outcome::Held);
    let other = State { image: "another".into(), ..one.clone() };
    let tally = Tally::from_ledgers(&[ledger([one, other].map(|state| Line::State(Box::new(state))))]);
    assert_eq!(tally.cells[0].counts.held, 2);
    assert_eq!(tally.duplicates, 0);
}

#[test]
fn a_case_that_was_tried_again_is_not_broken() {
    let case = case("ext4", "", "barrier", Expectation::Safe);
    let judged = Line::State(Box::new(state(&case, 1, Outcome::Held)));
    let again = Tally::from_ledgers(&[ledger([end(&case, broken("x")), judged.clone()])]);
    assert_eq!(verdict(&again), &Verdict::AsExpected);
    let after = Tally::from_ledgers(&[ledger([judged, end(&case, broken("x"))])]);
    assert!(matches!(verdict(&after), Verdict::Broken { .. }));
}

#[test]
fn ledgers_that_expect_different_things_are_inconclusive() {
    let safe = case("ext4", "", "barrier", Expectation::Safe);
    let control = Case { expectation: Expectation::Unsafe, ..safe.clone() };
    let tally = Tally::from_ledgers(&[ledger_of(&safe, [Outcome::Held]), ledger_of(&control, [Outcome::Held])]);
    let why = "the ledgers do not agree what to expect: safe and unsafe (control)";
    assert_eq!(verdict(&tally), &Verdict::Inconclusive { why: why.into() });
    // The state is the same one, whatever is expected of it.
    assert_eq!(tally.cells[0].counts.held, 1);
}

#[test]
fn sums_medians_and_groups() {
    let case = case("ext4", "", "fast-commit", Expectation::Open);
    let mut tally =
        tally_of(&case, [Outcome::Held, violated(&[FindingKind::Fsck, FindingKind::Fsck, FindingKind::Walk])]);
    let cell = &tally.cells[0];
    assert_eq!(
        cell.counts.kinds.iter().map(|(kind, &n)| (*kind, n)).collect::<Vec<_>>(),
        [(FindingKind::Walk, 1), (FindingKind::Fsck, 1)]
    );
    assert_eq!((cell.rate, cell.median_ms), (Some(0.5), Some(10)));
    assert_eq!((cell.explorers["sampled"].judged, cell.explorers["sampled"].violated), (2, 1));
    assert_eq!(cell.groups.len(), 2);
    // The order of the lines is not part of the result.
    let mut lines = ledger_of(&case, vec![Outcome::Held; 30]).lines;
    tally = Tally::from_ledgers(&[ledger(lines.clone())]);
    lines.reverse();
    assert_eq!(Tally::from_ledgers(&[ledger(lines)]), tally);
}

#[test]
fn the_first_violation_is_counted_in_the_order_of_the_ledger() {
    let one = case("ext4", "", "nobarrier-w1", Expectation::Unsafe);
    let other = Case { seed: 2, ..one.clone() };
    let bad = || violated(&[FindingKind::Walk]);
    let first = ledger_of(&one, [Outcome::Held, broken("x"), Outcome::Held, bad(), Outcome::Held, bad()]);
    let mut torn = first.clone();
    torn.lines.truncate(3);
    let second = ledger_of(&other, vec![Outcome::Held; 5]);
    let firsts = [First { seed: 1, judged: 3, seen: true }, First { seed: 2, judged: 5, seen: false }];
    for ledgers in [[&first, &torn, &second], [&second, &torn, &first]] {
        assert_eq!(Tally::from_ledgers(&ledgers.map(Clone::clone)).cells[0].firsts, firsts);
    }
}

#[test]
fn depths_roles_and_what_departs_are_counted() {
    let case = case("ext4", "", "async-commit", known(&[FindingKind::Mounts], "r"));
    let mut known = state(&case, 1, violated(&[FindingKind::Mounts]));
    (known.role, known.depth) = (Some("commit block".into()), Some(2));
    let plain = State { role: None, ..known.clone() };
    let other = state(&case, 2, violated(&[FindingKind::Mounts, FindingKind::Fsck, FindingKind::Walk]));
    let lines = [plain, known, other, state(&case, 3, Outcome::Held)].map(|state| Line::State(Box::new(state)));
    let tally = Tally::from_ledgers(&[ledger(lines)]);
    let cell = &tally.cells[0];
    assert_eq!((cell.counts.violated, cell.counts.departing, tally.duplicates), (2, 1, 1));
    assert_eq!(cell.counts.roles.iter().collect::<Vec<_>>(), [(&"commit block".to_string(), &1)]);
    let depths: Vec<_> = cell.depths.iter().map(|(depth, e)| (*depth, e.violated, e.judged)).collect();
    assert_eq!(depths, [(1, 1, 2), (2, 1, 1)]);
}

#[test]
fn a_part_of_the_matrix_that_is_not_there_is_missed() {
    let case = case("ext4", "", "barrier", Expectation::Safe);
    let of = |shards: &[&str]| {
        let ledgers = shards.iter().map(|&shard| {
            let mut ledger = ledger_of(&case, [Outcome::Held]);
            ledger.header.shard = Some(shard.into());
            ledger
        });
        Tally::from_ledgers(&ledgers.collect::<Vec<_>>()).missing_shards
    };
    assert_eq!(of(&["1/4", "4/4", "2/4"]), ["3/4"]);
    assert!(of(&["1/2", "2/2", "2/2"]).is_empty());
}

#[test]
fn what_was_planned_and_not_judged_is_missing() {
    let case = case("ext4", "", "barrier", Expectation::Safe);
    let mut ledger = ledger_of(&case, vec![Outcome::Held; 4]);
    ledger.lines.push(recording(&case, 10));
    assert_eq!(Tally::from_ledgers(&[ledger.clone(), ledger]).cells[0].missing(), 6);
}

#[test]
fn the_tally_is_json_for_other_programs() {
    let case = case("ext4", "", "barrier", Expectation::Safe);
    let json = serde_json::to_value(tally_of(&case, [Outcome::Held, violated(&[FindingKind::Fsck])])).unwrap();
    let cell = &json["cells"][0];
    assert_eq!((&cell["verdict"], &cell["rate"]), (&"worse".into(), &0.5.into()));
    assert_eq!(cell["counts"]["kinds"]["fsck"], 1);
    assert_eq!(cell["violations"][0]["state"], "recipe 1");
}

#[test]
fn a_failed_selftest_takes_away_what_is_as_expected_and_nothing_else() {
    let trial = |ending| Trial {
        kind: TrialKind::Lie,
        name: "flush-ignored".into(),
        witness: "raw NBD client".into(),
        states: 200,
        ending,
    };
    let with = |ending| {
        let safe = case("ext4", "", "barrier", Expectation::Safe);
        let worse = case("ext3", "", "barrier", Expectation::Safe);
        let mut both = ledger_of(&safe, [Outcome::Held]);
        both.lines.extend(ledger_of(&worse, [violated(&[FindingKind::Fsck])]).lines);
        both.lines.push(Line::Selftest(Selftest { trials: vec![trial(ending)], took_ms: 1 }));
        Tally::from_ledgers(&[both])
    };
    let names = |tally: &Tally| tally.cells.iter().map(|cell| cell.verdict.name()).collect::<Vec<_>>();
    let seen = with(Ending::Passed { seen: "block 0 is gone".into() });
    assert_eq!((names(&seen), seen.exit_code()), (vec!["worse", "as expected"], 1));
    let not_tried = with(Ending::NotTried { reason: "there is no rig".into() });
    assert_eq!(names(&not_tried), names(&seen), "what can't be tried here says nothing against the run");
    let failed = with(Ending::Failed { seen: "no promise was broken".into() });
    assert_eq!(names(&failed), ["worse", "inconclusive"]);
    assert!(failed.cells[1].verdict.why().contains("flush-ignored was not caught"), "{failed:?}");
    assert!(powerfail_reports::merging(&failed).iter().any(|sentence| sentence.contains("the selftest failed")));
}
