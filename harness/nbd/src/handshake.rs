//! Fixed newstyle negotiation: proto.md, sections "Newstyle negotiation" to "Option reply types".
//!
//! What the client asks for wrongly gets the error that the protocol names, with a sentence that clients print, and the
//! two sides stay in step. Only what would put them out of step ends the connection: a wrong magic number, unknown client
//! flags, an option of more than 64 KiB, and an unknown name in `EXPORT_NAME`, which has no way to say no.

use std::io;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};

use crate::export::{Export, Exports};
use crate::inbox::Inbox;
use crate::wire::{self, be16, be32, be64};

/// An option's data is at most this long; a longer one would have to be read to stay in step.
const MAX_OPTION: usize = 64 << 10;

/// How a negotiation ended without an error of the stream.
#[derive(Debug)]
pub(crate) enum Agreed {
    /// The transmission phase begins.
    Transmission {
        /// With this export.
        export: Arc<Export>,
        /// Whether READs get structured replies.
        structured: bool,
    },
    /// The client came and went without a byte: somebody looked whether the port is open.
    Probe,
    /// The client aborted in good order.
    Aborted,
    /// The connection has to end.
    Severed(&'static str),
}

/// Negotiates with one client. What it sent beyond the negotiation stays in `inbox`.
pub(crate) async fn negotiate<S>(stream: &mut S, inbox: &mut Inbox, exports: &Exports) -> io::Result<Agreed>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut greeting = wire::GREETING_MAGIC.to_be_bytes().to_vec();
    greeting.extend(wire::OPTION_MAGIC.to_be_bytes());
    greeting.extend((wire::FIXED_NEWSTYLE | wire::NO_ZEROES).to_be_bytes());
    let hello = async {
        send(stream, &greeting).await?;
        inbox.fill(4, stream).await
    };
    // Whoever leaves without reading the greeting makes a broken pipe or a reset of it, by the time it leaves.
    match hello.await {
        Err(_) if inbox.bytes().is_empty() => return Ok(Agreed::Probe),
        other => other?,
    }
    let flags = be32(inbox.bytes(), 0);
    inbox.consume(4);
    if flags & !u32::from(wire::FIXED_NEWSTYLE | wire::NO_ZEROES) != 0 {
        return Ok(Agreed::Severed("the client set a flag that doesn't exist"));
    }
    let mut talk = Talk { exports, zeroes: flags & u32::from(wire::NO_ZEROES) == 0, structured: false };

    loop {
        inbox.fill(16, stream).await?;
        let (magic, option) = (be64(inbox.bytes(), 0), be32(inbox.bytes(), 8));
        let length = be32(inbox.bytes(), 12) as usize;
        if magic != wire::OPTION_MAGIC {
            return Ok(Agreed::Severed("an option has the wrong magic number"));
        }
        if length > MAX_OPTION {
            return Ok(Agreed::Severed("an option is longer than 64 KiB"));
        }
        inbox.fill(16 + length, stream).await?;
        let (answer, next) = talk.option(option, &inbox.bytes()[16..16 + length]);
        inbox.consume(16 + length);
        // Each option's answer is one write, since `nbd-client -l` takes what one read gives it. A client that
        // aborts may be gone before it is told that it may go.
        match (send(stream, &answer).await, next) {
            (_, Some(Agreed::Aborted)) => return Ok(Agreed::Aborted),
            (Err(error), _) => return Err(error),
            (Ok(()), Some(agreed)) => return Ok(agreed),
            (Ok(()), None) => {}
        }
    }
}

/// What was agreed on so far.
struct Talk<'a> {
    exports: &'a Exports,
    zeroes: bool,
    structured: bool,
}

/// An error reply to an option: its type and the sentence that clients print.
struct No(u32, String);

impl No {
    fn invalid(why: &str) -> No {
        No(wire::REP_ERR_INVALID, why.into())
    }
}

impl Talk<'_> {
    /// The bytes to answer an option with, and how the negotiation ends if it does.
    fn option(&mut self, option: u32, data: &[u8]) -> (Vec<u8>, Option<Agreed>) {
        if option == wire::OPT_EXPORT_NAME {
            return self.export_name(data);
        }
        let mut answer = Answer { option, bytes: Vec::new() };
        let next = match option {
            wire::OPT_ABORT => {
                answer.reply(wire::REP_ACK, &[]);
                Ok(Some(Agreed::Aborted))
            }
            wire::OPT_LIST => self.list(data, &mut answer),
            wire::OPT_STARTTLS if data.is_empty() => {
                Err(No(wire::REP_ERR_POLICY, "this server doesn't do TLS: it listens on this machine only".into()))
            }
            wire::OPT_STARTTLS => Err(No::invalid("STARTTLS has no data")),
            wire::OPT_INFO => self.info(data, &mut answer).map(|_| None),
            wire::OPT_GO => self.info(data, &mut answer).map(Some),
            wire::OPT_STRUCTURED_REPLY => self.structured_reply(data, &mut answer),
            wire::OPT_LIST_META_CONTEXT | wire::OPT_SET_META_CONTEXT => self.meta_context(data, &mut answer),
            _ => Err(No(wire::REP_ERR_UNSUP, format!("option {option} is not known here"))),
        };
        match next {
            Ok(next) => (answer.bytes, next),
            Err(No(kind, why)) => {
                answer.bytes.clear();
                answer.reply(kind, why.as_bytes());
                (answer.bytes, None)
            }
        }
    }

    /// `EXPORT_NAME`, the old way in: no header, no error.
    fn export_name(&self, name: &[u8]) -> (Vec<u8>, Option<Agreed>) {
        let Some(export) = self.exports.find(name) else {
            return (Vec::new(), Some(Agreed::Severed("EXPORT_NAME asked for an export that isn't here")));
        };
        let mut bytes = export.device().geometry().bytes().to_be_bytes().to_vec();
        bytes.extend(export.flags(self.structured).to_be_bytes());
        if self.zeroes {
            bytes.extend([0; wire::EXPORT_NAME_ZEROES]);
        }
        (bytes, Some(self.agreed(export)))
    }

    fn list(&self, data: &[u8], answer: &mut Answer) -> Result<Option<Agreed>, No> {
        if !data.is_empty() {
            return Err(No::invalid("LIST has no data"));
        }
        for export in self.exports.iter() {
            let mut item = (export.name().len() as u32).to_be_bytes().to_vec();
            item.extend(export.name().as_bytes());
            item.extend(export.about().as_bytes());
            answer.reply(wire::REP_SERVER, &item);
        }
        answer.reply(wire::REP_ACK, &[]);
        Ok(None)
    }

    /// `INFO` and `GO`: the same answer; after that of `GO` the transmission phase begins.
    fn info(&self, data: &[u8], answer: &mut Answer) -> Result<Agreed, No> {
        let mut fields = Fields(data);
        let export = self.find(fields.string()?)?;
        let count = fields.be16()?;
        let asked = (0..count).map(|_| fields.be16()).collect::<Result<Vec<u16>, No>>()?;
        fields.end()?;

        let mut about = export.device().geometry().bytes().to_be_bytes().to_vec();
        about.extend(export.flags(self.structured).to_be_bytes());
        answer.info(wire::INFO_EXPORT, &about);
        for (info, text) in [(wire::INFO_NAME, export.name()), (wire::INFO_DESCRIPTION, export.about())] {
            if asked.contains(&info) {
                answer.info(info, text.as_bytes());
            }
        }
        if asked.contains(&wire::INFO_BLOCK_SIZE) {
            answer.info(wire::INFO_BLOCK_SIZE, &export.block_sizes().map(u32::to_be_bytes).concat());
        }
        answer.reply(wire::REP_ACK, &[]);
        Ok(self.agreed(export))
    }

    fn structured_reply(&mut self, data: &[u8], answer: &mut Answer) -> Result<Option<Agreed>, No> {
        if !data.is_empty() {
            return Err(No::invalid("STRUCTURED_REPLY has no data"));
        }
        self.structured = true;
        answer.reply(wire::REP_ACK, &[]);
        Ok(None)
    }

    /// `LIST_META_CONTEXT` and `SET_META_CONTEXT`: there are no contexts, so whatever is asked for, none is given.
    fn meta_context(&self, data: &[u8], answer: &mut Answer) -> Result<Option<Agreed>, No> {
        if !self.structured {
            return Err(No::invalid("metadata contexts need STRUCTURED_REPLY first"));
        }
        let mut fields = Fields(data);
        let name = fields.string()?;
        let queries = fields.be32()?;
        for _ in 0..queries {
            fields.string()?;
        }
        fields.end()?;
        self.find(name)?;
        answer.reply(wire::REP_ACK, &[]);
        Ok(None)
    }

    fn find(&self, name: &[u8]) -> Result<&Arc<Export>, No> {
        let unknown = || {
            let shown: String = String::from_utf8_lossy(name).chars().take(100).collect();
            No(wire::REP_ERR_UNKNOWN, format!("export {shown:?} is not here"))
        };
        self.exports.find(name).ok_or_else(unknown)
    }

    fn agreed(&self, export: &Arc<Export>) -> Agreed {
        Agreed::Transmission { export: Arc::clone(export), structured: self.structured }
    }
}

/// Option replies that are being put together.
struct Answer {
    option: u32,
    bytes: Vec<u8>,
}

impl Answer {
    fn reply(&mut self, kind: u32, data: &[u8]) {
        self.bytes.extend(wire::OPTION_REPLY_MAGIC.to_be_bytes());
        self.bytes.extend(self.option.to_be_bytes());
        self.bytes.extend(kind.to_be_bytes());
        self.bytes.extend((data.len() as u32).to_be_bytes());
        self.bytes.extend(data);
    }

    fn info(&mut self, info: u16, data: &[u8]) {
        self.reply(wire::REP_INFO, &[&info.to_be_bytes(), data].concat());
    }
}

/// The fields of an option's data, which must be there whole and be all.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], No> {
        let (taken, rest) =
            self.0.split_at_checked(count).ok_or_else(|| No::invalid("the option's data end too early"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn be16(&mut self) -> Result<u16, No> {
        Ok(be16(self.take(2)?, 0))
    }

    fn be32(&mut self) -> Result<u32, No> {
        Ok(be32(self.take(4)?, 0))
    }

    /// A length of 32 bits and so many bytes.
    fn string(&mut self) -> Result<&'a [u8], No> {
        let length = self.be32()? as usize;
        if length > self.0.len() {
            return Err(No::invalid("a string is longer than the option's data"));
        }
        if length > wire::MAX_STRING {
            return Err(No(wire::REP_ERR_TOO_BIG, "a string is longer than 4096 bytes".into()));
        }
        self.take(length)
    }

    fn end(&self) -> Result<(), No> {
        if self.0.is_empty() { Ok(()) } else { Err(No::invalid("there are bytes behind the option's last field")) }
    }
}

async fn send(stream: &mut (impl AsyncWrite + Unpin), mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let sent = std::future::poll_fn(|cx| std::pin::Pin::new(&mut *stream).poll_write(cx, bytes)).await?;
        if sent == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        bytes = &bytes[sent..];
    }
    Ok(())
}
