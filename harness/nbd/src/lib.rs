//! The wire: a server of the NBD protocol (fixed newstyle, see NBD's `doc/proto.md`) for anything that is a
//! [`Device`](powerfail_drive::device::Device).
//!
//! It knows requests to a drive and nothing of kernels, crash states or power. What it guarantees beside the protocol:
//! - the drive is told of a reply immediately before the reply's bytes are queued to the socket;
//! - a connection that ends, with DISC or without, is no event for the drive: replies that it was owed are abandoned;
//! - no input makes it panic, hang or take memory without bound (`transmission.rs` says which bounds);
//! - after [`Handle::shutdown`] or [`Handle::part`] nothing reaches the drive any more.
//!
//! ```no_run
//! # async fn example(drive: std::sync::Arc<dyn powerfail_drive::device::Device>) -> Result<(), Box<dyn std::error::Error>> {
//! use powerfail_nbd::{Config, Exports, Farewell, Server};
//!
//! let server = Server::bind_unix("drive.sock")?.serve(Exports::one(drive), Config::default())?;
//! println!("nbdinfo '{}'", server.uri(""));
//! server.shutdown(Farewell::Answer).await;
//! # Ok(())
//! # }
//! ```

mod counters;
mod export;
mod handshake;
mod hold;
mod inbox;
mod listen;
mod outbox;
mod peer;
mod server;
mod transmission;
mod validate;
mod wire;

pub use counters::Counts;
pub use export::{Export, ExportError, Exports, MAX_PAYLOAD, MAX_WRITE};
pub use hold::{Hold, MAX_DEPTH};
pub use listen::{Address, BindError, Reach, SocketFile, listen_unix};
pub use peer::{Origin, Peer};
pub use server::{Config, Farewell, Handle, Server};
