// SPDX-License-Identifier: GPL-2.0-or-later
//! The stream of the dump module as typed records.
//!
//! [`Reader`] turns bytes into records and believes none of them: whatever
//! the input, it returns records or a [`StreamError`] that says where the
//! stream is wrong, and allocates no more than the input warrants.
//! [`Writer`] is its inverse, for tests and for tools that make streams.

mod error;
mod header;
mod reader;
mod varint;
mod writer;

pub use error::{Problem, StreamError};
pub use reader::Reader;
pub use writer::Writer;

use crate::format;

/// What the stream says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Version of the format that the stream was written in.
    pub version: (u16, u16),
    /// The kernel was built with page-table replication.
    pub replication: bool,
    /// Read from outside of the kernel: some kinds of entries are coarser, and
    /// domain trees are left out.
    pub outside: bool,
    /// Levels of the page tables: 4 or 5.
    pub levels: u8,
    /// Node ids are below this.
    pub nr_nodes: u16,
    /// Translation domains of the kernel; 0 without replication.
    pub nr_domains: u16,
    /// The process, as its reader named it.
    pub pid: i32,
    /// Start of the reading, nanoseconds since 1970.
    pub realtime_ns: u64,
    /// Start of the reading, nanoseconds since boot.
    pub boottime_ns: u64,
    /// Start of the process, nanoseconds since boot: tells two processes of
    /// the same pid apart.
    pub start_time_ns: u64,
    /// Name of the process.
    pub comm: String,
    /// Release of the kernel.
    pub release: String,
}

/// A NUMA node that the kernel may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeInfo {
    pub node: u32,
    pub online: bool,
    pub cpus: bool,
    pub memory: bool,
}

/// A set of CPUs that share one view of a process's tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DomainInfo {
    pub domain: u32,
    /// Where its table pages lie.
    pub node: Option<u32>,
}

/// Whose tree a table was met in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum View {
    /// The tree that Linux itself works on, `mm->pgd`.
    Canonical,
    /// The tree that CPUs of this domain load.
    Domain(u32),
}

/// What an entry of a table is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Points to a table of the next lower level.
    Table,
    /// Leaf that hardware follows.
    Page,
    /// Leaf, inaccessible until a NUMA hinting fault.
    Hint,
    /// Leaf of a mapping that is itself `PROT_NONE`.
    ProtNone,
    /// Swapped out.
    Swap,
    /// The page is being migrated.
    Migration,
    /// Not present, for another reason.
    Other,
}

impl Kind {
    /// Kinds in the order of their codes.
    pub const ALL: [Kind; 7] = [
        Kind::Table,
        Kind::Page,
        Kind::Hint,
        Kind::ProtNone,
        Kind::Swap,
        Kind::Migration,
        Kind::Other,
    ];

    fn from_code(code: u64) -> Option<Kind> {
        Kind::ALL.get(usize::try_from(code).ok()?).copied()
    }

    fn code(self) -> u8 {
        self as u8
    }

    /// Maps memory of the process.
    pub fn is_leaf(self) -> bool {
        matches!(self, Kind::Page | Kind::Hint | Kind::ProtNone)
    }

    /// Names a frame: a leaf, or a pointer to a table.
    pub fn has_frame(self) -> bool {
        self == Kind::Table || self.is_leaf()
    }
}

/// What else the stream says of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Attrs(u8);

impl Attrs {
    /// Not executable.
    pub const NX: Attrs = Attrs(0x08);
    pub const WRITE: Attrs = Attrs(0x10);
    pub const ACCESSED: Attrs = Attrs(0x20);
    pub const DIRTY: Attrs = Attrs(0x40);
    /// Not memory of the process: zero page, vdso, device or driver page.
    pub const SPECIAL: Attrs = Attrs(0x80);

    pub fn contains(self, other: Attrs) -> bool {
        self.0 & other.0 == other.0
    }

    /// The defined bits of `bits`.
    pub const fn from_bits(bits: u8) -> Attrs {
        Attrs(bits & !(format::KIND_MASK as u8))
    }

    pub fn bits(self) -> u8 {
        self.0
    }
}

impl std::ops::BitOr for Attrs {
    type Output = Attrs;

    fn bitor(self, other: Attrs) -> Attrs {
        Attrs(self.0 | other.0)
    }
}

/// Adjacent entries of a table that are alike and name consecutive frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// Index of the first entry, below [`format::ENTRIES`].
    pub first: u16,
    /// Number of entries, at least 1; `first + count` is at most
    /// [`format::ENTRIES`].
    pub count: u16,
    pub kind: Kind,
    pub attrs: Attrs,
    /// Node of the frames. `None` when they have no struct page, and for
    /// kinds without a frame.
    pub node: Option<u32>,
    /// Frame of the first entry; 0 for kinds without a frame.
    pub frame: u64,
}

impl Run {
    /// Frames from one entry to the next, in a table of `level`.
    pub fn step(&self, level: u8) -> u64 {
        match self.kind {
            Kind::Table => 1,
            kind if kind.is_leaf() => format::leaf_step(level),
            _ => 0,
        }
    }
}

/// Where a table page is and what it translates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableHead {
    /// 1 (entries map 4 KiB) up to [`Header::levels`] (the root).
    pub level: u8,
    pub view: View,
    /// First virtual address that it translates.
    pub addr: u64,
    /// Frame of the table page.
    pub frame: u64,
    /// Node of the table page.
    pub node: Option<u32>,
    /// A page of the domain's own, not the canonical one.
    pub replica: bool,
    /// The entries equal the canonical table's, accessed and dirty bits
    /// apart.
    pub same: bool,
    /// Its entries were not read.
    pub unread: bool,
}

impl TableHead {
    /// Streams list tables in ascending order of this key.
    pub fn key(&self) -> (u64, std::cmp::Reverse<u8>, View) {
        (self.addr, std::cmp::Reverse(self.level), self.view)
    }
}

/// A table with its entries, empty ones left out. `runs` is ordered by
/// index, and empty if they were not read. Those of a table whose head says `same` are the canonical table's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Table<'a> {
    pub head: TableHead,
    pub runs: &'a [Run],
}

/// How a snapshot ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct End {
    /// False when the process exited while it was read.
    pub complete: bool,
    /// Number of tables in the stream.
    pub tables: u64,
    /// How often `mmap_lock` was taken: within one of these stretches no
    /// mapping came or went.
    pub stretches: u64,
    /// How long the reading took.
    pub duration_ns: u64,
}

/// A record of the stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record<'a> {
    Node(NodeInfo),
    Domain(DomainInfo),
    Table(Table<'a>),
    End(End),
}
