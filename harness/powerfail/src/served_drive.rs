//! The drive behind its lock, as the server serves it: the one place where the order of events is decided.

use std::sync::Mutex;

use powerfail_drive::device::{Device, Offers, Receipt};
use powerfail_drive::event::Header;
use powerfail_drive::history::WORKLOAD_END;
use powerfail_drive::live::{Drive, Sink};
use powerfail_drive::request::{Geometry, Refusal, Request};

/// A drive that a server serves and a harness marks.
#[derive(Debug)]
pub struct ServedDrive<S> {
    geometry: Geometry,
    offers: Offers,
    drive: Mutex<Option<Drive<S>>>,
}

impl<S: Sink> ServedDrive<S> {
    /// A drive that reads as zeroes. Without a write cache it offers neither FLUSH nor FUA: the kernel then sees a
    /// drive that writes through. With one, and without `offers_flush`, the kernel sees the same and is wrong.
    pub fn new(header: Header, offers_flush: bool, sink: S) -> ServedDrive<S> {
        let flush = header.write_cache && offers_flush;
        let offers = Offers { flush, fua: flush, ..Offers::ALL };
        let drive = Mutex::new(Some(Drive::new(header.geometry, sink)));
        ServedDrive { geometry: header.geometry, offers, drive }
    }

    /// Puts a mark in the recording.
    ///
    /// # Errors
    /// If it can't be recorded, or the recording is closed.
    pub fn mark(&self, label: &str) -> Result<u64, Refusal> {
        self.with(|drive| drive.mark(label))
    }

    /// Closes the recording; from now on every request is refused. Gives the sink back.
    ///
    /// # Errors
    /// If the end can't be recorded, or it was closed before.
    pub fn close(&self) -> Result<S, Refusal> {
        let drive = self.lock().take().ok_or(Refusal::PowerOff)?;
        drive.close()
    }

    /// The power fails: from this instant on every request and every reply is refused, on all connections. The mark
    /// `workload-end` stands at the cut. Gives the number of that event, and the sink back.
    ///
    /// # Errors
    /// If the end can't be recorded, or the power was off before.
    pub fn cut(&self) -> Result<(u64, S), Refusal> {
        let mut drive = self.lock().take().ok_or(Refusal::PowerOff)?;
        let cut = drive.mark(WORKLOAD_END)?;
        Ok((cut, drive.close()?))
    }

    /// What a host reads now: all pages that were written, as (byte offset, contents), in order. None without power.
    pub fn contents(&self) -> Option<Vec<(u64, Box<[u8]>)>> {
        let copy = |drive: &Drive<S>| drive.pages().iter().map(|(at, page)| (at, page.into())).collect();
        let mut pages: Vec<(u64, Box<[u8]>)> = self.lock().as_ref().map(copy)?;
        pages.sort_unstable_by_key(|(at, _)| *at);
        Some(pages)
    }

    fn with<T>(&self, act: impl FnOnce(&mut Drive<S>) -> Result<T, Refusal>) -> Result<T, Refusal> {
        self.lock().as_mut().map_or(Err(Refusal::PowerOff), act)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Drive<S>>> {
        self.drive.lock().expect("no caller panics while it holds the drive")
    }
}

impl<S: Sink + 'static> Device for ServedDrive<S> {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn offers(&self) -> Offers {
        self.offers
    }

    fn receive(&self, request: &Request<'_>) -> Result<Receipt, Refusal> {
        // The checksum is most of the work on a request and needs no order.
        let data_crc = crc32c::crc32c(request.data);
        self.with(|drive| drive.receive(request, data_crc)).map(Receipt::for_event)
    }

    fn read(&self, offset: u64, out: &mut [u8]) {
        match self.lock().as_ref() {
            Some(drive) => drive.pages().read(offset, out),
            None => out.fill(0),
        }
    }

    fn reply(&self, receipt: Receipt) -> Result<(), Refusal> {
        self.with(|drive| drive.reply(receipt.event()).map(|_| ()))
    }
}
