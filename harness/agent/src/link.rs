//! The agent's end of the line to the harness: commands in, events out, marks and their acknowledgements.
//!
//! No thread of its own reads the input: each hand-over between threads costs up to 60 µs on a virtual machine whose
//! processors sleep, and a worker pays for every step. Whoever waits reads. Between commands that is the command loop;
//! during a run it is one of the workers that wait for an acknowledgement. It wakes the others as theirs arrive, and
//! when it has its own, passes the reading on to one of them.
//!
//! The end of the input means that the harness is dead. An agent in namespaces of its own need not notice that in the
//! middle of a command: its leash does.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};

use powerfail_workloads::{Mark, Marks};

use crate::protocol::{Command, Event};

/// The harness, seen from the agent.
pub(crate) struct Link {
    out: Mutex<File>,
    line: Mutex<Line>,
}

/// A line that came from the harness; an error says why it is no command.
pub(crate) type Heard = Result<Command, String>;

struct Line {
    /// None: somebody is reading.
    input: Option<BufReader<File>>,
    /// Marks that are not acknowledged yet, with their workers. While the input is free and this is not empty, one of
    /// these is awake and about to read.
    waiting: BTreeMap<u64, Thread>,
    next_mark: u64,
    /// Commands that arrived during a run.
    queued: VecDeque<Heard>,
    ended: bool,
}

impl Link {
    /// Speaks over standard input and output.
    ///
    /// # Errors
    /// They can't be used.
    pub(crate) fn on_standard_io() -> io::Result<Link> {
        let input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
        let output = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        Ok(Link::over(input, output))
    }

    fn over(input: File, output: File) -> Link {
        let line = Line {
            input: Some(BufReader::new(input)),
            waiting: BTreeMap::new(),
            next_mark: 0,
            queued: VecDeque::new(),
            ended: false,
        };
        Link { out: Mutex::new(output), line: Mutex::new(line) }
    }

    /// The next command; none: the harness is gone. Only between runs.
    pub(crate) fn next(&self) -> Option<Heard> {
        let mut line = locked(&self.line);
        loop {
            if let Some(heard) = line.queued.pop_front() {
                return Some(heard);
            }
            if line.ended {
                return None;
            }
            let heard = read(line.input.as_mut()?);
            line.sort(heard);
        }
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
        locked(&self.line).next_mark = 0;
    }
}

impl Marks for Link {
    fn returned(&self, mark: &Mark) -> io::Result<()> {
        let id = locked(&self.line).expect_ack(thread::current());
        self.send(&Event::Mark { id, label: mark.to_string() })?;
        let mut line = locked(&self.line);
        loop {
            if !line.waiting.contains_key(&id) {
                line.pass_on();
                return Ok(());
            }
            if line.ended {
                return Err(io::Error::new(io::ErrorKind::BrokenPipe, "the harness is gone"));
            }
            line = match line.input.take() {
                Some(mut input) => {
                    drop(line);
                    let heard = read(&mut input);
                    let mut line = locked(&self.line);
                    line.input = Some(input);
                    line.sort(heard);
                    line
                }
                None => {
                    drop(line);
                    // Woken too early, or before this: the loop looks again.
                    thread::park();
                    locked(&self.line)
                }
            };
        }
    }
}

impl Line {
    fn expect_ack(&mut self, worker: Thread) -> u64 {
        let id = self.next_mark;
        self.next_mark += 1;
        self.waiting.insert(id, worker);
        id
    }

    /// Puts what was read where it belongs.
    fn sort(&mut self, heard: Option<Heard>) {
        match heard {
            // Nobody waiting for it: an acknowledgement too many, which harms nothing.
            Some(Ok(Command::Ack { id })) => drop(self.waiting.remove(&id).map(|worker| worker.unpark())),
            Some(heard) => self.queued.push_back(heard),
            None => {
                self.ended = true;
                self.waiting.values().for_each(Thread::unpark);
            }
        }
    }

    /// Whoever stops reading wakes the next reader.
    fn pass_on(&self) {
        if let (true, Some(worker)) = (self.input.is_some(), self.waiting.values().next()) {
            worker.unpark();
        }
    }
}

/// Reads one line; none: the input has ended, or ended in the middle of one.
fn read(input: &mut BufReader<File>) -> Option<Heard> {
    let mut line = Vec::new();
    match input.read_until(b'\n', &mut line) {
        Ok(_) if line.ends_with(b"\n") => Some(serde_json::from_slice(&line).map_err(|e| e.to_string())),
        _ => None,
    }
}

/// A panic of another thread does not make the data here wrong: each critical section leaves it whole.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::OwnedFd;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// A link, the harness's writing end and its reading end.
    fn link() -> (Link, io::PipeWriter, BufReader<io::PipeReader>) {
        let (input, commands) = io::pipe().unwrap();
        let (events, output) = io::pipe().unwrap();
        let link = Link::over(File::from(OwnedFd::from(input)), File::from(OwnedFd::from(output)));
        (link, commands, BufReader::new(events))
    }

    fn mark_id(events: &mut impl BufRead) -> u64 {
        let mut line = String::new();
        events.read_line(&mut line).unwrap();
        match serde_json::from_str(&line).unwrap() {
            Event::Mark { id, .. } => id,
            other => panic!("{other:?}"),
        }
    }

    fn say(commands: &mut impl Write, command: &Command) {
        let mut line = serde_json::to_vec(command).unwrap();
        line.push(b'\n');
        commands.write_all(&line).unwrap();
    }

    #[test]
    fn each_worker_goes_on_with_its_own_acknowledgement_in_whatever_order_they_come() {
        let (link, mut commands, mut events) = link();
        let gone_on = AtomicUsize::new(0);
        thread::scope(|scope| {
            for worker in 0..6 {
                let (link, gone_on) = (&link, &gone_on);
                scope.spawn(move || {
                    for step in 0..500 {
                        link.returned(&Mark { worker, step, errno: 0 }).unwrap();
                        gone_on.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
            for round in 0..500 {
                // All that can be outstanding; then the last one first.
                let held: Vec<u64> = (0..6).map(|_| mark_id(&mut events)).collect();
                assert_eq!(gone_on.load(Ordering::SeqCst), 6 * round, "nobody goes on without");
                for id in held.into_iter().rev() {
                    say(&mut commands, &Command::Ack { id });
                }
            }
        });
        assert_eq!(gone_on.load(Ordering::SeqCst), 3000);
    }

    #[test]
    fn commands_during_a_run_are_kept_for_after_it() {
        let (link, mut commands, mut events) = link();
        thread::scope(|scope| {
            let worker = scope.spawn(|| link.returned(&Mark { worker: 0, step: 1, errno: 0 }));
            let id = mark_id(&mut events);
            say(&mut commands, &Command::Sync);
            commands.write_all(b"nonsense\n").unwrap();
            say(&mut commands, &Command::Ack { id });
            worker.join().unwrap().unwrap();
        });
        assert!(matches!(link.next(), Some(Ok(Command::Sync))));
        assert!(matches!(link.next(), Some(Err(_))));
        commands.write_all(b"\"hel").unwrap();
        drop(commands);
        assert!(link.next().is_none(), "a command without its end is none");
    }

    #[test]
    fn the_end_of_the_harness_ends_every_wait() {
        let (link, commands, mut events) = link();
        thread::scope(|scope| {
            let wait = |worker| link.returned(&Mark { worker, step: 1, errno: 0 });
            let workers = [scope.spawn(move || wait(0)), scope.spawn(move || wait(1)), scope.spawn(move || wait(2))];
            for _ in 0..3 {
                mark_id(&mut events);
            }
            drop(commands);
            for worker in workers {
                assert_eq!(worker.join().unwrap().unwrap_err().kind(), io::ErrorKind::BrokenPipe);
            }
        });
        assert!(link.next().is_none());
    }
}
