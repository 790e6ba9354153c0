#!/usr/bin/env python3
# two-fsyncs.py FEATURES ROUNDS: two processes append to a file of their own and fsync it, at the same time. When both calls
# have returned and nothing runs any more, the file under the loop device is copied, and the copy is mounted.
import os, subprocess, sys, tempfile
features, rounds = sys.argv[1], int(sys.argv[2])
def run(*args): return subprocess.run(args, check=True, capture_output=True, text=True).stdout.strip()
def mount(file, at):
    dev = run("losetup", "-f", "--show", file)
    try: run("mount", "-t", "ext4", "-o", "commit=300", dev, at)
    except subprocess.CalledProcessError: run("losetup", "-d", dev); return None
    return dev
os.chdir(tempfile.mkdtemp(dir="/dev/shm")); os.mkdir("a"); os.mkdir("b")
run("truncate", "-s", "64M", "fs"); run("mkfs.ext4", "-q", "-F", "-O", features, "fs")
dev, lost, refused = mount("fs", "a"), 0, 0
for name in "01": open(f"a/{name}", "w").close()
run("sync", "-f", "a")
def worker(name, go, done):
    fd = os.open(f"a/{name}", os.O_WRONLY | os.O_APPEND)
    while os.read(go, 1) == b"g":
        os.write(fd, b"x" * 512); os.fsync(fd); os.write(done, b"d")
pipes = [(os.pipe(), os.pipe()) for _ in "01"]; pids = []
for name in "01":
    if not (pid := os.fork()): worker(name, pipes[int(name)][0][0], pipes[int(name)][1][1]); os._exit(0)
    pids.append(pid)
for n in range(1, rounds + 1):
    for go, _ in pipes: os.write(go[1], b"g")
    for _, done in pipes: os.read(done[0], 1)
    run("cp", "--sparse=always", "fs", "copy")
    if not (copy := mount("copy", "b")): refused += 1; continue
    sizes = [os.stat(f"b/{name}").st_size for name in "01"]
    run("umount", "b"); run("losetup", "-d", copy)
    if min(sizes) < 512 * n:
        lost += 1
        if lost == 1: print(f"both fsyncs returned at {512 * n} bytes; the copy has {sizes[0]} and {sizes[1]}")
for go, _ in pipes: os.write(go[1], b"q")
for pid in pids: os.waitpid(pid, 0)
run("umount", "a"); run("losetup", "-d", dev); run("rm", "-r", os.getcwd())
print(f"{features}: {lost} of {rounds} copies lack what an fsync had returned for; {refused} refuse to mount")
