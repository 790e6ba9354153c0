//! Ctrl-C: the first asks for an orderly stop after what is under way, a second one ends the program at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};

/// Says whether the user has asked to stop.
#[derive(Clone, Debug)]
pub struct Stop(Arc<AtomicBool>);

/// The work was stopped by the user; what is done is kept.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("stopped; what is done is kept, go on with --resume")]
pub struct Stopped;

impl Stop {
    /// Listens to SIGINT and SIGTERM from now on.
    ///
    /// # Errors
    /// If the handlers can't be set.
    pub fn listen() -> std::io::Result<Stop> {
        let asked = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // The order matters: the second signal finds the flag set and ends the program.
            signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&asked))?;
            signal_hook::flag::register(signal, Arc::clone(&asked))?;
        }
        Ok(Stop(asked))
    }

    /// Whether to stop.
    pub fn asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// An error if the user has asked to stop.
    ///
    /// # Errors
    /// [`Stopped`].
    pub fn check(&self) -> Result<(), Stopped> {
        if self.asked() { Err(Stopped) } else { Ok(()) }
    }
}
