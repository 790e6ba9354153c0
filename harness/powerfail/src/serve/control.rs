//! The control socket: who connects asks line by line, and each line is answered before the next is read.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Mutex;

use super::protocol::{Ask, MAX_LINE};
use super::station::Station;

/// Serves the control socket, for ever. Requests of all clients are done one after the other.
pub(crate) async fn attend(listener: UnixListener, station: Arc<Mutex<Station>>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let station = Arc::clone(&station);
                tokio::spawn(async move {
                    // A client that does not wait for its answer has had its request done all the same.
                    let _ = converse(stream, &station).await;
                });
            }
            // No descriptor is free, or a client was gone before it was greeted; the next may fare better.
            Err(_) => tokio::time::sleep(std::time::Duration::from_millis(50)).await,
        }
    }
}

async fn converse(stream: UnixStream, station: &Mutex<Station>) -> std::io::Result<()> {
    let (reader, mut writer) = stream.into_split();
    let mut reader = BufReader::new(reader);
    loop {
        let mut line = Vec::new();
        let got = (&mut reader).take(MAX_LINE as u64).read_until(b'\n', &mut line).await?;
        if got == 0 {
            return Ok(());
        }
        let too_long = got == MAX_LINE && line.last() != Some(&b'\n');
        let answer = match too_long {
            true => refused(&format!("a request is at most {MAX_LINE} bytes")),
            false => answer(&line, station).await,
        };
        writer.write_all(format!("{answer}\n").as_bytes()).await?;
        if too_long {
            return Ok(());
        }
    }
}

async fn answer(line: &[u8], station: &Mutex<Station>) -> Value {
    let ask: Ask = match serde_json::from_slice(line) {
        Ok(ask) => ask,
        Err(error) => return refused(&format!("this is no request: {error}")),
    };
    let answered = station.lock().await.act(ask).await;
    match answered {
        Ok(Value::Object(mut answer)) => {
            answer.insert("ok".into(), true.into());
            Value::Object(answer)
        }
        Ok(other) => unreachable!("answers are objects, not {other}"),
        Err(error) => refused(&format!("{error:#}")),
    }
}

fn refused(why: &str) -> Value {
    json!({ "ok": false, "error": why })
}
