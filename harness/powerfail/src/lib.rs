//! The program: its phases, its checks and its command line.
//!
//! ```text
//! cli, matrix -> axes -> config -> cell   (filesystems, modes, kernels, shard)
//!   record      served_drive + recording_file <- rig                         => DIR/CELL/recording
//!   plan_file   recording -> explorers                                       => DIR/CELL/plan.jsonl
//!   verify      recipe -> image -> agent -> evidence -> check/*              => DIR/ledger.jsonl, casebooks
//!   run         the three in turn, resumable; report: ledger -> table, page
//!   depth       crashes of the recoveries, planned once depth 1 was judged   => CELL/plan-2.jsonl, recoveries
//!   replay      a casebook or a recipe -> the same verdict
//!   journal     an image -> its journal as a table; recoveries: kernel, e2fsck and jbd2 replay alike
//!   selftest    drives that lie, canaries -> caught or not                  => a line of the ledger
//!   serve, ctl  a drive to use by hand: attach, use, cut, restore, look
//! ```

pub mod axes;
pub mod bench;
pub mod broken;
pub mod casebook;
pub mod cell;
pub mod check;
pub mod cli;
pub mod config;
pub mod depth;
pub mod doctor;
pub mod evidence;
pub mod explain;
pub mod exploring;
pub mod filesystems;
pub mod folder;
pub mod image;
pub mod investigate;
pub mod journal_cmd;
pub mod kernels;
pub mod live;
pub mod matrix;
pub mod modes;
pub mod plan_again;
pub mod plan_file;
pub mod progress;
pub mod record;
pub mod recording_cmd;
pub mod recording_file;
pub mod recoveries;
pub mod replay;
pub mod reproduce;
pub mod results;
pub mod rigs;
pub mod roles;
pub mod run;
pub mod sealed;
pub mod selftest;
pub mod serve;
pub mod served_drive;
pub mod shard;
pub mod shrink;
pub mod stop;
pub mod timeline;
pub mod verbs;
pub mod verbs_answers;
pub mod verbs_matrix;
pub mod verbs_results;
pub mod verify;
