//! A drive that empties its whole cache for each write with FUA. It promises less than it does, so no file system can
//! notice; but a harness whose drive does that by mistake tests nothing where FUA is used.

use std::collections::HashMap;

use powerfail_seed::Seed;

use super::{Lie, Tale};
use crate::event::What;
use crate::request::Command;
use crate::units::{Lba, Sectors};

#[derive(Debug)]
pub(super) struct FuaIsFlush;

impl Lie for FuaIsFlush {
    fn name(&self) -> &'static str {
        "fua-is-flush"
    }

    fn does(&self) -> &'static str {
        "empties its whole cache for each write with FUA"
    }

    fn tell(&self, tale: &mut Tale, _: Seed) {
        let mut flushes: HashMap<u64, u64> = HashMap::new();
        let events = std::mem::take(&mut tale.events);
        let span = tale.span.clone();
        for (at, event) in events.into_iter().enumerate() {
            let (id, what) = (event.id, event.what);
            tale.events.push(event);
            match what {
                What::Received { command, fua: true, .. } if span.contains(&at) && command.writes() => {
                    let flush =
                        What::Received { command: Command::Flush, lba: Lba(0), sectors: Sectors(0), fua: false };
                    let flush = tale.made_up(flush);
                    flushes.insert(id, flush.id);
                    tale.events.push(flush);
                }
                What::Replied { receipt } => {
                    if let Some(flush) = flushes.remove(&receipt) {
                        let reply = tale.made_up(What::Replied { receipt: flush });
                        tale.events.push(reply);
                    }
                }
                _ => {}
            }
        }
        tale.span = span.start..tale.events.len().max(span.start);
    }
}
