//! A client that says exactly the bytes it is told to, right or wrong. Its numbers are written out here again, so that a
//! wrong one in the server can't hide behind itself.

use std::io;
use std::path::Path;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

pub const EXPORT_NAME: u32 = 1;
pub const ABORT: u32 = 2;
pub const LIST: u32 = 3;
pub const STARTTLS: u32 = 5;
pub const INFO: u32 = 6;
pub const GO: u32 = 7;
pub const STRUCTURED_REPLY: u32 = 8;
pub const LIST_META: u32 = 9;
pub const SET_META: u32 = 10;

pub const ACK: u32 = 1;
pub const SERVER: u32 = 2;
pub const REP_INFO: u32 = 3;
pub const ERR_UNSUP: u32 = 0x8000_0001;
pub const ERR_POLICY: u32 = 0x8000_0002;
pub const ERR_INVALID: u32 = 0x8000_0003;
pub const ERR_UNKNOWN: u32 = 0x8000_0006;
pub const ERR_TOO_BIG: u32 = 0x8000_0009;

pub const READ: u16 = 0;
pub const WRITE: u16 = 1;
pub const DISC: u16 = 2;
pub const FLUSH: u16 = 3;
pub const TRIM: u16 = 4;
pub const CACHE: u16 = 5;
pub const WRITE_ZEROES: u16 = 6;
pub const BLOCK_STATUS: u16 = 7;

pub const FUA: u16 = 1;
pub const NO_HOLE: u16 = 2;
pub const DF: u16 = 4;

pub const EPERM: u32 = 1;
pub const EIO: u32 = 5;
pub const EINVAL: u32 = 22;
pub const ENOSPC: u32 = 28;

/// A connection.
pub struct Raw {
    pub stream: UnixStream,
}

/// A reply: whose, the error number, and what came with it (data, or an error's text).
#[derive(Debug, PartialEq, Eq)]
pub struct Reply {
    pub cookie: u64,
    pub errno: u32,
    pub data: Vec<u8>,
}

impl Raw {
    /// Connects and takes the greeting.
    pub async fn connect(path: &Path) -> Raw {
        let mut stream = UnixStream::connect(path).await.expect("a server");
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting).await.expect("a greeting");
        assert_eq!(&greeting, b"NBDMAGICIHAVEOPT\0\x03");
        Raw { stream }
    }

    /// Connects and says that it speaks fixed newstyle and wants no zeroes.
    pub async fn fixed(path: &Path) -> Raw {
        let mut raw = Raw::connect(path).await;
        raw.send(&3u32.to_be_bytes()).await;
        raw
    }

    /// Connects and enters the transmission phase of the default export with simple replies.
    pub async fn attached(path: &Path) -> Raw {
        let mut raw = Raw::fixed(path).await;
        raw.go("").await;
        raw
    }

    /// The same with structured replies.
    pub async fn structured(path: &Path) -> Raw {
        let mut raw = Raw::fixed(path).await;
        raw.option(STRUCTURED_REPLY, &[]).await;
        assert_eq!(raw.option_reply().await, (STRUCTURED_REPLY, ACK, vec![]));
        raw.go("").await;
        raw
    }

    /// GO that must succeed; gives size and flags.
    pub async fn go(&mut self, name: &str) -> (u64, u16) {
        self.option(GO, &go_data(name, &[])).await;
        let (option, kind, info) = self.option_reply().await;
        assert_eq!((option, kind, info.len(), &info[..2]), (GO, REP_INFO, 12, &[0, 0][..]));
        assert_eq!(self.option_reply().await, (GO, ACK, vec![]));
        (u64::from_be_bytes(info[2..10].try_into().unwrap()), u16::from_be_bytes(info[10..12].try_into().unwrap()))
    }

    pub async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.expect("the server reads");
    }

    pub async fn option(&mut self, option: u32, data: &[u8]) {
        let mut bytes = b"IHAVEOPT".to_vec();
        bytes.extend(option.to_be_bytes());
        bytes.extend((data.len() as u32).to_be_bytes());
        bytes.extend(data);
        self.send(&bytes).await;
    }

    /// The option, the reply's type, its data.
    pub async fn option_reply(&mut self) -> (u32, u32, Vec<u8>) {
        assert_eq!(self.u64().await, 0x0003_e889_0455_65a9);
        let (option, kind, length) = (self.u32().await, self.u32().await, self.u32().await);
        (option, kind, self.take(length as usize).await)
    }

    /// An option that must get this type of reply and no data, or a sentence if it is an error.
    pub async fn expect_option(&mut self, option: u32, data: &[u8], kind: u32) {
        self.option(option, data).await;
        let (of, got, text) = self.option_reply().await;
        assert_eq!((of, got), (option, kind), "the server said {:?}", String::from_utf8_lossy(&text));
        assert_eq!(text.is_empty(), kind == ACK);
    }

    pub async fn request(&mut self, command: u16, flags: u16, cookie: u64, offset: u64, length: u32, data: &[u8]) {
        self.send(&request(command, flags, cookie, offset, length, data)).await;
    }

    /// A simple reply; `data` bytes follow it if it is a success.
    pub async fn reply(&mut self, data: usize) -> Reply {
        assert_eq!(self.u32().await, 0x6744_6698);
        let (errno, cookie) = (self.u32().await, self.u64().await);
        Reply { cookie, errno, data: self.take(if errno == 0 { data } else { 0 }).await }
    }

    /// One request and its simple reply, which must be this error number.
    pub async fn expect(&mut self, command: u16, flags: u16, offset: u64, length: u32, errno: u32) -> Vec<u8> {
        let data = if command == WRITE { vec![0x5a; length as usize] } else { vec![] };
        let cookie = 0xfeed_0000 + u64::from(command);
        self.request(command, flags, cookie, offset, length, &data).await;
        let reply = self.reply(if command == READ { length as usize } else { 0 }).await;
        assert_eq!((reply.cookie, reply.errno), (cookie, errno), "command {command} flags {flags} {offset}+{length}");
        reply.data
    }

    /// A structured chunk, which must be the only one of its reply: type, cookie, payload.
    pub async fn chunk(&mut self) -> (u16, u64, Vec<u8>) {
        assert_eq!(self.u32().await, 0x668e_33ef);
        let (flags, kind) = (self.u16().await, self.u16().await);
        assert_eq!(flags, 1, "each reply is one chunk");
        let (cookie, length) = (self.u64().await, self.u32().await);
        (kind, cookie, self.take(length as usize).await)
    }

    /// The connection must end here, with no byte before the end.
    pub async fn expect_end(mut self) {
        let mut byte = [0];
        match self.stream.read(&mut byte).await {
            Ok(0) => {}
            // Bytes that the server had not read make an end look like this.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
            other => panic!("instead of the end there is {other:?} {byte:?}"),
        }
    }

    /// The server still serves this connection.
    pub async fn expect_alive(&mut self) {
        self.expect(READ, 0, 0, 512, 0).await;
    }

    pub async fn take(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.stream.read_exact(&mut bytes).await.expect("more bytes");
        bytes
    }

    async fn u16(&mut self) -> u16 {
        u16::from_be_bytes(self.take(2).await.try_into().unwrap())
    }

    async fn u32(&mut self) -> u32 {
        u32::from_be_bytes(self.take(4).await.try_into().unwrap())
    }

    async fn u64(&mut self) -> u64 {
        u64::from_be_bytes(self.take(8).await.try_into().unwrap())
    }
}

/// A request's bytes.
pub fn request(command: u16, flags: u16, cookie: u64, offset: u64, length: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = 0x2560_9513u32.to_be_bytes().to_vec();
    bytes.extend(flags.to_be_bytes());
    bytes.extend(command.to_be_bytes());
    bytes.extend(cookie.to_be_bytes());
    bytes.extend(offset.to_be_bytes());
    bytes.extend(length.to_be_bytes());
    bytes.extend(data);
    bytes
}

/// The data of INFO and GO.
pub fn go_data(name: &str, infos: &[u16]) -> Vec<u8> {
    let mut bytes = (name.len() as u32).to_be_bytes().to_vec();
    bytes.extend(name.as_bytes());
    bytes.extend((infos.len() as u16).to_be_bytes());
    bytes.extend(infos.iter().flat_map(|info| info.to_be_bytes()));
    bytes
}

/// The data of LIST_META_CONTEXT and SET_META_CONTEXT.
pub fn meta_data(name: &str, queries: &[&str]) -> Vec<u8> {
    let string = |text: &str| [&(text.len() as u32).to_be_bytes()[..], text.as_bytes()].concat();
    let mut bytes = string(name);
    bytes.extend((queries.len() as u32).to_be_bytes());
    bytes.extend(queries.iter().flat_map(|query| string(query)));
    bytes
}

impl Raw {
    /// A simple reply where cookies from `reads` on belong to reads of one byte, and all others carry no data.
    pub async fn reply_of_one_byte_reads(&mut self, reads: u64) -> Reply {
        let mut reply = self.reply(0).await;
        if reply.cookie >= reads && reply.errno == 0 {
            reply.data = self.take(1).await;
        }
        reply
    }
}
