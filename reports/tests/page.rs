//! The page as text: what it says, what it never holds, how large it is.

mod support;

use std::time::Instant;

use powerfail_ledger::{Contents, Expectation, FindingKind, Line, Outcome};
use powerfail_reports::history::History;
use powerfail_reports::{Limits, Tally, render, render_with};
use support::{Dice, Plan, case, header, known, matrix, night, nights, recording, states, timeline};

/// Each tag of the page: its name and all of it.
fn tags(page: &str) -> impl Iterator<Item = (&str, &str)> {
    page.split('<').skip(1).map(|rest| {
        let tag = rest.split('>').next().unwrap_or(rest);
        (tag.trim_start_matches('/').split([' ', '\n']).next().unwrap_or(tag), tag)
    })
}

fn assert_needs_no_network(page: &str) {
    for (name, tag) in tags(page) {
        assert!(!matches!(name, "script" | "link" | "img" | "iframe" | "object" | "base"), "<{tag}>");
        assert!(!tag.contains(" src=") && !tag.contains(" on"), "<{tag}>");
        if let Some((_, target)) = tag.split_once("href=\"") {
            assert!(target.starts_with('#'), "<{tag}>");
        }
    }
    assert!(!page.contains("url(") && !page.contains("@import"));
}

#[test]
fn the_page_says_what_matters_and_needs_nothing_else() {
    let page = render(&Tally::from_ledgers(&[night()]));
    for text in [
        "Out of 17,040 power cuts 3,440 ended in a violation; 12 of 20 cells are as expected, ",
        "3 of 1,000 states are violated, none was expected",
        "the control was not seen to fail",
        "the kernel has no data=journal here; boot one with it",
        "nbdfuse ended with signal 9 in the middle of the recording",
        "FLUSH native, FUA as-flush, TRIM not seen",
        "Linux 6.18.44 x86_64, 2 processors",
        "powerfail replay --dir",
        "360 more violations are in the ledger.",
        "<code class=\"copy\">",
        "role=\"img\"",
    ] {
        assert!(page.contains(text), "{text} is missing");
    }
    assert_needs_no_network(&page);
}

#[test]
fn foreign_text_is_escaped_wherever_it_comes_from() {
    let hostile = r#"</title></svg><script>alert("1")</script> & 'x' <img src=http://example.org onerror=x>"#;
    let mut contents = night();
    let header = &mut contents.header;
    for text in [&mut header.tool, &mut header.command, &mut header.started, &mut header.machine] {
        *text = hostile.into();
    }
    let mut victim = case(hostile, hostile, hostile, known(&[FindingKind::Fsck], hostile));
    for text in [&mut victim.mount, &mut victim.workload, &mut victim.drive, &mut victim.rig, &mut victim.kernel] {
        *text = hostile.into();
    }
    let plan = Plan {
        case: victim.clone(),
        states: 20,
        violated: 9,
        kinds: &[FindingKind::Fsck, FindingKind::Walk],
        loose_percent: 50,
        timeline: true,
    };
    let mut lines = states(&plan, &mut Dice(3));
    for line in &mut lines {
        let Line::State(state) = line else { continue };
        state.state = format!("{hostile} {}", state.cut);
        state.explorer = hostile.into();
        state.replay = state.replay.as_ref().map(|_| hostile.into());
        match &mut state.outcome {
            Outcome::Violated { findings } => findings.iter_mut().for_each(|finding| finding.detail = hostile.into()),
            outcome => *outcome = Outcome::Skipped { reason: hostile.into() },
        }
    }
    contents.lines.extend(lines);
    contents.lines.push(recording(&victim, 20));
    contents.lines.push(timeline(&victim, 100, &mut Dice(4)));
    let page = render(&Tally::from_ledgers(&[contents]));
    assert_needs_no_network(&page);
    let honest: std::collections::BTreeSet<String> =
        tags(&render(&Tally::from_ledgers(&[night()]))).map(|(name, _)| name.to_string()).collect();
    for (name, tag) in tags(&page) {
        assert!(honest.contains(name), "<{tag}> comes from foreign text");
    }
    assert!(page.contains("&lt;script&gt;alert(&quot;1&quot;)"), "the text itself is shown");
}

#[test]
fn a_page_of_twenty_thousand_violations_is_small_and_always_the_same() {
    let dice = &mut Dice(9);
    let mut lines = Vec::new();
    for index in 0..20 {
        let case = case("ext4", &format!("-O variant{}", index % 2), &format!("mode-{index}"), Expectation::Open);
        let plan =
            Plan { case, states: 1000, violated: 1000, kinds: &FindingKind::ALL, loose_percent: 90, timeline: true };
        lines.extend(states(&plan, dice));
        lines.push(recording(&plan.case, 1000));
        lines.push(timeline(&plan.case, 4000, dice));
    }
    let contents = Contents { header: header(), lines, torn_bytes: 0 };
    let page = render(&Tally::from_ledgers(std::slice::from_ref(&contents)));
    assert!(page.len() < 3_000_000, "{} bytes", page.len());
    assert!(page == render(&Tally::from_ledgers(std::slice::from_ref(&contents))), "twice the same");
    let mut halves = [contents.clone(), contents];
    halves[1].lines.truncate(9_000);
    let forward = render(&Tally::from_ledgers(&halves));
    halves.reverse();
    assert!(forward == render(&Tally::from_ledgers(&halves)), "the order of the ledgers is not part of the page");
}

#[test]
fn a_page_of_three_hundred_cells_and_a_hundred_thousand_states_is_small() {
    let ledger = matrix();
    let states = ledger.lines.iter().filter(|line| matches!(line, Line::State(_))).count();
    let began = Instant::now();
    let tally = Tally::from_ledgers(std::slice::from_ref(&ledger));
    let page = render_with(&tally, Some(&History::of(nights())), Limits::default());
    println!("{} cells, {states} states: {} bytes in {:?}", tally.cells.len(), page.len(), began.elapsed());
    assert!(tally.cells.len() >= 300 && states >= 100_000);
    assert!(page.len() < 10_000_000, "{} bytes", page.len());
    assert_needs_no_network(&page);
    // Each cell has a box that leads to its details, in both matrices, and a line in the table.
    for index in [1, 150, 324] {
        assert_eq!(page.matches(&format!("href=\"#cell-{index}\"")).count(), 3);
        assert_eq!(page.matches(&format!("id=\"cell-{index}\"")).count(), 1);
    }
}

#[test]
fn what_is_not_in_the_ledgers_is_on_the_page() {
    let mut ledger = night();
    ledger.header.shard = Some("1/3".into());
    ledger.torn_bytes = 17;
    let mut part = ledger.clone();
    part.lines.truncate(500);
    let page = render(&Tally::from_ledgers(&[ledger, part]));
    for text in [
        "shards 2&#x2f;3 and 3&#x2f;3 of the matrix are missing.",
        "499 lines of the ledgers said again what another line had said, and count once.",
        "1 ledger ends with a torn line; its 17 bytes were left out.",
    ] {
        assert!(page.contains(text), "{text}");
    }
}

#[test]
fn each_chart_says_what_it_is_and_what_was_explained_is_told() {
    let page = render_with(&Tally::from_ledgers(&[night()]), Some(&History::of(nights())), Limits::default());
    let charts = page.matches("<svg ").count();
    assert!(charts > 30, "{charts}");
    assert_eq!(page.matches("<title>").count(), 1 + charts + page.matches("<a href=\"#cell-").count() - in_text(&page));
    assert_eq!(page.matches("<desc>").count(), charts);
    for text in [
        "Violations by the role of the lost block",
        "lost: commit block",
        "one is enough: the commit block that transaction 41 wrote",
        "the recovery from that",
        "States judged until the first violation",
        "Over 14 nights 2 rates changed",
        "the kernel was 6.18.44 before and is 6.18.45 since",
        "What was skipped, and why",
        "powerfail materialise --dir nightly&#x2f;2026-01-05 &#x27;rec=",
    ] {
        assert!(page.contains(text), "{text}");
    }
}

/// Links to cells that are no boxes of a chart.
fn in_text(page: &str) -> usize {
    page.match_indices("<a href=\"#cell-")
        .filter(|(at, _)| !page[*at..].split_once('>').unwrap().1.starts_with("<title>"))
        .count()
}

#[test]
fn limits_are_kept_and_what_is_left_out_is_said() {
    let tally = Tally::from_ledgers(&[night()]);
    let bare = render_with(
        &tally,
        None,
        Limits { violations: 2, violation_bytes: 0, groups: 1, timeline_bytes: 0, ..Limits::default() },
    );
    assert!(!bare.contains("The recording around one cut"));
    assert!(bare.contains("more distinct findings are in the ledger."));
    assert!(bare.contains("409 more violations are in the ledger."), "the bytes allow for one of 410");
    assert!(bare.contains("left out to keep the page small"));
    let some = render_with(&tally, None, Limits { timeline_bytes: 300_000, ..Limits::default() });
    let shown = some.matches("The recording around one cut").count();
    assert!((1..14).contains(&shown), "{shown} pictures");
    let few = render_with(&tally, None, Limits { chart_cells: 5, attention: 2, ..Limits::default() });
    for text in ["13 more cells are in the table alone.", "6 more cells are not as expected."] {
        assert!(few.contains(text), "{text}");
    }
}

#[test]
fn an_empty_result_is_a_page_too() {
    let page = render(&Tally::from_ledgers(&[]));
    assert!(page.contains("No power cut was judged."));
    assert_needs_no_network(&page);
}
