//! The client of the `nbd` crate, which shares no line with this server: one of the few that enter by EXPORT_NAME and take
//! its 124 zeroes.

mod common;

use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use common::memory::Memory;
use common::{MIB, Served, bounded};
use nbd::client::{NbdClient, handshake};
use powerfail_nbd::{Config, Farewell, Hold};
use powerfail_seed::Seed;

/// Runs a blocking client beside the server; its socket has a deadline of its own, since a thread can't be aborted.
async fn client<T: Send + 'static>(served: &Served, work: impl FnOnce(UnixStream) -> T + Send + 'static) -> T {
    let stream = UnixStream::connect(&served.path).expect("a server");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
    stream.set_write_timeout(Some(Duration::from_secs(20))).expect("a timeout");
    tokio::task::spawn_blocking(move || work(stream)).await.expect("the client doesn't panic")
}

#[test]
fn it_sees_the_export() {
    bounded(async {
        let served = Served::new(MIB);
        let export = client(&served, |mut stream| handshake(&mut stream, b"").expect("a handshake")).await;
        assert_eq!((export.size, export.readonly, export.send_flush, export.send_trim), (MIB, false, true, true));
        let refused = client(&served, |mut stream| handshake(&mut stream, b"nope").is_err()).await;
        assert!(refused);
        served.end().await;
    });
}

#[test]
fn it_reads_what_it_wrote_and_so_does_the_next_one() {
    bounded(async {
        let hold = Some(Hold { seed: Seed(2), depth: 8, max_time: Duration::from_millis(2) });
        for hold in [None, hold] {
            let served = Served::with(Memory::new(MIB), Config { hold, ..Config::default() });
            let bytes: Vec<u8> = (0..100_000u32).map(|at| (at / 7) as u8).collect();
            let written = bytes.clone();
            client(&served, move |mut stream| {
                let export = handshake(&mut stream, b"").expect("a handshake");
                let mut drive = NbdClient::new(&mut stream, &export);
                drive.seek(SeekFrom::Start(4096)).expect("a place");
                for chunk in written.chunks(4096) {
                    drive.write_all(chunk).expect("it is written");
                }
                drive.flush().expect("it is flushed");
                // This client goes without DISC.
            })
            .await;
            let read = client(&served, |mut stream| {
                let export = handshake(&mut stream, b"").expect("a handshake");
                let mut drive = NbdClient::new(&mut stream, &export);
                drive.seek(SeekFrom::Start(4096)).expect("a place");
                let mut read = vec![0; 100_000];
                drive.read_exact(&mut read).expect("it is read");
                read
            })
            .await;
            assert!(read == bytes && served.drive.bytes(4096, 100_000) == bytes);
            served.end().await;
        }
    });
}

#[test]
fn its_end_is_an_error_when_the_server_ends() {
    bounded(async {
        let served = Served::new(MIB);
        let stream = UnixStream::connect(&served.path).expect("a server");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
        let client = tokio::task::spawn_blocking(move || {
            let mut stream = stream;
            let export = handshake(&mut stream, b"").expect("a handshake");
            let mut drive = NbdClient::new(&mut stream, &export);
            let mut buffer = [1; 512];
            loop {
                let round = drive.seek(SeekFrom::Start(0)).and_then(|_| drive.write_all(&buffer));
                let round =
                    round.and_then(|()| drive.seek(SeekFrom::Start(0))).and_then(|_| drive.read_exact(&mut buffer));
                if let Err(error) = round {
                    return error.kind();
                }
            }
        });
        while served.handle.counts().requests < 100 {
            tokio::task::yield_now().await;
        }
        served.handle.shutdown(Farewell::Drop).await;
        let kind = client.await.expect("no panic");
        assert!(kind != std::io::ErrorKind::WouldBlock, "it didn't hang: {kind:?}");
    });
}
