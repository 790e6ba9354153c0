//! The program `powerfail serve`, from its first line to its end.

use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use powerfail_nbd::listen_unix;
use tokio::net::UnixListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Mutex;

use super::activation;
use super::args::{ServeArgs, Setup};
use super::attach_text::attach_text;
use super::control;
use super::door::Door;
use super::place::Place;
use super::station::Station;
use crate::folder::Usage;

/// What a client of the control socket that reads no answers may delay the end by.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

/// Serves a drive until SIGINT or SIGTERM; gives the exit code. A second signal ends it at once.
///
/// # Errors
/// [`Usage`] for what can't be served, others if it can't be recorded.
pub fn serve(args: &ServeArgs) -> anyhow::Result<u8> {
    let passed = activation::passed()?;
    let setup = args.setup()?;
    let place = Place::make(args.record.as_deref(), &setup)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let served = runtime.block_on(run(args, setup, place, passed));
    runtime.shutdown_timeout(LAST_ANSWERS);
    served.map(|()| 0)
}

async fn run(args: &ServeArgs, setup: Setup, place: Place, passed: Option<OwnedFd>) -> anyhow::Result<()> {
    let mut ends = Ends::listen()?;
    // Whoever passes a socket has its own output to print, and knows how to connect.
    let quiet = passed.is_some();
    let door = Door::of(args, &place, passed)?;
    let control = std::path::absolute(args.control.clone().unwrap_or_else(|| place.control()))?;
    let (listener, _file) = listen_unix(&control).map_err(|error| Usage(error.to_string()))?;
    std::fs::set_permissions(&control, std::fs::Permissions::from_mode(0o600))?;
    let listener = UnixListener::from_std(listener)?;
    let station = Station::new(setup, place, door)?;
    if !quiet {
        announce(&station, &control, args.json).context("can't print how to attach")?;
    }
    let station = Arc::new(Mutex::new(station));
    let attending = tokio::spawn(control::attend(listener, Arc::clone(&station)));
    ends.next().await;
    tokio::spawn(async move {
        ends.next().await;
        std::process::exit(130);
    });
    attending.abort();
    station.lock().await.end().await
}

/// The signals that end a server.
struct Ends {
    interrupt: Signal,
    terminate: Signal,
}

impl Ends {
    fn listen() -> std::io::Result<Ends> {
        Ok(Ends { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

fn announce(station: &Station, control: &Path, json: bool) -> std::io::Result<()> {
    let server = &station.running().expect("it has just been turned on").server;
    let setup = station.setup();
    let record = station.place().record();
    let text = if json {
        let line = serde_json::json!({
            "uri": server.uri(&setup.export), "control": control, "record": record, "size": setup.header.geometry.bytes(),
            "seed": setup.seed,
        });
        format!("{line}\n")
    } else {
        attach_text(setup, server.address(), control, record, station.place().kept)
    };
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}
