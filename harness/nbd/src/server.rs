//! Serving: accept, negotiate within a deadline, transmit, and stop when told to.
//!
//! A server that has been shut down has closed its listener, ended every connection, and will not touch the drive again.
//! Nothing that a dropped connection carried is applied later.
//!
//! A power cut needs more than a shutdown, because hosts don't let go of a connection when a drive does. So a server can
//! also be *silenced* (nothing is answered any more, connections stay open) and can *part* (connections are ended from
//! this side, and each is kept, its late bytes thrown away, until the host has let go of it too).

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::{Arc, Mutex};
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
use crate::peer::Peer;
use crate::transmission::{Session, Terms, Wire};

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

/// What a server has been told; it only ever goes further down this list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Serve,
    /// Answer nothing, end nothing.
    Silence,
    /// End all connections from this side, and wait for the hosts to do so too.
    Part(Farewell),
    /// End all connections.
    Leave(Farewell),
}

/// What is still at work.
#[derive(Clone, Copy, Debug)]
struct Working {
    /// Somebody can still connect.
    door: bool,
    /// Connections that may still touch the drive or answer.
    sessions: usize,
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

    /// Serves on a socket that listens already: one that a parent process passed (systemd's socket activation). Its file,
    /// if it has one, is left alone.
    ///
    /// # Errors
    /// If it is no listening Unix or TCP socket.
    pub fn on_socket(socket: OwnedFd) -> io::Result<Server> {
        let listener = Listener::passed(socket)?;
        let address = listener.address()?;
        Ok(Server { listener, address })
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
        let (stop, stopped) = watch::channel(Order::Serve);
        let shop = Arc::new(Shop {
            exports,
            config,
            counters: Arc::default(),
            silent: Arc::default(),
            peers: Mutex::default(),
            working: watch::channel(Working { door: true, sessions: 0 }).0,
            stopped: stopped.clone(),
        });
        let (door, file) = match self.listener {
            Listener::Unix(listener, file) => (Door::Unix(UnixListener::from_std(listener)?), file),
            Listener::Tcp(listener) => (Door::Tcp(TcpListener::from_std(listener)?), None),
        };
        let task = tokio::spawn(accept(door, Arc::clone(&shop), stopped));
        Ok(Handle { address: self.address, shop, stop, task: Some(task), file })
    }
}

/// A server at work. Dropping it drops its connections and removes its socket file, but only [`Handle::shutdown`]
/// returns when the drive is no longer in use.
#[derive(Debug)]
pub struct Handle {
    address: Address,
    shop: Arc<Shop>,
    stop: watch::Sender<Order>,
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
        self.shop.counters.read()
    }

    /// Who is connected, in the order of their coming; also who has not let go of a connection that this side has ended.
    pub fn peers(&self) -> Vec<Peer> {
        self.shop.peers.lock().expect("nothing panics with it").values().cloned().collect()
    }

    /// From now on nothing is answered and no connection is ended. A drive that loses its power *after* this call
    /// began is seen by no host: where it refuses for want of power ([`Refusal::PowerOff`]), no error is sent.
    ///
    /// [`Refusal::PowerOff`]: powerfail_drive::request::Refusal::PowerOff
    pub fn silence(&self) {
        // Before the drive can refuse: whoever sees the refusal sees this too, because the drive's lock is in between.
        self.shop.silent.store(true, Release);
        self.stop.send_if_modified(|order| {
            let serving = *order == Order::Serve;
            if serving {
                *order = Order::Silence;
            }
            serving
        });
    }

    /// Waits until nobody can connect any more, after [`Handle::silence`]. A Unix socket's file stays until the server
    /// is shut down: who connects is refused.
    pub async fn closed(&self) {
        self.until(|working| !working.door).await;
    }

    /// Stops listening and ends all connections from this side. A host that has not let go of its connection stays in
    /// [`Handle::peers`], and what it still sends is thrown away. When this returns the drive is no longer in use and
    /// nothing more is sent. A Unix socket's file stays until the server is shut down: who connects is refused.
    pub async fn part(&self, farewell: Farewell) {
        self.stop.send_if_modified(|order| {
            let stays = matches!(order, Order::Serve | Order::Silence);
            if stays {
                *order = Order::Part(farewell);
            }
            stays
        });
        self.until(|working| !working.door && working.sessions == 0).await;
    }

    async fn until(&self, state: impl FnMut(&Working) -> bool) {
        // The sender is ours, so it can't be gone.
        let _ = self.shop.working.subscribe().wait_for(state).await;
    }

    /// Stops listening, ends all connections and waits until they have ended (with [`Farewell::Answer`]: for at most
    /// five seconds more than the drive takes). The counts are the last ones.
    ///
    /// # Panics
    /// If a drive has panicked in one of the connections: with its panic.
    pub async fn shutdown(mut self, farewell: Farewell) -> Counts {
        self.file = None;
        self.stop.send_replace(Order::Leave(farewell));
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
        self.stop.send_replace(Order::Leave(Farewell::Drop));
        if let Some(task) = self.task.take() {
            task.abort();
        }
    }
}

/// What all connections share.
#[derive(Debug)]
struct Shop {
    exports: Exports,
    config: Config,
    counters: Arc<Counters>,
    silent: Arc<AtomicBool>,
    /// By the number of the connection.
    peers: Mutex<BTreeMap<u64, Peer>>,
    working: watch::Sender<Working>,
    stopped: watch::Receiver<Order>,
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
async fn accept(door: Door, shop: Arc<Shop>, mut stopped: watch::Receiver<Order>) -> Result<(), JoinError> {
    let mut sessions = JoinSet::new();
    let mut outcome = Ok(());
    loop {
        let guest = tokio::select! {
            _ = closing(&mut stopped) => break,
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
                shop.working.send_modify(|working| working.sessions += 1);
                match guest {
                    Guest::Unix(stream) => {
                        let peer = Peer::of_unix(number, &stream);
                        sessions.spawn(attend(stream, shop, peer))
                    }
                    Guest::Tcp(stream) => {
                        let peer = Peer::of_tcp(number, &stream);
                        sessions.spawn(attend(stream, shop, peer))
                    }
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
    shop.working.send_modify(|working| working.door = false);
    while let Some(ended) = sessions.join_next().await {
        outcome = outcome.and(ended);
    }
    outcome
}

/// One connection from its first byte until the host or this side has let go of it for good.
async fn attend(mut stream: impl Wire, shop: Arc<Shop>, peer: Peer) {
    let _open = Open::new(&shop, peer.clone());
    let mut stopped = shop.stopped.clone();
    {
        let _serving = Serving(&shop);
        serve_one(&mut stream, &shop, peer.connection, &mut stopped).await;
    }
    if matches!(*stopped.borrow(), Order::Part(_)) {
        linger(stream, stopped).await;
    }
}

/// Negotiation and transmission.
async fn serve_one(stream: &mut impl Wire, shop: &Shop, number: u64, stopped: &mut watch::Receiver<Order>) {
    let mut inbox = Inbox::new(NEGOTIATION_INBOX);
    let negotiated = tokio::select! {
        _ = closing(stopped) => {
            // A silenced server leaves this one waiting too.
            farewell(stopped).await;
            return;
        }
        negotiated = timeout(shop.config.handshake, negotiate(stream, &mut inbox, &shop.exports)) => negotiated,
    };
    match negotiated {
        Ok(Ok(Agreed::Transmission { export, structured })) => {
            let terms = Terms {
                queue: shop.config.queue,
                holder: shop.config.hold.map(|hold| Holder::new(hold, number)),
                counters: Arc::clone(&shop.counters),
                silent: Arc::clone(&shop.silent),
            };
            Session::new(stream, inbox, &export, structured, terms).run(farewell(stopped)).await;
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

/// Ends a connection from this side, and throws away what comes until the host has ended it too, or the server leaves.
async fn linger(mut stream: impl Wire, mut stopped: watch::Receiver<Order>) {
    // A host that is gone already says so in the read that follows.
    let _ = poll_fn(|cx| Pin::new(&mut stream).poll_shutdown(cx)).await;
    let mut late = Inbox::new(NEGOTIATION_INBOX);
    loop {
        let count = tokio::select! {
            _ = stopped.wait_for(|order| matches!(order, Order::Leave(_))) => return,
            count = poll_fn(|cx| late.poll_fill(cx, 1, Pin::new(&mut stream))) => count,
        };
        match count {
            Ok(0) | Err(_) => return,
            Ok(count) => late.consume(count),
        }
    }
}

/// Counts and names a connection as long as it is open, however it ends.
struct Open<'a> {
    shop: &'a Shop,
    number: u64,
}

impl<'a> Open<'a> {
    fn new(shop: &'a Shop, peer: Peer) -> Open<'a> {
        let number = peer.connection;
        shop.peers.lock().expect("nothing panics with it").insert(number, peer);
        Open { shop, number }
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.shop.peers.lock().expect("nothing panics with it").remove(&self.number);
        self.shop.counters.closed.fetch_add(1, Relaxed);
    }
}

/// A connection that may touch the drive and answer, however it ends.
struct Serving<'a>(&'a Shop);

impl Drop for Serving<'_> {
    fn drop(&mut self) {
        self.0.working.send_modify(|working| working.sessions -= 1);
    }
}

/// Waits until the server is told anything but to serve.
async fn closing(stopped: &mut watch::Receiver<Order>) {
    let _ = stopped.wait_for(|order| *order != Order::Serve).await;
}

/// Waits until the server is told to end its connections. A handle that is gone without a word means the same.
async fn farewell(stopped: &mut watch::Receiver<Order>) -> Farewell {
    match stopped.wait_for(|order| matches!(order, Order::Part(_) | Order::Leave(_))).await.map(|order| *order) {
        Ok(Order::Part(farewell) | Order::Leave(farewell)) => farewell,
        _ => Farewell::Drop,
    }
}
