//! What an agent's commands cost here: `latency PROGRAM [ARGUMENTS]`, e.g. `latency target/release/powerfail-agent`.
//!
//! As root; with nbdkit for the rows on an NBD export. Medians and 95 % of each, microseconds.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use powerfail_rig::workdir::Workdir;
use powerfail_rig::{Agent, AgentSetup, Asked, MountOutcome};
use powerfail_workloads::{Mason, Spec};

const LIMIT: Duration = Duration::from_secs(60);
const SIZE: u64 = 128 << 20;
const ROUNDS: usize = 20;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args_os().skip(1);
    let program = words.next().ok_or("usage: latency PROGRAM [ARGUMENTS]")?;
    let arguments: Vec<_> = words.collect();
    let folder = Workdir::make()?;
    let image = File::from(rustix::fs::memfd_create("latency", rustix::fs::MemfdFlags::CLOEXEC)?);
    image.set_len(SIZE)?;
    let socket = folder.path().join("nbd.sock");
    let pidfile = folder.path().join("nbd.pid");
    let mut nbdkit = Command::new("nbdkit");
    nbdkit.args(["-f", "--exit-with-parent", "-U"]).arg(&socket).arg("-P").arg(&pidfile).args(["memory", "128M"]);
    let server = nbdkit.stdin(Stdio::null()).spawn();
    while server.is_ok() && !pidfile.exists() {
        std::thread::yield_now();
    }

    let mut times = Times::default();
    let setup = AgentSetup { program: program.into(), arguments, folder: folder.agents(), images: vec![image.as_fd()] };
    for _ in 0..ROUNDS {
        let agent = times.take("spawn", || Agent::spawn(&setup))?;
        times.take("quit", || agent.quit(LIMIT))?;
    }
    let mut agent = Agent::spawn(&setup)?;
    for round in 0..ROUNDS {
        times.take("image: attach", || agent.attach_image(0, SIZE, LIMIT))?;
        cycle("image", &mut times, &mut agent, round)?;
        times.take("image: detach", || agent.detach(LIMIT))?;
    }
    for round in 0..if server.is_ok() { ROUNDS } else { 0 } {
        times.take("nbd: attach", || agent.attach_nbd(&socket, LIMIT))?;
        cycle("nbd", &mut times, &mut agent, round)?;
        times.take("nbd: detach", || agent.detach(LIMIT))?;
    }
    marks(&mut times, &mut agent)?;
    agent.quit(LIMIT)?;
    if let Ok(mut server) = server {
        server.kill()?;
        server.wait()?;
    }
    times.print();
    Ok(())
}

fn cycle(source: &str, times: &mut Times, agent: &mut Agent, round: usize) -> Result<(), Box<dyn std::error::Error>> {
    if round == 0 {
        agent.tool(&["mkfs.ext4", "-q", "-F", "-b", "4096", "-J", "size=4", "{device}"], LIMIT)?;
    }
    mounted(times.take(&format!("{source}: mount"), || agent.mount("ext4", "", LIMIT, LIMIT))?)?;
    times.take(&format!("{source}: observe"), || agent.observe(LIMIT))?;
    times.take(&format!("{source}: unmount"), || agent.unmount(LIMIT))?;
    times.take(&format!("{source}: e2fsck -fn"), || agent.tool(&["e2fsck", "-fn", "{device}"], LIMIT))?;
    Ok(())
}

/// The time between the acknowledgement of a mark and the next mark is a step and a round trip; a tmpfs-backed image
/// and one worker make the step small, and the smallest times are the round trip.
fn marks(times: &mut Times, agent: &mut Agent) -> Result<(), Box<dyn std::error::Error>> {
    agent.attach_image(0, SIZE, LIMIT)?;
    mounted(agent.mount("ext4", "", LIMIT, LIMIT)?)?;
    let mason = Mason {
        workers: 1,
        steps: Some(2000),
        seconds: 60,
        files: 50,
        sync_percent: 0,
        hog_every: 0,
        ..Mason::default()
    };
    let mut last = Instant::now();
    agent.run(&Spec::Mason(mason), LIMIT, |_| {
        times.add("step + mark round trip", last.elapsed());
        last = Instant::now();
    })?;
    for _ in 0..2000 {
        times.take("command round trip (kernel log)", || agent.kernel_log(LIMIT))?;
    }
    agent.unmount(LIMIT)?;
    agent.detach(LIMIT)?;
    Ok(())
}

fn mounted(outcome: MountOutcome) -> Result<(), String> {
    match outcome {
        MountOutcome::Mounted { .. } => Ok(()),
        MountOutcome::Refused { message, .. } => Err(message),
    }
}

#[derive(Default)]
struct Times(BTreeMap<String, Vec<Duration>>);

impl Times {
    fn add(&mut self, name: &str, time: Duration) {
        self.0.entry(name.to_string()).or_default().push(time);
    }

    fn take<T, E: Into<Asked>>(&mut self, name: &str, what: impl FnOnce() -> Result<T, E>) -> Result<T, Asked> {
        let started = Instant::now();
        let result = what().map_err(Into::into);
        self.add(name, started.elapsed());
        result
    }

    fn print(mut self) {
        for (name, times) in &mut self.0 {
            times.sort();
            let (low, median, high) = (times[times.len() / 20], times[times.len() / 2], times[times.len() * 19 / 20]);
            println!(
                "{name:35} 5 % {:8} µs   median {:8} µs   95 % {:8} µs",
                low.as_micros(),
                median.as_micros(),
                high.as_micros()
            );
        }
    }
}
