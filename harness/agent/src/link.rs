//! The agent's end of the line to the harness: commands in, events out, acknowledgements past the queue.
//!
//! One thread reads standard input. An `Ack` wakes its worker at once, whatever the command loop is doing; everything
//! else queues for the loop. The end of the input means that the harness is dead.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender, SyncSender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use powerfail_workloads::{Mark, Marks};

use crate::protocol::{Command, Event};

/// What to do when the harness is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Orphaned {
    /// End the process at once; its namespaces take everything along.
    ExitAtOnce,
    /// Let the command loop end, so that its guards undo everything.
    EndTheLoop,
}

/// The harness, seen from the agent.
pub(crate) struct Link {
    out: Mutex<File>,
    waiting: Mutex<HashMap<u64, SyncSender<()>>>,
    next_mark: AtomicU64,
}

/// A line that came from the harness.
pub(crate) type Heard = Result<Command, String>;

impl Link {
    /// Starts reading standard input. The receiver ends when the harness is gone.
    ///
    /// # Errors
    /// Standard input or output can't be used.
    pub(crate) fn on_standard_io(orphaned: Orphaned) -> io::Result<(Arc<Link>, Receiver<Heard>)> {
        let input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
        let output = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        let link = Arc::new(Link {
            out: Mutex::new(output),
            waiting: Mutex::new(HashMap::new()),
            next_mark: AtomicU64::new(0),
        });
        let (sender, receiver) = mpsc::channel();
        let reader = Arc::clone(&link);
        std::thread::Builder::new().name("commands".into()).spawn(move || reader.listen(input, &sender, orphaned))?;
        Ok((link, receiver))
    }

    /// Sends an event; one line, one write.
    ///
    /// # Errors
    /// The harness is gone.
    pub(crate) fn send(&self, event: &Event) -> io::Result<()> {
        let mut line = serde_json::to_vec(event)?;
        line.push(b'\n');
        locked(&self.out).write_all(&line)
    }

    /// A new run numbers its marks from 0.
    pub(crate) fn start_run(&self) {
        self.next_mark.store(0, Ordering::Relaxed);
    }

    fn listen(&self, input: impl Read, commands: &Sender<Heard>, orphaned: Orphaned) {
        for line in BufReader::new(input).lines() {
            let Ok(line) = line else { break };
            match serde_json::from_str(&line) {
                // Nobody waiting: an acknowledgement too many, which harms nothing.
                Ok(Command::Ack { id }) => drop(locked(&self.waiting).remove(&id).map(|worker| worker.send(()))),
                Ok(command) => drop(commands.send(Ok(command))),
                Err(e) => drop(commands.send(Err(e.to_string()))),
            }
        }
        if orphaned == Orphaned::ExitAtOnce {
            // SAFETY: ends the process without running anything of it; that is the point, for the main thread may be
            // in a mount(2) or write(2) that takes long.
            unsafe { libc::_exit(0) }
        }
        locked(&self.waiting).clear();
    }
}

impl Marks for Link {
    fn returned(&self, mark: &Mark) -> io::Result<()> {
        let id = self.next_mark.fetch_add(1, Ordering::Relaxed);
        let (wake, acknowledged) = mpsc::sync_channel(1);
        locked(&self.waiting).insert(id, wake);
        self.send(&Event::Mark { id, label: mark.to_string() })?;
        acknowledged.recv().map_err(|_| io::Error::new(io::ErrorKind::BrokenPipe, "the harness is gone"))
    }
}

/// A panic of another thread does not make the data here wrong: each critical section is one call.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
