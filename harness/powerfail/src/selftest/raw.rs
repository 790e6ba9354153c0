//! The raw witness at work: our own NBD client plays its script on our real server, and each liar's version of that
//! recording is looked at. No privilege is needed.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail};
use powerfail_drive::event::Header;
use powerfail_drive::lies::witness::{self, Act};
use powerfail_drive::lies::{self, Liar};
use powerfail_drive::request::Geometry;
use powerfail_ledger::{Ending, Trial, TrialKind};
use powerfail_nbd::{Address, Config, Exports, Farewell, Reach, Server};
use powerfail_seed::Seed;

use super::client::Client;
use crate::recording_file::{FileSink, Mapped};
use crate::served_drive::ServedDrive;

const WITNESS: &str = "raw NBD client";

/// Plays the script, and puts the honest drive and each liar before the witness, with so many power cuts each. The
/// recording is `folder/recording`.
///
/// # Errors
/// If the server or the client fails.
pub(super) fn trials(folder: &Path, seed: Seed, states: u64) -> anyhow::Result<Vec<Trial>> {
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    let path = folder.join("recording");
    record(&path).context("the raw witness")?;
    let recording = Mapped::open(&path)?;
    let mut trials = vec![honest(recording.bytes(), seed, states)?];
    for &lie in lies::ALL {
        trials.push(liar(recording.bytes(), Liar::new(lie, seed.at("raw", &[])), seed, states)?);
    }
    Ok(trials)
}

fn record(path: &Path) -> anyhow::Result<()> {
    let geometry = Geometry::new(witness::BLOCKS * witness::BLOCK).expect("whole sectors");
    let header = Header::honest(geometry, true);
    let drive = Arc::new(ServedDrive::new(header, true, FileSink::create(path, header)?));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let server = {
        let _inside = runtime.enter();
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        Server::bind_tcp(any, Reach::Loopback)?.serve(Exports::one(drive.clone()), Config::default())?
    };
    let Address::Tcp(address) = *server.address() else { bail!("a TCP server listens elsewhere") };
    let played = play(address, &drive);
    runtime.block_on(server.shutdown(Farewell::Answer));
    let sink = drive.close()?;
    played?;
    Ok(sink.finish()?)
}

fn play(address: SocketAddr, drive: &ServedDrive<FileSink>) -> anyhow::Result<()> {
    let mut client = Client::connect(address)?;
    for act in witness::script() {
        match act {
            Act::Write { block, blocks, generation, fua } => {
                let data: Vec<u8> = (block..block + blocks).flat_map(|b| witness::content(b, generation)).collect();
                client.write(block * witness::BLOCK, &data, fua)?;
            }
            Act::Flush => client.flush()?,
            // The last reply is here, so the mark stands behind it.
            Act::Mark(label) => drop(drive.mark(label)?),
        }
    }
    client.disconnect()
}

fn honest(recording: &[u8], seed: Seed, states: u64) -> anyhow::Result<Trial> {
    let caught = witness::look(recording, seed, states)?;
    let ending = match caught.first() {
        None => Ending::Passed { seen: "no promise was broken".into() },
        Some(caught) => Ending::Failed { seen: format!("{}: {}", caught.promise, caught.detail) },
    };
    Ok(Trial { kind: TrialKind::Honest, name: "honest".into(), witness: WITNESS.into(), states, ending })
}

fn liar(recording: &[u8], liar: Liar, seed: Seed, states: u64) -> anyhow::Result<Trial> {
    let told = lies::tell(recording, liar)?;
    let caught = witness::look(&told, seed, states)?;
    // Of several promises that it breaks, the one that was seen first.
    let first = caught.iter().min_by_key(|caught| caught.states);
    let (states, ending) = match first {
        Some(caught) => (caught.states, Ending::Passed { seen: format!("{}: {}", caught.promise, caught.detail) }),
        None => (states, Ending::Failed { seen: "no promise was broken".into() }),
    };
    Ok(Trial { kind: TrialKind::Lie, name: liar.name().into(), witness: WITNESS.into(), states, ending })
}
