//! The door between the wire and the drive: what a server of any protocol may ask, and what it owes.

use crate::request::{Geometry, Refusal, Request};

/// What the drive says of itself to hosts; a host that isn't told of a flush never sends one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offers {
    /// There is a volatile write cache and `Flush` empties it.
    pub flush: bool,
    /// A write may carry FUA.
    pub fua: bool,
    /// `Trim` is understood.
    pub trim: bool,
    /// `WriteZeroes` is understood.
    pub write_zeroes: bool,
    /// The medium has arms that seek.
    pub rotational: bool,
}

impl Offers {
    /// All that a drive with a write cache has.
    pub const ALL: Offers = Offers { flush: true, fua: true, trim: true, write_zeroes: true, rotational: false };
}

/// The debt of a reply. Whoever holds it passes it to [`Device::reply`] just before the reply's first byte can reach
/// the host, or abandons it, because the connection is gone: then the request stays in flight for ever.
#[must_use = "a received request must be replied to, or be abandoned in so many words"]
#[derive(Debug, PartialEq, Eq)]
pub struct Receipt {
    event: u64,
}

impl Receipt {
    /// The receipt of the request that was recorded as `event`; only devices make them.
    pub fn for_event(event: u64) -> Receipt {
        Receipt { event }
    }

    /// The number of the event that the receipt of the request was.
    pub fn event(&self) -> u64 {
        self.event
    }

    /// The host is gone and will never see a reply.
    pub fn abandon(self) {}
}

/// A drive that a server can serve from several connections and threads at a time.
///
/// Order is decided inside: `receive` and `reply` number their events under one lock, so "X's reply came before Y's
/// receipt" has one answer for the whole export, whatever the number of connections.
pub trait Device: Send + Sync + 'static {
    /// The drive's size.
    fn geometry(&self) -> Geometry;

    /// What the drive offers.
    fn offers(&self) -> Offers;

    /// Takes a request in: records its receipt and, if it writes, makes its data visible to later reads. For a
    /// `Read`, call [`Device::read`] afterwards for the data.
    fn receive(&self, request: &Request<'_>) -> Result<Receipt, Refusal>;

    /// Fills `out` with what a host sees at byte `offset` now; the range was checked by `receive`.
    fn read(&self, offset: u64, out: &mut [u8]);

    /// Records that the reply goes out now. `Err`: the recording can't take it, or the power is off; the host must
    /// then get an error instead of success.
    fn reply(&self, receipt: Receipt) -> Result<(), Refusal>;
}
