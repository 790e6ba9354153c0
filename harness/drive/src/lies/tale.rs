//! The events of a recording, to be changed and written down again.

use std::collections::HashMap;
use std::ops::Range;

use super::Liar;
use crate::event::{HEAD, Head, Header, What};
use crate::history::{MOUNTED, WORKLOAD_END};
use crate::recording::{ReadError, Reader};
use crate::request::{Command, Geometry};

/// One event. Numbers are given anew when the tale is written; until then an event is known by its `id`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// Its number in the honest recording, or a larger one if it was made up.
    pub id: u64,
    /// What happened; the receipt of a reply is an `id`.
    pub what: What,
    /// Where its data stands in the honest recording.
    data: Range<usize>,
    data_crc: u32,
}

/// The events in turn.
#[derive(Clone, Debug)]
pub struct Tale {
    header: Header,
    /// All events but the end.
    pub events: Vec<Told>,
    /// Which of them a lie may touch, by place: those from the mark `mounted` to the mark `workload-end`.
    pub span: Range<usize>,
    next_id: u64,
}

impl Tale {
    /// Reads the events of a recording in memory.
    ///
    /// # Errors
    /// If it is damaged.
    pub fn read(honest: &[u8]) -> Result<Tale, ReadError> {
        let mut reader = Reader::new(honest, false)?;
        let header = reader.header();
        let mut events = Vec::new();
        let (mut first, mut last) = (0, None);
        while let Some(entry) = reader.next()? {
            let at = entry.data_at as usize;
            if entry.head.what == What::Mark {
                match std::str::from_utf8(reader.data()) {
                    Ok(MOUNTED) => first = events.len() + 1,
                    Ok(WORKLOAD_END) => last = Some(events.len()),
                    _ => {}
                }
            }
            events.push(Told {
                id: entry.head.event,
                what: entry.head.what,
                data: at..at + entry.head.data_len as usize,
                data_crc: entry.head.data_crc,
            });
        }
        let last = last.unwrap_or(events.len()).max(first);
        let next_id = events.len() as u64;
        Ok(Tale { header, events, span: first..last, next_id })
    }

    /// What the honest recording is of.
    pub fn header(&self) -> Header {
        self.header
    }

    /// The drive's size.
    pub fn geometry(&self) -> Geometry {
        self.header.geometry
    }

    /// An event that never was.
    pub fn made_up(&mut self, what: What) -> Told {
        self.next_id += 1;
        Told { id: self.next_id, what, data: 0..0, data_crc: 0 }
    }

    /// Makes every event within the span anew: what `each` leaves of it.
    pub fn keep(&mut self, mut each: impl FnMut(&mut Told) -> bool) {
        let mut at = 0;
        let span = self.span.clone();
        let mut kept_in_span = 0;
        self.events.retain_mut(|event| {
            let inside = span.contains(&at);
            at += 1;
            let keep = !inside || each(event);
            kept_in_span += usize::from(inside && keep);
            keep
        });
        self.span = span.start..span.start + kept_in_span;
    }

    /// The recording that has these events.
    pub(super) fn write(&self, honest: &[u8], liar: Liar) -> Vec<u8> {
        let mut bytes = Header { lie: Some(liar), ..self.header }.encode().to_vec();
        let mut numbers: HashMap<u64, u64> = HashMap::new();
        let mut next = 0;
        for event in &self.events {
            let what = match event.what {
                What::Replied { receipt } => match numbers.get(&receipt) {
                    Some(&receipt) => What::Replied { receipt },
                    // The request is not there any more, so nobody replied to it.
                    None => continue,
                },
                other => other,
            };
            numbers.insert(event.id, next);
            let data = &honest[event.data.clone()];
            let head = Head { event: next, what, data_len: data.len() as u32, data_crc: event.data_crc };
            bytes.reserve(HEAD + data.len());
            bytes.extend_from_slice(&head.encode());
            bytes.extend_from_slice(data);
            next += 1;
        }
        bytes.extend_from_slice(&Head { event: next, what: What::End, data_len: 0, data_crc: 0 }.encode());
        bytes
    }
}

impl Told {
    /// Whether it is the receipt of such a request.
    pub fn is(&self, command: Command) -> bool {
        matches!(self.what, What::Received { command: received, .. } if received == command)
    }
}
