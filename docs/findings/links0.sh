#!/usr/bin/env bash
# links0.sh FEATURES: a file is unlinked while it is open and written to; then an unrelated file is written and fsynced
set -eu
dir=$(mktemp -d -p /dev/shm); mkdir "$dir/mnt"; cd "$dir"
truncate -s 64M fs; mkfs.ext4 -q -F -b 4096 -O "$1" fs; dev=$(losetup -f --show fs); mount -t ext4 -o commit=300 "$dev" mnt
echo temporary > mnt/t; sync -f mnt
exec 3<>mnt/t; rm mnt/t; echo more >&3
echo precious > mnt/p; sync mnt/p
cp --sparse=always fs copy
exec 3>&-; umount mnt; losetup -d "$dev"
dev=$(losetup -f --show copy)
if mount -t ext4 "$dev" mnt; then echo "$1: mounts; p: $(cat mnt/p)"; umount mnt; else echo "$1: the mount is refused"; dmesg | tail -2; e2fsck -fy "$dev" >log 2>&1 || true; head -3 log | tail -2; mount -t ext4 "$dev" mnt; echo "after e2fsck -fy; p: $(cat mnt/p 2>&1)"; umount mnt; fi
losetup -d "$dev"; cd /; rm -r "$dir"
