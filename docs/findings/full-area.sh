#!/usr/bin/env bash
# full-area.sh SIZE: fills the fast-commit area to its last block, copies the file, mounts the copy
set -eu
dir=$(mktemp -d); mkdir "$dir/mnt"; cd "$dir"
truncate -s "$1" fs; mkfs.ext4 -q -F -O fast_commit fs
dev=$(losetup -f --show fs); mount -t ext4 -o commit=300 "$dev" mnt; touch mnt/first; sync -f mnt
last=$(($(dumpe2fs -h fs 2>/dev/null | sed -n 's/^Fast commit length: *//p') - 1))
for n in $(seq "$last"); do echo "$n" > "mnt/f$n"; sync "mnt/f$n"; [ "$n" -lt $((last - 1)) ] || cp --sparse=always fs "copy$n"; done
umount mnt; losetup -d "$dev"
for n in $((last - 1)) "$last"; do
  dev=$(losetup -f --show "copy$n")
  if mount -t ext4 "$dev" mnt; then echo "$n fsyncs of new files: mounts, $(ls mnt | grep -c '^f[0-9]') of them there"; umount mnt; else echo "$n fsyncs: the mount is refused"; fi
  losetup -d "$dev"
done
dmesg | tail -3
e2fsck -fy "copy$last" | grep -i "journal" ; dev=$(losetup -f --show "copy$last"); mount -t ext4 "$dev" mnt; echo "after e2fsck -fy: $(ls mnt | grep -c '^f[0-9]') of $last fsynced files there"; umount mnt; losetup -d "$dev"
cd /; rm -r "$dir"
