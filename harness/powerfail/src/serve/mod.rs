//! `powerfail serve` and `powerfail ctl`: a drive to use by hand, whose power can be cut.
//!
//! ```text
//! args -> place        where sockets and recordings lie
//!      -> door         where hosts connect: a Unix socket, a TCP port, or a socket that a parent process passed
//!      -> generation   from one power-on to the next cut: a drive, its recording, its server
//!      -> station      the power switch: on -> cut -> off -> restore -> on
//!      <- control      JSON lines over a socket  <- ctl
//! ```
//!
//! # A cut
//!
//! At one instant, under the drive's own lock, the drive loses its power: from then on no request is applied and no reply
//! is recorded, on any connection. What hosts get to see of it is the cut's *style*: errors, closed connections, or
//! silence. Then the recording is closed, and the durability model decides from it alone what is on the platter: the
//! history at the event of the cut, and of what is loose there a keyed random subset, as the explorer `sampled` draws
//! it. That is a recipe, so the same platter can be made again from the recording at any time.
//!
//! # A restore
//!
//! A restored drive is a new *generation* with a recording of its own. Its first events write the platter, and the mark
//! `mounted` behind them settles it; so each recording stands for itself, and needs none of those before it.
//!
//! What is not here: several drives that lose their power at once. The control protocol answers with a list of drives
//! that has one entry.

mod activation;
mod args;
mod attach_text;
mod control;
mod ctl;
mod door;
mod generation;
mod place;
mod platter;
mod protocol;
mod server;
mod station;
mod tape;

pub use args::{CtlArgs, CtlVerb, ServeArgs};
pub use ctl::ctl;
pub use place::{is_served, materialise};
pub use server::serve;
