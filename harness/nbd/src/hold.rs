//! Holding replies back, so that writes are in flight at any moment and answers come out of order.
//!
//! Permitted: the reply to a WRITE, TRIM, WRITE_ZEROES or FLUSH leaves only when so many further requests have arrived on
//! its connection, or after so much time, whichever comes first. Both numbers are drawn for the place (connection,
//! request) and neither exceeds its bound, so at most `depth` replies are held and each leaves within `max_time`, rounded
//! up to the runtime's timer tick (1 ms): a host that waits for one reply before it asks again is never stuck.
//! Not held: reads, prefetches, errors. Not touched: a reply that is held is one the drive knows as unanswered.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use powerfail_drive::device::Receipt;
use powerfail_seed::{Seed, below};

/// How much replies are held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The root of the draws.
    pub seed: Seed,
    /// A reply waits for 0 to this many later requests.
    pub depth: u32,
    /// A reply waits for 0 to this long.
    pub max_time: Duration,
}

/// The most that a hold's depth may be.
pub const MAX_DEPTH: u32 = 4096;

/// A reply that is held.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) receipt: Receipt,
    pub(crate) cookie: u64,
    pub(crate) command: u16,
}

/// The held replies of one connection. It has no clock: who calls it says what time it is.
#[derive(Debug)]
pub(crate) struct Holder {
    hold: Hold,
    connection: u64,
    arrived: u64,
    /// By the number of arrived requests at which it leaves; the second number is the request's own.
    by_count: BTreeMap<(u64, u64), (Instant, Held)>,
    /// By the time at which it leaves; the value is the key of `by_count`.
    by_time: BTreeMap<(Instant, u64), (u64, u64)>,
}

impl Holder {
    pub(crate) fn new(hold: Hold, connection: u64) -> Holder {
        let depth = hold.depth.min(MAX_DEPTH);
        let hold = Hold { depth, ..hold };
        Holder { hold, connection, arrived: 0, by_count: BTreeMap::new(), by_time: BTreeMap::new() }
    }

    /// A request has arrived; whatever waited for it comes out of [`Holder::ripe`].
    pub(crate) fn arrived(&mut self) {
        self.arrived += 1;
    }

    /// Takes the reply of the request that arrived last; gives it back if it is not to wait at all.
    pub(crate) fn keep(&mut self, held: Held, now: Instant) -> Option<Held> {
        let mut rng = self.hold.seed.rng("hold", &[self.connection, self.arrived]);
        let requests = below(&mut rng, u64::from(self.hold.depth) + 1);
        let nanos = u64::try_from(self.hold.max_time.as_nanos()).unwrap_or(u64::MAX - 1);
        let time = Duration::from_nanos(below(&mut rng, nanos.saturating_add(1)));
        if requests == 0 || time.is_zero() {
            return Some(held);
        }
        // A time too far away to be told is a time that never comes, and then the hold would have no bound.
        let Some(until) = now.checked_add(time) else { return Some(held) };
        let key = (self.arrived + requests, self.arrived);
        self.by_time.insert((until, self.arrived), key);
        self.by_count.insert(key, (until, held));
        None
    }

    /// One reply that has waited for enough requests.
    pub(crate) fn ripe(&mut self) -> Option<Held> {
        let (&(due, request), _) = self.by_count.first_key_value()?;
        if due > self.arrived {
            return None;
        }
        self.take((due, request))
    }

    /// One reply that has waited long enough.
    pub(crate) fn overdue(&mut self, now: Instant) -> Option<Held> {
        let (&(until, _), &key) = self.by_time.first_key_value()?;
        if until > now { None } else { self.take(key) }
    }

    /// One reply, due or not: nothing is to be held any more.
    pub(crate) fn any(&mut self) -> Option<Held> {
        let key = *self.by_count.first_key_value()?.0;
        self.take(key)
    }

    /// When the next reply is overdue.
    pub(crate) fn next_time(&self) -> Option<Instant> {
        self.by_time.first_key_value().map(|((until, _), _)| *until)
    }

    /// How many replies are held.
    #[cfg(test)]
    fn len(&self) -> usize {
        assert_eq!(self.by_count.len(), self.by_time.len());
        self.by_count.len()
    }

    fn take(&mut self, key: (u64, u64)) -> Option<Held> {
        let (until, held) = self.by_count.remove(&key)?;
        self.by_time.remove(&(until, key.1));
        Some(held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOLD: Hold = Hold { seed: Seed(5), depth: 8, max_time: Duration::from_millis(3) };

    fn held(event: u64) -> Held {
        Held { receipt: Receipt::for_event(event), cookie: event, command: 1 }
    }

    /// The order in which 400 replies leave when requests arrive without any time passing.
    fn order(hold: Hold, connection: u64) -> Vec<u64> {
        let start = Instant::now();
        let mut holder = Holder::new(hold, connection);
        let mut left = Vec::new();
        for request in 0..400 {
            holder.arrived();
            left.extend(std::iter::from_fn(|| holder.ripe()).map(|held| held.cookie));
            left.extend(holder.keep(held(request), start).map(|held| held.cookie));
            assert!(holder.len() <= hold.depth as usize, "{} replies are held", holder.len());
        }
        left.extend(std::iter::from_fn(|| holder.any()).map(|held| held.cookie));
        left
    }

    #[test]
    fn all_leave_within_the_depth_and_out_of_order() {
        let left = order(HOLD, 1);
        let mut sorted = left.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..400).collect::<Vec<_>>());
        assert_ne!(left, sorted);
        for (place, &request) in left.iter().enumerate() {
            assert!(place.abs_diff(request as usize) <= 8, "request {request} left in place {place}");
        }
    }

    #[test]
    fn the_order_is_the_seeds() {
        assert_eq!(order(HOLD, 1), order(HOLD, 1));
        assert_ne!(order(HOLD, 1), order(HOLD, 2));
        assert_ne!(order(HOLD, 1), order(Hold { seed: Seed(6), ..HOLD }, 1));
    }

    #[test]
    fn a_lone_reply_leaves_by_time() {
        let now = Instant::now();
        let mut holder = Holder::new(HOLD, 3);
        let mut kept = 0;
        for event in 0..50 {
            holder.arrived();
            while holder.any().is_some() {}
            if holder.keep(held(event), now).is_some() {
                continue;
            }
            kept += 1;
            let until = holder.next_time().expect("it is held");
            assert!(until > now && until <= now + HOLD.max_time);
            assert!(holder.overdue(now).is_none());
            assert_eq!(holder.overdue(until).map(|held| held.cookie), Some(event));
            assert!(holder.next_time().is_none());
        }
        assert!(kept > 25, "{kept} of 50 replies were held");
    }

    #[test]
    fn no_depth_and_no_time_hold_nothing() {
        for hold in [Hold { depth: 0, ..HOLD }, Hold { max_time: Duration::ZERO, ..HOLD }] {
            assert_eq!(order(hold, 1), (0..400).collect::<Vec<_>>());
        }
    }
}
