//! Planted damage: no lie that a drive tells, but a canary of the checks. Whatever does not see this sees nothing.

use powerfail_seed::Seed;

use super::{Lie, Tale};
use crate::event::What;
use crate::request::Command;
use crate::units::{Lba, Sectors};

/// Damage that every check of a mount must see.
pub const PLANTED: &dyn Lie = &Planted;

#[derive(Debug)]
struct Planted;

/// Sectors. The first superblock of each file system lies within; that of btrfs at 64 KiB.
const ZEROED: u64 = 256;

impl Lie for Planted {
    fn name(&self) -> &'static str {
        "planted-damage"
    }

    fn does(&self) -> &'static str {
        "zeroes its first 128 KiB for good as soon as the file system is mounted"
    }

    fn tell(&self, tale: &mut Tale, _: Seed) {
        let sectors = Sectors(ZEROED.min(tale.geometry().bytes() / crate::units::SECTOR));
        // What is written there later would repair it, or hide it.
        tale.keep(|event| match event.what {
            What::Received { command, lba, .. } => !command.writes() || lba.0 >= sectors.0,
            _ => true,
        });
        let zeroes = What::Received { command: Command::WriteZeroes, lba: Lba(0), sectors, fua: true };
        let zeroes = tale.made_up(zeroes);
        let reply = tale.made_up(What::Replied { receipt: zeroes.id });
        let at = tale.span.start;
        tale.events.splice(at..at, [zeroes, reply]);
        tale.span = at..tale.span.end + 2;
    }
}
