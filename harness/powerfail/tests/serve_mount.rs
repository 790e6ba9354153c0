//! A mounted ext4 through cuts of its drive: what was synced is there afterwards, and fsck has nothing to say. Cuts with
//! the style `freeze` are for raw clients (`serve_cut.rs`) only: no test waits on a device that hears nothing.

mod serve_support;

use std::path::Path;
use std::process::Command;

use serve_support::{Served, can_mount, run, script};

const LIFE: &str = r#"
uri=$1 control=$2 style=$3 work=$4 round=$5
ctl() { powerfail ctl --control "$control" "$@"; }
# However this ends, nothing stays attached.
trap '[ -z "${device:-}" ] || scripts/attach --detach "$device" || true' EXIT
mkdir -p "$work/mnt"
device=$(scripts/attach "$uri")
[ "$(cat /sys/block/${device#/dev/}/queue/write_cache)" = "write back" ]
[ "$round" != 1 ] || mkfs.ext4 -q "$device"
mount "$device" "$work/mnt"
head -c 300000 /dev/urandom > "$work/A$round"
cp "$work/A$round" "$work/mnt/A$round"
sync "$work/mnt/A$round" "$work/mnt"
head -c 300000 /dev/urandom > "$work/mnt/B$round"
# Past the page cache, and never flushed: there is something to lose.
dd if=/dev/urandom of="$work/mnt/C$round" bs=64k count=8 oflag=direct status=none
ctl --json cut --style "$style" > "$work/cut$round"
# Nothing that was written after the cut can be made durable.
if sync "$work/mnt/B$round" 2>/dev/null; then echo "a sync succeeded without power"; exit 1; fi
scripts/attach --detach "$device"; device=
ctl restore
device=$(scripts/attach "$uri")
mount "$device" "$work/mnt"
for n in $(seq "$round"); do cmp "$work/A$n" "$work/mnt/A$n"; done
umount "$work/mnt"
e2fsck -fn "$device"
scripts/attach --detach "$device"; device=
"#;

#[test]
fn what_was_synced_is_there_after_a_cut() {
    if !can_mount() {
        return;
    }
    let served = Served::start(&["--size", "64M"]);
    for (round, style) in ["error", "drop", "error", "drop"].iter().enumerate() {
        let (control, work) = (served.file("control"), served.file(""));
        let round = (round + 1).to_string();
        script(LIFE, &[&served.uri, &control, style, &work, &round]).expect(0);
        let cut: serde_json::Value =
            serde_json::from_slice(&std::fs::read(served.file(&format!("cut{round}"))).unwrap()).unwrap();
        assert_eq!(cut["style"], **style);
        assert!(cut["drives"][0]["loose"].as_u64().unwrap() > 0, "{cut}");
    }
    served.end();
}

#[test]
fn restore_is_refused_while_the_device_is_attached() {
    if !can_mount() {
        return;
    }
    let served = Served::start(&["--size", "64M"]);
    // Nothing uses the device, so nothing tells nbdfuse that its connections have ended.
    let attached = script(r#"scripts/attach "$1""#, &[&served.uri]).expect(0).out;
    served.done(&["cut"]);
    let why = served.refused(&["restore"]);
    assert!(why.contains("(nbdfuse)") && why.contains("detach there first"), "{why}");
    script(r#"scripts/attach --detach "$1""#, &[attached.trim()]).expect(0);
    served.restore();
    served.end();
}

/// A drive that is attached while another one is mounted does not keep that one from going.
#[test]
fn two_drives_are_attached_and_detached_in_any_order() {
    if !can_mount() {
        return;
    }
    let (one, two) = (Served::start(&["--size", "64M"]), Served::start(&["--size", "64M"]));
    let text = r#"
        work=$3
        trap 'for device in ${one:-} ${two:-}; do scripts/attach --detach "$device" || true; done' EXIT
        mkdir "$work/a b" "$work/two"
        one=$(scripts/attach "$1"); mkfs.ext4 -q "$one"; mount "$one" "$work/a b"
        two=$(scripts/attach "$2"); mkfs.ext4 -q "$two"; mount "$two" "$work/two"
        echo kept > "$work/a b/file"
        # Not by the device's name, which may be somebody else's at once.
        folder=$(readlink "/run/attached-drives/${one#/dev/}")
        grep -qF "$folder" /sys/block/loop*/loop/backing_file
        scripts/attach --detach "$one"; one=
        if grep -sF "$folder" /sys/block/loop*/loop/backing_file; then exit 1; fi
        one=$(scripts/attach "$1"); mount "$one" "$work/a b"; cat "$work/a b/file"
    "#;
    let said = script(text, &[&one.uri, &two.uri, &one.file("")]).expect(0);
    assert_eq!(said.out, "kept\n");
    // The script has undone it: no host is connected.
    for served in [one, two] {
        assert_eq!(served.done(&["status"])["connections"], serde_json::json!([]));
        served.end();
    }
}

#[test]
fn the_script_refuses_what_it_can_not_do() {
    let said = script("scripts/attach || exit $?", &[]).expect(2);
    assert!(said.err.contains("usage"), "{}", said.err);
    if rustix::process::geteuid().is_root() {
        let said = script("scripts/attach --detach /dev/loop9999", &[]).expect(2);
        assert!(said.err.contains("not attached by this script"), "{}", said.err);
        if Path::new("/dev/fuse").exists() && serve_support::here("nbdfuse", "libnbd-bin") {
            let said = script("scripts/attach nonsense", &[]).expect(2);
            assert!(said.err.contains("no URI"), "{}", said.err);
            // A server that is not there.
            let said = script("scripts/attach 'nbd+unix:///?socket=/nowhere'", &[]).expect(3);
            assert!(said.err.contains("nbdfuse ended"), "{}", said.err);
        }
        if serve_support::here("setpriv", "util-linux") {
            let attach = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/attach");
            // Through standard input: the user may not be allowed to see the folder.
            let text = std::fs::read_to_string(attach).unwrap();
            let words = ["--reuid=65534", "--regid=65534", "--clear-groups", "bash", "-c", &text, "attach", "nbd://x/"];
            let said = run(Command::new("setpriv").args(words)).expect(4);
            assert!(said.err.contains("needs root"), "{}", said.err);
        }
    }
}
