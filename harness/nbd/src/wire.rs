//! The numbers of the protocol, each with the section of NBD's `doc/proto.md` that defines it, and the encoding of
//! requests and replies. All integers on the wire are big-endian.

// Section "Newstyle negotiation".
pub(crate) const GREETING_MAGIC: u64 = 0x4e42_444d_4147_4943; // "NBDMAGIC"
pub(crate) const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054; // "IHAVEOPT"
pub(crate) const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// Zeroes that end the answer to `EXPORT_NAME` unless both sides said `NO_ZEROES`.
pub(crate) const EXPORT_NAME_ZEROES: usize = 124;

// Sections "Handshake flags" and "Client flags": the two bits are the same in both directions.
pub(crate) const FIXED_NEWSTYLE: u16 = 1 << 0;
pub(crate) const NO_ZEROES: u16 = 1 << 1;

// Section "Transmission flags".
pub(crate) const FLAG_HAS_FLAGS: u16 = 1 << 0;
pub(crate) const FLAG_READ_ONLY: u16 = 1 << 1;
pub(crate) const FLAG_SEND_FLUSH: u16 = 1 << 2;
pub(crate) const FLAG_SEND_FUA: u16 = 1 << 3;
pub(crate) const FLAG_ROTATIONAL: u16 = 1 << 4;
pub(crate) const FLAG_SEND_TRIM: u16 = 1 << 5;
pub(crate) const FLAG_SEND_WRITE_ZEROES: u16 = 1 << 6;
pub(crate) const FLAG_SEND_DF: u16 = 1 << 7;
pub(crate) const FLAG_CAN_MULTI_CONN: u16 = 1 << 8;
pub(crate) const FLAG_SEND_CACHE: u16 = 1 << 10;

// Section "Option types".
pub(crate) const OPT_EXPORT_NAME: u32 = 1;
pub(crate) const OPT_ABORT: u32 = 2;
pub(crate) const OPT_LIST: u32 = 3;
pub(crate) const OPT_STARTTLS: u32 = 5;
pub(crate) const OPT_INFO: u32 = 6;
pub(crate) const OPT_GO: u32 = 7;
pub(crate) const OPT_STRUCTURED_REPLY: u32 = 8;
pub(crate) const OPT_LIST_META_CONTEXT: u32 = 9;
pub(crate) const OPT_SET_META_CONTEXT: u32 = 10;

// Section "Option reply types".
pub(crate) const REP_ACK: u32 = 1;
pub(crate) const REP_SERVER: u32 = 2;
pub(crate) const REP_INFO: u32 = 3;
pub(crate) const REP_ERR_UNSUP: u32 = (1 << 31) + 1;
pub(crate) const REP_ERR_POLICY: u32 = (1 << 31) + 2;
pub(crate) const REP_ERR_INVALID: u32 = (1 << 31) + 3;
pub(crate) const REP_ERR_UNKNOWN: u32 = (1 << 31) + 6;
pub(crate) const REP_ERR_TOO_BIG: u32 = (1 << 31) + 9;

// Section "Option types", `NBD_REP_INFO`.
pub(crate) const INFO_EXPORT: u16 = 0;
pub(crate) const INFO_NAME: u16 = 1;
pub(crate) const INFO_DESCRIPTION: u16 = 2;
pub(crate) const INFO_BLOCK_SIZE: u16 = 3;

/// Section "Values", strings: none is longer than this.
pub(crate) const MAX_STRING: usize = 4096;

// Section "Request types".
pub(crate) const CMD_READ: u16 = 0;
pub(crate) const CMD_WRITE: u16 = 1;
pub(crate) const CMD_DISC: u16 = 2;
pub(crate) const CMD_FLUSH: u16 = 3;
pub(crate) const CMD_TRIM: u16 = 4;
pub(crate) const CMD_CACHE: u16 = 5;
pub(crate) const CMD_WRITE_ZEROES: u16 = 6;
pub(crate) const CMD_BLOCK_STATUS: u16 = 7;

// Section "Command flags".
pub(crate) const CMD_FLAG_FUA: u16 = 1 << 0;
pub(crate) const CMD_FLAG_NO_HOLE: u16 = 1 << 1;
pub(crate) const CMD_FLAG_DF: u16 = 1 << 2;

// Sections "Request message", "Simple reply message", "Structured reply chunk message".
pub(crate) const REQUEST_MAGIC: u32 = 0x2560_9513;
pub(crate) const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
pub(crate) const CHUNK_MAGIC: u32 = 0x668e_33ef;
pub(crate) const REQUEST_SIZE: usize = 28;
pub(crate) const SIMPLE_REPLY_SIZE: usize = 16;
pub(crate) const CHUNK_SIZE: usize = 20;

// Section "Structured reply flags" and "Structured reply types".
pub(crate) const CHUNK_DONE: u16 = 1 << 0;
pub(crate) const CHUNK_NONE: u16 = 0;
pub(crate) const CHUNK_OFFSET_DATA: u16 = 1;
pub(crate) const CHUNK_ERROR: u16 = (1 << 15) + 1;

/// Section "Error values": these numbers are the only ones that this server sends, whatever the host's own are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Errno {
    /// `NBD_EPERM`: the export is read-only.
    Perm = 1,
    /// `NBD_EIO`: the drive failed, or has no power.
    Io = 5,
    /// `NBD_EINVAL`: the request makes no sense here.
    Inval = 22,
    /// `NBD_ENOSPC`: a write past the end.
    NoSpace = 28,
}

/// Section "Request message".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequestHeader {
    pub(crate) magic: u32,
    pub(crate) flags: u16,
    pub(crate) command: u16,
    pub(crate) cookie: u64,
    pub(crate) offset: u64,
    pub(crate) length: u32,
}

impl RequestHeader {
    /// The header at the front of `bytes`, if it has arrived whole.
    pub(crate) fn parse(bytes: &[u8]) -> Option<RequestHeader> {
        let bytes: &[u8; REQUEST_SIZE] = bytes.first_chunk()?;
        Some(RequestHeader {
            magic: be32(bytes, 0),
            flags: be16(bytes, 4),
            command: be16(bytes, 6),
            cookie: be64(bytes, 8),
            offset: be64(bytes, 16),
            length: be32(bytes, 24),
        })
    }
}

/// Which form replies take; hosts that never asked for structured ones get simple ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReplyForm {
    pub(crate) structured: bool,
}

impl ReplyForm {
    /// What comes before a read's data, `length` bytes of it (not 0).
    pub(crate) fn data_header_size(self) -> usize {
        if self.structured { CHUNK_SIZE + 8 } else { SIMPLE_REPLY_SIZE }
    }

    /// Writes what comes before the `length` bytes (not 0) that were read at `offset`: one chunk, so a host that asked
    /// not to have its read fragmented (`DF`) is always obeyed.
    pub(crate) fn put_data_header(self, out: &mut [u8], cookie: u64, offset: u64, length: u32) {
        if self.structured {
            put_chunk(out, CHUNK_OFFSET_DATA, cookie, length + 8);
            out[CHUNK_SIZE..CHUNK_SIZE + 8].copy_from_slice(&offset.to_be_bytes());
        } else {
            put_simple(out, cookie, 0);
        }
    }

    /// The size of success without data. A structured host must get a chunk for its READs, even of no bytes at all.
    pub(crate) fn success_size(self, command: u16) -> usize {
        if self.structured && command == CMD_READ { CHUNK_SIZE } else { SIMPLE_REPLY_SIZE }
    }

    /// Writes success without data into exactly [`ReplyForm::success_size`] bytes.
    pub(crate) fn put_success(self, out: &mut [u8], cookie: u64) {
        if out.len() == CHUNK_SIZE {
            put_chunk(out, CHUNK_NONE, cookie, 0);
        } else {
            put_simple(out, cookie, 0);
        }
    }

    /// A failure, with its reason in words where the form has room for them.
    pub(crate) fn failure(self, cookie: u64, errno: Errno, reason: &str) -> Vec<u8> {
        if !self.structured {
            let mut out = vec![0; SIMPLE_REPLY_SIZE];
            put_simple(&mut out, cookie, errno as u32);
            return out;
        }
        let text = &reason.as_bytes()[..reason.len().min(MAX_STRING)];
        let mut out = vec![0; CHUNK_SIZE];
        put_chunk(&mut out, CHUNK_ERROR, cookie, 6 + text.len() as u32);
        out.extend_from_slice(&(errno as u32).to_be_bytes());
        out.extend_from_slice(&(text.len() as u16).to_be_bytes());
        out.extend_from_slice(text);
        out
    }
}

/// A simple reply's 16 bytes; data follows them if the command was a successful READ.
fn put_simple(out: &mut [u8], cookie: u64, errno: u32) {
    out[0..4].copy_from_slice(&SIMPLE_REPLY_MAGIC.to_be_bytes());
    out[4..8].copy_from_slice(&errno.to_be_bytes());
    out[8..16].copy_from_slice(&cookie.to_be_bytes());
}

fn put_chunk(out: &mut [u8], kind: u16, cookie: u64, payload: u32) {
    out[0..4].copy_from_slice(&CHUNK_MAGIC.to_be_bytes());
    out[4..6].copy_from_slice(&CHUNK_DONE.to_be_bytes());
    out[6..8].copy_from_slice(&kind.to_be_bytes());
    out[8..16].copy_from_slice(&cookie.to_be_bytes());
    out[16..20].copy_from_slice(&payload.to_be_bytes());
}

pub(crate) fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}

pub(crate) fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

pub(crate) fn be64(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
