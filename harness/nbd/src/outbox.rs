//! Replies on their way to the host. A reply is first *staged*: its bytes are in place, its receipt is still owed. Then a
//! whole batch is *committed*: each receipt is passed to the drive, and from then on the bytes may reach the host. So
//! requests that were taken in together are in flight together, and no reply can be seen before the drive knows of it.
//!
//! A host that doesn't read its replies makes the outbox full at `limit` bytes of memory; then its requests are no
//! longer read until it has taken some. 64 MiB, the default, are 200 reads of 256 KiB or four million writes; a host
//! that wants more answers than that before it reads one waits for itself. The limit is passed by at most one reply.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use powerfail_drive::device::Receipt;
use powerfail_drive::request::Refusal;
use tokio::io::AsyncWrite;

/// The usual size of a chunk. Replies are sent as soon as a chunk's worth is there.
pub(crate) const CHUNK: usize = 256 << 10;

/// Most chunks that go into one vectored write.
const SLICES: usize = 16;

/// A reply whose bytes are in place but not yet to be seen.
#[derive(Debug)]
struct Staged {
    receipt: Receipt,
    cookie: u64,
    command: u16,
    start: usize,
    end: usize,
}

/// `start..committed` may be sent, `committed..staged` not yet.
#[derive(Debug)]
struct Chunk {
    buffer: Vec<u8>,
    start: usize,
    committed: usize,
    staged: usize,
}

#[derive(Debug)]
pub(crate) struct Outbox {
    chunks: VecDeque<Chunk>,
    /// Replies in the last chunk that are staged and have a receipt, in order.
    staged: Vec<Staged>,
    /// An emptied chunk of the usual size, for the next need.
    spare: Option<Vec<u8>>,
    /// Memory of all chunks, sent bytes included: what the limit is about.
    memory: usize,
    limit: usize,
}

impl Outbox {
    pub(crate) fn new(limit: usize) -> Outbox {
        Outbox { chunks: VecDeque::new(), staged: Vec::new(), spare: None, memory: 0, limit }
    }

    /// Nothing more should be staged until the host has read something.
    pub(crate) fn is_full(&self) -> bool {
        self.memory >= self.limit
    }

    /// Whether nothing is left to send.
    pub(crate) fn is_empty(&self) -> bool {
        self.chunks.iter().all(|chunk| chunk.start == chunk.committed)
    }

    /// Whether `size` more bytes can be staged beside those that are.
    pub(crate) fn fits(&self, size: usize) -> bool {
        self.chunks.back().is_some_and(|chunk| chunk.buffer.len() - chunk.staged >= size)
    }

    /// Makes room for `size` bytes. All that was staged must have been committed.
    pub(crate) fn make_room(&mut self, size: usize) {
        assert!(self.staged.is_empty(), "staged replies are all in the last chunk");
        let spare = self.spare.take().filter(|buffer| buffer.len() >= size);
        let buffer = spare.unwrap_or_else(|| vec![0; size.max(CHUNK)]);
        self.memory += buffer.len();
        self.chunks.push_back(Chunk { buffer, start: 0, committed: 0, staged: 0 });
    }

    /// Stages a reply of `size` bytes, for which there must be room, and gives the place for them; the caller fills all
    /// of it, since it holds old bytes.
    pub(crate) fn stage(&mut self, size: usize, owed: Option<(Receipt, u64, u16)>) -> &mut [u8] {
        let chunk = self.chunks.back_mut().expect("there is room");
        let (start, end) = (chunk.staged, chunk.staged + size);
        chunk.staged = end;
        if let Some((receipt, cookie, command)) = owed {
            self.staged.push(Staged { receipt, cookie, command, start, end });
        }
        &mut chunk.buffer[start..end]
    }

    /// Bytes that are staged.
    pub(crate) fn staged_bytes(&self) -> usize {
        self.chunks.back().map_or(0, |chunk| chunk.staged - chunk.committed)
    }

    /// Lets the staged replies go: `reply` is called for each receipt in order, and where it fails the reply is replaced
    /// by what `failure` makes of its cookie, command and refusal. Gives the number of failures.
    pub(crate) fn commit(
        &mut self,
        mut reply: impl FnMut(Receipt) -> Result<(), Refusal>,
        failure: impl Fn(u64, u16, Refusal) -> Vec<u8>,
    ) -> u64 {
        let Some(chunk) = self.chunks.back_mut() else { return 0 };
        // Only if a reply fails is the batch written anew: into `anew`, up to the byte `copied` of the chunk.
        let (mut anew, mut copied, mut failures) = (Vec::new(), chunk.committed, 0);
        for staged in self.staged.drain(..) {
            if let Err(refusal) = reply(staged.receipt) {
                anew.extend_from_slice(&chunk.buffer[copied..staged.start]);
                anew.extend_from_slice(&failure(staged.cookie, staged.command, refusal));
                copied = staged.end;
                failures += 1;
            }
        }
        if failures == 0 {
            chunk.committed = chunk.staged;
            return 0;
        }
        anew.extend_from_slice(&chunk.buffer[copied..chunk.staged]);
        chunk.staged = chunk.committed;
        self.memory += anew.len();
        self.chunks.push_back(Chunk { start: 0, committed: anew.len(), staged: anew.len(), buffer: anew });
        failures
    }

    /// Sends once; call while not empty. Staged replies stay where they are.
    pub(crate) fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        stream: Pin<&mut impl AsyncWrite>,
    ) -> Poll<io::Result<()>> {
        let mut slices = [IoSlice::new(&[]); SLICES];
        let mut count = 0;
        for chunk in self.chunks.iter().filter(|chunk| chunk.start < chunk.committed).take(SLICES) {
            slices[count] = IoSlice::new(&chunk.buffer[chunk.start..chunk.committed]);
            count += 1;
        }
        let sent = ready!(stream.poll_write_vectored(cx, &slices[..count]))?;
        if sent == 0 && count > 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        self.advance(sent);
        Poll::Ready(Ok(()))
    }

    fn advance(&mut self, mut sent: usize) {
        while let Some(chunk) = self.chunks.front_mut() {
            let here = sent.min(chunk.committed - chunk.start);
            chunk.start += here;
            sent -= here;
            if chunk.start < chunk.committed || chunk.staged > chunk.committed {
                break;
            }
            if self.chunks.len() == 1 && self.chunks[0].buffer.len() == CHUNK {
                // The last chunk stays for the next batch.
                let chunk = &mut self.chunks[0];
                (chunk.start, chunk.committed, chunk.staged) = (0, 0, 0);
                break;
            }
            let chunk = self.chunks.pop_front().expect("it was the front");
            self.memory -= chunk.buffer.len();
            if chunk.buffer.len() == CHUNK {
                self.spare = Some(chunk.buffer);
            }
        }
        assert_eq!(sent, 0, "only committed bytes are sent");
    }

    /// The host is gone: nothing that is owed will be paid.
    pub(crate) fn abandon(&mut self) {
        self.staged.drain(..).for_each(|staged| staged.receipt.abandon());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(outbox: &mut Outbox, bytes: &[u8], receipt: Option<u64>) {
        if !outbox.fits(bytes.len()) {
            commit(outbox, &[]);
            outbox.make_room(bytes.len());
        }
        let owed = receipt.map(|event| (Receipt::for_event(event), event, 0));
        outbox.stage(bytes.len(), owed).copy_from_slice(bytes);
    }

    fn commit(outbox: &mut Outbox, failing: &[u64]) -> u64 {
        let reply = |receipt: Receipt| match failing.contains(&receipt.event()) {
            true => Err(Refusal::PowerOff),
            false => Ok(()),
        };
        outbox.commit(reply, |cookie, _, _| format!("<{cookie} failed>").into_bytes())
    }

    fn sent(outbox: &mut Outbox) -> Vec<u8> {
        let mut out = Vec::new();
        let mut cx = Context::from_waker(std::task::Waker::noop());
        while !outbox.is_empty() {
            assert!(outbox.poll_send(&mut cx, Pin::new(&mut out)).is_ready());
        }
        out
    }

    #[test]
    fn staged_bytes_are_not_sent_before_they_are_committed() {
        let mut outbox = Outbox::new(1 << 20);
        put(&mut outbox, b"one", Some(1));
        assert!(outbox.is_empty());
        commit(&mut outbox, &[]);
        put(&mut outbox, b"two", Some(2));
        assert_eq!(sent(&mut outbox), b"one");
        commit(&mut outbox, &[]);
        assert_eq!(sent(&mut outbox), b"two");
    }

    #[test]
    fn a_failed_reply_is_replaced_and_its_neighbours_are_not() {
        let mut outbox = Outbox::new(1 << 20);
        for (text, receipt) in [("a", Some(1)), ("b", Some(2)), ("c", None), ("d", Some(4)), ("e", Some(5))] {
            put(&mut outbox, text.as_bytes(), receipt);
        }
        assert_eq!(commit(&mut outbox, &[2, 5]), 2);
        assert_eq!(sent(&mut outbox), b"a<2 failed>cd<5 failed>");
        put(&mut outbox, b"after", Some(6));
        commit(&mut outbox, &[]);
        assert_eq!(sent(&mut outbox), b"after");
    }

    #[test]
    fn memory_is_bounded_by_the_limit_and_one_reply_and_comes_back() {
        let mut outbox = Outbox::new(1 << 20);
        let (small, large) = (vec![1; 16], vec![2; CHUNK + 100]);
        let mut expected = Vec::new();
        while !outbox.is_full() {
            for reply in [&small, &large] {
                put(&mut outbox, reply, Some(1));
                expected.extend_from_slice(reply);
            }
        }
        commit(&mut outbox, &[]);
        assert!(outbox.memory <= (1 << 20) + CHUNK + large.len());
        assert_eq!(sent(&mut outbox), expected);
        assert!(outbox.memory <= CHUNK);
    }
}
