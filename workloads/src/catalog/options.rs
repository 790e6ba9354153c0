//! Options of a workload as text, `key=value,key=value`: what the keys are is read from the options themselves, so a new
//! workload needs nothing for its command line.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// Decided by the cell, not by its user.
const SEED: &str = "seed";

/// `options` with what `text` changes.
///
/// # Errors
/// A sentence for the user: which key is none, with those there are, or which value does not fit.
pub(super) fn changed<T: Serialize + DeserializeOwned>(name: &str, options: &T, text: &str) -> Result<T, String> {
    let Ok(Value::Object(mut fields)) = serde_json::to_value(options) else {
        return Err(format!("the workload {name} has no options"));
    };
    for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, "true"));
        if key == SEED || !fields.contains_key(key) {
            return Err(format!("the workload {name} has no option `{key}`; it has {}", keys(&fields)));
        }
        let value = serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.into()));
        fields.insert(key.into(), value);
    }
    serde_json::from_value(Value::Object(fields)).map_err(|error| format!("--workload-opts {text}: {error}"))
}

fn keys(fields: &Map<String, Value>) -> String {
    fields.keys().filter(|key| *key != SEED).cloned().collect::<Vec<_>>().join(", ")
}
