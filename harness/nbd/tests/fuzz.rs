//! Bytes that no client would send. Whatever arrives, the server doesn't panic (a panic comes out of `shutdown`), doesn't
//! hang (a connection whose client has closed ends, and others are served), and takes no more memory than its bounds.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use common::memory::Memory;
use common::raw::*;
use common::{MIB, Served, bounded};
use powerfail_nbd::Config;
use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Counts what is allocated, and remembers the most.
struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: all calls go to the system's allocator as they came; counting touches no memory of it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size(), Relaxed) + layout.size();
        MOST.fetch_max(now, Relaxed);
        // SAFETY: the caller's contract is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller's contract is the same.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The measurements are of the whole process, so tests take turns.
static TURN: Mutex<()> = Mutex::new(());

const QUEUE: usize = 1 << 20;

/// Sends `bytes` after `prefix`, reads whatever comes, closes; gives the most memory that was taken meanwhile.
fn throw(prefix: &[u8], bytes: &[u8], piece: usize) -> usize {
    let _turn = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let mut grown = 0;
    bounded(async {
        let served = Served::with(Memory::new(MIB), Config { queue: QUEUE, ..Config::default() });
        let before = NOW.load(Relaxed);
        MOST.store(before, Relaxed);
        let stream = tokio::net::UnixStream::connect(&served.path).await.expect("a server");
        let (mut from, mut to) = stream.into_split();
        let reader = tokio::spawn(async move {
            let mut sink = vec![0; 65536];
            while from.read(&mut sink).await.is_ok_and(|count| count > 0) {}
        });
        // The server may hang up at any byte; that's its right.
        let _ = to.write_all(prefix).await;
        for part in bytes.chunks(piece) {
            if to.write_all(part).await.is_err() {
                break;
            }
        }
        drop(to);
        reader.await.expect("it only reads");
        while served.handle.counts().open > 0 {
            tokio::task::yield_now().await;
        }
        grown = MOST.load(Relaxed).saturating_sub(before);
        Raw::attached(&served.path).await.expect_alive().await;
        served.end().await;
    });
    grown
}

/// An option or a request with fields that are often almost right.
fn number32() -> impl Strategy<Value = u32> {
    prop_oneof![
        0u32..20,
        Just(512),
        Just(1 << 20),
        Just((32 << 20) + 1),
        Just((64 << 20) + 1),
        Just(u32::MAX),
        any::<u32>()
    ]
}

fn option() -> impl Strategy<Value = Vec<u8>> {
    let data = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..200),
        ("[a-z]{0,9}", proptest::collection::vec(any::<u16>(), 0..5)).prop_map(|(name, infos)| go_data(&name, &infos)),
        Just(go_data("", &[3])),
        Just(meta_data("", &["base:allocation"])),
    ];
    (0u32..14, data, prop_oneof![9 => Just(None), 1 => number32().prop_map(Some)]).prop_map(|(option, data, lie)| {
        let length = lie.unwrap_or(data.len() as u32);
        [b"IHAVEOPT", &option.to_be_bytes()[..], &length.to_be_bytes(), &data].concat()
    })
}

fn any_request() -> impl Strategy<Value = Vec<u8>> {
    let offset = prop_oneof![0..2 * MIB, Just(u64::MAX), any::<u64>()];
    let flags = prop_oneof![4 => Just(0u16), 2 => 0u16..64, 1 => any::<u16>()];
    let command = prop_oneof![9 => prop_oneof![Just(0u16), Just(1), 3u16..8], 1 => any::<u16>()];
    (command, flags, any::<u64>(), offset, number32(), 0usize..600).prop_map(
        |(command, flags, cookie, offset, length, extra)| {
            // Mostly as much data as a write says, up to a bound; sometimes not.
            let data = if command == WRITE { extra.max((length as usize).min(70_000)) } else { 0 };
            request(command, flags, cookie, offset, length, &vec![cookie as u8; data])
        },
    )
}

fn join(parts: Vec<Vec<u8>>) -> Vec<u8> {
    parts.concat()
}

/// What a session may take: its inbox, its queue, one reply and one write of the lengths that occur, and small change.
const BOUND: usize = (1 << 20) + QUEUE + (3 << 20);

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn noise_as_a_negotiation(bytes in proptest::collection::vec(any::<u8>(), 0..5000), piece in 1usize..2000) {
        let grown = throw(&[], &bytes, piece);
        prop_assert!(grown < BOUND, "{} bytes were taken", grown);
    }

    #[test]
    fn almost_a_negotiation(options in proptest::collection::vec(option(), 0..20).prop_map(join), piece in 1usize..500) {
        let grown = throw(&3u32.to_be_bytes(), &options, piece);
        prop_assert!(grown < BOUND, "{} bytes were taken", grown);
    }

    #[test]
    fn noise_as_requests(bytes in proptest::collection::vec(any::<u8>(), 0..5000), piece in 1usize..2000) {
        let grown = throw(&entered(false), &bytes, piece);
        prop_assert!(grown < BOUND, "{} bytes were taken", grown);
    }

    #[test]
    fn almost_requests(
        requests in proptest::collection::vec(any_request(), 0..60).prop_map(join),
        structured in any::<bool>(),
        piece in 1usize..100_000,
    ) {
        let grown = throw(&entered(structured), &requests, piece);
        prop_assert!(grown < BOUND, "{} bytes were taken", grown);
    }
}

/// The bytes that lead to the transmission phase.
fn entered(structured: bool) -> Vec<u8> {
    let option = |number: u32, data: &[u8]| {
        [b"IHAVEOPT", &number.to_be_bytes()[..], &(data.len() as u32).to_be_bytes(), data].concat()
    };
    let ask = if structured { option(STRUCTURED_REPLY, &[]) } else { vec![] };
    [3u32.to_be_bytes().to_vec(), ask, option(GO, &go_data("", &[]))].concat()
}

#[test]
fn a_header_alone_takes_no_memory_for_the_data_it_announces() {
    let header = request(WRITE, 0, 1, 0, 1 << 20, &[]);
    assert!(throw(&entered(false), &header, 28) < 1 << 20);
    let refused = request(WRITE, 0, 1, 0, 64 << 20, &[]);
    assert!(throw(&entered(false), &refused, 28) < 1 << 20);
}

#[test]
fn a_client_that_reads_nothing_takes_its_queue_and_no_more() {
    let _turn = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    bounded(async {
        let served = Served::with(Memory::new(MIB), Config { queue: QUEUE, ..Config::default() });
        let before = NOW.load(Relaxed);
        let mut raw = Raw::attached(&served.path).await;
        MOST.store(before, Relaxed);
        let reads: Vec<u8> = (0..1000).flat_map(|cookie| request(READ, 0, cookie, 0, 256 << 10, &[])).collect();
        raw.send(&reads).await;
        let mut other = Raw::attached(&served.path).await;
        for _ in 0..500 {
            other.expect_alive().await;
        }
        let grown = MOST.load(Relaxed) - before;
        assert!(grown < BOUND, "{grown} bytes were taken for 256 MiB of replies");
        served.end().await;
    });
}
