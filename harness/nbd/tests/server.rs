//! The server around the protocol: limits, sockets, shutting down.

mod common;

use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::memory::Memory;
use common::raw::*;
use common::{MIB, Served, bounded};
use powerfail_drive::device::{Device, Offers, Receipt};
use powerfail_drive::request::{Geometry, Refusal, Request};
use powerfail_nbd::{BindError, Config, Counts, Exports, Farewell, Reach, Server};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

#[test]
fn a_probe_is_a_probe_and_nothing_else() {
    bounded(async {
        let served = Served::new(MIB);
        for _ in 0..10 {
            drop(UnixStream::connect(&served.path).await.expect("a server"));
        }
        while served.handle.counts().probes < 10 || served.handle.counts().open > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(served.handle.counts(), Counts { connections: 10, probes: 10, ..Counts::default() });
        served.end().await;
    });
}

#[test]
fn too_many_connections_are_turned_away_until_one_leaves() {
    bounded(async {
        let served = Served::with(Memory::new(MIB), Config { connections: 3, ..Config::default() });
        let mut guests = Vec::new();
        for _ in 0..3 {
            guests.push(Raw::attached(&served.path).await);
        }
        let mut fourth = UnixStream::connect(&served.path).await.expect("it is accepted");
        assert_eq!(fourth.read(&mut [0; 18]).await.expect("and closed"), 0);
        assert_eq!(served.handle.counts().turned_away, 1);
        guests.pop();
        // The server hears of the departure in its own time.
        loop {
            let mut next = UnixStream::connect(&served.path).await.expect("it is accepted");
            if next.read(&mut [0; 18]).await.expect("an answer") == 18 {
                break;
            }
        }
        for guest in &mut guests {
            guest.expect_alive().await;
        }
        served.end().await;
    });
}

#[test]
fn shutting_down_ends_all_and_removes_the_file() {
    bounded(async {
        for farewell in [Farewell::Answer, Farewell::Drop] {
            let served = Served::new(MIB);
            let negotiating = Raw::connect(&served.path).await;
            let mut idle = Raw::attached(&served.path).await;
            idle.expect_alive().await;
            let mut half = Raw::attached(&served.path).await;
            half.send(&request(WRITE, 0, 1, 0, 4096, &[7; 4096])[..1000]).await;
            assert!(served.path.symlink_metadata().expect("its file").file_type().is_socket());

            let counts = served.handle.shutdown(farewell).await;
            assert_eq!((counts.connections, counts.open), (3, 0));
            assert!(served.path.symlink_metadata().is_err(), "the file is gone");
            for raw in [negotiating, idle, half] {
                raw.expect_end().await;
            }
            assert_eq!(served.drive.bytes(0, 4096), [0; 4096]);
            assert_eq!(Arc::strong_count(&served.drive), 1, "nobody can reach the drive any more");
        }
    });
}

#[test]
fn a_farewell_answers_what_was_sent_before_it() {
    bounded(async {
        // Often, since it depends on whether the server has heard of the bytes when it hears of its end.
        for _ in 0..50 {
            let served = Served::new(MIB);
            let mut raw = Raw::attached(&served.path).await;
            let all: Vec<u8> = (0..100).flat_map(|cookie| request(WRITE, 0, cookie, 0, 512, &[1; 512])).collect();
            raw.send(&all).await;
            let counts = served.handle.shutdown(Farewell::Answer).await;
            assert_eq!(counts.requests, 100);
            for cookie in 0..100 {
                assert_eq!(raw.reply(0).await.cookie, cookie);
            }
            raw.expect_end().await;
        }
    });
}

#[test]
fn no_shutdown_is_held_up_by_a_client_that_reads_nothing() {
    bounded(async {
        for (farewell, disc) in [(Farewell::Answer, false), (Farewell::Drop, false), (Farewell::Drop, true)] {
            let served = Served::with(Memory::new(MIB), Config { queue: 1 << 20, ..Config::default() });
            let mut stuck = Raw::attached(&served.path).await;
            let reads: Vec<u8> = (0..if disc { 3 } else { 500 })
                .flat_map(|cookie| request(READ, 0, cookie, 0, 256 << 10, &[]))
                .collect();
            stuck.send(&reads).await;
            if disc {
                stuck.request(DISC, 0, 0, 0, 0, &[]).await;
            }
            while served.handle.counts().requests < 3 {
                tokio::task::yield_now().await;
            }
            let started = Instant::now();
            served.handle.shutdown(farewell).await;
            let most = if farewell == Farewell::Answer { 8 } else { 2 };
            assert!(started.elapsed() < Duration::from_secs(most), "{farewell:?} took {:?}", started.elapsed());
            assert_eq!(Arc::strong_count(&served.drive), 1);
            drop(stuck);
        }
    });
}

#[test]
fn no_shutdown_is_held_up_by_a_client_that_never_stops_asking() {
    bounded(async {
        for farewell in [Farewell::Drop, Farewell::Answer] {
            let served = Served::new(MIB);
            let raw = Raw::attached(&served.path).await;
            let (mut from, mut to) = raw.stream.into_split();
            let reader = tokio::spawn(async move {
                let mut sink = vec![0; 1 << 20];
                while from.read(&mut sink).await.is_ok_and(|count| count > 0) {}
            });
            let writer = tokio::spawn(async move {
                let many = request(FLUSH, 0, 1, 0, 0, &[]).repeat(5000);
                while to.write_all(&many).await.is_ok() {}
            });
            while served.handle.counts().requests < 20_000 {
                tokio::task::yield_now().await;
            }
            let started = Instant::now();
            served.handle.shutdown(farewell).await;
            let most = if farewell == Farewell::Answer { 8 } else { 2 };
            assert!(started.elapsed() < Duration::from_secs(most), "{farewell:?} took {:?}", started.elapsed());
            writer.await.expect("it only writes");
            reader.await.expect("it only reads");
        }
    });
}

#[test]
fn dropping_the_handle_is_a_shutdown_too() {
    bounded(async {
        let served = Served::new(MIB);
        let mut raw = Raw::attached(&served.path).await;
        raw.expect_alive().await;
        drop(served.handle);
        raw.expect_end().await;
        assert!(served.path.symlink_metadata().is_err());
        while Arc::strong_count(&served.drive) > 1 {
            tokio::task::yield_now().await;
        }
    });
}

#[test]
fn a_socket_file_is_replaced_only_if_its_server_is_dead() {
    bounded(async {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("nbd.sock");
        drop(UnixListener::bind(&path).expect("a socket"));
        let first = Server::bind_unix(&path).expect("the dead one's file is replaced");
        assert!(matches!(Server::bind_unix(&path), Err(BindError::InUse(_))));

        let plain = folder.path().join("plain");
        std::fs::write(&plain, "keep me").expect("a file");
        assert!(matches!(Server::bind_unix(&plain), Err(BindError::NotASocket(_))));
        assert_eq!(std::fs::read(&plain).expect("still there"), b"keep me");

        let nowhere = Server::bind_unix(folder.path().join("no/such/folder"));
        assert!(matches!(nowhere, Err(BindError::System { .. })));
        let long = Server::bind_unix(folder.path().join("x".repeat(200)));
        assert!(long.expect_err("longer than a socket's path can be").to_string().contains("xxx"));

        // A server whose file was taken by another must not remove the other's.
        std::fs::remove_file(&path).expect("ours to remove");
        let second = Server::bind_unix(&path).expect("a free path");
        drop(first);
        assert!(path.symlink_metadata().is_ok());
        drop(second);
        assert!(path.symlink_metadata().is_err());
    });
}

#[test]
fn tcp_serves_this_machine() {
    bounded(async {
        let everywhere = Server::bind_tcp("0.0.0.0:0".parse().expect("an address"), Reach::Loopback);
        assert!(everywhere.expect_err("refused").to_string().contains("other machines"));

        let server = Server::bind_tcp("127.0.0.1:0".parse().expect("an address"), Reach::Loopback).expect("a port");
        let drive = Arc::new(Memory::new(MIB));
        let handle = server.serve(Exports::one(drive), Config::default()).expect("a server");
        let powerfail_nbd::Address::Tcp(address) = *handle.address() else { panic!("TCP") };
        assert_ne!(address.port(), 0);
        assert_eq!(handle.uri("a"), format!("nbd://{address}/a"));
        assert!(matches!(Server::bind_tcp(address, Reach::Loopback), Err(BindError::InUse(_))));

        let mut stream = TcpStream::connect(address).await.expect("a server");
        stream.write_all(b"\0\0\0\x03IHAVEOPT\0\0\0\x01\0\0\0\0").await.expect("it reads");
        stream.write_all(&request(WRITE, 0, 1, 0, 3, b"abc")).await.expect("it reads");
        stream.write_all(&request(READ, 0, 2, 0, 4, &[])).await.expect("it reads");
        stream.shutdown().await.expect("the end");
        let mut all = Vec::new();
        stream.read_to_end(&mut all).await.expect("all of it");
        assert_eq!(all.len(), 18 + 10 + 16 + 16 + 4);
        assert_eq!(all[all.len() - 4..], *b"abc\0");
        handle.shutdown(Farewell::Drop).await;
    });
}

#[test]
fn a_panic_in_the_drive_comes_out_of_shutdown() {
    struct Broken;
    impl Device for Broken {
        fn geometry(&self) -> Geometry {
            Geometry::new(MIB).expect("whole sectors")
        }
        fn offers(&self) -> Offers {
            Offers::ALL
        }
        fn receive(&self, _: &Request<'_>) -> Result<Receipt, Refusal> {
            panic!("the drive's own bug")
        }
        fn read(&self, _: u64, _: &mut [u8]) {}
        fn reply(&self, _: Receipt) -> Result<(), Refusal> {
            Ok(())
        }
    }
    bounded(async {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("nbd.sock");
        let server = Server::bind_unix(&path).expect("a socket");
        let handle = server.serve(Exports::one(Arc::new(Broken)), Config::default()).expect("a server");
        let mut raw = Raw::attached(&path).await;
        raw.request(FLUSH, 0, 1, 0, 0, &[]).await;
        raw.expect_end().await;
        let ended = tokio::spawn(handle.shutdown(Farewell::Drop)).await;
        let panic = ended.expect_err("it panics").into_panic();
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"the drive's own bug"));
    });
}
