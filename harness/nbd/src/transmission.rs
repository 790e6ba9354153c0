//! The transmission phase of one connection: requests in, replies out, in one task.
//!
//! Of the requests that have arrived the first half is handled together and its replies leave in one vectored write, then
//! half of the rest, and so on, down to [`FEW`]; only when none is left the task waits. So a host with many requests under
//! way works on its answers while the server works on the rest. The drive's calls are quick, so nothing is handed to
//! another thread.
//!
//! What is bounded, per connection:
//! - requests in flight: at most [`BATCH`] that were taken in and not yet replied to, and what [`Hold`](crate::Hold)
//!   holds beside them (its depth);
//! - memory: the outbox's limit and one reply (32 MiB), one WRITE that is arriving (64 MiB).
//!
//! A host that leaves, in good order or not, changes nothing but its own connection: no flush, no loss. A WRITE that
//! didn't arrive whole never reaches the drive.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Acquire};
use std::task::Poll;
use std::time::{Duration, Instant};

use powerfail_drive::device::{Device, Receipt};
use powerfail_drive::request::{Command, Request};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Sleep, sleep_until, timeout_at};

use crate::counters::Counters;
use crate::export::Export;
use crate::hold::{Held, Holder};
use crate::inbox::Inbox;
use crate::outbox::{CHUNK, Outbox};
use crate::server::Farewell;
use crate::validate::{Judged, Rules, errno_of};
use crate::wire::{self, Errno, REQUEST_SIZE, ReplyForm, RequestHeader};

/// Most requests that are taken in before the first of them is replied to.
const BATCH: usize = 1024;

/// So few requests are handled together even if that is all of them: with fewer the system calls cost more than the host
/// gains by being answered early.
const FEW: usize = 8;

/// The inbox: several long writes, or many thousand short ones.
const INBOX: usize = 512 << 10;

/// How long a host that is being left may take to read its last replies.
const LAST_REPLIES: Duration = Duration::from_secs(5);

/// A stream whose state can be asked of the system, without waiting for the runtime to hear of it.
pub(crate) trait Wire: AsyncRead + AsyncWrite + Unpin + Send {
    /// Whether nobody is there to read any more, as opposed to a peer that only sends no more.
    fn hung_up(&self) -> bool;

    /// Whether bytes, or the end, have arrived and weren't read.
    fn has_arrivals(&self) -> bool;
}

/// Why the handling of requests paused.
enum Pause {
    /// Bytes are missing: so many are needed at the front of the inbox.
    Need(usize),
    /// There is more to handle, but it is time to send.
    Send,
    /// The host has to read replies first.
    Full,
    /// The host said goodbye.
    Disconnect,
    /// The connection can't go on, and why.
    Sever(&'static str),
}

/// What ended a wait.
enum Wake {
    Arrived,
    Room,
    Time,
    Closed,
    Broken,
    Leave(Farewell),
}

/// What a session has from its server.
pub(crate) struct Terms {
    /// Bytes of replies that may wait for the host to read them.
    pub(crate) queue: usize,
    pub(crate) holder: Option<Holder>,
    pub(crate) counters: Arc<Counters>,
    /// Nothing is answered any more.
    pub(crate) silent: Arc<AtomicBool>,
}

/// One connection.
pub(crate) struct Session<S> {
    stream: S,
    device: Arc<dyn Device>,
    rules: Rules,
    form: ReplyForm,
    inbox: Inbox,
    outbox: Outbox,
    holder: Option<Holder>,
    /// Replies that are staged with a receipt in this batch.
    batch: usize,
    /// A refused WRITE's data, still to be thrown away, and the error that follows it.
    draining: Option<(usize, RequestHeader, Errno, &'static str)>,
    counters: Arc<Counters>,
    silent: Arc<AtomicBool>,
}

impl<S: Wire> Session<S> {
    /// A session on what a negotiation agreed.
    pub(crate) fn new(stream: S, mut inbox: Inbox, export: &Export, structured: bool, terms: Terms) -> Session<S> {
        inbox.set_base(INBOX);
        Session {
            stream,
            device: Arc::clone(export.device()),
            rules: export.rules(structured),
            form: ReplyForm { structured },
            inbox,
            outbox: Outbox::new(terms.queue),
            holder: terms.holder,
            batch: 0,
            draining: None,
            counters: terms.counters,
            silent: terms.silent,
        }
    }

    /// Serves until the host is gone or `leave` says so.
    pub(crate) async fn run(mut self, leave: impl Future<Output = Farewell>) {
        let mut leave = std::pin::pin!(leave);
        // Once the server says farewell: when it stops waiting for this host.
        let mut leaving = None;
        let mut timer = None;
        loop {
            self.release_overdue();
            let pause = self.handle();
            self.commit();
            // After the commit: if the drive has lost its power on the way, these replies say so and must not be seen.
            if self.silent.load(Acquire) {
                return self.keep_silent(leave, leaving).await;
            }
            match pause {
                Pause::Sever(why) => return self.counters.severed(why),
                Pause::Disconnect => return self.finish(leave, leaving).await,
                // A host that always has one more request is not to keep the server for ever.
                _ if leaving.is_some_and(|end| Instant::now() >= end) => return,
                Pause::Need(_) | Pause::Send | Pause::Full => {}
            }
            match self.wait(&pause, &mut timer, leave.as_mut(), leaving).await {
                Wake::Arrived | Wake::Room | Wake::Time => {}
                Wake::Broken | Wake::Leave(Farewell::Drop) => return,
                Wake::Closed => return self.finish(leave, leaving).await,
                // What the host has already sent is still answered, and nothing is held any more.
                Wake::Leave(Farewell::Answer) => {
                    leaving = Some(Instant::now() + LAST_REPLIES);
                    self.release_all();
                    self.holder = None;
                }
            }
        }
    }

    /// Handles what has arrived.
    fn handle(&mut self) -> Pause {
        let (mut requests, mut refused) = (0, 0);
        let half = self.inbox.bytes().len() / 2;
        let pause = loop {
            if self.outbox.is_full() {
                break Pause::Full;
            }
            let enough = if self.inbox.bytes().len() <= half { FEW } else { BATCH };
            if self.batch >= enough || self.outbox.staged_bytes() >= CHUNK / 2 {
                break Pause::Send;
            }
            if let Some((left, header, errno, reason)) = self.draining.take() {
                let here = left.min(self.inbox.bytes().len());
                self.inbox.consume(here);
                if here < left {
                    self.draining = Some((left - here, header, errno, reason));
                    break Pause::Need(1);
                }
                self.refuse(&header, errno, reason);
                continue;
            }
            let Some(header) = RequestHeader::parse(self.inbox.bytes()) else { break Pause::Need(REQUEST_SIZE) };
            let judged = self.rules.judge(&header);
            let data = if header.command == wire::CMD_WRITE { header.length as usize } else { 0 };
            let whole = REQUEST_SIZE + data;
            match judged {
                Judged::Sever(why) => break Pause::Sever(why),
                Judged::Disconnect => break Pause::Disconnect,
                Judged::Ask { .. } if self.inbox.bytes().len() < whole => break Pause::Need(whole),
                _ => {}
            }
            requests += 1;
            self.release_ripe();
            match judged {
                Judged::Ask { command, fua } => {
                    refused += u64::from(!self.ask(&header, command, fua));
                    self.inbox.consume(whole);
                }
                Judged::Refuse(errno, reason) => {
                    self.inbox.consume(REQUEST_SIZE);
                    self.draining = Some((data, header, errno, reason));
                    refused += 1;
                }
                _ => {
                    self.inbox.consume(REQUEST_SIZE);
                    self.succeed(None, header.cookie, header.command);
                }
            }
        };
        self.counters.add(requests, refused);
        pause
    }

    /// Asks the drive. `false`: it refused, and the host is told.
    fn ask(&mut self, header: &RequestHeader, command: Command, fua: bool) -> bool {
        let (offset, length) = (header.offset, u64::from(header.length));
        let data = match command {
            Command::Write => &self.inbox.bytes()[REQUEST_SIZE..][..header.length as usize],
            _ => &[],
        };
        let receipt = match self.device.receive(&Request { command, offset, length, fua, data }) {
            Ok(receipt) => receipt,
            Err(refusal) => {
                self.refuse(header, errno_of(refusal, header.command), &refusal.to_string());
                return false;
            }
        };
        match command {
            Command::Read => self.answer_read(receipt, header),
            Command::Cache => self.succeed(Some(receipt), header.cookie, header.command),
            Command::Write | Command::Trim | Command::WriteZeroes | Command::Flush => {
                let held = Held { receipt, cookie: header.cookie, command: header.command };
                let now = match &mut self.holder {
                    Some(holder) => holder.keep(held, Instant::now()),
                    None => Some(held),
                };
                now.into_iter().for_each(|held| self.pay(held));
            }
        }
        true
    }

    fn answer_read(&mut self, receipt: Receipt, header: &RequestHeader) {
        let front = self.form.data_header_size();
        let owed = Some((receipt, header.cookie, header.command));
        self.make_room(front + header.length as usize);
        self.batch += 1;
        let out = self.outbox.stage(front + header.length as usize, owed);
        self.form.put_data_header(out, header.cookie, header.offset, header.length);
        self.device.read(header.offset, &mut out[front..]);
    }

    fn succeed(&mut self, receipt: Option<Receipt>, cookie: u64, command: u16) {
        let form = self.form;
        let owed = receipt.map(|receipt| (receipt, cookie, command));
        form.put_success(self.stage(form.success_size(command), owed), cookie);
    }

    fn pay(&mut self, held: Held) {
        self.succeed(Some(held.receipt), held.cookie, held.command);
    }

    fn refuse(&mut self, header: &RequestHeader, errno: Errno, reason: &str) {
        let reply = self.form.failure(header.cookie, errno, reason);
        self.stage(reply.len(), None).copy_from_slice(&reply);
    }

    fn stage(&mut self, size: usize, owed: Option<(Receipt, u64, u16)>) -> &mut [u8] {
        self.make_room(size);
        self.batch += usize::from(owed.is_some());
        self.outbox.stage(size, owed)
    }

    fn make_room(&mut self, size: usize) {
        if !self.outbox.fits(size) {
            self.commit();
            self.outbox.make_room(size);
        }
    }

    /// The staged replies go out: the drive is told of each just before.
    fn commit(&mut self) {
        let (device, form) = (&self.device, self.form);
        let failures = self.outbox.commit(
            |receipt| device.reply(receipt),
            |cookie, command, refusal| form.failure(cookie, errno_of(refusal, command), &refusal.to_string()),
        );
        self.batch = 0;
        if failures > 0 {
            self.counters.add(0, failures);
        }
    }

    fn release_ripe(&mut self) {
        if let Some(holder) = &mut self.holder {
            holder.arrived();
            while let Some(held) = self.holder.as_mut().and_then(Holder::ripe) {
                self.pay(held);
            }
        }
    }

    fn release_overdue(&mut self) {
        if self.holder.is_none() {
            return;
        }
        let now = Instant::now();
        while let Some(held) = self.holder.as_mut().and_then(|holder| holder.overdue(now)) {
            self.pay(held);
        }
    }

    fn release_all(&mut self) {
        while let Some(held) = self.holder.as_mut().and_then(Holder::any) {
            self.pay(held);
        }
    }

    /// Sends what may be sent, then waits for something to do.
    async fn wait(
        &mut self,
        pause: &Pause,
        timer: &mut Option<Pin<Box<Sleep>>>,
        mut leave: Pin<&mut impl Future<Output = Farewell>>,
        leaving: Option<Instant>,
    ) -> Wake {
        let until = leaving.or_else(|| self.holder.as_ref().and_then(Holder::next_time));
        if let Some(until) = until {
            let until = until.into();
            let timer = timer.get_or_insert_with(|| Box::pin(sleep_until(until)));
            if timer.deadline() != until {
                timer.as_mut().reset(until);
            }
        }
        poll_fn(|cx| {
            // First, or a host that always has something to say would never let the server go.
            if leaving.is_none()
                && let Poll::Ready(farewell) = leave.as_mut().poll(cx)
            {
                return Poll::Ready(Wake::Leave(farewell));
            }
            let mut sent = false;
            while !self.outbox.is_empty() {
                match self.outbox.poll_send(cx, Pin::new(&mut self.stream)) {
                    Poll::Ready(Ok(())) => sent = true,
                    Poll::Ready(Err(_)) => return Poll::Ready(Wake::Broken),
                    Poll::Pending => break,
                }
            }
            match *pause {
                Pause::Send => return Poll::Ready(Wake::Room),
                Pause::Need(need) => match self.inbox.poll_fill(cx, need, Pin::new(&mut self.stream)) {
                    Poll::Ready(Ok(0)) => return Poll::Ready(Wake::Closed),
                    Poll::Ready(Ok(_)) => return Poll::Ready(Wake::Arrived),
                    Poll::Ready(Err(_)) => return Poll::Ready(Wake::Broken),
                    Poll::Pending if leaving.is_some() && !self.stream.has_arrivals() => {
                        return Poll::Ready(Wake::Closed);
                    }
                    Poll::Pending => {}
                },
                _ if sent => return Poll::Ready(Wake::Room),
                _ => {}
            }
            match timer {
                Some(timer) if until.is_some() => timer.as_mut().poll(cx).map(|()| Wake::Time),
                _ => Poll::Pending,
            }
        })
        .await
    }

    /// Neither reads nor sends until the server leaves.
    async fn keep_silent(self, leave: Pin<&mut impl Future<Output = Farewell>>, leaving: Option<Instant>) {
        if leaving.is_none() {
            leave.await;
        }
    }

    /// Answers what is outstanding, if there is still somebody to answer, and closes.
    async fn finish(mut self, mut leave: Pin<&mut impl Future<Output = Farewell>>, leaving: Option<Instant>) {
        if self.stream.hung_up() {
            return;
        }
        self.release_all();
        self.commit();
        if self.silent.load(Acquire) {
            return self.keep_silent(leave, leaving).await;
        }
        let end = leaving.unwrap_or_else(|| Instant::now() + LAST_REPLIES);
        let mut told = leaving.is_some();
        let last = poll_fn(|cx| {
            if !told {
                match leave.as_mut().poll(cx) {
                    Poll::Ready(Farewell::Drop) => return Poll::Ready(()),
                    Poll::Ready(Farewell::Answer) => told = true,
                    Poll::Pending => {}
                }
            }
            while !self.outbox.is_empty() {
                match self.outbox.poll_send(cx, Pin::new(&mut self.stream)) {
                    Poll::Ready(Ok(())) => {}
                    Poll::Ready(Err(_)) => return Poll::Ready(()),
                    Poll::Pending => return Poll::Pending,
                }
            }
            Pin::new(&mut self.stream).poll_shutdown(cx).map(drop)
        });
        // A host that doesn't read its last replies loses nothing but them.
        let _ = timeout_at(end.into(), last).await;
    }
}

/// However a session ends, by a farewell, by an error or by being aborted: what it still owes is never paid.
impl<S> Drop for Session<S> {
    fn drop(&mut self) {
        self.outbox.abandon();
        while let Some(held) = self.holder.as_mut().and_then(Holder::any) {
            held.receipt.abandon();
        }
    }
}
