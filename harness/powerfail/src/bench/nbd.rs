//! `powerfail bench nbd`: the server beside other servers, row by row, in turn.
//!
//! Each figure is of one fio over a Unix socket on a server that was started for it and whose drive was written once in
//! whole, so that no one pays for memory that another has already. `powerfail serve` records all of it into memory. What
//! a recording may grow to is bounded by `--size` (it is written at most 4 times more) and by `--seconds`, and the
//! recording is removed before the next figure.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use powerfail_rig::doctor::has_tool;

use super::{median, scratch};
use crate::doctor::CantTest;
use crate::folder::Usage;
use crate::progress::say;
use crate::stop::Stop;

/// A measurement writes or reads at most so many times the size of the drive.
const TIMES: u64 = 4;
/// A server that does not listen by then will not.
const START: Duration = Duration::from_secs(10);
/// Between two looks at whether it does.
const PAUSE: Duration = Duration::from_millis(2);

/// One kind of load.
#[derive(Debug)]
struct Row {
    rw: &'static str,
    block: &'static str,
    depth: u32,
    /// What this project asks of itself: at least so much of nbdkit's.
    nbdkit_bound: Option<f64>,
}

const ROWS: &[Row] = &[
    Row { rw: "randwrite", block: "4k", depth: 1, nbdkit_bound: None },
    Row { rw: "randwrite", block: "4k", depth: 16, nbdkit_bound: Some(1.0) },
    Row { rw: "randwrite", block: "4k", depth: 64, nbdkit_bound: Some(1.0) },
    Row { rw: "randread", block: "4k", depth: 16, nbdkit_bound: None },
    Row { rw: "write", block: "128k", depth: 1, nbdkit_bound: None },
    Row { rw: "write", block: "128k", depth: 16, nbdkit_bound: None },
];

impl Row {
    fn name(&self) -> String {
        format!("{} {}, depth {}", self.block, self.rw, self.depth)
    }
}

/// Who serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Server {
    Powerfail,
    QemuNbd,
    Nbdkit,
}

impl Server {
    const ALL: [Server; 3] = [Server::Powerfail, Server::QemuNbd, Server::Nbdkit];

    fn name(self) -> &'static str {
        match self {
            Server::Powerfail => "powerfail",
            Server::QemuNbd => "qemu-nbd",
            Server::Nbdkit => "nbdkit",
        }
    }

    /// The Debian package of a peer that is not here.
    fn missing(self) -> Option<&'static str> {
        let (tool, package) = match self {
            Server::Powerfail => return None,
            Server::QemuNbd => ("qemu-nbd", "qemu-utils"),
            Server::Nbdkit => ("nbdkit", "nbdkit"),
        };
        (!has_tool(tool)).then_some(package)
    }

    fn command(self, folder: &Path, size: u64) -> anyhow::Result<Command> {
        let socket = folder.join(SOCKET);
        let mut command;
        match self {
            Server::Powerfail => {
                command = Command::new(std::env::current_exe()?);
                command.arg("serve").args(["--size", &size.to_string()]).arg("--unix").arg(socket);
                command.arg("--control").arg(folder.join("control")).arg("--record").arg(folder.join("record"));
            }
            Server::QemuNbd => {
                let image = folder.join("image");
                std::fs::File::create(&image)?.set_len(size)?;
                command = Command::new("qemu-nbd");
                command.args(["--format=raw", "--persistent", "--shared=16", "--cache=writeback", "--export-name="]);
                command.arg("--socket").arg(socket).arg(image);
            }
            Server::Nbdkit => {
                command = Command::new("nbdkit");
                command.arg("--foreground").arg("--unix").arg(socket).args(["memory", &size.to_string()]);
            }
        }
        Ok(command)
    }
}

const SOCKET: &str = "socket";

/// What one fio measured.
#[derive(Clone, Copy, Debug)]
struct Figure {
    /// Requests a second.
    iops: f64,
    /// Microseconds within which 99 of 100 requests were answered.
    p99_us: f64,
}

/// What one kind of load came to, for each server: the median of all rounds.
#[derive(Debug)]
struct Result {
    row: &'static Row,
    figures: Vec<(Server, Figure)>,
    /// Ours by a peer's, in requests a second; the median of the ratios of each round.
    ratios: Vec<(Server, f64)>,
}

impl Result {
    fn ratio(&self, peer: Server) -> Option<f64> {
        self.ratios.iter().find(|(server, _)| *server == peer).map(|(_, ratio)| *ratio)
    }

    fn kept(&self) -> bool {
        let faster = self.ratio(Server::QemuNbd).is_none_or(|ratio| ratio > 1.0);
        let level = match (self.row.nbdkit_bound, self.ratio(Server::Nbdkit)) {
            (Some(bound), Some(ratio)) => ratio >= bound,
            _ => true,
        };
        faster && level
    }
}

/// Runs it and prints the figures; the exit code says whether the bounds are kept.
///
/// # Errors
/// [`CantTest`] without fio, [`Usage`] where there is no memory for it, others if anything breaks.
pub fn bench(size: u64, seconds: u32, rounds: usize, json: bool) -> anyhow::Result<u8> {
    let stop = Stop::listen()?;
    if !has_tool("fio") {
        return Err(CantTest("fio is not installed: apt-get install fio".into()).into());
    }
    check_size(size)?;
    let mut servers = Vec::new();
    for server in Server::ALL {
        match server.missing() {
            None => servers.push(server),
            Some(package) => say(&format!("{} is skipped: apt-get install {package}", server.name())),
        }
    }
    let mut rounds_of: Vec<Vec<Vec<Figure>>> = ROWS.iter().map(|_| Vec::new()).collect();
    for round in 0..rounds.max(1) {
        for (row, measured) in ROWS.iter().zip(&mut rounds_of) {
            let mut figures = Vec::new();
            for &server in &servers {
                stop.check()?;
                let figure = measure(server, row, size, seconds)
                    .with_context(|| format!("{}, {}", server.name(), row.name()))?;
                figures.push(figure);
            }
            let told: Vec<_> =
                servers.iter().zip(&figures).map(|(s, f)| format!("{} {:.0}", s.name(), f.iops)).collect();
            say(&format!("round {}: {}: {}", round + 1, row.name(), told.join(", ")));
            measured.push(figures);
        }
    }
    let results: Vec<_> = ROWS.iter().zip(&rounds_of).map(|(row, measured)| sum_up(row, &servers, measured)).collect();
    print(&results, &servers, json);
    Ok(u8::from(!results.iter().all(Result::kept)))
}

/// The drive, the recording and the other server's image are all in memory.
fn check_size(size: u64) -> anyhow::Result<()> {
    const LEAST: u64 = 16 << 20;
    if size < LEAST || !size.is_multiple_of(1 << 20) {
        bail!(Usage(format!("--size is a whole number of mebibytes, at least {}", LEAST >> 20)));
    }
    let needed = size.saturating_mul(TIMES + 3);
    let available = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
        line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()
    });
    match available {
        Some(kib) if kib << 10 < needed => {
            let text =
                format!("--size {} MiB needs {} MiB of memory; {} are available", size >> 20, needed >> 20, kib >> 10);
            bail!(Usage(text))
        }
        _ => Ok(()),
    }
}

fn measure(server: Server, row: &Row, size: u64, seconds: u32) -> anyhow::Result<Figure> {
    let folder = scratch()?;
    let serving = Serving::start(server, folder.path(), size)?;
    let whole = Row { rw: "write", block: "1m", depth: 1, nbdkit_bound: None };
    fio(&serving, &whole, size, &[format!("--io_size={size}")])?;
    let limits = [format!("--runtime={seconds}"), format!("--io_size={}", size * TIMES)];
    let (figure, written) = fio(&serving, row, size, &limits)?;
    serving.end()?;
    if server == Server::Powerfail {
        let recording = folder.path().join("record/1/recording");
        let recorded = recording.metadata().with_context(|| format!("{}", recording.display()))?.len();
        ensure!(recorded > size + written, "{recorded} bytes were recorded of {} that were written", size + written);
    }
    Ok(figure)
}

/// Runs fio; what it measured, and the bytes that it wrote.
fn fio(serving: &Serving<'_>, row: &Row, size: u64, limits: &[String]) -> anyhow::Result<(Figure, u64)> {
    let uri = powerfail_nbd::Address::Unix(serving.folder.join(SOCKET)).uri("");
    // Its standard output has more than that.
    let output = serving.folder.join("fio.json");
    let ran = Command::new("fio")
        .args(["--name=bench", "--ioengine=nbd", "--randseed=1", "--output-format=json"])
        .args([format!("--uri={uri}"), format!("--rw={}", row.rw), format!("--bs={}", row.block)])
        .args([format!("--iodepth={}", row.depth), format!("--size={size}")])
        .args(limits)
        .arg("--output")
        .arg(&output)
        .stdin(Stdio::null())
        .output()
        .context("can't start fio")?;
    if !ran.status.success() {
        bail!("fio failed: {}", String::from_utf8_lossy(&ran.stderr).trim());
    }
    let said: serde_json::Value = serde_json::from_slice(&std::fs::read(&output)?).context("fio printed no JSON")?;
    let job = &said["jobs"][0];
    ensure!(job["error"] == 0, "fio reports error {}", job["error"]);
    let side = &job[if row.rw.ends_with("read") { "read" } else { "write" }];
    let number = |value: &serde_json::Value| value.as_f64().context("fio left a figure out");
    let p99_us = number(&side["clat_ns"]["percentile"]["99.000000"])? / 1000.0;
    Ok((Figure { iops: number(&side["iops"])?, p99_us }, job["write"]["io_bytes"].as_u64().unwrap_or(0)))
}

/// A server that listens. It ends with this value, or with this program.
struct Serving<'a> {
    child: Child,
    folder: &'a Path,
}

impl<'a> Serving<'a> {
    fn start(server: Server, folder: &'a Path, size: u64) -> anyhow::Result<Serving<'a>> {
        use std::os::unix::process::CommandExt;
        let mut command = server.command(folder, size)?;
        // Peers complain of whoever only looks whether they listen.
        let complaints = std::fs::File::create(folder.join("complaints"))?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(complaints);
        // SAFETY: between fork and exec, one system call and nothing else.
        unsafe {
            command.pre_exec(|| {
                Ok(rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?)
            });
        }
        let child = command.spawn().with_context(|| format!("can't start {}", server.name()))?;
        let mut serving = Serving { child, folder };
        let end = Instant::now() + START;
        while std::os::unix::net::UnixStream::connect(folder.join(SOCKET)).is_err() {
            if let Some(status) = serving.child.try_wait()? {
                let why = std::fs::read_to_string(folder.join("complaints")).unwrap_or_default();
                bail!("{} ended before it listened, {status}: {}", server.name(), why.trim());
            }
            ensure!(Instant::now() < end, "{} does not listen", server.name());
            std::thread::sleep(PAUSE);
        }
        Ok(serving)
    }

    /// Ends it in good order.
    fn end(mut self) -> anyhow::Result<()> {
        let child = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(child, rustix::process::Signal::TERM)?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Serving<'_> {
    fn drop(&mut self) {
        // One that has ended already takes no harm.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `measured`: for each round, a figure of each server.
fn sum_up(row: &'static Row, servers: &[Server], measured: &[Vec<Figure>]) -> Result {
    let of =
        |place: usize, pick: fn(&Figure) -> f64| median(measured.iter().map(|round| pick(&round[place])).collect());
    let figure = |place| Figure { iops: of(place, |figure| figure.iops), p99_us: of(place, |figure| figure.p99_us) };
    let ratio = |place: usize| median(measured.iter().map(|round| round[0].iops / round[place].iops).collect());
    let each = || servers.iter().copied().enumerate();
    Result {
        row,
        figures: each().map(|(place, server)| (server, figure(place))).collect(),
        ratios: each().skip(1).map(|(place, server)| (server, ratio(place))).collect(),
    }
}

fn print(results: &[Result], servers: &[Server], json: bool) {
    if json {
        let rows: Vec<_> = results
            .iter()
            .map(|result| {
                let mut object = serde_json::json!({ "row": result.row.name(), "kept": result.kept() });
                for (server, figure) in &result.figures {
                    object[server.name()] = serde_json::json!({ "iops": figure.iops, "p99_us": figure.p99_us });
                }
                for (peer, ratio) in &result.ratios {
                    object[format!("ratio_{}", peer.name())] = (*ratio).into();
                }
                object
            })
            .collect();
        println!("{}", serde_json::json!({ "rows": rows }));
        return;
    }
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    let mut head = vec!["requests a second (p99, µs)".to_string()];
    head.extend(servers.iter().map(|server| server.name().to_string()));
    head.extend(servers.iter().skip(1).map(|peer| format!("by {}", peer.name())));
    head.push("bounds".into());
    table.set_header(head);
    for result in results {
        let mut cells = vec![result.row.name()];
        cells.extend(result.figures.iter().map(|(_, figure)| format!("{:.0} ({:.0})", figure.iops, figure.p99_us)));
        cells.extend(result.ratios.iter().map(|(_, ratio)| format!("{ratio:.2}")));
        cells.push(if result.kept() { "kept" } else { "MISSED" }.into());
        table.add_row(cells);
    }
    println!("{table}");
    println!(
        "bounds: faster than qemu-nbd on every row; at least nbdkit's memory plugin at 4k randwrite, depth 16 and 64"
    );
}
