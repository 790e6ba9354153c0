//! What is served under which name, and what hosts are told of it.

use std::fmt;
use std::sync::Arc;

use powerfail_drive::device::Device;

use crate::validate::Rules;
use crate::wire;

/// The longest data of a READ, and what hosts are told is the longest of a WRITE too: the customary 32 MiB.
pub const MAX_PAYLOAD: u32 = 32 << 20;

/// A WRITE is taken up to this length though [`MAX_PAYLOAD`] is what is advertised, because real clients exceed it;
/// beyond it the connection is closed, since its payload would have to be read to stay in step.
pub const MAX_WRITE: u32 = 64 << 20;

/// The block size that hosts are told they should prefer.
const PREFERRED_BLOCK: u32 = 4096;

/// `nbd-client -l` reads into 1024 bytes: a name and its description together must stay below that.
const MAX_NAME: usize = 255;
const MAX_DESCRIPTION: usize = 700;

/// A drive under a name. Its cache belongs to it, never to a connection.
#[derive(Clone)]
pub struct Export {
    name: String,
    description: String,
    device: Arc<dyn Device>,
    read_only: bool,
    multi_conn: bool,
    min_block: u32,
}

impl Export {
    /// Serves `device` as `name` (which may be empty), writable, over as many connections as a host likes.
    pub fn new(name: impl Into<String>, device: Arc<dyn Device>) -> Export {
        Export {
            name: name.into(),
            description: String::new(),
            device,
            read_only: false,
            multi_conn: true,
            min_block: 1,
        }
    }

    /// A sentence for whoever lists the exports.
    pub fn description(self, text: impl Into<String>) -> Export {
        Export { description: text.into(), ..self }
    }

    /// Whatever would change the drive is refused with `EPERM`.
    pub fn read_only(self, read_only: bool) -> Export {
        Export { read_only, ..self }
    }

    /// Whether hosts are told `CAN_MULTI_CONN`: that a flush on one connection covers all. It always does; not saying
    /// so keeps hosts to one connection.
    pub fn multi_conn(self, multi_conn: bool) -> Export {
        Export { multi_conn, ..self }
    }

    /// The smallest block: what is not aligned to it is refused. 1 by default, and that should stay so for a kernel,
    /// because `nbd-client` never asks for it and the kernel sends 512 bytes.
    pub fn min_block(self, bytes: u32) -> Export {
        Export { min_block: bytes, ..self }
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn about(&self) -> &str {
        &self.description
    }

    pub(crate) fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// The transmission flags. `DF` is only for hosts that have structured replies.
    pub(crate) fn flags(&self, structured: bool) -> u16 {
        let offers = self.device.offers();
        let choices = [
            (true, wire::FLAG_HAS_FLAGS),
            (self.read_only, wire::FLAG_READ_ONLY),
            (offers.flush, wire::FLAG_SEND_FLUSH),
            (offers.fua, wire::FLAG_SEND_FUA),
            (offers.rotational, wire::FLAG_ROTATIONAL),
            (offers.trim, wire::FLAG_SEND_TRIM),
            (offers.write_zeroes, wire::FLAG_SEND_WRITE_ZEROES),
            (structured, wire::FLAG_SEND_DF),
            (self.multi_conn, wire::FLAG_CAN_MULTI_CONN),
            (true, wire::FLAG_SEND_CACHE),
        ];
        choices.iter().filter(|(on, _)| *on).fold(0, |flags, (_, flag)| flags | flag)
    }

    /// Minimum, preferred and maximum, for `NBD_INFO_BLOCK_SIZE`.
    pub(crate) fn block_sizes(&self) -> [u32; 3] {
        [self.min_block, PREFERRED_BLOCK.max(self.min_block), MAX_PAYLOAD]
    }

    pub(crate) fn rules(&self, structured: bool) -> Rules {
        Rules {
            size: self.device.geometry().bytes(),
            offers: self.device.offers(),
            read_only: self.read_only,
            min_block: self.min_block,
            structured,
        }
    }
}

impl fmt::Debug for Export {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Export({:?}, {} bytes)", self.name, self.device.geometry().bytes())
    }
}

/// Why a list of exports can't be served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExportError {
    /// There must be something to serve.
    #[error("there is no export to serve")]
    Nothing,
    /// Two exports have one name.
    #[error("two exports are named {0:?}")]
    Twice(String),
    /// A name is too long for real clients.
    #[error("an export's name has {0} bytes, and the most is {MAX_NAME}")]
    LongName(usize),
    /// A description is too long for real clients.
    #[error("the description of export {name:?} has {bytes} bytes, and the most is {MAX_DESCRIPTION}")]
    LongDescription {
        /// Of which export.
        name: String,
        /// How long it is.
        bytes: usize,
    },
    /// The smallest block must be a power of two up to 64 KiB that divides the drive's size.
    #[error("export {name:?} can't have blocks of {bytes} bytes")]
    MinBlock {
        /// Of which export.
        name: String,
        /// The size asked for.
        bytes: u32,
    },
}

/// All that a server serves; the first is also the default export, the one of the empty name.
#[derive(Clone, Debug)]
pub struct Exports {
    list: Vec<Arc<Export>>,
}

impl Exports {
    /// Checks a list of exports.
    pub fn new(list: Vec<Export>) -> Result<Exports, ExportError> {
        if list.is_empty() {
            return Err(ExportError::Nothing);
        }
        for (at, export) in list.iter().enumerate() {
            let name = export.name.clone();
            if list[..at].iter().any(|other| other.name == name) {
                return Err(ExportError::Twice(name));
            }
            if name.len() > MAX_NAME {
                return Err(ExportError::LongName(name.len()));
            }
            if export.description.len() > MAX_DESCRIPTION {
                return Err(ExportError::LongDescription { name, bytes: export.description.len() });
            }
            let bytes = export.min_block;
            let divides = bytes.is_power_of_two() && export.device.geometry().bytes().is_multiple_of(u64::from(bytes));
            if !divides || bytes > 64 << 10 {
                return Err(ExportError::MinBlock { name, bytes });
            }
        }
        Ok(Exports { list: list.into_iter().map(Arc::new).collect() })
    }

    /// One drive as the default export.
    pub fn one(device: Arc<dyn Device>) -> Exports {
        Exports { list: vec![Arc::new(Export::new("", device))] }
    }

    /// The export of that name; the empty name is the first one's if none has it.
    pub(crate) fn find(&self, name: &[u8]) -> Option<&Arc<Export>> {
        let named = self.list.iter().find(|export| export.name.as_bytes() == name);
        named.or_else(|| if name.is_empty() { self.list.first() } else { None })
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Export>> {
        self.list.iter()
    }
}
