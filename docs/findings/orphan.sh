#!/usr/bin/env bash
# orphan.sh MODE: a truncate from 4096 to 1024 bytes of which only the first transaction has reached the drive
set -eu
dir=$(mktemp -d -p /dev/shm); mkdir "$dir/mnt"; cd "$dir"
truncate -s 64M fs; mkfs.ext4 -q -F -b 4096 fs; dev=$(losetup -f --show fs)
mount -t ext4 "$dev" mnt; head -c 4096 /dev/zero | tr '\0' A > mnt/f; umount mnt
ino=$(debugfs -R 'stat f' "$dev" 2>/dev/null | sed -n 's/^Inode: \([0-9]*\).*/\1/p')
block=$(debugfs -R 'blocks f' "$dev" 2>/dev/null)
debugfs -w -R "set_inode_field <$ino> size 1024" "$dev" 2>/dev/null; debugfs -w -R "set_super_value last_orphan $ino" "$dev" 2>/dev/null
mount -t ext4 -o "$1" "$dev" mnt; umount mnt
dmesg | grep "(\(device \)\?${dev#/dev/})" | grep -v "mounted filesystem\|unmounting" | tail -3
echo "$1: bytes A in the block after the clean unmount: $(dd if="$dev" bs=4096 skip=$block count=1 2>/dev/null | tr -dc A | wc -c)"
mount -t ext4 -o "$1" "$dev" mnt; truncate -s 4096 mnt/f; umount mnt; mount -t ext4 "$dev" mnt
echo "$1: bytes A in the file after truncate -s 4096 and a remount: $(tr -dc A < mnt/f | wc -c)"; umount mnt
losetup -d "$dev"; cd /; rm -r "$dir"
