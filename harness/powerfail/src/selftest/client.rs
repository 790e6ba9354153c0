//! A host of our own: it says FLUSH and FUA where it wants to, which no kernel does. Its numbers are written out here, from
//! NBD's `doc/proto.md`, so that a wrong one in the server can't hide behind itself.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, ensure};

/// For one answer; each is a matter of microseconds.
const LIMIT: Duration = Duration::from_secs(30);

const OPT_GO: u32 = 7;
const REP_ACK: u32 = 1;
const REP_INFO: u32 = 3;
const INFO_EXPORT: u16 = 0;
const CMD_WRITE: u16 = 1;
const CMD_DISC: u16 = 2;
const CMD_FLUSH: u16 = 3;
const FLAG_FUA: u16 = 1;
const SENDS_FLUSH: u16 = 1 << 2;
const SENDS_FUA: u16 = 1 << 3;

/// A connection in the transmission phase; one request at a time.
#[derive(Debug)]
pub(super) struct Client {
    stream: TcpStream,
    cookie: u64,
}

impl Client {
    /// Connects to the default export, which must offer FLUSH and FUA.
    ///
    /// # Errors
    /// If nobody answers as the protocol says.
    pub(super) fn connect(address: SocketAddr) -> anyhow::Result<Client> {
        let stream = TcpStream::connect_timeout(&address, LIMIT)?;
        stream.set_read_timeout(Some(LIMIT))?;
        stream.set_write_timeout(Some(LIMIT))?;
        stream.set_nodelay(true)?;
        let mut client = Client { stream, cookie: 0 };
        client.handshake().context("the handshake")?;
        Ok(client)
    }

    fn handshake(&mut self) -> anyhow::Result<()> {
        let greeting: [u8; 18] = self.take()?;
        ensure!(&greeting[..16] == b"NBDMAGICIHAVEOPT", "no NBD server answers");
        // Fixed newstyle, and no zeroes.
        self.stream.write_all(&3u32.to_be_bytes())?;
        let mut go = b"IHAVEOPT".to_vec();
        go.extend(OPT_GO.to_be_bytes());
        // The name of the default export is empty, and no further information is asked for.
        go.extend(6u32.to_be_bytes());
        go.extend([0; 6]);
        self.stream.write_all(&go)?;
        let mut flags = 0;
        loop {
            let head: [u8; 20] = self.take()?;
            let (kind, length) = (u32_at(&head, 12), u32_at(&head, 16));
            ensure!(length <= 4096, "an answer of {length} bytes");
            let mut data = vec![0; length as usize];
            self.stream.read_exact(&mut data)?;
            match kind {
                REP_INFO if data.len() == 12 && data[..2] == INFO_EXPORT.to_be_bytes() => {
                    flags = u16::from_be_bytes([data[10], data[11]]);
                }
                REP_INFO => {}
                REP_ACK => break,
                other => anyhow::bail!("the server refuses with {other:#x}"),
            }
        }
        ensure!(flags & SENDS_FLUSH != 0 && flags & SENDS_FUA != 0, "the drive does not offer FLUSH and FUA");
        Ok(())
    }

    /// Writes, and waits for the reply.
    ///
    /// # Errors
    /// If the drive refuses it or does not answer.
    pub(super) fn write(&mut self, offset: u64, data: &[u8], fua: bool) -> anyhow::Result<()> {
        let length = u32::try_from(data.len()).context("a write is short")?;
        self.ask(CMD_WRITE, if fua { FLAG_FUA } else { 0 }, offset, length, data)
    }

    /// Flushes, and waits for the reply.
    ///
    /// # Errors
    /// As [`Client::write`].
    pub(super) fn flush(&mut self) -> anyhow::Result<()> {
        self.ask(CMD_FLUSH, 0, 0, 0, &[])
    }

    /// Takes its leave.
    ///
    /// # Errors
    /// If the server is gone.
    pub(super) fn disconnect(mut self) -> anyhow::Result<()> {
        Ok(self.send(CMD_DISC, 0, 0, 0, &[])?)
    }

    fn ask(&mut self, command: u16, flags: u16, offset: u64, length: u32, data: &[u8]) -> anyhow::Result<()> {
        self.send(command, flags, offset, length, data)?;
        let reply: [u8; 16] = self.take()?;
        ensure!(u32_at(&reply, 0) == 0x6744_6698, "a reply begins otherwise");
        let error = u32_at(&reply, 4);
        ensure!(error == 0, "the drive refuses command {command} with error {error}");
        ensure!(reply[8..] == self.cookie.to_be_bytes(), "a reply to another request");
        Ok(())
    }

    fn send(&mut self, command: u16, flags: u16, offset: u64, length: u32, data: &[u8]) -> io::Result<()> {
        self.cookie += 1;
        let mut bytes = 0x2560_9513u32.to_be_bytes().to_vec();
        bytes.extend(flags.to_be_bytes());
        bytes.extend(command.to_be_bytes());
        bytes.extend(self.cookie.to_be_bytes());
        bytes.extend(offset.to_be_bytes());
        bytes.extend(length.to_be_bytes());
        bytes.extend(data);
        self.stream.write_all(&bytes)
    }

    fn take<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.stream.read_exact(&mut bytes)?;
        Ok(bytes)
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}
