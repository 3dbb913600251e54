// SPDX-License-Identifier: GPL-2.0-or-later
//! What can be wrong before or while a VM runs. A guest that fails is not an
//! error but an [`crate::Outcome`].

use std::{io, path::PathBuf};

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A setting that cannot be. The message names the value and what is
    /// allowed.
    #[error("{0}")]
    Invalid(String),

    #[error("no kernel at {path}; build it with `{remedy}`")]
    NoKernel { path: PathBuf, remedy: &'static str },

    #[error("cannot run {program}: {source}; `scripts/setup.sh lab` installs it")]
    NoQemu { program: String, source: io::Error },

    #[error("cannot run {program}: {source}; `scripts/setup.sh bochs` installs it")]
    NoBochs { program: String, source: io::Error },

    #[error("KVM was asked for, but {0}")]
    NoKvm(String),

    /// QEMU ended before the guest could do anything.
    #[error("the emulator refused to start the machine:\n{0}")]
    Qemu(String),

    /// The guest could not set itself up for the job.
    #[error("the guest could not prepare: {0}")]
    Guest(String),

    #[error("{what}: {source}")]
    Io { what: String, source: io::Error },
}

impl Error {
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
        let what = what.into();
        move |source| Error::Io { what, source }
    }
}
