//! What a power cut needs of a server: to end connections and keep them, or to end and answer nothing.

mod common;

use std::io::ErrorKind;
use std::time::Duration;

use common::raw::{EIO, FLUSH, READ, Raw, WRITE};
use common::{MIB, Served, bounded};
use powerfail_nbd::{Config, Farewell, Hold, Origin};
use powerfail_seed::Seed;
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;
use tokio::time::timeout;

/// Replies wait for so long that a test would fail of it.
const HOLD: Hold = Hold { seed: Seed(4), depth: 64, max_time: Duration::from_secs(600) };
/// A host that hears nothing for so long is being ignored.
const SILENCE: Duration = Duration::from_millis(200);

fn held() -> Served {
    Served::with(common::memory::Memory::new(MIB), Config { hold: Some(HOLD), ..Config::default() })
}

/// Sends 20 writes, and waits until they have been taken in; gives how many were answered already.
async fn in_flight(raw: &mut Raw) -> usize {
    for cookie in 0..20 {
        raw.request(WRITE, 0, cookie, cookie * 4096, 4096, &[7; 4096]).await;
    }
    raw.request(READ, 0, 99, 0, 0, &[]).await;
    let mut answered = 0;
    while raw.reply(0).await.cookie != 99 {
        answered += 1;
    }
    answered
}

async fn refused(served: &Served) -> bool {
    UnixStream::connect(&served.path).await.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

#[test]
fn parting_answers_and_keeps_who_does_not_let_go() {
    bounded(async {
        let served = held();
        let (mut one, two) = (Raw::attached(&served.path).await, Raw::attached(&served.path).await);
        let answered = in_flight(&mut one).await;
        served.drive.set_power(false);
        served.handle.part(Farewell::Answer).await;
        for _ in answered..20 {
            assert_eq!(one.reply(0).await.errno, EIO);
        }
        assert_eq!(one.stream.read(&mut [0]).await.expect("an end"), 0);
        assert!(refused(&served).await);

        let peers = served.handle.peers();
        let own = Origin::Process(std::process::id() as i32);
        assert_eq!(peers.iter().map(|peer| (peer.connection, peer.origin)).collect::<Vec<_>>(), [(1, own), (2, own)]);
        // What comes late is thrown away, also by a drive that has power again, and however much it is.
        served.drive.set_power(true);
        let events = served.drive.log().len();
        for cookie in 0..1000 {
            one.request(WRITE, 0, cookie, 0, 4096, &[9; 4096]).await;
        }
        drop((one, two));
        let mut look = tokio::time::interval(Duration::from_millis(2));
        while !served.handle.peers().is_empty() {
            look.tick().await;
        }
        assert_eq!(served.drive.log().len(), events);
        assert_eq!(served.handle.counts().open, 0);
        let path = served.path.clone();
        assert!(path.exists(), "a closed door is still a door");
        served.end().await;
        assert!(!path.exists());
    });
}

#[test]
fn a_silent_server_answers_nothing_and_ends_nothing() {
    bounded(async {
        let served = held();
        let (mut busy, mut idle) = (Raw::attached(&served.path).await, Raw::attached(&served.path).await);
        let mut early = Raw::connect(&served.path).await;
        in_flight(&mut busy).await;
        served.handle.silence();
        served.drive.set_power(false);
        served.handle.closed().await;
        // Each of these would be an error, from the drive or from the server itself.
        idle.request(FLUSH, 0, 1, 0, 0, &[]).await;
        idle.request(77, 0, 2, 0, 0, &[]).await;
        busy.request(READ, 0, 3, 0, 512, &[]).await;
        early.send(&3u32.to_be_bytes()).await;
        early.option(common::raw::LIST, &[]).await;
        for raw in [&mut busy, &mut idle, &mut early] {
            let heard = timeout(SILENCE, raw.stream.read(&mut [0])).await;
            assert!(heard.is_err(), "{heard:?}");
        }
        assert!(refused(&served).await);
        assert_eq!(served.handle.peers().len(), 3);
        // Not even a farewell that answers breaks the silence.
        served.handle.part(Farewell::Answer).await;
        for raw in [&mut busy, &mut idle, &mut early] {
            assert_eq!(raw.stream.read(&mut [0]).await.expect("an end"), 0);
        }
        served.end().await;
    });
}

#[test]
fn hosts_that_have_let_go_are_forgotten() {
    bounded(async {
        let served = Served::new(MIB);
        for _ in 0..3 {
            drop(Raw::attached(&served.path).await);
        }
        served.handle.part(Farewell::Drop).await;
        let mut look = tokio::time::interval(Duration::from_millis(2));
        while !served.handle.peers().is_empty() {
            look.tick().await;
        }
        served.end().await;
    });
}
