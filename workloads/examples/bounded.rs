//! Prints how many sequences `bounded` has, and those whose numbers are given.

use powerfail_workloads::catalog::bounded::{LENGTH_3, sequence, size};

fn main() {
    let [one, two, all] = size();
    println!("{all} sequences: {one} of length 1, {two} of length 2, {LENGTH_3} drawn of length 3");
    for word in std::env::args().skip(1) {
        match word.parse().ok().and_then(sequence) {
            Some(steps) => println!("{word}: {}", steps.join("; ")),
            None => {
                eprintln!("{word} is no number below {all}");
                std::process::exit(2);
            }
        }
    }
}
