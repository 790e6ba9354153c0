//! Progress of long work: a bar on a terminal, plain lines elsewhere.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressStyle};

/// Progress of one piece of work of known length.
#[derive(Debug)]
pub struct Progress {
    what: String,
    total: u64,
    done: u64,
    bar: Option<ProgressBar>,
    told: u64,
}

impl Progress {
    /// Work of `total` pieces.
    pub fn new(what: &str, total: u64) -> Progress {
        let bar = std::io::stderr().is_terminal().then(|| {
            let style =
                ProgressStyle::with_template("{prefix:32} {wide_bar} {pos}/{len} {msg} {eta}").expect("a template");
            ProgressBar::new(total).with_style(style).with_prefix(what.to_owned())
        });
        Progress { what: what.into(), total, done: 0, bar, told: 0 }
    }

    /// One piece is done; `note` is a few words on how it goes.
    pub fn step(&mut self, note: &str) {
        self.done += 1;
        match &self.bar {
            Some(bar) => {
                bar.set_message(note.to_owned());
                bar.inc(1);
            }
            None => {
                let quarter = (self.done * 4).checked_div(self.total).unwrap_or(4);
                if quarter > self.told {
                    self.told = quarter;
                    eprintln!("{}: {}/{} {note}", self.what, self.done, self.total);
                }
            }
        }
    }

    /// Takes the bar away.
    pub fn finish(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}

/// One line about what happens now.
pub fn say(text: &str) {
    eprintln!("{text}");
}
