//! Shards: which part of a matrix a machine has. A job array's task finds its number by itself.

use std::fmt;

use crate::config::Config;
use crate::folder::Usage;

/// The cells whose place in the order is `number`, modulo `of`: the same matrix file is always split in the same way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// From 0.
    pub number: u64,
    /// How many there are.
    pub of: u64,
}

/// Where the number of a task of a job array is: Slurm's, and Kubernetes' of an indexed job.
const NUMBERS: &[&str] = &["SLURM_ARRAY_TASK_ID", "JOB_COMPLETION_INDEX"];
/// Where Slurm has the smallest number of the array, which need not be 0, and their count.
const SLURM_MIN: &str = "SLURM_ARRAY_TASK_MIN";
const SLURM_COUNT: &str = "SLURM_ARRAY_TASK_COUNT";

impl Shard {
    /// Reads `I/N`, `auto/N` (the number is the job array's) or `auto` (the count is Slurm's, too).
    ///
    /// # Errors
    /// [`Usage`] if it is none, or the environment has none.
    pub fn read(text: &str, environment: impl Fn(&str) -> Option<String>) -> Result<Shard, Usage> {
        let refused = |why: &str| Usage(format!("--shard {text}: {why}"));
        let variable = |name: &str| environment(name).and_then(|value| value.parse::<u64>().ok());
        let (number, of) = match text.split_once('/') {
            Some((number, of)) => {
                let of = of.parse().map_err(|_| refused("say I/N, such as 0/4 for the first of four, or auto/N"))?;
                (number, of)
            }
            None if text == "auto" => {
                let of = variable(SLURM_COUNT)
                    .ok_or_else(|| refused("how many shards there are is not known; say auto/N"))?;
                ("auto", of)
            }
            None => return Err(refused("say I/N, such as 0/4 for the first of four, or auto/N")),
        };
        let number = if number == "auto" {
            let found = NUMBERS.iter().find_map(|name| variable(name)).ok_or_else(|| {
                refused("this is no task of a job array: neither SLURM_ARRAY_TASK_ID nor JOB_COMPLETION_INDEX is set")
            })?;
            found
                .checked_sub(variable(SLURM_MIN).unwrap_or(0))
                .ok_or_else(|| refused("SLURM_ARRAY_TASK_MIN is larger"))?
        } else {
            number.parse().map_err(|_| refused("say I/N, such as 0/4 for the first of four, or auto/N"))?
        };
        if number >= of {
            return Err(refused(&format!("shards are numbered from 0, so {number} of {of} is none")));
        }
        Ok(Shard { number, of })
    }

    /// The part of a run that it has.
    ///
    /// # Errors
    /// [`Usage`] if there are more shards than cells and nothing is left for this one.
    pub fn of(self, config: Config) -> Result<Config, Usage> {
        let all = config.cells.len();
        let mine = |index: usize| index as u64 % self.of == self.number;
        let cells: Vec<_> =
            config.cells.into_iter().enumerate().filter(|(index, _)| mine(*index)).map(|(_, cell)| cell).collect();
        if cells.is_empty() {
            return Err(Usage(format!(
                "shard {self}: the matrix has {all} cells, so none is left for it; use fewer shards"
            )));
        }
        Ok(Config { cells, shard: Some(self.to_string()), ..config })
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_of_a_job_array_finds_its_number() {
        let none = |_: &str| None;
        let slurm = |name: &str| match name {
            "SLURM_ARRAY_TASK_ID" => Some("3".to_owned()),
            "SLURM_ARRAY_TASK_MIN" => Some("1".into()),
            "SLURM_ARRAY_TASK_COUNT" => Some("4".into()),
            _ => None,
        };
        let kubernetes = |name: &str| (name == "JOB_COMPLETION_INDEX").then(|| "0".to_owned());
        assert_eq!(Shard::read("1/4", none).unwrap(), Shard { number: 1, of: 4 });
        assert_eq!(Shard::read("auto", slurm).unwrap(), Shard { number: 2, of: 4 });
        assert_eq!(Shard::read("auto/9", slurm).unwrap(), Shard { number: 2, of: 9 });
        assert_eq!(Shard::read("auto/2", kubernetes).unwrap(), Shard { number: 0, of: 2 });
        for (text, why) in [("4/4", "from 0"), ("1", "I/N"), ("a/4", "I/N"), ("auto/4", "no task"), ("auto", "auto/N")]
        {
            assert!(Shard::read(text, none).unwrap_err().0.contains(why), "{text}");
        }
    }
}
