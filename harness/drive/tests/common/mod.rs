//! Recordings made by hand: a script of requests whose replies come when the script says.

use powerfail_drive::event::{Head, Header, What};
use powerfail_drive::live::{Drive, Sink};
use powerfail_drive::request::{Command, Geometry, Request};

/// Collects a recording in memory.
pub(crate) struct Memory(pub(crate) Vec<u8>);

impl Sink for Memory {
    fn append(&mut self, head: &Head, data: &[u8]) -> std::io::Result<()> {
        self.0.extend_from_slice(&head.encode());
        self.0.extend_from_slice(data);
        Ok(())
    }
}

/// A drive whose recording is in memory.
pub(crate) fn drive(size: u64, write_cache: bool) -> Drive<Memory> {
    let geometry = Geometry::new(size).expect("whole sectors");
    let header = Header::honest(geometry, write_cache);
    Drive::new(geometry, Memory(header.encode().to_vec()))
}

/// Receives one request; gives its receipt.
pub(crate) fn receive(
    drive: &mut Drive<Memory>,
    command: Command,
    offset: u64,
    length: u64,
    fua: bool,
    fill: u8,
) -> u64 {
    let data = vec![fill; if command == Command::Write { length as usize } else { 0 }];
    let request = Request { command, offset, length, fua, data: &data };
    drive.receive(&request, crc32c::crc32c(&data)).expect("a request that fits")
}

/// Receives and replies at once.
#[allow(dead_code, reason = "not every test file needs it")]
pub(crate) fn done(drive: &mut Drive<Memory>, command: Command, offset: u64, length: u64, fua: bool, fill: u8) {
    let receipt = receive(drive, command, offset, length, fua, fill);
    drive.reply(receipt).expect("a reply");
}

/// Every event of a recording.
#[allow(dead_code, reason = "not every test file needs it")]
pub(crate) fn events(recording: &[u8]) -> Vec<What> {
    let mut reader = powerfail_drive::recording::Reader::new(recording, true).expect("a recording");
    let mut events = Vec::new();
    while let Some(entry) = reader.next().expect("an event") {
        events.push(entry.head.what);
    }
    events
}
