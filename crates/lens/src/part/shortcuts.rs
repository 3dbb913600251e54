// SPDX-License-Identifier: GPL-2.0-or-later
//! What the standard parts do quickly. It gives the same answers and leaves the
//! same state as what their traits say; the tests below and those of
//! [`crate::system`] hold it equal, to the bit.

use super::cache::{L1L2, Sliced};
use super::hardware::{Level, Memory, PrivateHit, Translation};
use super::memory::{QueuedMemory, UNAWAITED};
use super::quick::{QuickMemory, QuickPrivate, QuickShared, QuickTranslations, QuickWalkCache};
use super::standard::OwnTlb;
use super::tlb::{PlainNestedTlb, TwoLevelTlb, page_key};
use super::walk_cache::{SplitWalkCache, entry_number};
use crate::address::{Asid, Line, PageSize};
use crate::simd::{Found, Host};
use crate::tags::{Key, TagArray};
use std::hint::black_box;

/// Nothing is quick about TLBs that the model does not come with.
impl<T: OwnTlb> QuickTranslations for T {}

impl QuickTranslations for TwoLevelTlb {
    #[inline(always)]
    fn lookup_on(
        &mut self,
        asid: Asid,
        addr: u64,
        size: PageSize,
        host: impl Host,
    ) -> Option<Level> {
        self.find(asid, addr, size, host)
    }

    #[inline(always)]
    fn fill_on(&mut self, t: &Translation, host: impl Host) {
        self.take_in(t, host);
    }

    #[inline(always)]
    fn lookup_or_fill(
        &mut self,
        asid: Asid,
        addr: u64,
        size: PageSize,
        host: impl Host,
    ) -> Option<Level> {
        let key = page_key(addr, size).salted(self.spaces.salt(asid));
        if self.first(size).access(key, host) {
            return Some(Level::First);
        }
        let hit = self.second(size).is_some_and(|l2| l2.access(key, host));
        hit.then_some(Level::Second)
    }

    fn is_usual(&self) -> bool {
        self.l1.iter().all(TagArray::is_in_line)
            && self.l2.is_in_line()
            && (self.l2_1g.is_in_line() || self.l2_1g.capacity() == 0)
    }
}

impl QuickTranslations for PlainNestedTlb {
    #[inline(always)]
    fn lookup_on(
        &mut self,
        asid: Asid,
        addr: u64,
        size: PageSize,
        host: impl Host,
    ) -> Option<Level> {
        self.find(asid, addr, size, host)
    }

    #[inline(always)]
    fn fill_on(&mut self, t: &Translation, host: impl Host) {
        self.take_in(t, host);
    }
}

impl QuickWalkCache for SplitWalkCache {
    #[inline(always)]
    fn lookup_on(
        &mut self,
        asid: Asid,
        addr: u64,
        leaf: u32,
        root: u32,
        host: impl Host,
    ) -> Option<u32> {
        self.find(asid, addr, leaf, root, host)
    }

    #[inline(always)]
    fn fill_on(&mut self, asid: Asid, addr: u64, level: u32, _source: Line, host: impl Host) {
        self.take_in(asid, addr, level, host);
    }

    #[inline(always)]
    fn lookup_or_fill(
        &mut self,
        asid: Asid,
        addr: u64,
        leaf: u32,
        root: u32,
        host: impl Host,
    ) -> Option<u32> {
        let salt = self.spaces.salt(asid);
        for (level, cache) in (2..).zip(&mut self.levels) {
            if level <= leaf || level > root {
                continue;
            }
            let entry = Key::quick(entry_number(addr, level)).salted(salt);
            if level > 3 && cache.is_front(entry) || cache.access(entry, host) {
                return Some(level);
            }
        }
        None
    }

    fn is_usual(&self) -> bool {
        self.levels.iter().all(TagArray::is_in_line)
    }
}

impl QuickPrivate for L1L2 {
    #[inline(always)]
    fn access_on(&mut self, line: Key, anywhere: bool, host: impl Host) -> PrivateHit {
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
}

impl QuickShared for Sliced {
    #[inline(always)]
    fn find_on(&mut self, line: Key, host: impl Host) -> Found {
        self.0.find(line, host)
    }
    #[inline(always)]
    fn insert_on(&mut self, line: Key, host: impl Host) {
        self.0.insert(line, host);
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
    #[inline(always)]
    fn hint(&self, line: Key) {
        self.0.prefetch(line);
    }
}

impl QuickMemory for QueuedMemory {
    #[inline(always)]
    fn is_calm(&self) -> bool {
        self.calm
    }

    #[inline(always)]
    fn fill_unless(
        &mut self,
        held: bool,
        cycles: f64,
        from: usize,
        home: usize,
        prefetched: bool,
    ) -> f64 {
        if from != home {
            return match held {
                true => cycles,
                false => self.fill(from, home, prefetched, false),
            };
        }
        let node = &mut self.nodes[home];
        let lines = 1 + u64::from(prefetched) * UNAWAITED;
        node.arrivals += if held { 0 } else { lines };
        // Compilers would make a branch of this if they saw what it is.
        [node.nominal + node.wait, cycles][black_box(usize::from(held))]
    }
}

#[cfg(test)]
#[path = "shortcuts_tests.rs"]
mod tests;
