//! Serves a drive in memory, for comparisons with other servers:
//! `cargo run --release --example serve_memory -- SOCKET BYTES [THREADS] [HOLD_DEPTH HOLD_MS]`, ends with Ctrl-C or when its input ends.

#[path = "../tests/common/memory.rs"]
#[allow(dead_code, unreachable_pub, reason = "the tests use all of it")]
mod memory;

use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use powerfail_nbd::{Config, Exports, Farewell, Hold, Server};
use powerfail_seed::Seed;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, bytes, rest @ ..] = &arguments[..] else {
        return Err("usage: serve_memory SOCKET BYTES [THREADS]".into());
    };
    let threads: usize = rest.first().map_or(Ok(1), |text| text.parse())?;
    let hold = match rest.get(1..) {
        Some([depth, millis]) => {
            Some(Hold { seed: Seed(1), depth: depth.parse()?, max_time: Duration::from_millis(millis.parse()?) })
        }
        _ => None,
    };
    let drive = Arc::new(memory::Memory::new(bytes.parse()?).without_log());

    // 0 threads: all in this one.
    let mut runtime = match threads {
        0 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    runtime.worker_threads(threads.max(1)).enable_all().build()?.block_on(async {
        let server = Server::bind_unix(path)?.serve(Exports::one(drive), Config { hold, ..Config::default() })?;
        println!("{}", server.uri(""));
        tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new())).await??;
        println!("{:?}", server.shutdown(Farewell::Drop).await);
        Ok(())
    })
}
