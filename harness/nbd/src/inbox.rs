//! Bytes that arrived and weren't handled yet: one buffer, read into with large reads, so that many small requests cost
//! one system call. It grows with what really arrives, never with what a header announces, and gives memory back when
//! a long request is done.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};

/// A buffer that a long request made larger than this isn't kept.
const KEEP: usize = 4 << 20;

/// A partial request as short as this is moved to the front to make room for a large read; a longer one stays.
const CHEAP_MOVE: usize = 4096;

#[derive(Debug)]
pub(crate) struct Inbox {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    base: usize,
}

impl Inbox {
    /// An inbox whose buffer has `base` bytes, once it has any.
    pub(crate) fn new(base: usize) -> Inbox {
        Inbox { buffer: Vec::new(), start: 0, end: 0, base }
    }

    /// Changes the size that the buffer has unless more is needed.
    pub(crate) fn set_base(&mut self, base: usize) {
        self.base = base;
    }

    /// What arrived.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    pub(crate) fn consume(&mut self, count: usize) {
        assert!(count <= self.end - self.start, "only what has arrived can be consumed");
        self.start += count;
    }

    /// Reads once, on the way to `need` bytes in all. `Ok(0)`: the peer will send no more.
    pub(crate) fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        need: usize,
        stream: Pin<&mut impl AsyncRead>,
    ) -> Poll<io::Result<usize>> {
        self.make_room(need);
        let mut space = ReadBuf::new(&mut self.buffer[self.end..]);
        ready!(stream.poll_read(cx, &mut space))?;
        let count = space.filled().len();
        self.end += count;
        Poll::Ready(Ok(count))
    }

    /// Reads until `need` bytes are there; an early end is an error.
    pub(crate) async fn fill(&mut self, need: usize, stream: &mut (impl AsyncRead + Unpin)) -> io::Result<()> {
        while self.bytes().len() < need {
            if std::future::poll_fn(|cx| self.poll_fill(cx, need, Pin::new(stream))).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(())
    }

    /// Leaves room behind the end for at least one byte, and for what is missing of `need` if that is already cheap.
    fn make_room(&mut self, need: usize) {
        let have = self.end - self.start;
        if have == 0 {
            self.start = 0;
            self.end = 0;
            if self.buffer.len() > KEEP && self.buffer.len() > need {
                self.buffer = Vec::new();
            }
        }
        if self.buffer.len() < self.base {
            self.buffer.resize(self.base, 0);
        }
        let fits = self.start + need <= self.buffer.len();
        let little_room = self.buffer.len() - self.end < self.buffer.len() / 4;
        if self.start > 0 && (!fits || (little_room && have <= CHEAP_MOVE)) {
            self.buffer.copy_within(self.start..self.end, 0);
            self.start = 0;
            self.end = have;
        }
        if self.end == self.buffer.len() {
            let larger = need.max(self.buffer.len() + 1).min(self.buffer.len() * 2);
            self.buffer.resize(larger, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now(inbox: &mut Inbox, need: usize, mut source: &[u8]) -> usize {
        let mut cx = Context::from_waker(std::task::Waker::noop());
        match inbox.poll_fill(&mut cx, need, Pin::new(&mut source)) {
            Poll::Ready(Ok(count)) => count,
            other => panic!("a slice always gives: {other:?}"),
        }
    }

    #[test]
    fn memory_follows_what_arrives_and_not_what_is_announced() {
        let mut inbox = Inbox::new(64);
        now(&mut inbox, 64 << 20, &[1; 50]);
        assert_eq!(inbox.buffer.len(), 64);
        now(&mut inbox, 64 << 20, &[2; 50]);
        now(&mut inbox, 64 << 20, &[2; 50]);
        assert!(inbox.buffer.len() <= 128);
    }

    #[test]
    fn bytes_keep_their_order_over_moves_and_growth() {
        let mut inbox = Inbox::new(16);
        let (mut sent, mut got) = (0u32, 0u32);
        for round in 0..2000usize {
            let count = round as u32 % 23 + 1;
            let chunk: Vec<u8> = (sent..sent + count).map(|number| (number % 251) as u8).collect();
            sent += count;
            let mut rest = &chunk[..];
            while !rest.is_empty() {
                let count = now(&mut inbox, round % 40, rest);
                rest = &rest[count..];
            }
            let take = inbox.bytes().len().min(round % 29);
            for byte in &inbox.bytes()[..take] {
                assert_eq!(u32::from(*byte), got % 251);
                got += 1;
            }
            inbox.consume(take);
        }
        assert!(got > 10_000);
    }

    #[test]
    fn a_long_request_does_not_keep_its_memory() {
        let mut inbox = Inbox::new(1024);
        let long = vec![7; 9 << 20];
        while inbox.bytes().len() < long.len() {
            let at = inbox.bytes().len();
            now(&mut inbox, long.len(), &long[at..]);
        }
        inbox.consume(long.len());
        now(&mut inbox, 28, &[1]);
        assert_eq!(inbox.buffer.len(), 1024);
    }
}
