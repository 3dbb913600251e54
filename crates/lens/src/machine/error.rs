// SPDX-License-Identifier: GPL-2.0-or-later
//! Why a machine description is refused.

/// Why a machine description was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MachineError {
    /// Not TOML, a missing or unknown key, or a bad quantity.
    #[error("machine file: {0}")]
    Syntax(#[from] toml::de::Error),
    /// A value out of its range.
    #[error("machine file: {key} is {value}; {allowed}")]
    Range {
        /// The key.
        key: String,
        /// Its value.
        value: String,
        /// What is allowed.
        allowed: String,
    },
    /// What a part has for itself is not as it wants it.
    #[error("machine file: [part.{name}]: {why}")]
    Part {
        /// The part.
        name: String,
        /// What is wrong with it.
        why: toml::de::Error,
    },
    /// A part has no table that says what it is like.
    #[error("machine file: there is no [part.{name}]")]
    LacksPart {
        /// The part.
        name: String,
    },
    /// A table that no part reads.
    #[error("machine file: no part reads [part.{name}]; {known}")]
    NoPart {
        /// The part.
        name: String,
        /// What is allowed.
        known: String,
    },
    /// The file of a machine cannot be read.
    #[error("reading {file}: {why}")]
    Unread {
        /// Its path.
        file: String,
        /// What is in the way.
        why: std::io::Error,
    },
    /// No built-in machine of that name.
    #[error("no built-in machine `{name}`; there are {known}, or give the path of a TOML file")]
    Unknown {
        /// What was asked for.
        name: String,
        /// The names there are.
        known: String,
    },
}

/// Refuses a `value` of `key` outside of `lo` to `hi`.
pub(super) fn in_range(key: &str, value: f64, lo: f64, hi: f64) -> Result<(), MachineError> {
    if (lo..=hi).contains(&value) {
        return Ok(());
    }
    Err(MachineError::Range {
        key: key.to_owned(),
        value: value.to_string(),
        allowed: format!("{lo} to {hi} is allowed"),
    })
}
