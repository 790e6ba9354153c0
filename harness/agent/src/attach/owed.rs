//! Does a disk owe an answer? It tells a file system that hangs from one that waits for its drive.

use std::fs;
use std::time::Duration;

/// Between the two looks. A drive that answers nothing for so long, while it has something to answer, is stuck; what is
/// slow but goes on has answered something.
const BETWEEN: Duration = Duration::from_secs(2);

/// Counts of `/sys/block/NAME/stat` (Documentation/block/stat.rst in the kernel's tree).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counts {
    /// Requests that the driver has and has not completed.
    in_flight: u64,
    /// Requests that were completed, of all kinds.
    completed: u64,
}

/// Requests that the driver had all the time between two looks, in which it completed none; 0 if it completed any.
pub(crate) fn owed(name: &str) -> u64 {
    let look = || fs::read_to_string(format!("/sys/block/{name}/stat")).ok().and_then(|text| Counts::parse(&text));
    let before = look();
    std::thread::sleep(BETWEEN);
    match (before, look()) {
        (Some(before), Some(after)) if before.completed == after.completed => before.in_flight.min(after.in_flight),
        _ => 0,
    }
}

impl Counts {
    fn parse(text: &str) -> Option<Counts> {
        let numbers: Vec<u64> = text.split_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
        // Reads, writes, and on newer kernels trims and flushes.
        let completed = [0, 4, 11, 15].iter().filter_map(|at| numbers.get(*at)).sum();
        Some(Counts { in_flight: *numbers.get(8)?, completed })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_columns_are_understood() {
        let new = "      7   0   8   9   4  0  0  0  3  5  9  2  0  0  0  1  6\n";
        assert_eq!(Counts::parse(new), Some(Counts { in_flight: 3, completed: 14 }));
        let old = "7 0 8 9 4 0 0 0 2 5 9";
        assert_eq!(Counts::parse(old), Some(Counts { in_flight: 2, completed: 11 }));
        assert_eq!(Counts::parse("nothing"), None);
    }
}
