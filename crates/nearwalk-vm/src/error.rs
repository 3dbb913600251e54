// SPDX-License-Identifier: GPL-2.0-or-later
//! What can go wrong, in the user's words.

use std::io;
use std::path::{Path, PathBuf};

use crate::text::TextError;

/// Why a virtual machine could not be found, read or set.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error(
        "debugfs is not mounted, where KVM tells of its virtual machines; \
         `mount -t debugfs none /sys/kernel/debug` mounts it"
    )]
    NoDebugfs,

    #[error(
        "no permission for /sys/kernel/debug/kvm, where KVM tells of its virtual machines: for root"
    )]
    NotPermitted,

    #[error(
        "KVM is not there (no /sys/kernel/debug/kvm): not in this kernel, its module is not \
         loaded, or this CPU has no virtualisation"
    )]
    NoKvm,

    #[error("there is no virtual machine `{who}`; {known}")]
    NoVm {
        who: String,
        /// Those that there are.
        known: String,
    },

    #[error("`{who}` is several: {which}; name one by PID-FD")]
    Several { who: String, which: String },

    /// A kernel without trees by domain.
    #[error(
        "{vm}: this kernel has no nested tables by domain (no {}); Nearwalk's has, built with \
         CONFIG_KVM_PGTABLE_REPL", .path.display()
    )]
    Unsupported { vm: String, path: PathBuf },

    /// The kernel says that this one cannot.
    #[error("{vm}: cannot have nested tables by domain: {why}")]
    Unable { vm: String, why: String },

    #[error("{vm}: {mode}: {why}")]
    Refused {
        vm: String,
        mode: String,
        why: &'static str,
    },

    #[error("{vm} has ended")]
    Ended { vm: String },

    // Not `source`: whoever prints the chain would say it twice.
    #[error("{vm}: {error}")]
    Text { vm: String, error: TextError },

    /// A guest's own tables.
    #[error("{}: {why}", .path.display())]
    Guest { path: PathBuf, why: String },

    #[error(transparent)]
    Host(#[from] nearwalk_host::Error),

    #[error(transparent)]
    Nodes(#[from] nearwalk_repl::Error),

    #[error("{}: {error}", .path.display())]
    Io { path: PathBuf, error: io::Error },
}

impl Error {
    pub(crate) fn io(path: &Path, error: io::Error) -> Error {
        Error::Io {
            path: path.to_owned(),
            error,
        }
    }
}
