// SPDX-License-Identifier: GPL-2.0-or-later
//! The replaceable parts of the model, as traits.
//!
//! A [`crate::system::System`] is generic over [`Parts`], so a hardware
//! proposal (a coalescing TLB, a HATRIC-style directory) is another `impl` of
//! one trait and costs the others nothing at run time. The contract of each
//! part stands at its trait; the modules below implement what servers
//! have, and [`standard`] puts it together.

pub mod cache;
pub mod memory;
pub mod standard;
pub mod tlb;
pub mod walk_cache;

use crate::address::{Asid, Line, PageSize};
use crate::machine::{Machine, MachineError};
use crate::simd::{Found, Host};
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
    fn lookup(&mut self, asid: Asid, addr: u64, size: PageSize, host: impl Host) -> Option<Level>;
    /// Takes in a translation that was not found.
    fn fill(&mut self, t: &Translation);
    /// [`Translations::lookup`], and [`Translations::fill`] with what is not
    /// found, for the usual loop: there nobody keeps where entries came from.
    #[inline(always)]
    fn lookup_or_fill(
        &mut self,
        asid: Asid,
        addr: u64,
        size: PageSize,
        host: impl Host,
    ) -> Option<Level> {
        let hit = self.lookup(asid, addr, size, host);
        if hit.is_none() {
            self.fill(&Translation {
                asid,
                addr,
                pa: addr,
                size,
                run: 1,
                source: Line(0),
            });
        }
        hit
    }
    /// Whether the loop may be compiled for [`Host::USUAL`]: whether all sets
    /// are in line, and nothing but an entry's page is kept.
    fn is_usual(&self) -> bool {
        false
    }
    /// Drops what is stale. Returns how many entries it knows to have dropped.
    fn invalidate(&mut self, what: Stale) -> u32;
}

/// Page-walk caches of one core and one dimension (native and guest, or
/// nested): entries of levels 2 and up that point to the next table.
pub trait WalkCache {
    /// The lowest level whose entry for `addr` is cached, among levels above
    /// `leaf`; `None` if the walk starts at the root. The walk's first
    /// reference is then to the level below.
    fn lookup(
        &mut self,
        asid: Asid,
        addr: u64,
        leaf: u32,
        root: u32,
        host: impl Host,
    ) -> Option<u32>;
    /// Takes in the entry of `level` for `addr`, which a walk has read from
    /// `source` since [`WalkCache::lookup`] did not find it.
    fn fill(&mut self, asid: Asid, addr: u64, level: u32, source: Line);
    /// [`WalkCache::lookup`], and [`WalkCache::fill`] with all that the walk
    /// will read, as [`Translations::lookup_or_fill`].
    #[inline(always)]
    fn lookup_or_fill(
        &mut self,
        asid: Asid,
        addr: u64,
        leaf: u32,
        root: u32,
        host: impl Host,
    ) -> Option<u32> {
        let hit = self.lookup(asid, addr, leaf, root, host);
        for level in leaf + 1..hit.unwrap_or(root + 1) {
            self.fill(asid, addr, level, Line(0));
        }
        hit
    }
    /// As [`Translations::is_usual`].
    fn is_usual(&self) -> bool {
        false
    }
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
    /// Finds `line`, inserting it on a miss. `anywhere` says that the host could
    /// not predict whether the second level has it, and changes nothing else.
    fn access(&mut self, line: Key, anywhere: bool, host: impl Host) -> PrivateHit;
    /// As [`Translations::is_usual`].
    fn is_usual(&self) -> bool {
        false
    }
    /// Drops `line`.
    fn invalidate(&mut self, line: Key);
}

/// The last-level cache of one node, shared by its cores.
pub trait SharedCache {
    /// Finds `line`. Whoever misses it follows with [`SharedCache::insert`] or
    /// [`SharedCache::insert_pair`], before any other line is looked up.
    fn find(&mut self, line: Key, host: impl Host) -> Found;
    /// Inserts `line`, which was not found.
    fn insert(&mut self, line: Key);
    /// Inserts `line` and the other line of its pair, neither of which was
    /// found.
    fn insert_pair(&mut self, line: Key, host: impl Host);
    /// Finds `line` and, if it is absent, makes both of its pair present as
    /// [`SharedCache::insert_pair`] does, or, if the other one was there,
    /// [`SharedCache::insert`] and then [`SharedCache::find`] for that.
    fn find_or_insert_pair(&mut self, line: Key, host: impl Host) -> Found {
        let found = self.find(line, host);
        match found {
            Found::Held => {}
            Found::Absent { other: false } => self.insert_pair(line, host),
            Found::Absent { other: true } => {
                self.insert(line);
                self.find(line.other(), host);
            }
        }
        found
    }
    /// The same for where the host could not predict what it finds.
    fn find_or_insert_pair_evenly(&mut self, line: Key, host: impl Host) -> Found {
        self.find_or_insert_pair(line, host)
    }
    /// The same for lines of which nearly all are there. Unless `line` is
    /// `wanted`, it does nothing and says [`Found::Held`]. That spares the host a
    /// branch that it could not predict.
    fn find_or_insert_pair_if(&mut self, line: Key, wanted: bool, host: impl Host) -> Found {
        match wanted {
            true => self.find_or_insert_pair(line, host),
            false => Found::Held,
        }
    }
    /// As [`Translations::is_usual`], for all that finds a line.
    fn is_usual(&self) -> bool {
        false
    }
    /// Whether `line` is there, without touching it.
    fn contains(&self, line: Key) -> bool;
    /// Drops `line`.
    fn invalidate(&mut self, line: Key);
    /// Hints that `line` will be looked up soon.
    fn prefetch(&self, line: Key);
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
    /// Whether [`Memory::prefetches`] says so for all nodes, at a glance. It may
    /// say no where it does.
    fn is_calm(&self) -> bool;
    /// Notes the traffic of a prefetched line whose neighbour was just read.
    fn prefetch(&mut self, from: usize, home: usize);
    /// Sends a modified line back from `from` to the memory of `home` and
    /// notes the traffic. Returns the cycles for which the line that takes its
    /// place has to wait: none of the latency, which is nobody's to wait for,
    /// but the queue in front of it.
    fn write_back(&mut self, from: usize, home: usize) -> f64;
    /// All that a line from memory brings about: it is read, perhaps with a
    /// `prefetched` neighbour, perhaps in place of a `modified` line. Returns
    /// the sum of what [`Memory::read`] and [`Memory::write_back`] do.
    fn fill(&mut self, from: usize, home: usize, prefetched: bool, modified: bool) -> f64;
    /// What [`Memory::fill`] does for a line that takes no modified one's place,
    /// or nothing if a cache has `held` it, in as many `cycles`. If it can without
    /// a branch on that.
    fn fill_unless(
        &mut self,
        held: bool,
        cycles: f64,
        from: usize,
        home: usize,
        prefetched: bool,
    ) -> f64 {
        match held {
            true => cycles,
            false => self.fill(from, home, prefetched, false),
        }
    }
    /// Ends a quantum of `cycles`: waiting times follow the traffic noted.
    fn end_quantum(&mut self, cycles: f64);
    /// Puts a bandwidth hog on `node`.
    fn add_interferer(&mut self, node: usize);
}

/// One choice of every part.
pub trait Parts {
    /// TLBs.
    type Tlb: Translations;
    /// Page-walk caches.
    type WalkCache: WalkCache;
    /// Nested TLB.
    type NestedTlb: Translations;
    /// Private caches.
    type Private: PrivateCache;
    /// Shared cache.
    type Shared: SharedCache;
    /// Memory.
    type Memory: Memory;
    /// Whether these parts can be what `m` says. A set with tables of its own
    /// (`[part.NAME]`) reads them here; others refuse all such tables.
    ///
    /// # Errors
    /// What a part says of its table, or that nobody reads one.
    fn check(m: &Machine) -> Result<(), MachineError> {
        m.check_parts(&[])
    }
    /// TLBs for one core of `m`.
    fn tlb(m: &Machine) -> Self::Tlb;
    /// Native (guest) walk caches for one core of `m`.
    fn walk_cache(m: &Machine) -> Self::WalkCache;
    /// Nested walk caches for one core of `m`.
    fn nested_walk_cache(m: &Machine) -> Self::WalkCache;
    /// Nested TLB for one core of `m`.
    fn nested_tlb(m: &Machine) -> Self::NestedTlb;
    /// Private caches for one core of `m`.
    fn private(m: &Machine) -> Self::Private;
    /// Shared cache for one node of `m`.
    fn shared(m: &Machine) -> Self::Shared;
    /// Memory of `m`.
    fn memory(m: &Machine) -> Self::Memory;
}
