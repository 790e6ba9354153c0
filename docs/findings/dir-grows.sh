#!/usr/bin/env bash
# dir-grows.sh FEATURES: a directory grows in fast commits; the copy is recovered by the kernel and by e2fsck
set -eu
dir=$(mktemp -d -p /dev/shm); mkdir "$dir/mnt"; cd "$dir"
truncate -s 64M fs; mkfs.ext4 -q -F -b 4096 -O "$1" fs; dev=$(losetup -f --show fs); mount -t ext4 -o commit=300 "$dev" mnt
mkdir mnt/d; sync -f mnt
for n in $(seq 40); do touch "mnt/d/$n-$(printf '%0200d' 0)"; done
touch mnt/f; sync mnt/f
cp --sparse=always fs kernel; cp --sparse=always fs e2fsck; umount mnt; losetup -d "$dev"
dev=$(losetup -f --show kernel); mount -t ext4 "$dev" mnt; echo "kernel: $(ls mnt/d | wc -l) of 40 names, fsynced file $(ls mnt | grep -c '^f$')"; umount mnt; losetup -d "$dev"
e2fsck -fn kernel 2>&1 | grep i_blocks || true
e2fsck -fy e2fsck > log 2>&1 || true; grep 'recovering\|Error "' log || true
dev=$(losetup -f --show e2fsck); mount -t ext4 "$dev" mnt; echo "e2fsck -fy: $(ls mnt/d | wc -l) of 40 names, fsynced file $(ls mnt | grep -c '^f$')" || true; umount mnt; losetup -d "$dev"
cd /; rm -r "$dir"
