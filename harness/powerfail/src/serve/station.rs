//! The power switch of a served drive, and what can be asked of it.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context, bail};
use powerfail_drive::history::{MOUNTED, WORKLOAD_END};
use powerfail_drive::log_writes;
use powerfail_nbd::{Farewell, Origin, Peer};
use powerfail_seed::Seed;
use serde_json::{Value, json};

use super::args::Setup;
use super::door::Door;
use super::generation::{Files, Generation};
use super::place::Place;
use super::platter::{Fallen, fall, write_image};
use super::protocol::{Ask, Cut, CutDrive, Style};
use crate::folder::write_whole;
use crate::recording_cmd::whole_file;
use crate::recording_file::Mapped;

/// A drive with its switch.
#[derive(Debug)]
pub(crate) struct Station {
    setup: Setup,
    place: Place,
    door: Door,
    power: Power,
}

#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "there is one station in a program")]
enum Power {
    On(Generation),
    Off(Off),
    /// The server is ending.
    Ended,
}

/// A drive without power.
#[derive(Debug)]
struct Off {
    /// Whose power was cut; none once a restore has let go of its hosts.
    old: Option<Generation>,
    number: u64,
    files: Files,
    /// Its hosts hear nothing.
    frozen: bool,
    /// What is on the platter; or why that can't be told.
    fallen: Result<(Fallen, Cut), String>,
}

impl Station {
    /// Turns the power on for the first time, over an empty platter.
    ///
    /// # Errors
    /// If the drive can't be recorded or served.
    pub(crate) fn new(setup: Setup, place: Place, mut door: Door) -> anyhow::Result<Station> {
        let first = Generation::begin(&setup, place.record(), 1, &[], &mut door)?;
        Ok(Station { setup, place, door, power: Power::On(first) })
    }

    /// The generation that has power.
    pub(crate) fn running(&self) -> Option<&Generation> {
        if let Power::On(generation) = &self.power { Some(generation) } else { None }
    }

    /// The folders.
    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    /// What the drive is.
    pub(crate) fn setup(&self) -> &Setup {
        &self.setup
    }

    /// Does what is asked. The answer is an object without the `ok`.
    ///
    /// # Errors
    /// Why it is refused, or did not work.
    pub(crate) async fn act(&mut self, ask: Ask) -> anyhow::Result<Value> {
        match ask {
            Ask::Cut { style, seed } => Ok(serde_json::to_value(self.cut(style, seed).await?)?),
            Ask::Restore {} => {
                self.restore().await?;
                self.status()
            }
            Ask::Status {} => self.status(),
            Ask::Mark { text } => self.mark(&text),
            Ask::Snapshot { file } => tokio::task::block_in_place(|| self.snapshot(&file)),
            Ask::Export { file } => tokio::task::block_in_place(|| self.export(&file)),
        }
    }

    async fn cut(&mut self, style: Style, seed: Option<u64>) -> anyhow::Result<Cut> {
        let generation = match &mut self.power {
            Power::On(generation) => generation,
            Power::Off(off) => return off.let_go(style).await,
            Power::Ended => bail!("the server is ending"),
        };
        // 53 bits, so that any reader of JSON gets all of it.
        let drawn = || self.setup.seed.draw("cut", &[generation.number]) >> 11;
        let seed = Seed(seed.unwrap_or_else(drawn));
        if style != Style::Error {
            generation.server.silence();
        }
        // This is the instant.
        let cut = generation.drive.cut();
        match style {
            Style::Error => generation.server.part(Farewell::Answer).await,
            Style::Drop => generation.server.part(Farewell::Drop).await,
            Style::Freeze => generation.server.closed().await,
        }
        let (number, files, setup) = (generation.number, generation.files().clone(), &self.setup);
        let fallen = tokio::task::block_in_place(|| -> anyhow::Result<(Fallen, Cut)> {
            let (event, _) = cut?;
            let recording = generation.keep_recording()?;
            let fallen = fall(&recording, setup, event, seed)?;
            let report =
                Cut { generation: number, style, seed: seed.0, drives: vec![report(setup, &recording, &fallen)] };
            write_whole(&files.cut(), &serde_json::to_vec_pretty(&report)?)?;
            Ok((fallen, report))
        });
        let fallen = fallen.map_err(|error| format!("{error:#}"));
        let report = fallen.as_ref().map(|(_, report)| report.clone()).map_err(Clone::clone);
        let Power::On(old) = std::mem::replace(&mut self.power, Power::Ended) else { unreachable!("it was on") };
        self.power = Power::Off(Off { old: Some(old), number, files, frozen: style == Style::Freeze, fallen });
        report.map_err(|error| anyhow::anyhow!("the power is off, and what survived can't be told: {error}"))
    }

    async fn restore(&mut self) -> anyhow::Result<()> {
        let off = match &mut self.power {
            Power::On(_) => bail!("the power is on"),
            Power::Off(off) => off,
            Power::Ended => bail!("the server is ending"),
        };
        let (fallen, _) = match &off.fallen {
            Ok(fallen) => fallen,
            Err(error) => bail!("what is on the platter can't be told: {error}"),
        };
        if off.frozen
            && let Some(old) = &off.old
        {
            old.server.part(Farewell::Drop).await;
        } else if let Some(old) = &off.old {
            let peers = old.server.peers();
            if !peers.is_empty() {
                let names: Vec<_> = peers.iter().map(describe).collect();
                bail!(
                    "{} of the time before the cut {} not been ended by the host: {}; detach there first, or close from \
                     this side with `cut --style drop`",
                    if peers.len() == 1 { "a connection".into() } else { format!("{} connections", peers.len()) },
                    if peers.len() == 1 { "has" } else { "have" },
                    names.join(", ")
                );
            }
        }
        if let Some(old) = off.old.take() {
            old.server.shutdown(Farewell::Drop).await;
        }
        let number = off.number + 1;
        let (setup, record, door) = (&self.setup, self.place.record(), &mut self.door);
        let begin = || Generation::begin(setup, record, number, &fallen.platter, door);
        self.power = Power::On(tokio::task::block_in_place(begin)?);
        Ok(())
    }

    fn status(&self) -> anyhow::Result<Value> {
        let (power, number, recording, peers, events, cut) = match &self.power {
            Power::On(generation) => {
                let peers = generation.server.peers();
                ("on", generation.number, generation.files().part(), peers, Some(generation.events()), None)
            }
            Power::Off(off) => {
                let peers = off.old.as_ref().map(|old| old.server.peers()).unwrap_or_default();
                let cut = off.fallen.as_ref().ok().map(|(_, cut)| cut);
                (if off.frozen { "frozen" } else { "off" }, off.number, off.files.recording(), peers, None, cut)
            }
            Power::Ended => bail!("the server is ending"),
        };
        let lost = match &self.power {
            Power::Off(Off { fallen: Err(error), .. }) => Some(error),
            _ => None,
        };
        let drive = json!({
            "export": self.setup.export,
            "size": self.setup.header.geometry.bytes(),
            "write_cache": self.setup.header.write_cache,
            "cache_bytes": self.setup.drive.cache.bytes,
            "atomic": self.setup.drive.unit.bytes(),
            "recording": recording,
            "events": events,
        });
        let peers: Vec<_> = peers.iter().map(describe).collect();
        Ok(json!({
            "power": power, "generation": number, "connections": peers, "drives": [drive], "cut": cut, "error": lost,
            "seed": self.setup.seed,
        }))
    }

    fn mark(&self, text: &str) -> anyhow::Result<Value> {
        let Power::On(generation) = &self.power else { bail!("the power is off; there is nothing to mark") };
        if [MOUNTED, WORKLOAD_END].contains(&text) {
            bail!("the mark `{text}` has a meaning of its own in a recording; choose another text");
        }
        if text.len() > powerfail_drive::event::MAX_LABEL {
            bail!("a mark has at most {} bytes", powerfail_drive::event::MAX_LABEL);
        }
        Ok(json!({ "event": generation.drive.mark(text)? }))
    }

    fn snapshot(&self, to: &Path) -> anyhow::Result<Value> {
        let size = self.setup.header.geometry.bytes();
        absolute(to)?;
        let write = |file: &mut File| -> anyhow::Result<&str> {
            match &self.power {
                Power::On(generation) => {
                    write_image(file, size, &generation.drive.contents().context("the power is off")?)?;
                    Ok("what hosts see")
                }
                Power::Off(Off { fallen: Ok((fallen, _)), .. }) => {
                    write_image(file, size, &fallen.platter)?;
                    Ok("the platter")
                }
                Power::Off(Off { fallen: Err(error), .. }) => bail!("what is on the platter can't be told: {error}"),
                Power::Ended => bail!("the server is ending"),
            }
        };
        let of = whole_file(to, write)?;
        Ok(json!({ "file": to, "of": of }))
    }

    fn export(&self, to: &Path) -> anyhow::Result<Value> {
        absolute(to)?;
        let (recording, length) = match &self.power {
            Power::On(generation) => generation.so_far()?,
            Power::Off(off) => {
                let recording = Mapped::open(&off.files.recording()).context("the recording can't be read")?;
                let length = recording.bytes().len();
                (recording, length)
            }
            Power::Ended => bail!("the server is ending"),
        };
        let entries = whole_file(to, |file| {
            let mut out = BufWriter::new(file);
            let entries = log_writes::export(&recording.bytes()[..length], &mut out)?;
            out.flush()?;
            Ok(entries)
        })?;
        Ok(json!({ "file": to, "entries": entries }))
    }

    /// Ends the drive in good order.
    ///
    /// # Errors
    /// If the last recording, which is to be kept, could not be written.
    pub(crate) async fn end(&mut self) -> anyhow::Result<()> {
        match std::mem::replace(&mut self.power, Power::Ended) {
            Power::On(generation) if self.place.kept => generation.end().await?,
            Power::On(generation) => {
                generation.server.shutdown(Farewell::Answer).await;
            }
            Power::Off(Off { old: Some(old), .. }) => {
                old.server.shutdown(Farewell::Drop).await;
            }
            Power::Off(_) | Power::Ended => {}
        }
        Ok(())
    }
}

impl Off {
    /// A second cut: it ends, from this side, what the first one left open.
    async fn let_go(&mut self, style: Style) -> anyhow::Result<Cut> {
        let held = self.old.as_ref().is_some_and(|old| self.frozen || !old.server.peers().is_empty());
        if style != Style::Drop || !held {
            bail!(match self.frozen {
                true => "the power is off, and hosts hear nothing; only `restore`, or `cut --style drop`, ends that",
                false => "the power is off already",
            });
        }
        let old = self.old.take().expect("held");
        old.server.shutdown(Farewell::Drop).await;
        self.frozen = false;
        match &self.fallen {
            Ok((_, cut)) => Ok(cut.clone()),
            Err(error) => bail!("connections are closed; what is on the platter can't be told: {error}"),
        }
    }
}

fn report(setup: &Setup, recording: &Mapped, fallen: &Fallen) -> CutDrive {
    CutDrive {
        export: setup.export.clone(),
        recording: recording.path().into(),
        recipe: fallen.recipe.to_string(),
        image: fallen.image.clone(),
        cut: fallen.recipe.cut,
        loose: fallen.recipe.kept.len() as u64,
        lost: fallen.recipe.lost(),
        in_flight: fallen.in_flight,
    }
}

fn absolute(path: &Path) -> anyhow::Result<()> {
    if path.is_absolute() {
        return Ok(());
    }
    bail!("{} is not an absolute path, and the server's working folder is not yours", path.display())
}

/// A host, with the name of its program where that can be known.
fn describe(peer: &Peer) -> String {
    let Origin::Process(id) = peer.origin else { return peer.to_string() };
    match std::fs::read_to_string(format!("/proc/{id}/comm")) {
        Ok(name) => format!("{peer} ({})", name.trim()),
        Err(_) => format!("{peer} (which has ended)"),
    }
}
