//! What goes over the control socket: one request a line, one answer a line, both JSON. `docs/by-hand.md` shows each.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// The longest line, in bytes.
pub(crate) const MAX_LINE: usize = 64 << 10;

/// A request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum Ask {
    Cut {
        #[serde(default)]
        style: Style,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        seed: Option<u64>,
    },
    Restore {},
    Status {},
    Mark {
        text: String,
    },
    /// The path must be absolute: the server's working folder is not the client's.
    Snapshot {
        file: std::path::PathBuf,
    },
    Export {
        file: std::path::PathBuf,
    },
}

/// What hosts see of a cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Style {
    /// What is in flight is answered with an I/O error, then connections are closed.
    #[default]
    Error,
    /// Connections are closed; what is in flight is never answered.
    Drop,
    /// Nothing is answered and nothing closed, until the power is restored or a `drop` follows.
    Freeze,
}

/// A cut, as it is answered and kept beside the recording.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Cut {
    pub(crate) generation: u64,
    pub(crate) style: Style,
    /// The seed of what survives: the same one gives the same again.
    pub(crate) seed: u64,
    pub(crate) drives: Vec<CutDrive>,
}

/// What a cut did to one drive.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct CutDrive {
    pub(crate) export: String,
    /// The recording that the recipe is of.
    pub(crate) recording: std::path::PathBuf,
    /// The crash state; `powerfail materialise` makes its image again.
    pub(crate) recipe: String,
    /// The image's digest.
    pub(crate) image: String,
    /// The event at which the power failed.
    pub(crate) cut: u64,
    /// Fragments that could be lost.
    pub(crate) loose: u64,
    /// Those that were.
    pub(crate) lost: u64,
    /// Writes that were not replied to.
    pub(crate) in_flight: u64,
}
