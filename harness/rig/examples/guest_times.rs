//! Where a guest's time goes: `cargo run --release --example guest_times -- debian-6.1 [ROUNDS]`.

#[path = "../tests/common/mod.rs"]
mod common;

use std::time::Instant;

use common::drive::Served;
use common::{LIMIT, MIB};
use powerfail_rig::guest::HOST;
use powerfail_rig::{Agent, Asked, MountOutcome};
use powerfail_workloads::{Mason, Spec};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let name = std::env::args().nth(1).unwrap_or_else(|| "debian-6.1".to_string());
    let rounds = std::env::args().nth(2).map_or(Ok(5), |rounds| rounds.parse())?;
    let started = Instant::now();
    let guest = common::guest(&common::kernel(&name).ok_or("no kernel")?).ok_or("no guest")?;
    let size = std::fs::metadata(guest.initramfs())?.len();
    println!("{name}: prepared in {} ms, initramfs of {} KiB", started.elapsed().as_millis(), size >> 10);
    let drive = Served::new(256 * MIB);

    let started = Instant::now();
    let mut agent = guest.spawn()?;
    println!("start to the first answer: {} ms ({})", started.elapsed().as_millis(), agent.hello().kernel);
    let attached = agent.attach_nbd_client(HOST, drive.port, "", LIMIT)?;
    println!("start to attached:         {} ms {attached:?}", started.elapsed().as_millis());

    let mkfs = ["mkfs.ext4", "-q", "-F", "-b", "4096", "-J", "size=4", "-E", "lazy_itable_init=0", "{device}"];
    println!("mkfs.ext4:                 {} ms", agent.tool(&mkfs, LIMIT)?.took_us / 1000);
    mount(&mut agent)?;
    marks(&mut agent)?;
    agent.unmount(LIMIT)?;
    agent.detach(LIMIT)?;
    for _ in 0..rounds {
        round(&mut agent, &drive)?;
    }
    print!("{}", agent.console().unwrap_or_default());
    Ok(())
}

fn marks(agent: &mut Agent) -> Result<(), Asked> {
    let started = Instant::now();
    const ROUND_TRIPS: u32 = 1000;
    for _ in 0..ROUND_TRIPS {
        agent.kernel_log(LIMIT)?;
    }
    println!("command round trip:        {} µs", (started.elapsed() / ROUND_TRIPS).as_micros());
    let mason = Mason { workers: 4, seconds: 4, files: 300, hog_every: 0, ..Mason::default() };
    let (mut steps, started) = (0_u32, Instant::now());
    agent.run(&Spec::Mason(mason), LIMIT, |_| steps += 1)?;
    println!("mason: {steps} steps in {} ms", started.elapsed().as_millis());
    Ok(())
}

fn mount(agent: &mut Agent) -> Result<(), Box<dyn std::error::Error>> {
    match agent.mount("ext4", "noatime", LIMIT, LIMIT)? {
        MountOutcome::Mounted { .. } => Ok(()),
        MountOutcome::Refused { message, .. } => Err(message.into()),
    }
}

/// As a state is verified: attach, mount, observe, unmount, fsck, detach.
fn round(agent: &mut Agent, drive: &Served) -> Result<(), Box<dyn std::error::Error>> {
    let mut last = Instant::now();
    let started = last;
    let mut lap = || {
        let took = last.elapsed().as_millis();
        last = Instant::now();
        took
    };
    agent.attach_nbd_client(HOST, drive.port, "", LIMIT)?;
    let attach = lap();
    mount(agent)?;
    let mounted = lap();
    let (seen, _) = agent.observe(LIMIT)?;
    let observe = lap();
    agent.unmount(LIMIT)?;
    let unmount = lap();
    let fsck = agent.tool(&["e2fsck", "-fn", "{device}"], LIMIT)?;
    let checked = lap();
    agent.detach(LIMIT)?;
    let detach = lap();
    println!(
        "{} entries: attach {attach}, mount {mounted}, observe {observe}, unmount {unmount}, e2fsck {checked} (code {:?}), \
         detach {detach}, together {} ms",
        seen.entries.len(),
        fsck.code,
        started.elapsed().as_millis()
    );
    Ok(())
}
