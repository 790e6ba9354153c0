//! Runs the commands of `docs/by-hand.md` as they stand there.

mod serve_support;

use std::path::Path;

use serve_support::{can_mount, here, script};

/// The kinds of blocks that a reader may meet.
const KINDS: [&str; 3] = ["sh run", "sh guest", "sh show"];

/// The blocks of the page, each with its kind.
fn blocks(page: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        if let Some(kind) = line.strip_prefix("```") {
            let block: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
            found.push((kind.to_owned(), block.join("\n")));
        }
    }
    found
}

#[test]
fn every_command_of_the_page_works() {
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/by-hand.md")).unwrap();
    let blocks = blocks(&page);
    for (kind, block) in &blocks {
        assert!(KINDS.contains(&kind.as_str()), "a block of the kind {kind:?}: {block}");
    }
    let run: Vec<&str> = blocks.iter().filter(|(kind, _)| kind == "sh run").map(|(_, block)| block.as_str()).collect();
    assert!(run.len() >= 15, "{} blocks are run", run.len());
    let needed = [("sqlite3", "sqlite3"), ("python3", "python3"), ("blkid", "util-linux"), ("dmesg", "util-linux")];
    if !can_mount() || !needed.iter().all(|(tool, package)| here(tool, package)) {
        return;
    }
    // Whatever fails, nothing stays attached or running.
    let cleanup = r#"
        trap 'for device in ${device:-} ${second:-}; do scripts/attach --detach $device >/dev/null 2>&1 || true; done
              [ -z "${server:-}" ] || kill $server 2>/dev/null || true' EXIT
    "#;
    let said = script(&format!("{cleanup}\n{}", run.join("\n")), &[]).expect(0);
    for sentence in ["67108864", "TYPE=\"ext4\"", "fragments are lost", "disk I/O error", "generation 2", "ok\n"] {
        assert!(said.out.contains(sentence), "{sentence} is not in\n{}", said.out);
    }
}
