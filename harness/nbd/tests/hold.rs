//! Held replies: out of order within the bound, all of them answered, none for longer than its time.

mod common;

use std::time::{Duration, Instant};

use common::memory::{Memory, Seen};
use common::raw::*;
use common::{MIB, Served, bounded};
use powerfail_drive::request::Command;
use powerfail_nbd::{Config, Farewell, Hold};
use powerfail_seed::Seed;
use tokio::io::AsyncWriteExt;

const DEPTH: u32 = 16;

fn held(depth: u32, max_time: Duration) -> Served {
    let hold = Some(Hold { seed: Seed(11), depth, max_time });
    Served::with(Memory::new(MIB), Config { hold, ..Config::default() })
}

/// Far longer than a test may take: only the count of requests can release.
const NEVER: Duration = Duration::from_secs(1_000_000);

fn writes(cookies: std::ops::Range<u64>) -> Vec<u8> {
    cookies.flat_map(|cookie| request(WRITE, 0, cookie, cookie % 2048 * 512, 512, &[cookie as u8; 512])).collect()
}

#[test]
fn replies_leave_out_of_order_within_the_depth() {
    bounded(async {
        let served = held(DEPTH, NEVER);
        let mut raw = Raw::attached(&served.path).await;
        raw.send(&writes(0..1000)).await;
        // The last ones wait for requests that don't come: these.
        let reads: Vec<u8> =
            (1000..1000 + u64::from(DEPTH)).flat_map(|cookie| request(READ, 0, cookie, 0, 1, &[])).collect();
        raw.send(&reads).await;
        let mut order = Vec::new();
        for _ in 0..1000 + DEPTH {
            let reply = raw.reply_of_one_byte_reads(1000).await;
            assert_eq!(reply.errno, 0);
            order.push(reply.cookie);
        }
        let written: Vec<u64> = order.iter().copied().filter(|cookie| *cookie < 1000).collect();
        let mut sorted = written.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..1000).collect::<Vec<_>>(), "each is answered once");
        let moved = written.iter().enumerate().filter(|(place, cookie)| *place as u64 != **cookie).count();
        assert!(moved > 500, "{moved} of 1000 replies left out of their place");
        assert!(written.iter().enumerate().all(|(place, cookie)| cookie.abs_diff(place as u64) <= u64::from(DEPTH)));
        assert!(served.drive.most_in_flight() <= 1024 + u64::from(DEPTH));
        served.end().await;
    });
}

#[test]
fn writes_are_in_flight_when_later_ones_arrive_and_never_more_than_the_depth() {
    bounded(async {
        let served = held(DEPTH, NEVER);
        let mut raw = Raw::attached(&served.path).await;
        let (mut sent, mut answered, mut overlapping) = (0, 0, 0);
        // The client keeps one more than the depth in flight, so the server has to answer at least one.
        while answered < 500 {
            while sent - answered <= u64::from(DEPTH) {
                raw.send(&writes(sent..sent + 1)).await;
                sent += 1;
            }
            raw.reply(0).await;
            answered += 1;
        }
        let mut open = 0i64;
        for seen in served.drive.log() {
            match seen {
                Seen::Received { .. } => {
                    overlapping += u64::from(open > 0);
                    open += 1;
                }
                Seen::Replied { .. } => open -= 1,
            }
            assert!(open <= i64::from(DEPTH) + 1);
        }
        assert!(overlapping > 400, "{overlapping} of {sent} writes arrived while another was in flight");
        served.end().await;
    });
}

#[test]
fn one_request_at_a_time_is_released_by_time() {
    bounded(async {
        let max = Duration::from_millis(20);
        let served = held(64, max);
        let mut raw = Raw::attached(&served.path).await;
        let mut longest = Duration::ZERO;
        for round in 0..40 {
            let start = Instant::now();
            match round % 4 {
                0 => raw.expect(WRITE, 0, 0, 512, 0).await,
                1 => raw.expect(FLUSH, 0, 0, 0, 0).await,
                2 => raw.expect(WRITE_ZEROES, 0, 0, 512, 0).await,
                _ => raw.expect(TRIM, FUA, 0, 512, 0).await,
            };
            longest = longest.max(start.elapsed());
        }
        assert!(longest >= Duration::from_millis(5), "nothing was held: at most {longest:?}");
        served.end().await;
    });
}

#[test]
fn reads_and_errors_are_not_held() {
    bounded(async {
        let served = held(64, NEVER);
        let mut raw = Raw::attached(&served.path).await;
        for _ in 0..20 {
            raw.expect(READ, 0, 0, 512, 0).await;
            raw.expect(CACHE, 0, 0, 512, 0).await;
            raw.expect(WRITE, 0, MIB, 512, ENOSPC).await;
            raw.expect(77, 0, 0, 0, EINVAL).await;
        }
        served.end().await;
    });
}

#[test]
fn disc_and_a_half_close_release_what_is_held() {
    bounded(async {
        for disc in [true, false] {
            let served = held(4096, NEVER);
            let mut raw = Raw::attached(&served.path).await;
            raw.send(&writes(0..100)).await;
            if disc {
                raw.request(DISC, 0, 0, 0, 0, &[]).await;
            } else {
                raw.stream.shutdown().await.expect("the end of what is sent");
            }
            let mut cookies = Vec::new();
            for _ in 0..100 {
                cookies.push(raw.reply(0).await.cookie);
            }
            cookies.sort_unstable();
            assert_eq!(cookies, (0..100).collect::<Vec<_>>());
            raw.expect_end().await;
            served.end().await;
        }
    });
}

#[test]
fn a_dead_connections_receipts_are_abandoned() {
    bounded(async {
        let served = held(4096, NEVER);
        let mut raw = Raw::attached(&served.path).await;
        raw.send(&writes(0..100)).await;
        // A read is answered after all that came before it was taken in.
        raw.request(READ, 0, 1000, 0, 1, &[]).await;
        while raw.reply_of_one_byte_reads(1000).await.cookie != 1000 {}
        let replied = |seen: &&Seen| matches!(seen, Seen::Replied { .. });
        let before = served.drive.log().iter().filter(replied).count();
        assert!(before < 60, "most of 100 writes are held, but {before} were replied to");
        drop(raw);
        while served.handle.counts().open > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(served.drive.log().iter().filter(replied).count(), before, "nobody was there to be replied to");
        // The writes themselves happened, and another connection sees them.
        assert_eq!(Raw::attached(&served.path).await.expect(READ, 0, 99 * 512, 512, 0).await, [99; 512]);
        served.end().await;
    });
}

#[test]
fn a_farewell_answers_what_is_held_as_the_drive_decides() {
    bounded(async {
        for (power, errno) in [(true, 0), (false, EIO)] {
            let served = held(4096, NEVER);
            let mut raw = Raw::attached(&served.path).await;
            raw.send(&writes(0..100)).await;
            raw.request(READ, 0, 1000, 0, 1, &[]).await;
            let mut early = 0;
            while raw.reply_of_one_byte_reads(1000).await.cookie != 1000 {
                early += 1;
            }
            served.drive.set_power(power);
            let (counts, late) = tokio::join!(served.handle.shutdown(Farewell::Answer), async {
                let mut late = 0;
                for _ in early..100 {
                    let reply = raw.reply(0).await;
                    late += u64::from(reply.errno == errno);
                }
                raw.expect_end().await;
                late
            });
            assert_eq!((late, counts.open), (100 - early, 0));
        }
    });
}

#[test]
fn a_flush_is_held_too_and_covers_only_what_was_replied_to() {
    bounded(async {
        let served = held(DEPTH, NEVER);
        let mut raw = Raw::attached(&served.path).await;
        let mut bytes = Vec::new();
        for cookie in 0..400 {
            bytes.extend(if cookie % 4 == 3 {
                request(FLUSH, 0, cookie, 0, 0, &[])
            } else {
                writes(cookie..cookie + 1)
            });
        }
        bytes.extend((1000..1000 + u64::from(DEPTH)).flat_map(|cookie| request(READ, 0, cookie, 0, 1, &[])));
        raw.send(&bytes).await;
        let mut order = Vec::new();
        for _ in 0..400 + DEPTH {
            order.push(raw.reply_of_one_byte_reads(1000).await.cookie);
        }
        let late = (0..399u64).filter(|cookie| cookie % 4 == 3).filter(|flush| {
            let place = |cookie: u64| order.iter().position(|one| *one == cookie).expect("answered");
            place(*flush) > place(flush + 1)
        });
        assert!(late.count() > 10, "flushes are overtaken by later writes");
        let flushes = |seen: &&Seen| matches!(seen, Seen::Received { command: Command::Flush, .. });
        assert_eq!(served.drive.log().iter().filter(flushes).count(), 100);
        served.end().await;
    });
}
