//! A drive that answers a flush and does nothing.

use powerfail_seed::Seed;

use super::{Lie, Tale};
use crate::request::Command;

#[derive(Debug)]
pub(super) struct FlushIgnored;

impl Lie for FlushIgnored {
    fn name(&self) -> &'static str {
        "flush-ignored"
    }

    fn does(&self) -> &'static str {
        "answers FLUSH and leaves its cache as it is"
    }

    fn tell(&self, tale: &mut Tale, _: Seed) {
        tale.keep(|event| !event.is(Command::Flush));
    }
}
