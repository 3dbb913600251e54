// SPDX-License-Identifier: GPL-2.0-or-later
//! Numbers of the stream and of the device, as `module/ptdump_format.h`
//! defines them. That header explains them; change both together.

/// Name of the module, and of its device below `/dev`.
pub const DEVICE: &str = "nearwalk_ptdump";

/// Version of the format that this crate reads: streams of the same major
/// version, whatever their minor version.
pub const MAJOR: u16 = 1;
/// Minor version that this crate knows all additions of.
pub const MINOR: u16 = 1;

pub(crate) const MAGIC: [u8; 8] = *b"\x89PTDUMP\n";
pub(crate) const BYTE_ORDER: u32 = 0x0102_0304;
pub(crate) const HEADER_SIZE: usize = 144;
pub(crate) const MAX_PAYLOAD: u32 = 6144;

/// Bytes of the smallest page, as a power of two.
pub const PAGE_SHIFT: u32 = 12;
/// Entries of a table, as a power of two.
pub const INDEX_BITS: u32 = 9;
/// Entries of a table.
pub const ENTRIES: u16 = 1 << INDEX_BITS;
/// Leaf entries exist at levels 1 (4 KiB), 2 (2 MiB) and 3 (1 GiB).
pub const MAX_LEAF_LEVEL: u8 = 3;

pub(crate) const HEADER_REPL: u32 = 0x1;
pub(crate) const HEADER_OUTSIDE: u32 = 0x2;

pub(crate) const REC_NODE: u8 = 1;
pub(crate) const REC_DOMAIN: u8 = 2;
pub(crate) const REC_TABLE: u8 = 3;
pub(crate) const REC_END: u8 = 4;

pub(crate) const NODE_ONLINE: u64 = 0x1;
pub(crate) const NODE_CPUS: u64 = 0x2;
pub(crate) const NODE_MEMORY: u64 = 0x4;

pub(crate) const TABLE_REPLICA: u64 = 0x1;
pub(crate) const TABLE_SAME: u64 = 0x2;
pub(crate) const TABLE_UNREAD: u64 = 0x4;

pub(crate) const KIND_MASK: u64 = 0x07;
/// Greatest flags of an entry that are defined.
pub(crate) const ENTRY_FLAGS_MAX: u64 = 0xff;

pub(crate) const RUN_FLAGS: u64 = 0x1;
pub(crate) const RUN_NODE: u64 = 0x2;
pub(crate) const RUN_GAP: u64 = 0x4;
pub(crate) const RUN_FRAME: u64 = 0x8;
pub(crate) const RUN_COUNT_SHIFT: u32 = 4;

pub(crate) const END_COMPLETE: u64 = 0;
pub(crate) const END_EXITED: u64 = 1;

/// Greatest number of possible nodes that Linux can be built with.
pub(crate) const MAX_NODES: u16 = 1024;
/// Domains that a stream may have: far more than nodes can be split into.
pub(crate) const MAX_DOMAINS: u16 = 4096;
/// Physical addresses have at most 52 bits.
pub(crate) const MAX_FRAME: u64 = 1 << (52 - PAGE_SHIFT);

/// Bytes of virtual memory that one entry of a table of `level` covers.
pub const fn entry_size(level: u8) -> u64 {
    1 << (PAGE_SHIFT + INDEX_BITS * (level as u32 - 1))
}

/// Bytes of virtual memory that a table of `level` covers.
pub const fn table_size(level: u8) -> u64 {
    entry_size(level) << INDEX_BITS
}

/// Frames from one leaf entry to the next in a run.
pub(crate) const fn leaf_step(level: u8) -> u64 {
    entry_size(level) >> PAGE_SHIFT
}
