// SPDX-License-Identifier: GPL-2.0-or-later
//! What can go wrong, in the user's words.

use std::io;
use std::path::{Path, PathBuf};

/// Why a host could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The kernel refuses a file or a directory.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },

    /// A file holds something else than what is known of it.
    #[error("{}: `{value}` is not {allowed}", path.display())]
    Value {
        /// The file.
        path: PathBuf,
        /// What it says.
        value: String,
        /// What it could say.
        allowed: &'static str,
    },

    /// A file lacks a line that later kernels write.
    #[error("{}: there is no line `{line}`", path.display())]
    NoLine {
        /// The file.
        path: PathBuf,
        /// How the line begins.
        line: &'static str,
    },

    /// What was looked at ended while it was.
    #[error("{0}")]
    Ended(String),

    /// The directory to record into holds something already.
    #[error("{}: exists and is not empty; name a new directory to record into", .0.display())]
    NotEmpty(PathBuf),

    /// The recording cannot be written.
    #[error("the recording in {} is not complete and cannot be used: {source}", dir.display())]
    Recording {
        /// Its directory.
        dir: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },

    /// No recording, or one whose end was never written.
    #[error(
        "{}: there is no recording.json, so this is no recording, or one that was cut short",
        .0.display()
    )]
    NoRecording(PathBuf),

    /// A recording by another version.
    #[error("{}: recording of kind `{found}`; this nearwalk reads {known}", dir.display())]
    OtherRecording {
        /// Its directory.
        dir: PathBuf,
        /// The schema that it names.
        found: String,
        /// The one that is known.
        known: &'static str,
    },

    /// A recording that says of itself what is not so.
    #[error("{}: {why}", path.display())]
    BadRecording {
        /// The file in question.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },

    /// More was asked of a recording than was read when it was made.
    #[error(
        "{}: the recording ends after {moments} moments, which is too early: it was cut short",
        dir.display()
    )]
    RecordingEnds {
        /// Its directory.
        dir: PathBuf,
        /// How many it has.
        moments: usize,
    },
}

impl Error {
    /// Wraps what the kernel said of `path`.
    pub fn io(path: impl Into<PathBuf>, source: io::Error) -> Self {
        Self::Io {
            path: path.into(),
            source,
        }
    }

    /// What `path` holds is not what it should be.
    pub fn value(path: &Path, value: impl Into<String>, allowed: &'static str) -> Self {
        Self::Value {
            path: path.to_owned(),
            value: value.into(),
            allowed,
        }
    }

    /// Whether the process or group went away: between the listing and the
    /// read, or while its file was open.
    pub fn is_gone(&self) -> bool {
        match self {
            Self::Ended(_) => true,
            Self::Io { source, .. } => matches!(
                source.raw_os_error(),
                Some(libc::ENOENT | libc::ESRCH | libc::ENODEV)
            ),
            _ => false,
        }
    }

    /// Whether the reader has no right to it.
    pub fn is_refused(&self) -> bool {
        matches!(self, Self::Io { source, .. }
            if source.kind() == io::ErrorKind::PermissionDenied)
    }
}
