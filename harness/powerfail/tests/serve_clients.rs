//! Real clients against `powerfail serve`. One that isn't installed is skipped, and says so.

mod serve_support;

use serve_support::{Served, here, program, tool};

const MIB: usize = 1 << 20;

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

/// A drive that answers at once, and one that holds replies back and reorders them.
fn drives() -> [Served; 2] {
    let size = ["--size", "64M"];
    let held = ["--size", "64M", "--hold", "12", "--hold-us", "2000"];
    [Served::start(&size), Served::start(&held)]
}

#[test]
fn nbdinfo_sees_all_that_is_offered() {
    if !here("nbdinfo", "libnbd-bin") {
        return;
    }
    let served = Served::start(&["--size", "64M"]);
    let uri = &served.uri;
    let text = tool("nbdinfo", &[uri]).expect(0).out;
    assert!(text.contains("protocol: newstyle-fixed without TLS, using structured packets"), "{text}");
    let list = tool("nbdinfo", &["--list", uri]).expect(0).out;
    assert!(list.contains("powerfail drive, write cache of 8192 KiB, generation 1"), "{list}");
    let json: serde_json::Value = serde_json::from_str(&tool("nbdinfo", &["--json", uri]).expect(0).out).unwrap();
    assert_eq!(json["exports"][0]["can_fua"], true);
    assert_eq!(tool("nbdinfo", &["--size", uri]).expect(0).out.trim(), "67108864");
    for can in ["connect", "read", "write", "flush", "fua", "trim", "zero", "multi-conn"] {
        tool("nbdinfo", &["--can", can, uri]).expect(0);
    }
    tool("nbdinfo", &["--is", "read-only", uri]).expect(2);
    served.end();

    // Without a write cache there is nothing to flush, and a host is told so.
    let served = Served::start(&["--size", "1M", "--write-cache", "off"]);
    for can in ["flush", "fua"] {
        tool("nbdinfo", &["--can", can, &served.uri]).expect(2);
    }
    served.end();
}

/// What is not offered is refused in so many words, and the tool comes to an end. `BLOCK_STATUS` is not offered yet.
#[test]
fn nbdinfo_map_ends() {
    if !here("nbdinfo", "libnbd-bin") {
        return;
    }
    let served = Served::start(&["--size", "1M"]);
    let said = tool("nbdinfo", &["--map", &served.uri]);
    assert!(said.status.code().is_some_and(|code| code == 0 || said.err.contains("base:allocation")), "{said:?}");
    served.end();
}

#[test]
fn nbdcopy_both_ways() {
    if !here("nbdcopy", "libnbd-bin") {
        return;
    }
    for served in drives() {
        let (original, copy) = (served.file("in"), served.file("out"));
        // A hole in the middle is written as zeroes.
        let mut bytes = noise(64 * MIB);
        bytes[20 * MIB..40 * MIB].fill(0);
        std::fs::write(&original, &bytes).unwrap();
        tool("nbdcopy", &["--flush", &original, &served.uri]).expect(0);
        tool("nbdcopy", &[&served.uri, &copy]).expect(0);
        assert!(std::fs::read(&copy).unwrap() == bytes);
        // It was flushed, so no cut takes any of it away.
        let cut = served.done(&["cut"]);
        assert_eq!(cut["drives"][0]["loose"], 0, "{cut}");
        assert!(served.snapshot() == bytes);
        served.end();
    }
}

#[test]
fn qemu_io_writes_reads_zeroes_and_trims() {
    if !here("qemu-io", "qemu-utils") {
        return;
    }
    for served in drives() {
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
        let mut words = vec!["-t", "none", "-f", "raw"];
        words.extend(commands.iter().flat_map(|command| ["-c", command]));
        words.push(&served.uri);
        let said = tool("qemu-io", &words).expect(0);
        assert!(!said.out.contains("verification failed"), "{}", said.out);
        served.end();
    }
}

#[test]
fn qemu_img_converts_compares_and_measures() {
    if !here("qemu-img", "qemu-utils") {
        return;
    }
    for served in drives() {
        let file = served.file("in");
        std::fs::write(&file, noise(64 * MIB)).unwrap();
        let uri = &served.uri;
        tool("qemu-img", &["convert", "-n", "-f", "raw", "-O", "raw", &file, uri]).expect(0);
        let said = tool("qemu-img", &["compare", "-f", "raw", "-F", "raw", &file, uri]).expect(0);
        assert!(said.out.contains("Images are identical."), "{}", said.out);
        tool("qemu-img", &["map", "--output=json", "-f", "raw", uri]).expect(0);
        let bench = "bench -w -c 1000 -d 16 -t none --flush-interval=100 --no-drain -f raw";
        let words: Vec<&str> = bench.split(' ').chain([uri.as_str()]).collect();
        assert!(tool("qemu-img", &words).expect(0).out.contains("Run completed"));
        served.end();
    }
}

#[test]
fn fio_verifies_what_it_wrote() {
    if !here("fio", "fio") {
        return;
    }
    for served in drives() {
        let uri = format!("--uri={}", served.uri);
        // It keeps its notes on what it wrote in the working folder, unless it is told not to.
        let verify = "--name=v --ioengine=nbd --rw=randwrite --bs=4k --iodepth=16 --verify=crc32c --verify_state_save=0 \
                      --size=16M --fsync=64";
        let trim = "--name=t --ioengine=nbd --rw=randtrim --bs=4k --iodepth=8 --number_ios=64 --size=16M";
        for line in [verify, trim] {
            let words: Vec<&str> = line.split_whitespace().chain([uri.as_str()]).collect();
            let said = tool("fio", &words);
            if said.err.contains("engine nbd not loadable") {
                println!("SKIPPED: this fio has no nbd engine; install fio as Debian builds it");
                return;
            }
            assert!(said.expect(0).out.contains("err= 0"), "{line}");
        }
        served.end();
    }
}

#[test]
fn nbd_client_lists_over_a_unix_socket_and_tcp() {
    if !here("nbd-client", "nbd-client") {
        return;
    }
    let served = Served::start(&["--size", "1M", "--export", "over unix"]);
    let list = tool("nbd-client", &["-l", "-unix", served.socket().to_str().unwrap()]).expect(0).out;
    assert!(list.contains("over unix"), "{list}");
    served.end();
    let served = Served::start(&["--size", "1M", "--export", "over-tcp", "--listen", "127.0.0.1:0"]);
    let port = served.uri.strip_suffix("/over-tcp").unwrap().rsplit(':').next().unwrap().to_owned();
    let list = tool("nbd-client", &["-l", "127.0.0.1", &port]).expect(0).out;
    assert!(list.contains("over-tcp"), "{list}");
    served.end();
}

/// Another server's client half: what it passes on is what is there.
#[test]
fn nbdkit_passes_it_on() {
    if !here("nbdkit", "nbdkit") || !here("nbdcopy", "libnbd-bin") {
        return;
    }
    let served = Served::start(&["--size", "64M"]);
    let (original, copy) = (served.file("in"), served.file("out"));
    std::fs::write(&original, noise(64 * MIB)).unwrap();
    tool("nbdcopy", &["--flush", &original, &served.uri]).expect(0);
    tool("nbdcopy", &["--", "[", "nbdkit", "nbd", &format!("uri={}", served.uri), "]", &copy]).expect(0);
    assert!(std::fs::read(&copy).unwrap() == std::fs::read(&original).unwrap());
    served.end();
}

/// systemd's socket activation, as NBD's own tools use it.
#[test]
fn tools_start_it_with_a_socket_of_theirs() {
    if !here("nbdinfo", "libnbd-bin") || !here("nbdcopy", "libnbd-bin") {
        return;
    }
    let serve = ["[", "powerfail", "serve", "--size", "64M", "]"];
    let with = |before: &[&'static str], after: &[&'static str]| [before, &serve, after].concat();
    assert_eq!(tool("nbdinfo", &with(&["--size", "--"], &[])).expect(0).out.trim(), "67108864");
    let json: serde_json::Value =
        serde_json::from_str(&tool("nbdinfo", &with(&["--json", "--"], &[])).expect(0).out).unwrap();
    assert_eq!(json["exports"][0]["export-size"], 64 * MIB);

    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (original, copy, record) = (path("in"), path("out"), path("record"));
    std::fs::write(&original, noise(64 * MIB)).unwrap();
    let recorded = ["[", "powerfail", "serve", "--size", "64M", "--record", &record, "]"];
    tool("nbdcopy", &[&["--flush", "--", &original], &recorded[..]].concat()).expect(0);
    // The tool has ended it, and it has ended well: the recording is whole, and what it holds is what was copied.
    let recording = std::path::Path::new(&record).join("1/recording");
    assert!(serve_support::within(serve_support::LIMIT, || recording.exists()));
    serve_support::run(program().args(["recording", "show", &record])).expect(0);
    // From one of ours to another.
    let other = ["[", "powerfail", "serve", "--size", "64M", "]"];
    tool("nbdcopy", &[&["--"], &serve[..], &other[..]].concat()).expect(0);
    tool("nbdcopy", &with(&["--"], &[]).into_iter().chain([copy.as_str()]).collect::<Vec<_>>()).expect(0);
    assert!(std::fs::read(&copy).unwrap().iter().all(|byte| *byte == 0));
}
