//! `powerfail doctor`: what works here, what is missing, and the package that brings it.

use std::io::{Read, Seek, SeekFrom, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use powerfail_drive::event::Header;
use powerfail_drive::live::Unrecorded;
use powerfail_drive::request::Geometry;
use powerfail_nbd::{Address, Config, Exports, Farewell, Reach, Server};
use powerfail_rig::doctor::{Probe, State, probe_host_loop, probe_host_nbd};
use powerfail_rig::guest::probe_guest;

use crate::cell::Cell;
use crate::filesystems::FileSystem;
use crate::folder::Usage;
use crate::kernels::Kernel;
use crate::rigs;
use crate::served_drive::ServedDrive;

/// Nothing can be tested on this machine: exit code 4.
#[derive(Debug, thiserror::Error)]
#[error("skipped, it can't be tested here: {0}")]
pub struct CantTest(pub String);

/// Prints of each rig what works; gives exit code 4 if no rig does. No guest is booted for it.
///
/// # Errors
/// If it can't be printed.
pub fn doctor(json: bool) -> anyhow::Result<u8> {
    let mut host_loop = probes();
    host_loop.push(served_drive());
    let rigs = [
        ("host-loop", host_loop),
        ("host-nbd", probes_of(probe_host_nbd)),
        ("guest", probe_guest(&[GUEST_SERIES, "6.12"])),
    ];
    let usable = |probes: &[Probe]| !probes.iter().any(Probe::blocks);
    if json {
        let told = |(rig, probes): &(&str, Vec<Probe>)| {
            ((*rig).to_owned(), serde_json::json!({ "usable": usable(probes), "probes": probes }))
        };
        println!("{}", serde_json::Value::Object(rigs.iter().map(told).collect()));
    } else {
        for (rig, probes) in &rigs {
            let works = if usable(probes) { "works" } else { "does not work here; see what is MISSING or FAILS" };
            println!("rig {rig}: {works}\n{}\n", table(probes));
        }
    }
    Ok(if rigs.iter().any(|(_, probes)| usable(probes)) { 0 } else { 4 })
}

fn table(probes: &[Probe]) -> comfy_table::Table {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::NOTHING).set_content_arrangement(comfy_table::ContentArrangement::Dynamic);
    for probe in probes {
        let state = match (&probe.state, probe.required) {
            (State::Works, _) => "works",
            (State::Untried, _) => "untried",
            (State::Missing { .. }, true) => "MISSING",
            (State::Missing { .. }, false) => "missing",
            (State::Failed { .. }, true) => "FAILS",
            (State::Failed { .. }, false) => "fails",
        };
        table.add_row([probe.name.as_str(), state, probe.detail.as_str()]);
    }
    table
}

/// Refuses to go on where a cell can't be tested, and says what to install.
///
/// # Errors
/// [`CantTest`].
pub fn require(cell: &Cell) -> anyhow::Result<()> {
    let (tools, package) = cell.fs.tools();
    if let Some(tool) = tools.iter().find(|tool| !powerfail_rig::doctor::has_tool(tool)) {
        return Err(CantTest(format!("{tool} is not installed: apt-get install {package}")).into());
    }
    require_rig(&cell.rig, &cell.kernel, cell.fs)
}

/// Refuses to go on where a rig does not work, and says what to install.
///
/// # Errors
/// [`CantTest`].
pub fn require_rig(rig: &str, kernel: &Kernel, fs: &'static dyn FileSystem) -> anyhow::Result<()> {
    let probes = match rig {
        "host-loop" => probes(),
        "host-nbd" => probes_of(probe_host_nbd),
        _ => {
            return match rigs::set_up(rig, kernel, fs) {
                Err(error) if !error.is::<Usage>() => Err(CantTest(format!("{error:#}")).into()),
                other => other.map(|_| ()),
            };
        }
    };
    let missing: Vec<_> = probes.into_iter().filter(Probe::blocks).map(|probe| probe.detail).collect();
    if !missing.is_empty() {
        return Err(CantTest(missing.join(" ")).into());
    }
    let of_fs = powerfail_rig::doctor::file_system(fs.kernel_name());
    if of_fs.works() { Ok(()) } else { Err(CantTest(of_fs.detail).into()) }
}

/// Debian's series of that kernel.
const GUEST_SERIES: &str = "6.1";

/// The kernel of guests that were not asked for by name.
pub fn guest_kernel() -> Kernel {
    Kernel::Debian(GUEST_SERIES.into())
}

/// The first rig that works, with its kernel, and why.
///
/// # Errors
/// [`CantTest`] with what each of them lacks.
pub fn choose(fs: &'static dyn FileSystem) -> anyhow::Result<(&'static str, Kernel, String)> {
    let Err(host) = require_rig("host-loop", &Kernel::Host, fs) else {
        let why =
            "rig host-loop: the machine's own kernel, nbdfuse and a loop device; it works here and is the fastest";
        return Ok(("host-loop", Kernel::Host, why.into()));
    };
    let Err(nbd) = require_rig("host-nbd", &Kernel::Host, fs) else {
        return Ok(("host-nbd", Kernel::Host, format!("rig host-nbd: host-loop is {host}")));
    };
    let kernel = guest_kernel();
    match require_rig("guest", &kernel, fs) {
        Ok(()) => {
            let why = format!("rig guest, {kernel}: host-loop is {host}; host-nbd is {nbd}");
            Ok(("guest", kernel, why))
        }
        Err(guest) => Err(CantTest(format!("host-loop: {host}; host-nbd: {nbd}; guest: {guest}")).into()),
    }
}

/// The rig on which the machine's own kernel is tested.
///
/// # Errors
/// [`CantTest`] with what each of them lacks.
pub fn choose_host(fs: &'static dyn FileSystem) -> anyhow::Result<&'static str> {
    let Err(host) = require_rig("host-loop", &Kernel::Host, fs) else { return Ok("host-loop") };
    match require_rig("host-nbd", &Kernel::Host, fs) {
        Ok(()) => Ok("host-nbd"),
        Err(nbd) => Err(CantTest(format!("host-loop: {host}; host-nbd: {nbd}")).into()),
    }
}

fn probes() -> Vec<Probe> {
    probes_of(probe_host_loop)
}

fn probes_of(probe: fn(&Path, &[&str]) -> Vec<Probe>) -> Vec<Probe> {
    match std::env::current_exe() {
        Ok(program) => probe(&program, &["agent"]),
        Err(error) => vec![failed("the program itself", &error.to_string())],
    }
}

fn failed(name: &str, reason: &str) -> Probe {
    let state = State::Failed { reason: reason.into() };
    Probe { name: name.into(), state, required: true, detail: format!("{name}: {reason}.") }
}

/// Serves a small drive on loopback and talks to it with a client that is not ours, the `nbd` crate's.
fn served_drive() -> Probe {
    match talk() {
        Ok(()) => Probe {
            name: "served drive".into(),
            state: State::Works,
            required: true,
            detail: "An independent NBD client wrote to a drive of ours and read it back.".into(),
        },
        Err(error) => failed("served drive", &format!("{error:#}")),
    }
}

fn talk() -> anyhow::Result<()> {
    const SIZE: u64 = 1 << 20;
    const LIMIT: Duration = Duration::from_secs(10);
    let geometry = Geometry::new(SIZE).expect("whole sectors");
    let drive = Arc::new(ServedDrive::new(Header::honest(geometry, true), true, Unrecorded));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let server = {
        let _inside = runtime.enter();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        Server::bind_tcp(address, Reach::Loopback)?.serve(Exports::one(drive), Config::default())?
    };
    let Address::Tcp(address) = *server.address() else { anyhow::bail!("a TCP server listens elsewhere") };
    let mut stream = TcpStream::connect_timeout(&address, LIMIT)?;
    stream.set_read_timeout(Some(LIMIT))?;
    let export = nbd::client::handshake(&mut stream, b"")?;
    anyhow::ensure!(export.size as u64 == SIZE, "the client sees {} bytes instead of {SIZE}", export.size);
    let mut client = nbd::client::NbdClient::new(&mut stream, &export);
    let written = [0x5a; 4096];
    client.seek(SeekFrom::Start(8192))?;
    client.write_all(&written)?;
    let mut seen = [0; 4096];
    client.seek(SeekFrom::Start(8192))?;
    client.read_exact(&mut seen)?;
    anyhow::ensure!(seen == written, "the client reads something else than it wrote");
    drop(stream);
    runtime.block_on(server.shutdown(Farewell::Answer));
    Ok(())
}
