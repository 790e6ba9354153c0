//! `powerfail ctl`: one request to a served drive, and its answer for a person.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde_json::Value;

use super::args::{CtlArgs, CtlVerb};
use super::place::controls;
use super::protocol::Ask;
use crate::folder::Usage;

/// A cut or a restore of a large drive takes seconds; an answer that takes this long will not come.
const ANSWER: Duration = Duration::from_secs(600);
/// Between two tries to connect.
const PAUSE: Duration = Duration::from_millis(20);

/// Asks, prints the answer, gives the exit code: 0 if it was done, 1 if it was refused.
///
/// # Errors
/// [`Usage`] if no server is there.
pub fn ctl(args: &CtlArgs) -> anyhow::Result<u8> {
    let ask = ask_of(&args.verb)?;
    let end = Instant::now() + Duration::from_secs(args.wait);
    let stream = loop {
        match connect(args.control.as_deref()) {
            Ok(stream) => break stream,
            Err(error) if Instant::now() >= end => return Err(error),
            Err(_) => std::thread::sleep(PAUSE),
        }
    };
    let line = asked(&stream, &ask).context("the server did not answer")?;
    let answer: Value = serde_json::from_str(&line).with_context(|| format!("the server answered {line:?}"))?;
    if args.json {
        println!("{}", line.trim_end());
    }
    if answer["ok"] != true {
        if !args.json {
            eprintln!("powerfail: {}", answer["error"].as_str().unwrap_or("refused"));
        }
        return Ok(1);
    }
    if !args.json {
        println!("{}", told(&args.verb, &answer));
    }
    Ok(0)
}

fn ask_of(verb: &CtlVerb) -> anyhow::Result<Ask> {
    Ok(match verb {
        CtlVerb::Cut { style, seed } => Ask::Cut { style: *style, seed: *seed },
        CtlVerb::Restore => Ask::Restore {},
        CtlVerb::Status => Ask::Status {},
        CtlVerb::Mark { text } => Ask::Mark { text: text.clone() },
        CtlVerb::Snapshot { file } => Ask::Snapshot { file: std::path::absolute(file)? },
        CtlVerb::Export { file } => Ask::Export { file: std::path::absolute(file)? },
    })
}

fn connect(control: Option<&Path>) -> anyhow::Result<UnixStream> {
    if let Some(path) = control {
        return UnixStream::connect(path).map_err(|error| {
            let text = match error.kind() {
                ErrorKind::NotFound | ErrorKind::ConnectionRefused => "no `powerfail serve` listens there".into(),
                _ => error.to_string(),
            };
            Usage(format!("{}: {text}", path.display())).into()
        });
    }
    let mut living: Vec<(PathBuf, UnixStream)> =
        controls().into_iter().filter_map(|path| Some((path.clone(), UnixStream::connect(path).ok()?))).collect();
    match living.len() {
        1 => Ok(living.remove(0).1),
        0 => bail!(Usage("no `powerfail serve` runs, or it has another control socket; say --control PATH".into())),
        _ => {
            let names: Vec<_> = living.iter().map(|(path, _)| path.display().to_string()).collect();
            bail!(Usage(format!("several drives are served; say --control and one of {}", names.join(", "))))
        }
    }
}

fn asked(stream: &UnixStream, ask: &Ask) -> std::io::Result<String> {
    stream.set_read_timeout(Some(ANSWER))?;
    let mut line = serde_json::to_string(ask)?;
    line.push('\n');
    { stream }.write_all(line.as_bytes())?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer)?;
    Ok(answer)
}

/// The answer in words.
fn told(verb: &CtlVerb, answer: &Value) -> String {
    match verb {
        CtlVerb::Cut { .. } => told_cut(answer),
        CtlVerb::Restore => format!("the power is on; generation {}", answer["generation"]),
        CtlVerb::Status => told_status(answer),
        CtlVerb::Mark { .. } => format!("marked, event {}", answer["event"]),
        CtlVerb::Snapshot { .. } => format!("{} is the image of {}", text(&answer["file"]), text(&answer["of"])),
        CtlVerb::Export { .. } => format!("{}: {} entries", text(&answer["file"]), answer["entries"]),
    }
}

fn told_cut(cut: &Value) -> String {
    let mut lines = vec![format!("the power is off; generation {}, seed {}", cut["generation"], cut["seed"])];
    for drive in cut["drives"].as_array().into_iter().flatten() {
        lines.push(format!(
            "{} of {} loose fragments are lost; {} writes were in flight at event {}",
            drive["lost"], drive["loose"], drive["in_flight"], drive["cut"]
        ));
        lines.push(format!("recording  {}", text(&drive["recording"])));
        lines.push(format!("recipe     {}", text(&drive["recipe"])));
    }
    lines.join("\n")
}

fn told_status(status: &Value) -> String {
    let mut lines = vec![match text(&status["power"]) {
        "on" => format!("the power is on; generation {}", status["generation"]),
        "frozen" => format!("the power is off and hosts hear nothing; generation {}", status["generation"]),
        _ => format!("the power is off; generation {}", status["generation"]),
    }];
    for drive in status["drives"].as_array().into_iter().flatten() {
        let cache = if drive["write_cache"] == true {
            format!("write cache of {} bytes", drive["cache_bytes"])
        } else {
            "no write cache".into()
        };
        lines.push(format!("drive      {} bytes, {cache}, atomic unit {}", drive["size"], drive["atomic"]));
        let events = drive["events"].as_u64().map(|events| format!(", {events} events so far")).unwrap_or_default();
        lines.push(format!("recording  {}{events}", text(&drive["recording"])));
    }
    for connection in status["connections"].as_array().into_iter().flatten() {
        lines.push(format!("host       {}", text(connection)));
    }
    if let Some(error) = status["error"].as_str() {
        lines.push(format!("what is on the platter can't be told: {error}"));
    }
    if !status["cut"].is_null() {
        lines.push(told_cut(&status["cut"]));
    }
    lines.join("\n")
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("?")
}
