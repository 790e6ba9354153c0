#!/usr/bin/env bash
# unlinked-fsync.sh FS: a file is unlinked while it is open, written to and fsynced; its directory was fsynced shortly before
set -eu
fs=$1; dir=$(mktemp -d -p /dev/shm); mkdir "$dir/mnt"; cd "$dir"
truncate -s 320M image; case $fs in ext4) mkfs.ext4 -q -F image ;; *) "mkfs.$fs" -q -f image >/dev/null 2>&1 ;; esac
dev=$(losetup -f --show image); mount -t "$fs" "$dev" mnt
mkdir mnt/d; printf '%1500s' old > mnt/d/file; : > mnt/d/other; sync -f mnt
rm mnt/d/other; sync mnt/d
python3 - <<'PYTHON'
import os
fd = os.open("mnt/d/file", os.O_RDWR)
os.unlink("mnt/d/file")
os.pwrite(fd, b"n" * 15000, 0)
os.fsync(fd)
os.system("cp --sparse=always image copy")
PYTHON
umount mnt; losetup -d "$dev"
dev=$(losetup -f --show copy); mount -t "$fs" "$dev" mnt
if [ -e mnt/d/file ]; then echo "$fs: the unlink is undone, the file has $(stat -c %s mnt/d/file) bytes of 15000"; else echo "$fs: the file is gone with its name"; fi
umount mnt; losetup -d "$dev"; cd /; rm -r "$dir"
