//! The part of a casebook that needs nothing of this project: the image as a sparse archive, and a script that shows the
//! finding with mount and the file system's own tools alone.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};
use powerfail_ledger::{Finding, FindingKind, Outcome, State};

use crate::cell::Cell;
use crate::folder::write_whole;
use crate::image::Image;

/// The image, with its holes.
pub const IMAGE: &str = "image.tar.gz";
/// The script.
pub const SCRIPT: &str = "reproduce.sh";

/// Writes both into a casebook.
///
/// # Errors
/// If they can't be written.
pub fn write(folder: &Path, cell: &Cell, state: &State, image: &Image) -> anyhow::Result<()> {
    archive(folder, image)?;
    let path = folder.join(SCRIPT);
    write_whole(&path, script(cell, state).as_bytes())?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    Ok(())
}

/// GNU tar keeps holes, and is on every Debian; a compressed image without holes would take minutes to write and to read.
fn archive(folder: &Path, image: &Image) -> anyhow::Result<()> {
    let scratch = tempfile::Builder::new().prefix(".image-").tempdir_in(folder)?;
    let mut file = File::create(scratch.path().join("image"))?;
    file.set_len(image.bytes().len() as u64)?;
    image.write_sparse(&mut file)?;
    drop(file);
    let part = scratch.path().join("archive");
    let ran = Command::new("tar")
        .args(["--create", "--sparse", "--gzip", "--owner=0", "--group=0", "--mtime=@0", "--file"])
        .arg(&part)
        .arg("--directory")
        .arg(scratch.path())
        .arg("image")
        .output()
        .context("can't start tar (package tar)")?;
    if !ran.status.success() {
        bail!("tar failed: {}", String::from_utf8_lossy(&ran.stderr));
    }
    fs::rename(&part, folder.join(IMAGE))?;
    Ok(())
}

fn script(cell: &Cell, state: &State) -> String {
    let findings = match &state.outcome {
        Outcome::Violated { findings } => findings.as_slice(),
        _ => &[],
    };
    let (_, package) = cell.fs.tools();
    let options = if cell.mount.is_empty() { String::new() } else { format!("-o {}", quoted(&cell.mount)) };
    let check: Vec<_> = cell.fs.fsck().iter().map(|word| word.replace("{device}", "\"$device\"")).collect();
    let comment: Vec<_> = findings.iter().map(|finding| format!("#   {}", one_line(&finding.detail))).collect();
    format!(
        r##"#!/bin/sh
# A crash state of {fs}, mode {mode}, found on Linux {kernel}:
{comment}
# It needs root, losetup and mount, and {package}. Nothing outside of a temporary folder is touched.
# Exit code 0: the finding is there; 1: it is not, on this kernel; 2: it could not be tried.
set -u
here=$(cd "$(dirname "$0")" && pwd) || exit 2
work=$(mktemp -d) || exit 2
device=
clean() {{
    mountpoint -q "$work/tree" && umount "$work/tree"
    [ -n "$device" ] && losetup --detach "$device"
    rm -rf "$work"
}}
trap clean EXIT
mkdir "$work/tree"
tar --extract --sparse --gzip --file "$here/{IMAGE}" --directory "$work" || exit 2
device=$(losetup --find --show "$work/image") || exit 2
# What the kernel says from here on: its log is a ring, so a line of ours says where to begin.
mark="reproduce.sh of process $$ begins"
echo "$mark" >/dev/kmsg || exit 2
said() {{ dmesg | sed "1,/$mark/d" | grep -F "$(basename "$device")
JBD2:" || true; }}
found=1
if ! mount -t {kernel_fs} {options} "$device" "$work/tree"; then
    echo "== the mount is refused; the kernel says:"
    said
    {refused}
else
    echo "== the kernel recovered and mounted it, and says:"
    said
{mounted}
    umount "$work/tree" || exit 2
    echo "== {check_words}"
    {check} >"$work/check" 2>&1 || {not_clean}
    tail -n 20 "$work/check"
fi
[ $found = 0 ] && echo "== the finding is there" || echo "== the finding is not there"
exit $found
"##,
        fs = state.case.fs,
        mode = state.case.mode,
        kernel = state.case.kernel,
        comment = comment.join("\n"),
        kernel_fs = cell.fs.kernel_name(),
        refused = if has(findings, FindingKind::Mounts) { "found=0" } else { ":" },
        mounted = mounted(findings),
        check_words = cell.fs.fsck().iter().filter(|word| **word != "{device}").copied().collect::<Vec<_>>().join(" "),
        check = check.join(" "),
        not_clean = if has(findings, FindingKind::Fsck) { "found=0" } else { ":" },
    )
}

fn has(findings: &[Finding], kind: FindingKind) -> bool {
    findings.iter().any(|finding| finding.kind == kind)
}

/// What is looked at while it is mounted, for each kind of finding.
fn mounted(findings: &[Finding]) -> String {
    let mut text = String::new();
    if has(findings, FindingKind::Kernel) {
        text.push_str("    said | grep -iqE 'error|corrupt|warning|aborting|will be lost' && found=0\n");
    }
    if has(findings, FindingKind::Walk) {
        text.push_str("    find \"$work/tree\" -type f -exec cat {} + >/dev/null 2>\"$work/walk\" || found=0\n");
        text.push_str(
            "    find \"$work/tree\" >/dev/null 2>>\"$work/walk\" || found=0\n    head -n 20 \"$work/walk\"\n",
        );
    }
    for finding in findings.iter().filter(|finding| finding.kind == FindingKind::Promises) {
        text.push_str(&promise(&finding.detail));
    }
    if text.is_empty() { "    :\n".into() } else { text }
}

/// A name that must be there, or must not, is looked for; of anything else about a file the file is shown, and that counts
/// as found, since only the promise says what should be in it.
fn promise(detail: &str) -> String {
    let Some((name, said)) = detail.split_once(": ") else { return String::new() };
    let shown = format!("    echo {}\n", quoted(&format!("== promised: {}", one_line(detail))));
    // Long names are cut in findings, with an ellipsis; the shell finds them by their beginning.
    let (path, cut) = match name.split_once('…') {
        Some((beginning, _)) => (beginning, "*"),
        None => (name, ""),
    };
    let file = format!("\"$work/tree\"/{}{cut}", quoted(path));
    let look = if said.starts_with("the name is gone") {
        format!("    ls -l {file} 2>/dev/null || found=0\n")
    } else {
        format!("    ls -l {file} && found=0\n")
    };
    shown + &look
}

fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}

/// For the shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_and_cut_names_are_found_by_their_beginning() {
        assert_eq!(quoted("a'b"), r"'a'\''b'");
        let gone = promise("w3-0/w3-95-lnz… (166 bytes): the name is gone; it must hold file 3:263");
        assert!(gone.contains("ls -l \"$work/tree\"/'w3-0/w3-95-lnz'* 2>/dev/null || found=0"), "{gone}");
        let size = promise("a/b: its size is 3, but may only be 4");
        assert!(size.contains("ls -l \"$work/tree\"/'a/b' && found=0"), "{size}");
    }
}
