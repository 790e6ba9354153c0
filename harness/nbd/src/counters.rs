//! What a server has counted since it began.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A reading of a server's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections that were accepted and served.
    pub connections: u64,
    /// Those of them that are still open.
    pub open: u64,
    /// Those of them that came and went without a byte.
    pub probes: u64,
    /// Connections that were closed at once because too many were open.
    pub turned_away: u64,
    /// Connections that the server ended because the client broke the protocol beyond repair.
    pub severed: u64,
    /// Why it ended the last one of those.
    pub last_severed: Option<&'static str>,
    /// Requests of the transmission phase that were taken in, refused ones included; DISC is not counted.
    pub requests: u64,
    /// Requests that were answered with an error.
    pub refused: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) connections: AtomicU64,
    pub(crate) closed: AtomicU64,
    pub(crate) probes: AtomicU64,
    pub(crate) turned_away: AtomicU64,
    severed: Mutex<(u64, Option<&'static str>)>,
    requests: AtomicU64,
    refused: AtomicU64,
}

impl Counters {
    pub(crate) fn add(&self, requests: u64, refused: u64) {
        if requests > 0 {
            self.requests.fetch_add(requests, Relaxed);
        }
        if refused > 0 {
            self.refused.fetch_add(refused, Relaxed);
        }
    }

    pub(crate) fn severed(&self, why: &'static str) {
        let mut severed = self.severed.lock().expect("nothing panics with it");
        *severed = (severed.0 + 1, Some(why));
    }

    pub(crate) fn read(&self) -> Counts {
        // Closed first: a connection is never seen as closed but not as opened.
        let closed = self.closed.load(Relaxed);
        let connections = self.connections.load(Relaxed);
        let (severed, last_severed) = *self.severed.lock().expect("nothing panics with it");
        Counts {
            severed,
            last_severed,
            connections,
            open: connections.saturating_sub(closed),
            probes: self.probes.load(Relaxed),
            turned_away: self.turned_away.load(Relaxed),
            requests: self.requests.load(Relaxed),
            refused: self.refused.load(Relaxed),
        }
    }
}
