//! The recording's bytes: a torn tail is tolerated, damage is refused, and what was recorded reads back.

mod common;

use common::{done, drive, events, receive};
use powerfail_drive::event::{HEADER, What};
use powerfail_drive::explore::{PlanError, span};
use powerfail_drive::recording::{ReadError, Reader, Tail};
use powerfail_drive::request::{Command, Refusal, Request};
use powerfail_drive::units::{Lba, Sectors};
use proptest::prelude::*;

fn small() -> Vec<u8> {
    let mut drive = drive(1 << 20, true);
    done(&mut drive, Command::Write, 0, 1024, false, 1);
    drive.mark("mounted").unwrap();
    done(&mut drive, Command::Write, 4096, 4096, true, 2);
    done(&mut drive, Command::Flush, 0, 0, false, 0);
    receive(&mut drive, Command::Write, 8192, 512, false, 3);
    drive.mark("workload-end").unwrap();
    drive.close().unwrap().0
}

fn read_all(bytes: &[u8]) -> Result<(usize, Tail), ReadError> {
    let mut reader = Reader::new(bytes, true)?;
    let mut count = 0;
    while reader.next()?.is_some() {
        count += 1;
    }
    Ok((count, reader.tail().expect("the end was reached")))
}

#[test]
fn every_prefix_is_torn_and_only_the_whole_is_closed() {
    let whole = small();
    let (all, tail) = read_all(&whole).unwrap();
    assert_eq!((all, tail), (9, Tail::Closed));
    let mut last = 0;
    for length in HEADER..whole.len() {
        let (count, tail) = read_all(&whole[..length]).expect("a torn tail is no damage");
        assert!(matches!(tail, Tail::Torn { .. }), "{length} bytes of {}", whole.len());
        assert!(count >= last && count <= all);
        last = count;
        assert!(matches!(span(&whole[..length]), Err(PlanError::Torn)), "a torn recording is not planned");
    }
    for length in 0..HEADER {
        assert!(matches!(read_all(&whole[..length]), Err(ReadError::TooShort)));
    }
}

#[test]
fn every_altered_byte_is_noticed() {
    let whole = small();
    for at in 0..whole.len() {
        let mut altered = whole.clone();
        altered[at] ^= 0x10;
        let noticed = match read_all(&altered) {
            Err(ReadError::Damaged { .. } | ReadError::OutOfTurn { .. }) => true,
            Err(_) | Ok(_) => false,
        };
        assert!(noticed, "byte {at} was altered and nobody noticed");
    }
    let mut longer = whole;
    longer.push(0);
    assert!(matches!(read_all(&longer), Err(ReadError::Damaged { .. })), "something follows the end");
}

proptest! {
    #[test]
    fn garbage_is_refused_and_never_a_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..600), keep_header in any::<bool>()) {
        if keep_header {
            bytes.splice(0..0, small()[..HEADER].iter().copied());
        }
        let _ = read_all(&bytes);
        let _ = span(&bytes);
    }
}

#[test]
fn parts_of_sectors_are_widened() {
    let mut drive = drive(4096, true);
    done(&mut drive, Command::Write, 0, 4096, false, 7);
    done(&mut drive, Command::Write, 500, 100, false, 9);
    done(&mut drive, Command::WriteZeroes, 1000, 24, false, 0);
    done(&mut drive, Command::Trim, 1500, 1100, false, 0);
    let mut seen = vec![0; 4096];
    drive.pages().read(0, &mut seen);
    let mut expected = vec![7; 4096];
    expected[500..600].fill(9);
    expected[1000..1024].fill(0);
    expected[1536..2560].fill(0);
    assert_eq!(seen, expected);
    let recording = drive.close().unwrap().0;
    let received = events(&recording).into_iter().filter(|what| matches!(what, What::Received { .. }));
    let shapes: Vec<_> = received
        .map(|what| match what {
            What::Received { command, lba: Lba(lba), sectors: Sectors(sectors), .. } => (command, lba, sectors),
            _ => unreachable!("filtered"),
        })
        .collect();
    let expected = [(Command::Write, 0, 8), (Command::Write, 0, 2), (Command::Write, 1, 1), (Command::Trim, 3, 2)];
    assert_eq!(shapes, expected);
}

#[test]
fn requests_that_do_not_fit_are_refused_and_leave_no_event() {
    let mut drive = drive(4096, true);
    let mut ask = |command, offset, length, data: &[u8]| {
        drive.receive(&Request { command, offset, length, fua: false, data }, crc32c::crc32c(data))
    };
    assert!(matches!(ask(Command::Read, 4096, 1, &[]), Err(Refusal::OutOfRange { .. })));
    assert!(matches!(ask(Command::Trim, u64::MAX, 2, &[]), Err(Refusal::OutOfRange { .. })));
    assert!(matches!(ask(Command::Write, 0, 512, &[0; 511]), Err(Refusal::DataLength { .. })));
    assert!(matches!(ask(Command::Flush, 0, 0, &[1]), Err(Refusal::DataLength { .. })));
    assert_eq!(ask(Command::Flush, u64::MAX, u64::MAX, &[]), Ok(0), "a flush names no range");
    assert_eq!(events(&drive.close().unwrap().0).len(), 1);
}
