//! Real clients. One that isn't installed is skipped, and says so.

mod common;

use std::os::unix::fs::FileExt;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use common::memory::{Memory, Seen};
use common::tools::{command, here, run};
use common::{MIB, Served, bounded};
use powerfail_drive::request::Command;
use powerfail_nbd::{Config, Export, Exports, Farewell, Hold, Reach, Server};
use powerfail_seed::Seed;

const HOLD: Hold = Hold { seed: Seed(4), depth: 12, max_time: Duration::from_millis(3) };

/// The configurations that data must survive.
fn configs() -> [Config; 2] {
    [Config::default(), Config { hold: Some(HOLD), ..Config::default() }]
}

/// Bytes that are all different from their neighbours and from those elsewhere.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    (0..length / 8).flat_map(|_| next()).collect()
}

#[test]
fn nbdinfo() {
    if !here("nbdinfo", "libnbd-bin") {
        return;
    }
    bounded(async {
        let served = Served::new(64 * MIB);
        let uri = served.uri();
        let text = run("nbdinfo", &[&uri]).await.ok();
        assert!(text.contains("protocol: newstyle-fixed without TLS, using structured packets"), "{text}");
        assert_eq!(run("nbdinfo", &["--size", &uri]).await.ok().trim(), "67108864");

        let json: serde_json::Value =
            serde_json::from_str(&run("nbdinfo", &["--json", &uri]).await.ok()).expect("JSON");
        let export = &json["exports"][0];
        for can in ["can_fua", "can_flush", "can_trim", "can_zero", "can_multi_conn", "can_cache", "can_df"] {
            assert_eq!(export[can], true, "{can} of {export}");
        }
        assert_eq!(export["is_read_only"], false);
        assert_eq!(export["block_size_minimum"], 1);
        assert_eq!(export["block_size_preferred"], 4096);
        assert_eq!(export["block_size_maximum"], 33_554_432);

        for can in ["connect", "read", "write", "flush", "fua", "trim", "zero", "multi-conn", "cache"] {
            assert_eq!(run("nbdinfo", &["--can", can, &uri]).await.code, 0, "{can}");
        }
        assert_eq!(run("nbdinfo", &["--is", "read-only", &uri]).await.code, 2);
        assert_eq!(served.handle.counts().refused, 0);
        served.end().await;
    });
}

#[test]
fn lists_of_several_exports() {
    bounded(async {
        let drive = Arc::new(Memory::new(MIB));
        let exports = Exports::new(vec![
            Export::new("alpha", drive.clone()).description("the first"),
            Export::new("beta & co", drive.clone()).read_only(true),
        ]);
        let served = Served::exports(exports.expect("good ones"), drive, Config::default());
        if here("nbdinfo", "libnbd-bin") {
            let list = run("nbdinfo", &["--list", &served.uri()]).await.ok();
            assert!(list.contains("alpha") && list.contains("beta & co") && list.contains("the first"), "{list}");
            let second = served.handle.uri("beta & co");
            assert_eq!(run("nbdinfo", &["--is", "read-only", &second]).await.code, 0);
            let none = run("nbdinfo", &[&served.handle.uri("gamma")]).await;
            assert!(none.code != 0 && none.err.contains("gamma"), "{none:?}");
        }
        if here("nbd-client", "nbd-client") {
            let path = served.path.to_str().expect("text").to_owned();
            let list = run("nbd-client", &["-l", "-unix", &path]).await.ok();
            assert!(list.contains("alpha") && list.contains("beta & co"), "{list}");
        }
        served.end().await;
    });
}

#[test]
fn nbd_client_lists_over_tcp() {
    if !here("nbd-client", "nbd-client") {
        return;
    }
    bounded(async {
        let server = Server::bind_tcp("127.0.0.1:0".parse().expect("an address"), Reach::Loopback).expect("a port");
        let exports = Exports::new(vec![Export::new("over-tcp", Arc::new(Memory::new(MIB)))]).expect("a good one");
        let handle = server.serve(exports, Config::default()).expect("a server");
        let powerfail_nbd::Address::Tcp(address) = *handle.address() else { panic!("TCP") };
        let list = run("nbd-client", &["-l", "127.0.0.1", &address.port().to_string()]).await.ok();
        assert!(list.contains("over-tcp"), "{list}");
        handle.shutdown(Farewell::Drop).await;
    });
}

#[test]
fn nbdcopy_both_ways() {
    if !here("nbdcopy", "libnbd-bin") {
        return;
    }
    bounded(async {
        for config in configs() {
            let served = Served::with(Memory::new(16 * MIB), config);
            let (original, copy) = (served.folder.path().join("in"), served.folder.path().join("out"));
            let (original, copy) = (original.to_str().expect("text"), copy.to_str().expect("text"));
            // A hole in the middle is written as zeroes.
            let mut bytes = noise(16 << 20);
            bytes[5 << 20..9 << 20].fill(0);
            std::fs::write(original, &bytes).expect("a file");
            run("nbdcopy", &["--flush", original, &served.uri()]).await.ok();
            run("nbdcopy", &[&served.uri(), copy]).await.ok();
            assert!(std::fs::read(copy).expect("the copy") == bytes);
            assert!(served.drive.bytes(0, 16 << 20) == bytes);
            let flushed = |seen: &Seen| matches!(seen, Seen::Received { command: Command::Flush, .. });
            assert!(served.drive.log().iter().any(flushed));
            assert_eq!(served.handle.counts().refused, 0);
            served.end().await;
        }
    });
}

#[test]
fn qemu_io_writes_reads_zeroes_and_trims() {
    if !here("qemu-io", "qemu-utils") {
        return;
    }
    bounded(async {
        for config in configs() {
            let served = Served::with(Memory::new(16 * MIB), config);
            let commands = [
                "write -P 0xab 0 64k",
                "flush",
                "read -P 0xab 0 64k",
                "write -f -P 1 0 4k",
                "write -z 4k 4k",
                "write -z -u 8k 4k",
                "discard 12k 4k",
                "write 513 7",
                "read -P 0 4k 4k",
                "read -P 0 8k 4k",
                "read -P 0xab 16k 48k",
            ];
            let mut arguments = vec!["-t", "none", "-f", "raw"];
            arguments.extend(commands.iter().flat_map(|command| ["-c", command]));
            let uri = served.uri();
            arguments.push(&uri);
            let said = run("qemu-io", &arguments).await.ok();
            assert!(!said.contains("verification failed"), "{said}");
            let fua = |seen: &Seen| matches!(seen, Seen::Received { command: Command::Write, fua: true, .. });
            assert_eq!(served.drive.log().iter().filter(|seen| fua(seen)).count(), 1);
            served.end().await;
        }
    });
}

#[test]
fn qemu_img_converts_and_compares() {
    if !here("qemu-img", "qemu-utils") {
        return;
    }
    bounded(async {
        let served = Served::new(16 * MIB);
        let file = served.folder.path().join("in");
        let file = file.to_str().expect("text");
        std::fs::write(file, noise(16 << 20)).expect("a file");
        run("qemu-img", &["convert", "-n", "-f", "raw", "-O", "raw", file, &served.uri()]).await.ok();
        let said = run("qemu-img", &["compare", "-f", "raw", "-F", "raw", file, &served.uri()]).await.ok();
        assert!(said.contains("Images are identical."), "{said}");
        let bench = "bench -w -c 1000 -d 16 -t none --flush-interval=100 --no-drain -f raw";
        let uri = served.uri();
        let arguments: Vec<&str> = bench.split(' ').chain([uri.as_str()]).collect();
        assert!(run("qemu-img", &arguments).await.ok().contains("Run completed"));
        served.end().await;
    });
}

#[test]
fn fio_verifies_what_it_wrote() {
    if !here("fio", "fio") {
        return;
    }
    bounded(async {
        for config in configs() {
            let served = Served::with(Memory::new(16 * MIB), config);
            let uri = format!("--uri={}", served.uri());
            let verify = "--name=v --ioengine=nbd --rw=randwrite --bs=4k --iodepth=16 --verify=crc32c --size=8M --fsync=64 --verify_state_save=0";
            let trim = "--name=t --ioengine=nbd --rw=randtrim --bs=4k --iodepth=8 --number_ios=64 --size=16M";
            for line in [verify, trim] {
                let arguments: Vec<&str> = line.split(' ').chain([uri.as_str()]).collect();
                let said = run("fio", &arguments).await;
                if said.code != 0 && said.err.contains("engine nbd not loadable") {
                    eprintln!("SKIPPED: this fio has no nbd engine; install fio as Debian builds it");
                    return;
                }
                let text = said.ok();
                assert!(text.contains("err= 0"), "{text}");
            }
            assert_eq!(served.handle.counts().refused, 0);
            served.end().await;
        }
    });
}

/// The way of the rig `host-loop`: a file in a FUSE mount whose blocks are ours, over several connections.
#[test]
fn nbdfuse_reads_writes_and_flushes() {
    if !here("nbdfuse", "libnbd-bin") || !here("umount", "mount") {
        return;
    }
    if !std::path::Path::new("/dev/fuse").exists() || !is_root() {
        eprintln!("SKIPPED: nbdfuse needs root and /dev/fuse here; load the fuse module");
        return;
    }
    bounded(async {
        for config in configs() {
            let served = Served::with(Memory::new(16 * MIB), config);
            let mount = served.folder.path().join("mount");
            std::fs::create_dir(&mount).expect("a folder");
            let file = mount.join("nbd");
            let pid = served.folder.path().join("pid");
            let mut fuse = command("nbdfuse")
                .args(["-P".as_ref(), pid.as_os_str(), file.as_os_str(), served.uri().as_ref()])
                .stdin(Stdio::null())
                .kill_on_drop(true)
                .spawn()
                .expect("nbdfuse runs");
            let _unmount = Unmount(mount.clone());
            // It writes its process number when it is ready.
            let mut look = tokio::time::interval(Duration::from_millis(5));
            while !pid.exists() {
                assert_eq!(fuse.try_wait().expect("its state"), None, "nbdfuse has ended");
                look.tick().await;
            }

            let bytes = noise(3 << 20);
            let written = bytes.clone();
            let used = file.clone();
            let read = tokio::task::spawn_blocking(move || {
                let file = std::fs::OpenOptions::new().read(true).write(true).open(used).expect("the file");
                assert_eq!(file.metadata().expect("its size").len(), 16 * MIB);
                file.write_all_at(&written, 12_345).expect("written");
                file.sync_all().expect("synced");
                let mut read = vec![0; written.len()];
                file.read_exact_at(&mut read, 12_345).expect("read");
                read
            });
            assert!(read.await.expect("no panic") == bytes);
            assert!(served.drive.bytes(12_345, bytes.len()) == bytes);
            let flushed = |seen: &Seen| matches!(seen, Seen::Received { command: Command::Flush, .. });
            assert!(served.drive.log().iter().any(flushed), "fsync is a FLUSH");
            assert!(served.handle.counts().connections >= 2, "it spreads over connections");

            run("umount", &[mount.to_str().expect("text")]).await.ok();
            assert!(fuse.wait().await.expect("it ends").success());
            served.end().await;
        }
    });
}

fn is_root() -> bool {
    // The owner of a process's folder is who runs it.
    std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/self").expect("/proc")) == 0
}

/// Takes a mount away even if the test fails.
struct Unmount(std::path::PathBuf);

impl Drop for Unmount {
    fn drop(&mut self) {
        // After a test that went well there is nothing mounted, and umount says so.
        let _ = std::process::Command::new("umount").arg("-l").arg(&self.0).stderr(Stdio::null()).status();
    }
}
