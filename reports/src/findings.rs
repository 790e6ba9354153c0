//! Findings grouped by what they have in common.
//!
//! A thousand violated states rarely have a thousand causes. Two findings are of one group if they are of one kind and
//! their details differ in numbers and paths alone: block, inode, sector and device numbers, times, checksums, file names.
//! A check that names only the first of many breaches ends with how many more there are; that is no finding of its own.

use std::collections::BTreeMap;

use powerfail_ledger::{Finding, FindingKind};
use serde::Serialize;

use crate::tally::Violation;

/// Findings that differ in numbers and paths alone.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Group {
    /// The kind that they share.
    pub kind: FindingKind,
    /// The detail with numbers replaced by `#` and paths by `PATH`.
    pub normalised: String,
    /// States that have such a finding; a state counts once.
    pub states: u64,
    /// Which of the cell's violations shows it first.
    pub example: usize,
    /// The detail of that one, in full.
    pub detail: String,
}

/// Groups the findings of one cell's violations, the most frequent first.
pub(crate) fn group(violations: &[Violation]) -> Vec<Group> {
    let mut groups: BTreeMap<(FindingKind, String), Group> = BTreeMap::new();
    let mut last_seen: BTreeMap<(FindingKind, String), usize> = BTreeMap::new();
    for (index, violation) in violations.iter().enumerate() {
        for finding in violation.findings.iter().filter(|finding| !is_rest(&finding.detail)) {
            let key = (finding.kind, normalise(&finding.detail));
            if last_seen.insert(key.clone(), index) == Some(index) {
                continue;
            }
            groups
                .entry(key)
                .and_modify(|group| group.states += 1)
                .or_insert_with_key(|key| first(key, index, finding));
        }
    }
    let mut groups: Vec<Group> = groups.into_values().collect();
    groups.sort_by_key(|group| std::cmp::Reverse(group.states));
    groups
}

fn first((kind, normalised): &(FindingKind, String), example: usize, finding: &Finding) -> Group {
    Group { kind: *kind, normalised: normalised.clone(), states: 1, example, detail: finding.detail.clone() }
}

/// `and 12 more promises are broken`.
fn is_rest(detail: &str) -> bool {
    let number = detail.strip_prefix("and ").and_then(|rest| rest.split_once(" more "));
    number.is_some_and(|(number, _)| number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// A detail with each number replaced by `#` (runs of digits, and words that are hexadecimal numbers) and each word that
/// has a slash in it by `PATH`, together with the length of a name that was cut short.
pub fn normalise(detail: &str) -> String {
    let mut text = String::with_capacity(detail.len());
    let mut rest = detail;
    let mut begins = true;
    while let Some(next) = rest.chars().next() {
        if begins && let Some(path) = path(rest) {
            text.push_str("PATH");
            rest = &rest[path..];
            begins = false;
            continue;
        }
        begins = next.is_whitespace();
        let word = rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
        if word == 0 {
            // Runs of white space are one space: fsck wraps its lines by the length of the numbers in them.
            if !next.is_whitespace() {
                text.push(next);
            } else if !text.ends_with(' ') {
                text.push(' ');
            }
            rest = &rest[next.len_utf8()..];
        } else {
            push_word(&mut text, &rest[..word]);
            rest = &rest[word..];
        }
    }
    text.truncate(text.trim_end().len());
    text
}

/// The length of the path that the text begins with; none if it begins with another word.
fn path(text: &str) -> Option<usize> {
    let word = text.split(char::is_whitespace).next().unwrap_or(text);
    let path = word.trim_end_matches([',', ':', ';', '.']);
    if !path.contains('/') {
        return None;
    }
    // `shared/w0-40-abtjngz… (128 bytes)`
    let cut = path.ends_with('…').then(|| text[path.len()..].strip_prefix(" (")?.split_once(" bytes)")).flatten();
    let length = cut.filter(|(number, _)| number.bytes().all(|byte| byte.is_ascii_digit()));
    Some(path.len() + length.map_or(0, |(number, _)| " (".len() + number.len() + " bytes)".len()))
}

fn push_word(text: &mut String, word: &str) {
    let has_digit = word.bytes().any(|byte| byte.is_ascii_digit());
    let hexadecimal = word.len() >= 6 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    if has_digit && (hexadecimal || word.starts_with("0x")) {
        text.push('#');
        return;
    }
    for character in word.chars() {
        if !character.is_ascii_digit() {
            text.push(character);
        } else if !text.ends_with('#') {
            text.push('#');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn violation(details: &[(FindingKind, &str)]) -> Violation {
        let findings = details.iter().map(|&(kind, detail)| Finding { kind, detail: detail.into() }).collect();
        Violation { findings, ..Violation::default() }
    }

    #[test]
    fn numbers_do_not_make_a_difference_and_words_do() {
        let one = "EXT4-fs (loop3): bad block 1234 at 0xdeadBEEF, checksum deadbeef01";
        let other = "EXT4-fs (loop12): bad block 7 at 0x0, checksum 0123456789abcdef";
        assert_eq!(normalise(one), "EXT#-fs (loop#): bad block # at #, checksum #");
        assert_eq!(normalise(one), normalise(other));
        assert_ne!(normalise("facade is gone"), normalise("decade is gone"));
        assert_eq!(normalise("Inode 12,  i_size\n is 5"), "Inode #, i_size is #");
        assert_eq!(normalise("größe 5 µs"), "größe # µs");
    }

    #[test]
    fn file_names_do_not_make_a_difference() {
        let of = "PATH: its size is # bytes, but may only be # to # (synced by step #)";
        for path in ["shared/w0-11", "w0-1/w0-43b", "shared/w0-40-abtjngzaqppk… (128 bytes)"] {
            let detail = format!("{path}: its size is 0 bytes, but may only be 512 to 512 (synced by step 501)");
            assert_eq!(normalise(&detail), of);
        }
        assert_eq!(normalise("list of /shared fails: stat of /a/ö, fails"), "list of PATH fails: stat of PATH, fails");
        assert_eq!(normalise("a/b… (see 3 bytes)"), "PATH (see # bytes)");
    }

    #[test]
    fn how_many_more_there_are_is_no_finding() {
        let groups = group(&[violation(&[
            (FindingKind::Promises, "the directory d is gone"),
            (FindingKind::Promises, "and 12 more promises are broken"),
        ])]);
        assert_eq!(groups.len(), 1);
        assert!(!is_rest("and more promises are broken") && !is_rest("12 more promises"));
    }

    #[test]
    fn a_state_counts_once_in_a_group_and_in_each_of_its_groups() {
        use FindingKind::{Fsck, Kernel};
        let groups = group(&[
            violation(&[(Kernel, "error in 5"), (Fsck, "inode 1"), (Fsck, "inode 2")]),
            violation(&[(Fsck, "inode 3")]),
        ]);
        let seen: Vec<_> = groups.iter().map(|group| (group.kind, group.states, group.example)).collect();
        assert_eq!(seen, [(Fsck, 2, 0), (Kernel, 1, 0)]);
        assert_eq!(groups[0].detail, "inode 1");
    }
}
