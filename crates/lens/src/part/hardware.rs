// SPDX-License-Identifier: GPL-2.0-or-later
//! What hardware does: a trait for each part that can be replaced.

use crate::address::{Asid, Line, PageSize};
use crate::simd::Found;
use crate::tags::Key;

/// Which level of a TLB has a translation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// First level: free.
    First,
    /// Second level.
    Second,
}

/// What a walk has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Translation {
    /// Whose it is.
    pub asid: Asid,
    /// The address that was translated: virtual, or guest-physical.
    pub addr: u64,
    /// Where it leads: a physical address, or what stands for one.
    pub pa: u64,
    /// Size of the page under which it is held.
    pub size: PageSize,
    /// Pages that are contiguous with this one, itself included, as far as the
    /// same line of entries tells; 1 unless [`Translations::WANTS_RUN`].
    pub run: u8,
    /// Line of the entry that it came from: with two dimensions, the nested one.
    pub source: Line,
}

/// What to drop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stale {
    /// What is held of the page at this address, of whatever size.
    Page(Asid, u64),
    /// All of one address space.
    Asid(Asid),
    /// What came from entries of this line. A part that does not keep where
    /// entries came from drops everything.
    EntryLine(Line),
    /// Everything.
    All,
}

/// What holds translations of whole pages: the TLBs of a core, or its nested
/// TLB, where addresses are guest-physical.
pub trait Translations {
    /// Whether [`Translation::run`] is worth computing.
    const WANTS_RUN: bool = false;
    /// Finds the page of `size` that holds `addr`. What only the second level
    /// has is in both then.
    fn lookup(&mut self, asid: Asid, addr: u64, size: PageSize) -> Option<Level>;
    /// Takes in a translation that was not found.
    fn fill(&mut self, t: &Translation);
    /// Drops what is stale. Returns how many entries it knows to have dropped.
    fn invalidate(&mut self, what: Stale) -> u32;
}

/// Page-walk caches of one core and one dimension (native and guest, or
/// nested): entries of levels 2 and up that point to the next table.
pub trait WalkCache {
    /// The lowest level whose entry for `addr` is cached, among levels above
    /// `leaf`; `None` if the walk starts at the root. The walk's first
    /// reference is then to the level below.
    fn lookup(&mut self, asid: Asid, addr: u64, leaf: u32, root: u32) -> Option<u32>;
    /// Takes in the entry of `level` for `addr`, which a walk has read from
    /// `source` since [`WalkCache::lookup`] did not find it.
    fn fill(&mut self, asid: Asid, addr: u64, level: u32, source: Line);
    /// As [`Translations::invalidate`].
    fn invalidate(&mut self, what: Stale) -> u32;
}

/// Where a private lookup ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrivateHit {
    /// First level.
    L1,
    /// Second level.
    L2,
    /// Neither; both now hold the line.
    Miss,
}

/// The private caches of one core. Data and table lines are alike.
pub trait PrivateCache {
    /// Finds `line`, inserting it on a miss.
    fn access(&mut self, line: Key) -> PrivateHit;
    /// Drops `line`.
    fn invalidate(&mut self, line: Key);
}

/// The last-level cache of one node, shared by its cores.
pub trait SharedCache {
    /// Finds `line`. Whoever misses it follows with [`SharedCache::insert`],
    /// before any other line is looked up.
    fn find(&mut self, line: Key) -> Found;
    /// Inserts `line`, which was not found.
    fn insert(&mut self, line: Key);
    /// Whether `line` is there, without touching it.
    fn contains(&self, line: Key) -> bool;
    /// Drops `line`.
    fn invalidate(&mut self, line: Key);
}

/// Memory of all nodes with what lies between them.
pub trait Memory {
    /// Latency in cycles of a line that `from` reads from the memory of
    /// `home`, load included, and notes the traffic. Nodes are below the
    /// machine's number of nodes.
    fn read(&mut self, from: usize, home: usize) -> f64;
    /// The same when the L3 of `holder`, another node, supplies the line.
    fn forward(&mut self, from: usize, holder: usize, home: usize) -> f64;
    /// Whether a prefetcher reads the neighbour of a line that `from` is about
    /// to read from the memory of `home`: not while those that are asked for
    /// wait long. The same until [`Memory::end_quantum`].
    fn prefetches(&self, from: usize, home: usize) -> bool;
    /// Notes the traffic of a prefetched line whose neighbour was just read.
    fn prefetch(&mut self, from: usize, home: usize);
    /// Sends a modified line back from `from` to the memory of `home` and
    /// notes the traffic. Returns the cycles for which the line that takes its
    /// place has to wait: none of the latency, which is nobody's to wait for,
    /// but the queue in front of it.
    fn write_back(&mut self, from: usize, home: usize) -> f64;
    /// All that a line from memory brings about: it is read, perhaps with a
    /// `prefetched` neighbour, perhaps in place of a `modified` line.
    fn fill(&mut self, from: usize, home: usize, prefetched: bool, modified: bool) -> f64 {
        fill_by_parts(self, from, home, prefetched, modified)
    }
    /// Ends a quantum of `cycles`: waiting times follow the traffic noted.
    fn end_quantum(&mut self, cycles: f64);
    /// The same of a quantum whose traffic is of one CPU, beside that of others
    /// whose quanta ended before: `beside` is the sum of what those left in `own`,
    /// which says what this one's lines have under way wherever lines wait. Empty is
    /// nothing. Memory without queues need not tell.
    fn end_quantum_beside(&mut self, cycles: f64, _beside: &[f64], own: &mut Vec<f64>) {
        own.clear();
        self.end_quantum(cycles);
    }
    /// Puts a bandwidth hog on `node`.
    fn add_interferer(&mut self, node: usize);
}

/// What [`Memory::fill`] is the sum of.
#[inline(always)]
pub(super) fn fill_by_parts<M: Memory + ?Sized>(
    memory: &mut M,
    from: usize,
    home: usize,
    prefetched: bool,
    modified: bool,
) -> f64 {
    if prefetched {
        memory.prefetch(from, home);
    }
    let mut cycles = memory.read(from, home);
    if modified {
        cycles += memory.write_back(from, home);
    }
    cycles
}
