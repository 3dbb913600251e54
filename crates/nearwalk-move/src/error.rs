// SPDX-License-Identifier: GPL-2.0-or-later
//! What can go wrong, in the user's words.

use std::io;

/// Why nothing, or no more, was moved.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The number stands for no process.
    #[error("there is no process {0}")]
    NoProcess(u32),

    /// A kernel thread, or a process that is ending.
    #[error("process {0} has no memory of its own (a kernel thread, or it has ended)")]
    NoMemory(u32),

    /// The process is somebody else's.
    #[error("process {0}: no permission; only its user or root (who may trace it) can move it")]
    NotPermitted(u32),

    /// `--shared` without the right to it.
    #[error("--shared moves other processes' memory as well, which takes CAP_SYS_NICE (root)")]
    SharedNotPermitted,

    /// Memory cannot be there.
    #[error("node {node} has no memory; allowed: {allowed}")]
    NoNode { node: u32, allowed: String },

    /// The process may not have memory there.
    #[error("process {pid} may have no memory on node {node}: its cpuset does not allow it")]
    NotAllowed { pid: u32, node: u32 },

    /// From where to where?
    #[error("--from and --to are both node {0}; memory moves from one node to another")]
    SameNode(u32),

    /// A kernel without CONFIG_NUMA or CONFIG_MIGRATION.
    #[error(
        "this kernel cannot move memory (it has no move_pages(), which takes CONFIG_MIGRATION)"
    )]
    Unsupported,

    /// No `/dev/exchange_pages`.
    #[error(
        "this kernel cannot exchange pages: there is no {0} (Nearwalk's kernel with \
         CONFIG_FOLIO_EXCHANGE has it); `nearwalk move` moves them"
    )]
    NoExchange(&'static str),

    /// `/dev/exchange_pages` is root's.
    #[error("{0}: no permission; only root can exchange pages")]
    ExchangeNotPermitted(&'static str),

    /// No `/proc/PID/ranger`.
    #[error(
        "this kernel cannot bring pages together: there is no /proc/PID/ranger (Nearwalk's \
         kernel with CONFIG_RANGER has it)"
    )]
    NoRanger,

    /// `/proc/PID/ranger` knows neither `on` nor `off`.
    #[error("this kernel makes no passes in the background: it is older than this nearwalk")]
    NoBackground,

    /// `/proc/PID/ranger` takes CAP_SYS_NICE.
    #[error(
        "no permission to bring pages together: pages of other processes make way, which takes \
         root (CAP_SYS_NICE, CAP_SYS_ADMIN, and the right to trace the process)"
    )]
    RangerNotPermitted,

    /// Which pages are parts of larger ones cannot be told.
    #[error(
        "page frames cannot be seen, so that parts of a larger page would be taken for pages; \
         that takes CAP_SYS_ADMIN and /proc/kpageflags"
    )]
    Unseen,

    /// Each page of one has its partner in the other.
    #[error("--a has {a} pages and --b has {b}; both must have as many")]
    UnequalRanges { a: u64, b: u64 },

    /// A page cannot be its own partner.
    #[error("--a and --b overlap; a page cannot change places with itself")]
    Overlap,

    /// Not as it was, or not where it should be.
    #[error(
        "verified in vain: {changed} pages have changed, {misplaced} are not in their \
         partner's frame (of {pages})"
    )]
    NotVerified {
        pages: u64,
        changed: u64,
        misplaced: u64,
    },

    /// No cgroup2 in /proc/self/mounts.
    #[error("cgroup v2 is not mounted; groups of v1 have no tiers")]
    NoGroups,

    /// Nothing of that name.
    #[error("there is no cgroup `{0}`")]
    NoGroup(String),

    /// The files of memory are not in the group.
    #[error(
        "cgroup `{0}` has no memory controller; write +memory to cgroup.subtree_control of the \
         group above"
    )]
    NoMemoryController(String),

    /// No `memory.tier`.
    #[error("this kernel has no memory.tier (Nearwalk's kernel with CONFIG_MEMCG_TIERING has it)")]
    NoTiers,

    /// One cannot be faster than itself.
    #[error("--fast and --slow are both node {0}; they must be two nodes")]
    SameTier(u32),

    /// MGLRU has no active and inactive lists.
    #[error(
        "the multi-generational LRU is on, which has no active and inactive lists; switch it \
         off: echo n > {0}"
    )]
    Generations(&'static str),

    /// `CAP_SYS_NICE` is lacking, or the right to write the file.
    #[error("{0}: no permission; moving pages that others map as well takes CAP_SYS_NICE")]
    TierNotPermitted(String),

    /// By a cpuset.
    #[error(
        "process {pid} may have no memory on node {node}: its cpuset does not allow it; allowed: {allowed}"
    )]
    TierForbidden {
        pid: String,
        node: u32,
        allowed: String,
    },

    /// What was printed went nowhere.
    #[error("standard output: {0}")]
    Output(#[source] io::Error),

    /// Anything else.
    #[error("{what}: {source}")]
    Io { what: String, source: io::Error },

    /// What the kernel says of the machine cannot be read.
    #[error(transparent)]
    Host(#[from] nearwalk_host::Error),
}

impl Error {
    pub(crate) fn io(what: impl Into<String>, source: io::Error) -> Self {
        Self::Io {
            what: what.into(),
            source,
        }
    }
}
