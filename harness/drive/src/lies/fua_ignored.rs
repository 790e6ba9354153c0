//! A drive that takes a write with FUA for any other.

use powerfail_seed::Seed;

use super::{Lie, Tale};
use crate::event::What;

#[derive(Debug)]
pub(super) struct FuaIgnored;

impl Lie for FuaIgnored {
    fn name(&self) -> &'static str {
        "fua-ignored"
    }

    fn does(&self) -> &'static str {
        "keeps a write with FUA in its cache"
    }

    fn tell(&self, tale: &mut Tale, _: Seed) {
        tale.keep(|event| {
            if let What::Received { fua, .. } = &mut event.what {
                *fua = false;
            }
            true
        });
    }
}
