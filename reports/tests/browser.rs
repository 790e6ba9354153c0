//! The page in a real browser: it is drawn at each width and in each colour scheme, nothing is cut off, nothing needs to be
//! scrolled sideways, nothing is fetched, nothing is complained of. Its pictures stay in the target folder, to be looked at.

mod support;

use std::path::Path;
use std::process::Command;

use powerfail_reports::history::History;
use powerfail_reports::{Limits, Tally, render_with};
use support::{matrix, night, nights};

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

/// A page with everything that there can be on one.
fn full() -> String {
    render_with(&Tally::from_ledgers(&[night()]), Some(&History::of(nights())), Limits::default())
}

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
    std::fs::write(&page, full()).unwrap();
    let Some(output) = chromium(folder.path(), &["--dump-dom"], &page) else { return };
    let dom = String::from_utf8_lossy(&output.stdout);
    for text in [
        "Out of 17,040 power cuts",
        "Over 14 nights 2 rates changed",
        "<path class=",
        "▲ worse",
        "powerfail replay --dir nightly/2026-01-05 'rec=",
    ] {
        assert!(dom.contains(text), "{text} is not in the document");
    }
}

#[test]
fn nothing_is_cut_off_at_any_width() {
    let folder = tempfile::tempdir().unwrap();
    // Of the large one the charts and the table are new.
    let limits = Limits { violations: 1, groups: 1, timeline_bytes: 0, ..Limits::default() };
    let (night, matrix) = (full(), render_with(&Tally::from_ledgers(&[matrix()]), None, limits));
    let night = [360, 400, 719, 720, 959, 960, 1600].map(|width| (width, &night));
    for (width, inner) in night.into_iter().chain([400, 1600].map(|width| (width, &matrix))) {
        let inner = inner.replace('&', "&amp;").replace('"', "&quot;");
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

/// What the browser complained of, and what the page asked for, while it took a picture; none if there is no browser.
fn picture(home: &Path, page: &Path, (width, height): (u32, u32), dark: bool, png: &Path) -> Option<Vec<String>> {
    let log = home.join("net.json");
    let more = [
        format!("--screenshot={}", png.display()),
        format!("--window-size={width},{height}"),
        format!("--blink-settings=preferredColorScheme={}", if dark { 0 } else { 1 }),
        format!("--log-net-log={}", log.display()),
        "--enable-logging=stderr".into(),
    ];
    let output = chromium(home, &more.each_ref().map(String::as_str), page)?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    // The browser asks for updates of its own; those requests come from no page.
    let requests = std::fs::read_to_string(&log).unwrap();
    assert!(requests.contains("\"constants\""), "the log of requests is there");
    let asked = requests
        .lines()
        .filter(|line| line.contains("\"initiator\":\"") && !line.contains("\"initiator\":\"not an origin\""));
    let complained = stderr.lines().filter(|line| line.contains("CONSOLE"));
    Some(complained.chain(asked).map(String::from).collect())
}

#[test]
fn pictures_are_taken_and_nothing_is_fetched_or_complained_of() {
    let folder = tempfile::tempdir().unwrap();
    let faulty = folder.path().join("faulty.html");
    let image = "<img src=\"http://127.0.0.1:9/x.png\">";
    std::fs::write(&faulty, format!("<!doctype html><title>x</title>{image}<script>console.error('alarm')</script>"))
        .unwrap();
    let png = folder.path().join("faulty.png");
    let Some(faults) = picture(folder.path(), &faulty, (400, 300), false, &png) else { return };
    assert!(faults.iter().any(|fault| fault.contains("alarm")), "a complaint is seen: {faults:?}");
    assert!(faults.iter().any(|fault| fault.contains("127.0.0.1:9/x.png")), "a request is seen: {faults:?}");

    let page = folder.path().join("page.html");
    std::fs::write(&page, full()).unwrap();
    let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pages");
    std::fs::create_dir_all(&kept).unwrap();
    let mut pictures = Vec::new();
    for (width, height) in [(400_u32, 9000_u32), (1600, 6000)] {
        for (scheme, dark) in [("light", false), ("dark", true)] {
            let path = kept.join(format!("{width}-{scheme}.png"));
            let faults = picture(folder.path(), &page, (width, height), dark, &path).unwrap();
            assert!(faults.is_empty(), "{width} {scheme}: {faults:?}");
            let png = std::fs::read(&path).unwrap();
            assert!(png.starts_with(b"\x89PNG\r\n\x1a\n"));
            assert_eq!(png[16..24], [width.to_be_bytes(), height.to_be_bytes()].concat(), "width and height");
            assert!(png.len() > 50_000, "a blank page is smaller than {} bytes", png.len());
            println!("{}: {} bytes", path.display(), png.len());
            pictures.push(png);
        }
    }
    assert!(pictures[0] != pictures[1] && pictures[2] != pictures[3], "light and dark differ");
}

#[test]
fn a_link_to_a_cell_unfolds_it() {
    const PROBE: &str = r##"<script>addEventListener("load", () => {
  const box = document.querySelector("svg a[href='#cell-1']"), inside = document.getElementById("cell-1");
  const folded = inside.closest("details").open;
  location.hash = box.getAttribute("href");
  const top = inside.getBoundingClientRect().top;
  document.title = "before " + folded + ", after " + inside.closest("details").open + ", seen " + (top >= 0 && top < innerHeight);
})</script>"##;
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html");
    std::fs::write(&page, full() + PROBE).unwrap();
    let Some(output) = chromium(folder.path(), &["--dump-dom", "--window-size=1000,800"], &page) else { return };
    let dom = String::from_utf8_lossy(&output.stdout);
    assert!(dom.contains("<title>before false, after true, seen true</title>"), "{:?}", dom.split("</title>").next());
}
