//! Names of cells that are short and still tell them apart.
//!
//! What all variants of a file system share (`-b 4096 -J size=4`) is left out of its label, and mount options, workload,
//! drive, rig and kernel are named only where two cells would look the same without.

use std::collections::{BTreeMap, BTreeSet};

use crate::tally::{Cell, Key};

/// How a cell is called.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Label {
    /// The file system.
    pub(crate) fs: String,
    /// What sets its mkfs, and whatever else is needed, apart from the others; often empty.
    pub(crate) variant: String,
    /// The same, one for each thing.
    pub(crate) parts: Vec<String>,
    /// The mode.
    pub(crate) mode: String,
}

impl Label {
    /// File system and variant: a row of the matrix.
    pub(crate) fn row(&self) -> String {
        if self.variant.is_empty() { self.fs.clone() } else { format!("{} {}", self.fs, self.variant) }
    }

    /// What rows that belong together have in common: file system and mkfs, or what else comes first.
    pub(crate) fn heads(&self) -> (&str, &[String]) {
        (&self.fs, &self.parts[..self.parts.len().min(1)])
    }

    /// All of it, in one line.
    pub(crate) fn whole(&self) -> String {
        if self.variant.is_empty() {
            format!("{} {}", self.fs, self.mode)
        } else {
            format!("{} {} ({})", self.fs, self.mode, self.variant)
        }
    }
}

/// The labels of all cells, in their order.
pub(crate) fn labels(cells: &[Cell]) -> Vec<Label> {
    of_keys(&cells.iter().map(|cell| &cell.key).collect::<Vec<_>>())
}

/// The same for keys.
pub(crate) fn of_keys(keys: &[&Key]) -> Vec<Label> {
    let mkfs = mkfs_labels(keys);
    let telling = telling_axes(keys);
    keys.iter()
        .map(|key| {
            let mut parts = vec![mkfs[&(key.fs.as_str(), key.mkfs.as_str())].clone()];
            parts.extend(telling.iter().map(|axis| axis.part(key)));
            parts.retain(|part| !part.is_empty());
            Label { fs: key.fs.clone(), variant: parts.join(", "), parts, mode: key.mode.clone() }
        })
        .collect()
}

/// The order in which cells are listed: each row of the matrix together, in the order in which rows come first.
pub(crate) fn by_row(labels: &[Label]) -> Vec<usize> {
    let mut rows: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for (index, label) in labels.iter().enumerate() {
        rows.entry((&label.fs, &label.variant)).or_insert(index);
    }
    let mut order: Vec<usize> = (0..labels.len()).collect();
    order.sort_by_key(|&index| rows[&(labels[index].fs.as_str(), labels[index].variant.as_str())]);
    order
}

/// What all cells have in common, for one line beside the matrix: kernel, rig, workload.
pub(crate) fn common(cells: &[Cell]) -> Vec<String> {
    let mut common = Vec::new();
    for axis in AXES.iter().rev() {
        let mut values = cells.iter().map(|cell| (axis.of)(&cell.key));
        let Some(first) = values.next() else { continue };
        if !first.is_empty() && values.all(|value| value == first) {
            common.push(if axis.name.is_empty() { first.to_string() } else { format!("{} {first}", axis.name) });
        }
    }
    common
}

/// One of the things by which two cells of the same row and mode may differ.
struct Axis {
    name: &'static str,
    of: fn(&Key) -> &str,
}

const AXES: [Axis; 5] = [
    Axis { name: "mount", of: |key| &key.mount },
    Axis { name: "", of: |key| &key.workload },
    Axis { name: "", of: |key| &key.drive },
    Axis { name: "", of: |key| &key.rig },
    Axis { name: "kernel", of: |key| &key.kernel },
];

impl Axis {
    fn part(&self, key: &Key) -> String {
        match (self.name, (self.of)(key)) {
            ("", value) => value.to_string(),
            (name, "") => format!("{name} defaults"),
            (name, value) => format!("{name} {value}"),
        }
    }
}

fn telling_axes(keys: &[&Key]) -> Vec<&'static Axis> {
    AXES.iter()
        .filter(|axis| {
            let mut first: BTreeMap<(&str, &str, &str), &str> = BTreeMap::new();
            keys.iter().any(|key| {
                let value = (axis.of)(key);
                *first.entry((&key.fs, &key.mkfs, &key.mode)).or_insert(value) != value
            })
        })
        .collect()
}

/// For each file system and mkfs: its options without those that all variants of the file system share.
fn mkfs_labels<'a>(keys: &[&'a Key]) -> BTreeMap<(&'a str, &'a str), String> {
    let mut variants: BTreeMap<&'a str, BTreeSet<&'a str>> = BTreeMap::new();
    for key in keys {
        variants.entry(&key.fs).or_default().insert(&key.mkfs);
    }
    let mut labels = BTreeMap::new();
    for (fs, variants) in variants {
        let split: Vec<Vec<String>> = variants.iter().map(|mkfs| options(mkfs)).collect();
        for (mkfs, own) in variants.iter().zip(&split) {
            let apart = own.iter().filter(|option| !split.iter().all(|other| other.contains(option)));
            let apart: Vec<&str> = apart.map(String::as_str).collect();
            let label = if apart.is_empty() && variants.len() > 1 { "default".into() } else { apart.join(" ") };
            labels.insert((fs, *mkfs), label);
        }
    }
    labels
}

/// `-b 4096 -J size=4` as `-b 4096` and `-J size=4`.
fn options(mkfs: &str) -> Vec<String> {
    let mut options: Vec<String> = Vec::new();
    for word in mkfs.split_whitespace() {
        match options.last_mut() {
            Some(last) if !word.starts_with('-') => {
                last.push(' ');
                last.push_str(word);
            }
            _ => options.push(word.into()),
        }
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(mkfs: &str, mode: &str, kernel: &str) -> Cell {
        let key =
            Key { fs: "ext4".into(), mkfs: mkfs.into(), mode: mode.into(), kernel: kernel.into(), ..Key::default() };
        Cell::empty(key)
    }

    fn rows(cells: &[Cell]) -> Vec<String> {
        labels(cells).iter().map(Label::row).collect()
    }

    #[test]
    fn what_all_variants_share_is_left_out() {
        let one = [cell("-b 4096 -J size=4", "barrier", "6.18")];
        assert_eq!(rows(&one), ["ext4"]);
        let two = [
            cell("-b 4096 -J size=4", "barrier", "6.18"),
            cell("-b 4096 -J size=4 -O ^metadata_csum", "barrier", "6.18"),
        ];
        assert_eq!(rows(&two), ["ext4 default", "ext4 -O ^metadata_csum"]);
    }

    #[test]
    fn an_axis_is_named_only_where_cells_would_look_the_same() {
        let apart = [cell("", "barrier", "6.1"), cell("", "torn-512", "6.18")];
        assert_eq!(rows(&apart), ["ext4", "ext4"]);
        let same = [cell("", "barrier", "6.1"), cell("", "barrier", "6.18")];
        assert_eq!(rows(&same), ["ext4 kernel 6.1", "ext4 kernel 6.18"]);
    }
}
