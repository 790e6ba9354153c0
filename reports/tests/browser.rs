//! The page in a real browser: it is drawn, nothing is cut off, nothing needs to be scrolled sideways.

mod support;

use std::path::Path;
use std::process::Command;

use powerfail_reports::{Tally, render};
use support::night;

/// Counts what is wrong with the page inside a frame of a given width, with all of its cells unfolded.
const PROBE: &str = r#"
addEventListener("load", () => {
  const frame = document.getElementById("frame"), page = frame.contentDocument, faults = [];
  page.querySelectorAll("details").forEach(details => { details.open = true; });
  if (page.documentElement.scrollWidth > frame.clientWidth) faults.push("wider than the window: " + page.documentElement.scrollWidth);
  let texts = 0;
  for (const svg of page.querySelectorAll("svg")) {
    if (svg.getClientRects().length === 0) continue;
    const view = svg.viewBox.baseVal;
    for (const text of svg.querySelectorAll("text")) {
      const box = text.getBBox();
      texts += 1;
      if (box.x < -1 || box.y < -1 || box.x + box.width > view.width + 1 || box.y + box.height > view.height + 1)
        faults.push("cut off: " + text.textContent);
    }
  }
  // The space at the end of a line hangs over by up to two pixels, unseen.
  for (const code of page.querySelectorAll("code, td, h1, dd"))
    if (code.scrollWidth > code.clientWidth + 2 && getComputedStyle(code).display !== "inline") faults.push("overflows: " + code.textContent);
  document.title = "texts " + texts + ", faults " + faults.length + ": " + faults.slice(0, 5).join(" | ");
});
"#;

fn chromium(home: &Path, more: &[&str], page: &Path) -> Option<std::process::Output> {
    let mut command = Command::new("chromium");
    command.args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]);
    command.args([
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--hide-scrollbars",
    ]);
    command.arg(format!("--user-data-dir={}", home.join("profile").display())).args(more);
    match command.arg(format!("file://{}", page.display())).output() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            println!("SKIPPED: chromium is missing; install chromium");
            None
        }
        output => Some(output.expect("chromium starts")),
    }
}

#[test]
fn the_page_is_drawn_and_its_text_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html");
    std::fs::write(&page, render(&Tally::from_ledgers(&[night()]))).unwrap();
    let picture = folder.path().join("page.png");
    let shot = format!("--screenshot={}", picture.display());
    let Some(output) = chromium(folder.path(), &[&shot, "--window-size=1000,2000"], &page) else { return };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let png = std::fs::read(&picture).unwrap();
    assert!(png.starts_with(b"\x89PNG\r\n\x1a\n"));
    assert_eq!(png[16..24], [1000_u32.to_be_bytes(), 2000_u32.to_be_bytes()].concat(), "width and height");
    assert!(png.len() > 50_000, "a blank page is smaller than {} bytes", png.len());

    let output = chromium(folder.path(), &["--dump-dom"], &page).unwrap();
    let dom = String::from_utf8_lossy(&output.stdout);
    for text in
        ["Out of 16,040 power cuts", "<path class=", "▲ worse", "powerfail replay --dir nightly/2026-01-05 'rec="]
    {
        assert!(dom.contains(text), "{text} is not in the document");
    }
}

#[test]
fn nothing_is_cut_off_at_any_width() {
    let folder = tempfile::tempdir().unwrap();
    let inner = render(&Tally::from_ledgers(&[night()])).replace('&', "&amp;").replace('"', "&quot;");
    for width in [360, 400, 719, 720, 959, 960, 1600] {
        let page = folder.path().join("frame.html");
        let frame =
            format!(r#"<iframe id="frame" style="width:{width}px;height:900px;border:0" srcdoc="{inner}"></iframe>"#);
        std::fs::write(&page, format!("<!doctype html><title>not run</title>{frame}<script>{PROBE}</script>")).unwrap();
        let Some(output) = chromium(folder.path(), &["--dump-dom", "--window-size=1800,1000"], &page) else { return };
        let dom = String::from_utf8_lossy(&output.stdout);
        let title = dom.split("<title>").nth(1).and_then(|rest| rest.split("</title>").next()).unwrap_or("no title");
        println!("{width}: {title}");
        assert!(title.contains("faults 0") && !title.contains("texts 0,"), "{width}: {title}");
    }
}
