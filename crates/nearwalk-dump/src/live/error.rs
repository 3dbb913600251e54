// SPDX-License-Identifier: GPL-2.0-or-later
//! Why a running process cannot be read, and what to do about it.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::format::{DEVICE, MAJOR};

#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LiveError {
    #[error(transparent)]
    Refused(#[from] nearwalk_walk::Refusal),
    #[error(
        "no process {pid}: it has exited, or is of a PID namespace that cannot be seen from here"
    )]
    NoProcess { pid: i32 },
    #[error(
        "process {pid} has no memory to read: it is a kernel thread, has just exited, or may not \
         be looked at from here"
    )]
    NoMemory { pid: i32 },
    #[error("process {pid} exited while it was read")]
    Exited { pid: i32 },
    #[error("reading page tables needs root (CAP_SYS_ADMIN in the initial user namespace)")]
    Permission,
    #[error(
        "the module {DEVICE} is not loaded, and there is none for kernel {release}: looked for{}\n\
         build it in Nearwalk's sources with\n    \
         make -C module KDIR=/lib/modules/{release}/build\n\
         or name it with --module PATH",
        tried.iter().map(|t| format!("\n    {t}")).collect::<String>()
    )]
    ModuleMissing { release: String, tried: Vec<String> },
    #[error(
        "{} was built for kernel {built_for}, this is {release}; build it for this one with\n    \
         make -C module KDIR=/lib/modules/{release}/build",
        path.display()
    )]
    ModuleForOther {
        path: PathBuf,
        built_for: String,
        release: String,
    },
    #[error("{} is no kernel module, or not {DEVICE}", path.display())]
    NotTheModule { path: PathBuf },
    #[error("loading {} failed{}", path.display(), advice(source))]
    Load {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{} cannot be read", path.display())]
    ModuleUnreadable {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(
        "the module {DEVICE} is loaded, but /dev/{DEVICE} does not exist: is /dev the devtmpfs?"
    )]
    NoDevice,
    #[error(
        "the loaded module {DEVICE} writes format {}.{}, this program reads {MAJOR}.x: unload it \
         (rmmod {DEVICE}), and use module and nearwalk from the same source",
        found.0, found.1
    )]
    Version { found: (u16, u16) },
    #[error("/dev/{DEVICE} cannot be used")]
    Open {
        #[source]
        source: io::Error,
    },
    #[error("no snapshot of process {pid}")]
    Snapshot {
        pid: i32,
        #[source]
        source: io::Error,
    },
    #[error(
        "cannot read {}, which says where mappings end{}",
        path.display(),
        match source.kind() {
            io::ErrorKind::PermissionDenied => ": of other users' processes it needs \
                CAP_SYS_PTRACE; --reader bpf and --split none do without",
            _ => "",
        }
    )]
    Maps {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the release of the kernel is not known")]
    Release {
        #[source]
        source: io::Error,
    },
}

/// What the usual errors of loading a module come from.
fn advice(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::ENOEXEC) => {
            " (built for another configuration of this kernel? The kernel log says what differs)"
        }
        Some(libc::ENOENT) => {
            " (it needs something that this kernel has not got; the kernel log names it)"
        }
        Some(libc::EKEYREJECTED | libc::ENOKEY) => " (this kernel takes signed modules only)",
        Some(libc::EPERM) => " (needs CAP_SYS_MODULE, and no lockdown or modules_disabled)",
        _ => "",
    }
}
