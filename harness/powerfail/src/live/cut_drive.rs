//! A served drive whose power fails by itself, at a point that was drawn before: after so many marks of the workload, and
//! then so many further events.
//!
//! The thread that brings the last of these events cuts the drive before anything of that event reaches the wire, so
//! where the cut lies among the events is decided here and not by how fast somebody is woken. The machine on the other end
//! dies a moment later; whatever it asks until then is refused.

use std::sync::{Condvar, Mutex, MutexGuard};

use powerfail_drive::device::{Device, Offers, Receipt};
use powerfail_drive::live::Sink;
use powerfail_drive::request::{Geometry, Refusal, Request};

use crate::served_drive::ServedDrive;

/// When the power fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Point {
    /// Marks of the workload before it.
    pub marks: u64,
    /// Receipts, replies and marks that follow the last of them.
    pub events: u64,
}

/// A drive that is cut by itself.
#[derive(Debug)]
pub(super) struct CutDrive<S> {
    drive: ServedDrive<S>,
    state: Mutex<State<S>>,
    cut: Condvar,
}

#[derive(Debug)]
enum State<S> {
    /// What is left until the cut.
    On(Point),
    /// Nobody has taken the recording yet.
    Off(Result<(u64, S), Refusal>),
    /// It was taken.
    Empty,
}

impl<S: Sink> CutDrive<S> {
    /// A drive that will be cut at `point`.
    pub(super) fn new(drive: ServedDrive<S>, point: Point) -> CutDrive<S> {
        CutDrive { drive, state: Mutex::new(State::On(point)), cut: Condvar::new() }
    }

    /// The drive, for what happens before the workload: marks that are put there count nothing.
    pub(super) fn served(&self) -> &ServedDrive<S> {
        &self.drive
    }

    /// Puts a mark of the workload.
    ///
    /// # Errors
    /// The power is off, or the mark can't be recorded.
    pub(super) fn mark(&self, label: &str) -> Result<u64, Refusal> {
        let event = self.drive.mark(label)?;
        let mut state = self.lock();
        match &mut *state {
            State::On(Point { marks: marks @ 1.., .. }) => *marks -= 1,
            _ => self.pass(&mut state),
        }
        Ok(event)
    }

    /// Cuts now, unless that has happened; true: it has happened now.
    pub(super) fn cut_now(&self) -> bool {
        let mut state = self.lock();
        let on = matches!(*state, State::On(_));
        if on {
            self.end(&mut state);
        }
        on
    }

    /// Waits for the cut.
    pub(super) fn wait(&self) {
        let on = |state: &mut State<S>| matches!(state, State::On(_));
        drop(self.cut.wait_while(self.lock(), on).expect("no caller panics while it holds the state"));
    }

    /// The event of the cut and the closed recording, once; none before the cut.
    ///
    /// # Errors
    /// The end could not be recorded.
    pub(super) fn take(&self) -> Option<Result<(u64, S), Refusal>> {
        let mut state = self.lock();
        match std::mem::replace(&mut *state, State::Empty) {
            State::Off(cut) => Some(cut),
            other => {
                *state = other;
                None
            }
        }
    }

    /// An event has passed.
    fn pass(&self, state: &mut MutexGuard<'_, State<S>>) {
        match &mut **state {
            State::On(Point { marks: 0, events: events @ 1.. }) => *events -= 1,
            State::On(Point { marks: 0, events: 0 }) => self.end(state),
            _ => {}
        }
    }

    fn end(&self, state: &mut MutexGuard<'_, State<S>>) {
        **state = State::Off(self.drive.cut());
        self.cut.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State<S>> {
        self.state.lock().expect("no caller panics while it holds the state")
    }
}

impl<S: Sink + 'static> Device for CutDrive<S> {
    fn geometry(&self) -> Geometry {
        self.drive.geometry()
    }

    fn offers(&self) -> Offers {
        self.drive.offers()
    }

    fn receive(&self, request: &Request<'_>) -> Result<Receipt, Refusal> {
        let receipt = self.drive.receive(request)?;
        self.pass(&mut self.lock());
        Ok(receipt)
    }

    fn read(&self, offset: u64, out: &mut [u8]) {
        self.drive.read(offset, out);
    }

    fn reply(&self, receipt: Receipt) -> Result<(), Refusal> {
        self.drive.reply(receipt)?;
        self.pass(&mut self.lock());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use powerfail_drive::event::{Head, Header};
    use powerfail_drive::explore::span;
    use powerfail_drive::history::MOUNTED;
    use powerfail_drive::request::Command;

    #[derive(Debug)]
    struct Memory(Vec<u8>);

    impl Sink for Memory {
        fn append(&mut self, head: &Head, data: &[u8]) -> std::io::Result<()> {
            self.0.extend_from_slice(&head.encode());
            self.0.extend_from_slice(data);
            Ok(())
        }
    }

    fn drive(point: Point) -> CutDrive<Memory> {
        let header = Header::honest(Geometry::new(1 << 20).unwrap(), true);
        CutDrive::new(ServedDrive::new(header, true, Memory(header.encode().to_vec())), point)
    }

    fn write(drive: &CutDrive<Memory>) -> Result<(), Refusal> {
        let request = Request { command: Command::Write, offset: 0, length: 512, fua: false, data: &[1; 512] };
        drive.receive(&request).and_then(|receipt| drive.reply(receipt))
    }

    #[test]
    fn the_cut_lies_where_it_was_drawn_and_all_later_is_refused() {
        for (events, refused_in) in [(0, 3), (1, 4), (2, 4), (3, 5)] {
            let drive = drive(Point { marks: 2, events });
            drive.served().mark(MOUNTED).unwrap();
            write(&drive).unwrap();
            drive.mark("1").unwrap();
            write(&drive).unwrap();
            drive.mark("2").unwrap();
            assert!(drive.take().is_none(), "the power is on");
            let writes = (3..).find(|_| write(&drive).is_err()).unwrap();
            assert_eq!(writes, refused_in, "with {events} events");
            assert!(!drive.cut_now());
            drive.wait();
            assert_eq!(drive.mark("3").unwrap_err(), Refusal::PowerOff);
            let (cut, recording) = drive.take().unwrap().unwrap();
            // Mark, write, mark, write, mark make 7 events; then those that were drawn, and the one that cuts.
            assert_eq!(cut, 7 + events + 1);
            assert_eq!(span(&recording.0).unwrap().last, cut);
            assert!(drive.take().is_none(), "it is given once");
        }
    }

    #[test]
    fn a_workload_that_ends_before_is_cut_at_its_end() {
        let drive = drive(Point { marks: 5, events: 5 });
        drive.served().mark(MOUNTED).unwrap();
        write(&drive).unwrap();
        assert!(drive.cut_now());
        assert!(write(&drive).is_err());
        assert_eq!(drive.take().unwrap().unwrap().0, 3);
    }
}
