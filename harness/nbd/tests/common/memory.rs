//! A drive in memory that keeps no secrets: what it was asked and what it was told of replies, in order.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use powerfail_drive::device::{Device, Offers, Receipt};
use powerfail_drive::request::{Command, Geometry, Refusal, Request};

/// An event as the drive saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// A request, with the number of its receipt.
    Received { event: u64, command: Command, offset: u64, length: u64, fua: bool },
    /// A reply to that receipt.
    Replied { event: u64 },
}

/// The drive.
pub struct Memory {
    geometry: Geometry,
    offers: Offers,
    bytes: Mutex<State>,
    in_flight: AtomicU64,
    most_in_flight: AtomicU64,
}

struct State {
    bytes: Vec<u8>,
    next: u64,
    log: Option<Vec<Seen>>,
    power: bool,
    /// Replies from this number on are refused as if the power had gone in between.
    replies_until: u64,
}

impl Memory {
    /// A drive of `size` bytes that logs what happens.
    pub fn new(size: u64) -> Memory {
        Memory::with(size, Offers::ALL)
    }

    /// The same with other offers.
    pub fn with(size: u64, offers: Offers) -> Memory {
        let state = State {
            bytes: vec![0; usize::try_from(size).expect("it fits")],
            next: 0,
            log: Some(Vec::new()),
            power: true,
            replies_until: u64::MAX,
        };
        Memory {
            geometry: Geometry::new(size).expect("whole sectors"),
            offers,
            bytes: Mutex::new(state),
            in_flight: AtomicU64::new(0),
            most_in_flight: AtomicU64::new(0),
        }
    }

    /// The same without a log, for long runs.
    pub fn without_log(self) -> Memory {
        self.bytes.lock().expect("no panic").log = None;
        self
    }

    /// All that happened, in order.
    pub fn log(&self) -> Vec<Seen> {
        self.bytes.lock().expect("no panic").log.clone().expect("it logs")
    }

    /// The bytes of a range.
    pub fn bytes(&self, offset: usize, length: usize) -> Vec<u8> {
        self.bytes.lock().expect("no panic").bytes[offset..offset + length].to_vec()
    }

    /// Cuts the power or restores it.
    pub fn set_power(&self, on: bool) {
        self.bytes.lock().expect("no panic").power = on;
    }

    /// Refuses the replies to receipts from `event` on, and takes the requests.
    pub fn refuse_replies_from(&self, event: u64) {
        self.bytes.lock().expect("no panic").replies_until = event;
    }

    /// The most requests that ever were received and not replied to.
    pub fn most_in_flight(&self) -> u64 {
        self.most_in_flight.load(Relaxed)
    }
}

impl Device for Memory {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn offers(&self) -> Offers {
        self.offers
    }

    fn receive(&self, request: &Request<'_>) -> Result<Receipt, Refusal> {
        let mut state = self.bytes.lock().expect("no panic");
        if !state.power {
            return Err(Refusal::PowerOff);
        }
        self.geometry.check(request)?;
        let (from, to) = (request.offset as usize, (request.offset + request.length) as usize);
        match request.command {
            Command::Write => state.bytes[from..to].copy_from_slice(request.data),
            Command::Trim | Command::WriteZeroes => state.bytes[from..to].fill(0),
            Command::Read | Command::Flush | Command::Cache => {}
        }
        let event = state.next;
        state.next += 1;
        let Request { command, offset, length, fua, .. } = *request;
        if let Some(log) = &mut state.log {
            log.push(Seen::Received { event, command, offset, length, fua });
        }
        let now = self.in_flight.fetch_add(1, Relaxed) + 1;
        self.most_in_flight.fetch_max(now, Relaxed);
        Ok(Receipt::for_event(event))
    }

    fn read(&self, offset: u64, out: &mut [u8]) {
        let from = offset as usize;
        out.copy_from_slice(&self.bytes.lock().expect("no panic").bytes[from..from + out.len()]);
    }

    fn reply(&self, receipt: Receipt) -> Result<(), Refusal> {
        let mut state = self.bytes.lock().expect("no panic");
        self.in_flight.fetch_sub(1, Relaxed);
        if !state.power || receipt.event() >= state.replies_until {
            return Err(Refusal::PowerOff);
        }
        if let Some(log) = &mut state.log {
            log.push(Seen::Replied { event: receipt.event() });
        }
        Ok(())
    }
}
