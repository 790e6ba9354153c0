//! What a guest and its QEMU print, followed by a thread and kept within bounds: the first part, where a boot goes wrong,
//! and the last part, where a kernel panics. A guest that prints without end costs neither memory nor disk.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::process::ChildStderr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::agent::WORDLESS;

/// Bytes kept of the beginning, and of the end.
const FIRST: usize = 32 * 1024;
const LAST: usize = 96 * 1024;
/// Bytes of the end that go into an error message.
const WORDS: usize = 4096;
/// Longest wait for the rest of the text, once everybody who could print is dead.
const REST: Duration = Duration::from_secs(1);

/// The text so far.
#[derive(Debug)]
pub(crate) struct Console {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    kept: Mutex<Kept>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Kept {
    first: Vec<u8>,
    last: VecDeque<u8>,
    left_out: u64,
    ended: bool,
}

impl Kept {
    /// Bytes that were printed so far.
    fn printed(&self) -> u64 {
        (self.first.len() + self.last.len()) as u64 + self.left_out
    }
}

impl Console {
    /// Starts the thread; it ends with the last writer.
    ///
    /// # Errors
    /// No thread can be made.
    pub(crate) fn follow(mut pipe: ChildStderr) -> io::Result<Console> {
        let shared = Arc::new(Shared::default());
        let kept = Arc::clone(&shared);
        let follow = move || {
            let mut buffer = [0; 4096];
            loop {
                match pipe.read(&mut buffer) {
                    Ok(length @ 1..) => {
                        kept.lock().add(&buffer[..length]);
                        kept.changed.notify_all();
                    }
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                    Ok(0) | Err(_) => break,
                }
            }
            kept.lock().ended = true;
            kept.changed.notify_all();
        };
        std::thread::Builder::new().name("guest console".into()).spawn(follow)?;
        Ok(Console { shared })
    }

    /// Everything that is kept.
    pub(crate) fn text(&self) -> String {
        self.shared.lock().text()
    }

    /// Bytes that were printed so far: a place for [`Console::since`].
    pub(crate) fn printed(&self) -> u64 {
        self.shared.lock().printed()
    }

    /// What was printed after that place, as far as it is kept. Of a dead guest the rest is waited for, within bounds.
    pub(crate) fn since(&self, place: u64, dead: bool) -> String {
        let kept = self.shared.lock();
        let rest = if dead { REST } else { Duration::ZERO };
        let waited = self.shared.changed.wait_timeout_while(kept, rest, |kept| !kept.ended);
        let (kept, _) = waited.unwrap_or_else(PoisonError::into_inner);
        kept.since(place)
    }

    /// The rest of the first line that begins with `prefix`; none: there is none in time.
    pub(crate) fn after(&self, prefix: &str, limit: Duration) -> Option<String> {
        let find = |kept: &Kept| {
            let text = kept.text();
            let lines = text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
            lines.filter_map(|line| line.strip_prefix(prefix)).next().map(str::to_string)
        };
        let kept = self.shared.lock();
        let waited = self.shared.changed.wait_timeout_while(kept, limit, |kept| !kept.ended && find(kept).is_none());
        let (kept, _) = waited.unwrap_or_else(PoisonError::into_inner);
        find(&kept)
    }

    /// The end of it, for an error message; called when the guest is dead.
    pub(crate) fn last_words(&self) -> String {
        let kept = self.shared.lock();
        let waited = self.shared.changed.wait_timeout_while(kept, REST, |kept| !kept.ended);
        let (kept, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let text = kept.text();
        let from = (text.len().saturating_sub(WORDS)..).find(|at| text.is_char_boundary(*at)).unwrap_or_default();
        let words = text[from..].trim();
        if words.is_empty() { WORDLESS.to_string() } else { words.to_string() }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn add(&mut self, bytes: &[u8]) {
        let first = bytes.len().min(FIRST - self.first.len());
        self.first.extend_from_slice(&bytes[..first]);
        self.last.extend(&bytes[first..]);
        let over = self.last.len().saturating_sub(LAST);
        self.last.drain(..over);
        self.left_out += over as u64;
    }

    fn since(&self, place: u64) -> String {
        let first = usize::try_from(place).unwrap_or(usize::MAX).min(self.first.len());
        let last = usize::try_from(place.saturating_sub(self.first.len() as u64 + self.left_out)).unwrap_or(usize::MAX);
        let mut bytes = self.first[first..].to_vec();
        bytes.extend(self.last.iter().skip(last));
        legible(&bytes)
    }

    fn text(&self) -> String {
        let mut bytes = self.first.clone();
        if self.left_out > 0 {
            bytes.extend_from_slice(format!("\n[... {} bytes left out ...]\n", self.left_out).as_bytes());
        }
        bytes.extend(&self.last);
        legible(&bytes)
    }
}

/// A serial console ends its lines with both; firmware adds escape sequences, which are no text.
fn legible(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).chars().filter(|c| *c == '\n' || *c == '\t' || !c.is_control()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_and_the_end_are_kept_of_a_text_without_end() {
        let mut kept = Kept::default();
        kept.add(b"the beginning\r\n");
        for _ in 0..10_000 {
            kept.add(b"and on and on and on and on\r\n");
        }
        kept.add(b"Kernel panic\r\n");
        let text = kept.text();
        assert!(text.starts_with("the beginning\nand on") && text.ends_with("\nKernel panic\n"), "{text}");
        assert!(text.len() < FIRST + LAST + 100 && text.contains("bytes left out"));
        assert_eq!(kept.left_out, 15 + 14 + 10_000 * 29 - (FIRST + LAST) as u64);
        assert_eq!(kept.since(kept.printed() - 14), "Kernel panic\n");
        assert_eq!(kept.since(kept.printed()), "");
        assert!(kept.since(0).starts_with("the beginning\nand on") && kept.since(0).ends_with("\nKernel panic\n"));
    }
}
