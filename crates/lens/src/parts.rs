// SPDX-License-Identifier: GPL-2.0-or-later
//! The replaceable parts of the model, as traits, and the standard set.
//!
//! A [`crate::system::System`] is generic over [`Parts`], so a hardware
//! proposal (a coalescing TLB, a HATRIC-style directory) is another `impl` of
//! one trait and costs the others nothing at run time. The contract of each
//! part stands at its trait; the standard implementations are what the papers'
//! servers have.

use crate::assoc::{Found, Hashed, Index, Key, LowBits, TagArray};
use crate::host::Host;
use crate::machine::{Cache, Entries, Machine};
use crate::memory::QueuedMemory;
use crate::units::PageSize;

/// Where a translation was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlbHit {
    /// First level: free.
    L1,
    /// Second level.
    L2,
    /// Nowhere: a walk is needed.
    Miss,
}

/// The TLBs of one core.
///
/// `lookup` inserts on a miss: the walk that must follow always ends in a
/// translation here, since faults are the kernel's and not modelled.
pub trait Tlb {
    /// Finds the page of `size` that holds virtual address `va`.
    fn lookup(&mut self, va: u64, size: PageSize, host: impl Host) -> TlbHit;
    /// Whether `lookup` may be compiled for [`Host::USUAL`]: whether all of its sets
    /// are in line.
    fn is_usual(&self) -> bool {
        false
    }
    /// Drops the page of `size` that holds `va`, at every level.
    fn invalidate(&mut self, va: u64, size: PageSize);
    /// Drops everything.
    fn flush(&mut self);
}

/// Page-walk caches of one core and one dimension (native and guest, or
/// nested): entries of levels 2 and up that point to the next table.
///
/// `lookup` inserts what it misses, as [`Tlb::lookup`] does: the walk that
/// must follow reads the entries of all lower levels.
pub trait WalkCache {
    /// The lowest level whose entry for `addr` is cached, among levels above
    /// `leaf`; `None` if the walk starts at the root. The walk's first
    /// reference is then to the level below.
    fn lookup(&mut self, addr: u64, leaf: u32, root: u32, host: impl Host) -> Option<u32>;
    /// As [`Tlb::is_usual`].
    fn is_usual(&self) -> bool {
        false
    }
    /// Drops everything.
    fn flush(&mut self);
}

/// Whole-page guest-physical to host-physical translations of one core.
pub trait NestedTlb {
    /// Finds the nested page of `size` that holds guest-physical `gpa`;
    /// inserts on a miss, as [`Tlb::lookup`] does.
    fn lookup(&mut self, gpa: u64, size: PageSize, host: impl Host) -> bool;
    /// Drops everything.
    fn flush(&mut self);
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
    /// As [`Tlb::is_usual`].
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
    /// As [`Tlb::is_usual`], for all that finds a line.
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
    /// machine's number of sockets.
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
    type Tlb: Tlb;
    /// Page-walk caches.
    type WalkCache: WalkCache;
    /// Nested TLB.
    type NestedTlb: NestedTlb;
    /// Private caches.
    type Private: PrivateCache;
    /// Shared cache.
    type Shared: SharedCache;
    /// Memory.
    type Memory: Memory;
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

fn entries<const WAYS: usize>(e: Entries) -> TagArray<LowBits, WAYS> {
    TagArray::new(e.sets(), e.ways)
}

/// First-level TLBs per page size over a unified second level.
#[derive(Debug, Clone)]
pub struct TwoLevelTlb {
    l1: [TagArray<LowBits, 4>; 3],
    l2: TagArray<LowBits, 8>,
    l2_1g: TagArray<LowBits, 8>,
    l2_holds_2m: bool,
}

#[inline(always)]
fn page_key(addr: u64, size: PageSize) -> Key {
    Key::quick((addr >> size.shift()) | (u64::from(size.level() - 1) << 58))
}

impl TwoLevelTlb {
    /// The TLBs that `m` describes.
    pub fn new(m: &Machine) -> Self {
        TwoLevelTlb {
            l1: [
                entries(m.tlb.l1_4k),
                entries(m.tlb.l1_2m),
                entries(m.tlb.l1_1g),
            ],
            l2: entries(m.tlb.l2),
            l2_1g: entries(m.tlb.l2_1g.unwrap_or(Entries {
                entries: 0,
                ways: 0,
            })),
            l2_holds_2m: m.tlb.l2_holds_2m,
        }
    }

    #[inline(always)]
    fn second(&mut self, size: PageSize) -> Option<&mut TagArray<LowBits, 8>> {
        match size {
            PageSize::Size4K => Some(&mut self.l2),
            PageSize::Size2M => self.l2_holds_2m.then_some(&mut self.l2),
            PageSize::Size1G => (self.l2_1g.capacity() > 0).then_some(&mut self.l2_1g),
        }
    }
}

impl Tlb for TwoLevelTlb {
    #[inline(always)]
    fn lookup(&mut self, va: u64, size: PageSize, host: impl Host) -> TlbHit {
        let key = page_key(va, size);
        if self.l1[size.level() as usize - 1].access(key, host) {
            return TlbHit::L1;
        }
        let hit = self.second(size).is_some_and(|l2| l2.access(key, host));
        if hit { TlbHit::L2 } else { TlbHit::Miss }
    }

    fn is_usual(&self) -> bool {
        self.l1.iter().all(TagArray::is_in_line)
            && self.l2.is_in_line()
            && (self.l2_1g.is_in_line() || self.l2_1g.capacity() == 0)
    }

    fn invalidate(&mut self, va: u64, size: PageSize) {
        let key = page_key(va, size);
        self.l1[size.level() as usize - 1].invalidate(key);
        if let Some(l2) = self.second(size) {
            l2.invalidate(key);
        }
    }

    fn flush(&mut self) {
        self.l1.iter_mut().for_each(TagArray::clear);
        self.l2.clear();
        self.l2_1g.clear();
    }
}

/// One small cache per level, after Barr et al. (ISCA'10), split translation
/// caches.
#[derive(Debug, Clone)]
pub struct SplitWalkCache {
    /// Index 0 is level 2.
    levels: [TagArray<LowBits, 4>; 4],
}

#[inline(always)]
fn entry_number(addr: u64, level: u32) -> u64 {
    addr >> (12 + 9 * (level - 1))
}

impl WalkCache for SplitWalkCache {
    #[inline(always)]
    fn lookup(&mut self, addr: u64, leaf: u32, root: u32, host: impl Host) -> Option<u32> {
        // Over all four, so that the compiler unrolls it.
        for (level, cache) in (2..).zip(&mut self.levels) {
            if level <= leaf || level > root {
                continue;
            }
            let entry = Key::quick(entry_number(addr, level));
            // One entry of a high level is used over and over.
            if level > 3 && cache.is_front(entry) || cache.access(entry, host) {
                return Some(level);
            }
        }
        None
    }

    fn is_usual(&self) -> bool {
        self.levels.iter().all(TagArray::is_in_line)
    }

    fn flush(&mut self) {
        self.levels.iter_mut().for_each(TagArray::clear);
    }
}

/// A nested TLB of one structure.
#[derive(Debug, Clone)]
pub struct PlainNestedTlb(TagArray<LowBits, 16>);

impl NestedTlb for PlainNestedTlb {
    #[inline(always)]
    fn lookup(&mut self, gpa: u64, size: PageSize, host: impl Host) -> bool {
        self.0.access(page_key(gpa, size), host)
    }
    fn flush(&mut self) {
        self.0.clear();
    }
}

/// First- and second-level cache of a core, filled together.
#[derive(Debug, Clone)]
pub struct L1L2 {
    l1: TagArray<LowBits, 8>,
    l2: TagArray<LowBits, 8>,
}

fn lines<I: Index, const WAYS: usize, const ENTER: usize>(c: Cache) -> TagArray<I, WAYS, ENTER> {
    TagArray::with_entry(c.sets(), c.ways, c.insertion_way)
}

impl PrivateCache for L1L2 {
    #[inline(always)]
    fn access(&mut self, line: Key, anywhere: bool, host: impl Host) -> PrivateHit {
        if self.l1.access(line, host) {
            return PrivateHit::L1;
        }
        let hit = match anywhere {
            true => self.l2.access_evenly(line, host),
            false => self.l2.access(line, host),
        };
        if hit {
            PrivateHit::L2
        } else {
            PrivateHit::Miss
        }
    }
    fn is_usual(&self) -> bool {
        self.l1.is_in_line() && self.l2.is_in_line()
    }
    fn invalidate(&mut self, line: Key) {
        self.l1.invalidate(line);
        self.l2.invalidate(line);
    }
}

/// A sliced last-level cache: sets picked by a hash.
#[derive(Debug, Clone)]
pub struct Sliced(TagArray<Hashed, 20, 6>);

impl SharedCache for Sliced {
    #[inline(always)]
    fn find(&mut self, line: Key, host: impl Host) -> Found {
        self.0.find(line, host)
    }
    #[inline(always)]
    fn insert(&mut self, line: Key) {
        self.0.insert(line);
    }
    #[inline(always)]
    fn insert_pair(&mut self, line: Key, host: impl Host) {
        self.0.insert_pair(line, host);
    }
    #[inline(always)]
    fn find_or_insert_pair(&mut self, line: Key, host: impl Host) -> Found {
        self.0.find_or_insert_pair(line, host)
    }
    #[inline(always)]
    fn find_or_insert_pair_evenly(&mut self, line: Key, host: impl Host) -> Found {
        self.0.find_or_insert_pair_evenly(line, host)
    }
    #[inline(always)]
    fn find_or_insert_pair_if(&mut self, line: Key, wanted: bool, host: impl Host) -> Found {
        self.0.find_or_insert_pair_if(line, wanted, host)
    }
    fn is_usual(&self) -> bool {
        self.0.is_in_line()
    }
    #[inline]
    fn contains(&self, line: Key) -> bool {
        self.0.contains(line)
    }
    fn invalidate(&mut self, line: Key) {
        self.0.invalidate(line);
    }
    #[inline(always)]
    fn prefetch(&self, line: Key) {
        self.0.prefetch(line);
    }
}

/// The parts of the papers' servers.
#[derive(Debug, Clone, Copy)]
pub struct Standard;

impl Parts for Standard {
    type Tlb = TwoLevelTlb;
    type WalkCache = SplitWalkCache;
    type NestedTlb = PlainNestedTlb;
    type Private = L1L2;
    type Shared = Sliced;
    type Memory = QueuedMemory;

    fn tlb(m: &Machine) -> TwoLevelTlb {
        TwoLevelTlb::new(m)
    }
    fn walk_cache(m: &Machine) -> SplitWalkCache {
        let w = &m.walker;
        SplitWalkCache {
            levels: [w.level2, w.level3, w.level4, w.level5].map(entries),
        }
    }
    fn nested_walk_cache(m: &Machine) -> SplitWalkCache {
        let w = &m.walker;
        let top = w.nested_level4;
        SplitWalkCache {
            levels: [w.nested_level2, w.nested_level3, top, top].map(entries),
        }
    }
    fn nested_tlb(m: &Machine) -> PlainNestedTlb {
        PlainNestedTlb(entries(m.walker.nested_tlb))
    }
    fn private(m: &Machine) -> L1L2 {
        L1L2 {
            l1: lines(m.cache.l1),
            l2: lines(m.cache.l2),
        }
    }
    fn shared(m: &Machine) -> Sliced {
        Sliced(lines(m.cache.l3))
    }
    fn memory(m: &Machine) -> QueuedMemory {
        QueuedMemory::new(m)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Plain;

    fn machine() -> Machine {
        Machine::builtin("e7-4850v3").unwrap()
    }

    #[test]
    fn tlb_reach_is_entries_times_page_size() {
        // Pages that differ in their low bits spread over the sets evenly, so
        // exactly `entries` of them stay, and one more per set evicts all.
        for (size, first, second) in [(PageSize::Size4K, 64, 1024), (PageSize::Size2M, 32, 1024)] {
            let mut t = TwoLevelTlb::new(&machine());
            let mut pass = |n: u64| -> [usize; 3] {
                let mut r = [0; 3];
                for p in 0..n {
                    r[t.lookup(p << size.shift(), size, Plain) as usize] += 1;
                }
                r
            };
            assert_eq!(pass(first), [0, 0, first as usize]);
            assert_eq!(
                pass(first),
                [first as usize, 0, 0],
                "reach of the first level"
            );
            pass(second);
            assert_eq!(pass(second)[2], 0, "reach of the second level");
            pass(second + 128);
            assert_eq!(
                pass(second + 128)[2],
                second as usize + 128,
                "just beyond it"
            );
        }
    }

    #[test]
    fn an_invalidated_page_misses_and_its_neighbour_does_not() {
        let mut t = TwoLevelTlb::new(&machine());
        t.lookup(0x1000, PageSize::Size4K, Plain);
        t.lookup(0x2000, PageSize::Size4K, Plain);
        t.invalidate(0x1000, PageSize::Size4K);
        assert_eq!(t.lookup(0x2fff, PageSize::Size4K, Plain), TlbHit::L1);
        assert_eq!(t.lookup(0x1000, PageSize::Size4K, Plain), TlbHit::Miss);
    }

    #[test]
    fn walk_caches_answer_with_the_lowest_level() {
        let mut w = Standard::walk_cache(&machine());
        assert_eq!(w.lookup(0x1234_5678, 1, 4, Plain), None);
        assert_eq!(w.lookup(0x1234_5678, 1, 4, Plain), Some(2));
        assert_eq!(
            w.lookup(0x1234_5678, 2, 4, Plain),
            Some(3),
            "a 2 MiB leaf is not in a walk cache"
        );
        assert_eq!(w.lookup(0x1234_5678 ^ (1 << 21), 1, 4, Plain), Some(3));
        assert_eq!(
            w.lookup(0x1234_5678 ^ (1 << 21), 1, 4, Plain),
            Some(2),
            "what the walk has read"
        );
        assert_eq!(w.lookup(0x1234_5678 ^ (1 << 30), 1, 4, Plain), Some(4));
    }
}
