//! The oracle against a tiny file system that is exact about what a crash may leave.
//!
//! `TinyFs` works as an ordered journal does: metadata steps go into a running transaction; a commit may come at any
//! moment and makes all of them durable at once; any dirty block may be written back at any moment; a block that is
//! new to the drive is written before the commit that lets the size reach it. A crash leaves its durable half. So
//! every crash it can reach is legal, and the oracle must accept it; and its durable half, damaged where something was
//! promised, must be refused.

mod alarm;
mod contracts;
mod legal;
mod lists;
mod tinyfs;

use super::{DataMode, Promises};

const EXT4: Promises = Promises { data: DataMode::Ordered, name_by_file_fsync: true };
