//! What a recording holds, without its data: the requests that write or flush, and where cuts may lie.
//!
//! It is read once for a plan, however many states that has; explorers aim by it.

use super::{PlanError, Span};
use crate::cache::Description;
use crate::event::What;
use crate::history::{History, MOUNTED, WORKLOAD_END};
use crate::recording::{Reader, Tail};
use crate::request::Command;
use crate::units::{AtomicUnit, Lba, Sectors};

/// A request that writes or flushes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Op {
    /// The event of its receipt.
    pub receipt: u64,
    /// The event of its reply, if there is one.
    pub replied: Option<u64>,
    /// Its command.
    pub command: Command,
    /// First sector.
    pub lba: Lba,
    /// Length.
    pub sectors: Sectors,
    /// It carried FUA.
    pub fua: bool,
    /// Byte of the recording at which its data begins.
    pub data_at: u64,
    /// The last cut at which rules 2 and 3 still leave it loose, if it ever settles; a cache that is full may settle it
    /// earlier, and a later write may hide it.
    pub loose_until: Option<u64>,
}

/// The requests of a recording, and its parts.
#[derive(Clone, Debug)]
pub struct Outline {
    ops: Vec<Op>,
    span: Span,
    end: u64,
    unit: AtomicUnit,
    /// How many fragments are loose at a cut at each event.
    loose: Vec<u32>,
}

impl Outline {
    /// Reads a recording for a drive, and checks every checksum on the way.
    ///
    /// # Errors
    /// If the recording is damaged, was not closed, or lacks a mark.
    pub fn of(recording: &[u8], drive: Description) -> Result<Outline, PlanError> {
        let mut reader = Reader::new(recording, true)?;
        let write_cache = reader.header().write_cache;
        let mut history = History::new(reader.header(), drive);
        let mut marks = Marks::default();
        let (mut ops, mut loose) = (Vec::<Op>::new(), vec![0]);
        while let Some(entry) = reader.next()? {
            let event = entry.head.event;
            let label = (entry.head.what == What::Mark).then(|| String::from_utf8_lossy(reader.data()));
            marks.see(event, label.as_deref());
            history.apply(&entry, label.as_deref());
            loose.push(u32::try_from(history.loose_fragments()).unwrap_or(u32::MAX));
            match entry.head.what {
                What::Received { command, lba, sectors, fua } if command.writes() || command == Command::Flush => {
                    let (data_at, loose_until) = (entry.data_at, None);
                    ops.push(Op { receipt: event, replied: None, command, lba, sectors, fua, data_at, loose_until });
                }
                What::Replied { receipt } => {
                    if let Ok(at) = ops.binary_search_by_key(&receipt, |op| op.receipt) {
                        ops[at].replied = Some(event);
                    }
                }
                What::Received { .. } | What::Mark | What::End => {}
            }
        }
        if reader.tail() != Some(Tail::Closed) {
            return Err(PlanError::Torn);
        }
        settle_times(&mut ops, write_cache);
        let end = loose.len() as u64 - 1;
        Ok(Outline { ops, span: marks.span()?, end, unit: drive.unit, loose })
    }

    /// The requests that write or flush, in the order of their receipt.
    pub fn ops(&self) -> &[Op] {
        &self.ops
    }

    /// The request that was received at an event.
    pub fn op(&self, receipt: u64) -> Option<&Op> {
        self.ops.binary_search_by_key(&receipt, |op| op.receipt).ok().map(|at| &self.ops[at])
    }

    /// Where cuts of the workload lie.
    pub fn span(&self) -> Span {
        self.span
    }

    /// The cut behind the last event.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// The drive's atomic unit.
    pub fn unit(&self) -> AtomicUnit {
        self.unit
    }

    /// How many fragments are loose at a cut.
    pub fn loose_at(&self, cut: u64) -> u32 {
        self.loose[cut as usize]
    }

    /// The cuts of the workload at which an operation was received and is still loose. Where nothing ever settles it,
    /// its first events, as its cache may soon destage it.
    pub fn window(&self, op: &Op) -> Option<Span> {
        let last = op.loose_until.unwrap_or(op.receipt + UNSETTLED).min(self.span.last);
        let first = (op.receipt + 1).max(self.span.first);
        (first <= last).then_some(Span { first, last })
    }
}

/// For how many events after its receipt a write that no flush ever covers is aimed at.
const UNSETTLED: u64 = 256;

/// Fills in until when each write is loose, from the definition: a flush that was received after its reply, or FUA, or no
/// cache.
fn settle_times(ops: &mut [Op], write_cache: bool) {
    // Of all flushes received later, the earliest reply; flushes overlap, so that need not be the next one's.
    let mut flushes: Vec<(u64, u64)> = ops
        .iter()
        .filter(|op| op.command == Command::Flush)
        .filter_map(|op| op.replied.map(|replied| (op.receipt, replied)))
        .collect();
    let mut earliest = u64::MAX;
    for (_, replied) in flushes.iter_mut().rev() {
        earliest = earliest.min(*replied);
        *replied = earliest;
    }
    for op in ops.iter_mut().filter(|op| op.command.writes()) {
        let Some(replied) = op.replied else { continue };
        op.loose_until = if op.fua || !write_cache {
            Some(replied)
        } else {
            let at = flushes.partition_point(|(receipt, _)| *receipt < replied);
            flushes.get(at).map(|(_, settles)| *settles)
        };
    }
}

/// The marks between which cuts lie.
#[derive(Debug, Default)]
struct Marks {
    first: Option<u64>,
    last: Option<u64>,
}

impl Marks {
    fn see(&mut self, event: u64, label: Option<&str>) {
        match label {
            Some(MOUNTED) => self.first = Some(event + 1),
            Some(WORKLOAD_END) => self.last = Some(event),
            _ => {}
        }
    }

    fn span(&self) -> Result<Span, PlanError> {
        let first = self.first.ok_or(PlanError::NoMark(MOUNTED))?;
        let last = self.last.ok_or(PlanError::NoMark(WORKLOAD_END))?;
        if first > last { Err(PlanError::NoMark(WORKLOAD_END)) } else { Ok(Span { first, last }) }
    }
}

/// Finds the marks between which cuts lie, and checks every checksum on the way.
///
/// # Errors
/// If the recording is damaged, was not closed, or lacks a mark.
pub fn span(recording: &[u8]) -> Result<Span, PlanError> {
    let mut reader = Reader::new(recording, true)?;
    let mut marks = Marks::default();
    while let Some(entry) = reader.next()? {
        if entry.head.what == What::Mark {
            marks.see(entry.head.event, std::str::from_utf8(reader.data()).ok());
        }
    }
    if reader.tail() != Some(Tail::Closed) {
        return Err(PlanError::Torn);
    }
    marks.span()
}
