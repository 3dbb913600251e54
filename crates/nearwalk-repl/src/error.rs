// SPDX-License-Identifier: GPL-2.0-or-later
//! What can go wrong, in the user's words.

use std::io;
use std::path::PathBuf;

use crate::nodes::NodeSet;
use crate::request::Request;

/// Why a process's replication could not be set or shown.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The running kernel has no page-table replication.
    #[error(
        "this kernel has no page-table replication (there is no /proc/self/pgtable_repl); \
         build one with `make kernel` and boot it, or try it in a virtual machine with \
         `nearwalk lab run -- COMMAND`"
    )]
    Unsupported,

    /// `vm.pgtable_repl_mode` is 0.
    #[error(
        "the administrator has switched page-table replication off; \
         `sysctl vm.pgtable_repl_mode=1` allows it again"
    )]
    SwitchedOff,

    /// The kernel refuses for the whole machine although the sysctl allows it.
    #[error("the kernel cannot replicate page tables on this machine (Xen PV guest?)")]
    NotOnThisMachine,

    /// No `/proc/self/ranger`, or one without passes in the background.
    #[error(
        "this kernel cannot bring memory together in the background (Nearwalk's kernel with \
         CONFIG_RANGER can)"
    )]
    NoRanger,

    /// `/proc/self/ranger` takes CAP_SYS_NICE.
    #[error(
        "no permission to bring memory together: pages of other processes make way, which takes \
         root (CAP_SYS_NICE)"
    )]
    RangerNotPermitted,

    /// It cannot be switched on, for some other reason.
    #[error("memory cannot be brought together: {0}")]
    Ranger(#[source] io::Error),

    /// No process has that number.
    #[error("there is no process {0}")]
    NoProcess(u32),

    /// A kernel thread, or a process that is ending.
    #[error("process {0} has no page tables of its own (a kernel thread, or it has ended)")]
    NoAddressSpace(u32),

    /// The caller may not trace the process.
    #[error("process {0}: no permission; only its user or root (who may trace it) can do this")]
    NotPermitted(u32),

    /// No cgroup v2 hierarchy.
    #[error(
        "cgroup v2 is not mounted; `mount -t cgroup2 none /sys/fs/cgroup` mounts it where no \
         other hierarchy has the memory controller"
    )]
    NoCgroups,

    /// No such group.
    #[error("there is no cgroup `{0}`")]
    NoCgroup(String),

    /// A group whose memory is not controlled, or the root of all groups.
    #[error(
        "cgroup `{0}` has no memory.pgtable_repl: it is the root, or the memory controller is not \
         enabled for it; `echo +memory` to the cgroup.subtree_control of the group above enables it"
    )]
    NoController(String),

    /// The caller may not read or write the group's files.
    #[error("cgroup `{0}`: no permission; its owner or root can do this")]
    CgroupNotPermitted(String),

    /// A limit that cannot be read.
    #[error("bad limit `{0}`; write bytes, with K, M, G or T as in 256M, or max for none")]
    BadLimit(String),

    /// A list of nodes that does not follow the grammar.
    #[error(
        "bad node list `{text}`: {why}; \
         write for example 0,2 or 0-3 or !1 or +0, all, off, or default"
    )]
    BadNodeList {
        /// What the user wrote.
        text: String,
        /// What is wrong with it.
        why: String,
    },

    /// `--prefetch` with what is not lazy.
    #[error("--prefetch is of lazy copies, and `{0}` has none; write for example lazy or lazy:0-1")]
    PrefetchNotLazy(Request),

    /// A mode of `--nested` that does not follow the grammar.
    #[error(
        "bad --nested `{text}`: {why}; write off, lazy or migrate, or nodes behind the latter \
         two as in lazy:0-1"
    )]
    BadNested {
        /// What the user wrote.
        text: String,
        /// What is wrong with it.
        why: String,
    },

    /// The kernel does not know of virtual machines.
    #[error(
        "this kernel takes no setting for the virtual machines of a process or cgroup; \
         `nearwalk vm set` may set each by itself"
    )]
    NoNested,

    /// A node number that the machine can never have.
    #[error("there is no node {node}; this machine can have {possible}")]
    NoSuchNode {
        /// The number that was asked for.
        node: u32,
        /// The numbers that exist.
        possible: NodeSet,
    },

    /// A node that exists, on which page tables cannot be replicated.
    #[error("node {node} {why}; page tables can be replicated on {usable}")]
    UnusableNode {
        /// The number that was asked for.
        node: u32,
        /// What it lacks.
        why: &'static str,
        /// The nodes that can be used.
        usable: NodeSet,
    },

    /// The kernel's text was not understood.
    #[error("cannot read the kernel's answer: line `{line}`: {why}")]
    Answer {
        /// The line in question.
        line: String,
        /// What is wrong with it.
        why: String,
    },

    /// No directory of this user's for what lasts until the host stops.
    #[error(
        "there is nowhere to note what was set before: run it as root, or have XDG_RUNTIME_DIR \
         name a directory of yours"
    )]
    NoRuntimeDirectory,

    /// Another trial has the subject, or the group that it is in.
    #[error("a trial of {name} is running (process {holder}); one is enough")]
    Held {
        /// The subject of that trial.
        name: String,
        /// The trial's process.
        holder: u32,
    },

    /// A trial that had the subject was killed, and its guard as well.
    #[error(
        "a trial of {name} was killed and so was its guard: `nearwalk trial --restore` brings back \
         `{found}`, which was set before"
    )]
    LeftOver {
        /// The subject of that trial.
        name: String,
        /// What was set before.
        found: String,
    },

    /// A note that cannot be read.
    #[error("{}: not a note of a trial: {why}; remove it", path.display())]
    BadNote {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },

    /// A program that was to be run could not be.
    #[error("cannot run {program}: {source}")]
    Exec {
        /// Its name, as given.
        program: String,
        /// What the kernel said.
        source: io::Error,
    },

    /// numactl's options were given and there is no numactl.
    #[error(
        "cannot run numactl, which carries out --interleave and the other placement options: \
         {0}; install the package numactl"
    )]
    NoNumactl(io::Error),

    /// Anything else that the kernel refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file, or a name for the call.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
}

impl Error {
    /// Wraps what the kernel said of `path`.
    pub(crate) fn io(path: impl Into<PathBuf>, source: io::Error) -> Self {
        Self::Io {
            path: path.into(),
            source,
        }
    }
}
