//! Every command block of docs/by-hand.md that is marked `sh run` runs, in order, as a person would type it.

mod common;

use std::path::Path;
use std::process::Command;

/// The blocks of one kind, one after the other.
fn blocks(text: &str, kind: &str) -> Vec<String> {
    let opening = format!("```{kind}\n");
    let block = |part: &str| part.split_once("```").map(|(block, _)| block.to_owned());
    text.split(opening.as_str()).skip(1).filter_map(block).collect()
}

#[test]
fn each_block_runs() {
    if !common::ready() {
        return;
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = std::fs::read_to_string(root.join("docs/by-hand.md")).unwrap();
    let blocks = blocks(&text, "sh run");
    assert!(blocks.len() > 10, "the page has {} blocks that run", blocks.len());
    let folder = Path::new(env!("CARGO_BIN_EXE_powerfail")).parent().unwrap();
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    // In namespaces of its own: whatever a block that fails has left mounted or running ends with them.
    let ran = Command::new("timeout")
        .args(["--kill-after=5", "120", "unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"])
        .args(["bash", "-euo", "pipefail", "-x", "-c", &blocks.join("\n")])
        .env("PATH", path)
        .current_dir(&root)
        .output()
        .unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{}: {said}", ran.status);
}
