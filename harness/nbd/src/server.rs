//! Serving: accept, negotiate within a deadline, transmit, and stop when told to.
//!
//! A server that has been shut down has closed its listener, ended every connection, and will not touch the drive again:
//! that is what a power cut needs. Nothing that a dropped connection carried is applied later.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::net::{TcpListener, UnixListener};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};

use crate::counters::{Counters, Counts};
use crate::export::Exports;
use crate::handshake::{Agreed, negotiate};
use crate::hold::{Hold, Holder};
use crate::inbox::Inbox;
use crate::listen::{Address, BindError, Listener, Reach, SocketFile};
use crate::transmission::{Session, Wire};

/// An option is a few dozen bytes.
const NEGOTIATION_INBOX: usize = 1024;

/// How long to wait when the system has no descriptor or memory for one more connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The limits of a server, and whether it holds replies back.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Most connections at a time; further ones are closed at once.
    pub connections: usize,
    /// How long a client may take from its connection to its choice of an export.
    pub handshake: Duration,
    /// Bytes of replies per connection that may wait for the host to read them; at that point the server takes no
    /// further requests from this connection until the host has read some.
    pub queue: usize,
    /// Holds replies back and reorders them.
    pub hold: Option<Hold>,
}

impl Default for Config {
    fn default() -> Config {
        Config { connections: 128, handshake: Duration::from_secs(10), queue: 64 << 20, hold: None }
    }
}

/// How connections end when a server is shut down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Farewell {
    /// What hosts have sent whole is answered, as the drive decides (a drive without power says `EIO`), then the
    /// connection is closed. A kernel's requests don't hang then.
    Answer,
    /// The connection is closed at once; replies that are owed are abandoned.
    Drop,
}

/// A bound socket that isn't served yet; clients that connect wait.
#[derive(Debug)]
pub struct Server {
    listener: Listener,
    address: Address,
}

impl Server {
    /// Listens on a Unix socket. The left-over file of a dead server is replaced; the file goes away with the server.
    pub fn bind_unix(path: impl AsRef<Path>) -> Result<Server, BindError> {
        Server::on(Listener::unix(path.as_ref())?, Address::Unix(path.as_ref().to_path_buf()))
    }

    /// Listens on a TCP port (0: any that is free).
    pub fn bind_tcp(address: SocketAddr, reach: Reach) -> Result<Server, BindError> {
        Server::on(Listener::tcp(address, reach)?, Address::Tcp(address))
    }

    fn on(listener: Listener, asked: Address) -> Result<Server, BindError> {
        let address = listener.address().map_err(|error| BindError::System { address: asked, error })?;
        Ok(Server { listener, address })
    }

    /// Where clients find it.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Serves `exports`, in tasks of the current runtime, which must have I/O and time enabled.
    ///
    /// # Errors
    /// If the runtime can't watch the socket.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn serve(self, exports: Exports, config: Config) -> io::Result<Handle> {
        let (stop, stopped) = watch::channel(None);
        let counters = Arc::new(Counters::default());
        let shop = Arc::new(Shop { exports, config, counters: Arc::clone(&counters), stopped: stopped.clone() });
        let (door, file) = match self.listener {
            Listener::Unix(listener, file) => (Door::Unix(UnixListener::from_std(listener)?), Some(file)),
            Listener::Tcp(listener) => (Door::Tcp(TcpListener::from_std(listener)?), None),
        };
        let task = tokio::spawn(accept(door, shop, stopped));
        Ok(Handle { address: self.address, counters, stop, task: Some(task), file })
    }
}

/// A server at work. Dropping it drops its connections and removes its socket file, but only [`Handle::shutdown`]
/// returns when the drive is no longer in use.
#[derive(Debug)]
pub struct Handle {
    address: Address,
    counters: Arc<Counters>,
    stop: watch::Sender<Option<Farewell>>,
    task: Option<JoinHandle<Result<(), JoinError>>>,
    file: Option<SocketFile>,
}

impl Handle {
    /// Where clients find it.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// The NBD URI of an export.
    pub fn uri(&self, export: &str) -> String {
        self.address.uri(export)
    }

    /// What has been counted so far.
    pub fn counts(&self) -> Counts {
        self.counters.read()
    }

    /// Stops listening, ends all connections and waits until they have ended (with [`Farewell::Answer`]: for at most
    /// five seconds more than the drive takes). The counts are the last ones.
    ///
    /// # Panics
    /// If a drive has panicked in one of the connections: with its panic.
    pub async fn shutdown(mut self, farewell: Farewell) -> Counts {
        self.file = None;
        self.stop.send_replace(Some(farewell));
        let ended = match self.task.take() {
            Some(task) => task.await.and_then(|sessions| sessions),
            None => Ok(()),
        };
        match ended.map_err(JoinError::try_into_panic) {
            Err(Ok(panic)) => std::panic::resume_unwind(panic),
            // The runtime itself is going down.
            Err(Err(_)) | Ok(()) => self.counts(),
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.stop.send_replace(Some(Farewell::Drop));
        if let Some(task) = self.task.take() {
            task.abort();
        }
    }
}

/// What all connections share.
struct Shop {
    exports: Exports,
    config: Config,
    counters: Arc<Counters>,
    stopped: watch::Receiver<Option<Farewell>>,
}

enum Door {
    Unix(UnixListener),
    Tcp(TcpListener),
}

enum Guest {
    Unix(tokio::net::UnixStream),
    Tcp(tokio::net::TcpStream),
}

impl Door {
    async fn next(&self) -> io::Result<Guest> {
        match self {
            Door::Unix(listener) => Ok(Guest::Unix(listener.accept().await?.0)),
            Door::Tcp(listener) => {
                let stream = listener.accept().await?.0;
                // Section "Protocol phases": TCP_NODELAY should be set.
                stream.set_nodelay(true)?;
                Ok(Guest::Tcp(stream))
            }
        }
    }
}

/// Accepts until told to stop; then waits for the connections. Gives the first panic among them.
async fn accept(door: Door, shop: Arc<Shop>, mut stopped: watch::Receiver<Option<Farewell>>) -> Result<(), JoinError> {
    let mut sessions = JoinSet::new();
    let mut outcome = Ok(());
    loop {
        let guest = tokio::select! {
            _ = farewell(&mut stopped) => break,
            Some(ended) = sessions.join_next() => {
                outcome = outcome.and(ended);
                continue;
            }
            guest = door.next() => guest,
        };
        match guest {
            Ok(guest) if sessions.len() < shop.config.connections => {
                let number = shop.counters.connections.fetch_add(1, Relaxed) + 1;
                let shop = Arc::clone(&shop);
                match guest {
                    Guest::Unix(stream) => sessions.spawn(attend(stream, shop, number)),
                    Guest::Tcp(stream) => sessions.spawn(attend(stream, shop, number)),
                };
            }
            Ok(_) => {
                shop.counters.turned_away.fetch_add(1, Relaxed);
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(_) => sleep(ACCEPT_PAUSE).await,
        }
    }
    drop(door);
    while let Some(ended) = sessions.join_next().await {
        outcome = outcome.and(ended);
    }
    outcome
}

/// One connection from its first byte to its last.
async fn attend(mut stream: impl Wire, shop: Arc<Shop>, number: u64) {
    let _closed = Closed(&shop.counters);
    let mut stopped = shop.stopped.clone();
    let mut inbox = Inbox::new(NEGOTIATION_INBOX);
    let negotiated = tokio::select! {
        _ = farewell(&mut stopped) => return,
        negotiated = timeout(shop.config.handshake, negotiate(&mut stream, &mut inbox, &shop.exports)) => negotiated,
    };
    match negotiated {
        Ok(Ok(Agreed::Transmission { export, structured })) => {
            let holder = shop.config.hold.map(|hold| Holder::new(hold, number));
            let counters = Arc::clone(&shop.counters);
            let session = Session::new(stream, inbox, &export, structured, shop.config.queue, holder, counters);
            session.run(farewell(&mut stopped)).await;
        }
        Ok(Ok(Agreed::Probe)) => {
            shop.counters.probes.fetch_add(1, Relaxed);
        }
        // Whoever breaks off a negotiation owes us nothing, nor we them.
        Ok(Ok(Agreed::Aborted) | Err(_)) => {}
        Ok(Ok(Agreed::Severed(why))) => shop.counters.severed(why),
        Err(_) => shop.counters.severed("the negotiation took too long"),
    }
}

/// Counts a connection as closed however it ends.
struct Closed<'a>(&'a Counters);

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        self.0.closed.fetch_add(1, Relaxed);
    }
}

/// Waits until the server is told to stop. A handle that is gone without a word means the same.
async fn farewell(stopped: &mut watch::Receiver<Option<Farewell>>) -> Farewell {
    stopped.wait_for(Option::is_some).await.ok().and_then(|told| *told).unwrap_or(Farewell::Drop)
}
