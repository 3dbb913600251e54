// SPDX-License-Identifier: GPL-2.0-or-later
//! Page-walk caches.

use super::hardware::{Stale, WalkCache};
use super::tlb::{Spaces, entries};
use crate::address::{Asid, Line};
use crate::machine::Entries;
use crate::simd::{Found, Host, Plain};
use crate::tags::{Key, LowBits, TagArray};

/// One small cache per level, after Barr et al. (ISCA'10), split translation
/// caches.
#[derive(Debug, Clone)]
pub struct SplitWalkCache {
    /// Index 0 is level 2.
    pub(super) levels: [TagArray<LowBits, 4>; 4],
    pub(super) spaces: Spaces,
}

impl SplitWalkCache {
    /// Caches of entries of levels 2 to 5.
    pub fn new(levels: [Entries; 4]) -> Self {
        SplitWalkCache {
            levels: levels.map(entries),
            spaces: Spaces::default(),
        }
    }
}

#[inline(always)]
pub(super) fn entry_number(addr: u64, level: u32) -> u64 {
    addr >> (12 + 9 * (level - 1))
}

impl SplitWalkCache {
    /// [`WalkCache::lookup`] by what the host has.
    #[inline(always)]
    pub(super) fn find(
        &mut self,
        asid: Asid,
        addr: u64,
        leaf: u32,
        root: u32,
        host: impl Host,
    ) -> Option<u32> {
        let salt = self.spaces.salt(asid);
        // Over all four, so that the compiler unrolls it.
        for (level, cache) in (2..).zip(&mut self.levels) {
            if level <= leaf || level > root {
                continue;
            }
            let entry = Key::quick(entry_number(addr, level)).salted(salt);
            // One entry of a high level is used over and over.
            if level > 3 && cache.is_front(entry) || cache.find(entry, host) == Found::Held {
                return Some(level);
            }
        }
        None
    }

    /// [`WalkCache::fill`], likewise.
    #[inline(always)]
    pub(super) fn take_in(&mut self, asid: Asid, addr: u64, level: u32, host: impl Host) {
        let salt = self.spaces.salt(asid);
        let entry = Key::quick(entry_number(addr, level)).salted(salt);
        self.levels[level as usize - 2].insert(entry, host);
    }
}

impl WalkCache for SplitWalkCache {
    #[inline(always)]
    fn lookup(&mut self, asid: Asid, addr: u64, leaf: u32, root: u32) -> Option<u32> {
        self.find(asid, addr, leaf, root, Plain)
    }

    #[inline(always)]
    fn fill(&mut self, asid: Asid, addr: u64, level: u32, _source: Line) {
        self.take_in(asid, addr, level, Plain);
    }

    fn invalidate(&mut self, what: Stale) -> u32 {
        match what {
            Stale::Page(asid, addr) => {
                let salt = self.spaces.salt(asid);
                let levels = (2..).zip(&mut self.levels);
                levels
                    .map(|(level, cache)| {
                        let entry = Key::quick(entry_number(addr, level)).salted(salt);
                        u32::from(cache.invalidate(entry))
                    })
                    .sum()
            }
            Stale::Asid(asid) => {
                self.spaces.renew(asid);
                0
            }
            Stale::EntryLine(_) | Stale::All => self.levels.iter_mut().map(TagArray::clear).sum(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;
    use crate::part::Parts;
    use crate::part::standard::Standard;

    const A: Asid = Asid(0);

    fn cache() -> SplitWalkCache {
        Standard::walk_cache(&Machine::builtin("e7-4850v3").unwrap())
    }

    /// Looks up, and fills as the walk that follows does.
    fn walk(w: &mut SplitWalkCache, asid: Asid, addr: u64, leaf: u32, root: u32) -> Option<u32> {
        let hit = w.lookup(asid, addr, leaf, root);
        for level in leaf + 1..hit.unwrap_or(root + 1) {
            w.fill(asid, addr, level, Line(0));
        }
        hit
    }

    #[test]
    fn walk_caches_answer_with_the_lowest_level() {
        let w = &mut cache();
        assert_eq!(walk(w, A, 0x1234_5678, 1, 4), None);
        assert_eq!(walk(w, A, 0x1234_5678, 1, 4), Some(2));
        let other = walk(w, A, 0x1234_5678, 2, 4);
        assert_eq!(other, Some(3), "a 2 MiB leaf is not in a walk cache");
        assert_eq!(walk(w, A, 0x1234_5678 ^ (1 << 21), 1, 4), Some(3));
        let again = walk(w, A, 0x1234_5678 ^ (1 << 21), 1, 4);
        assert_eq!(again, Some(2), "what the walk has read");
        assert_eq!(walk(w, A, 0x1234_5678 ^ (1 << 30), 1, 4), Some(4));
    }

    #[test]
    fn what_is_dropped_is_walked_again() {
        let (w, b) = (&mut cache(), Asid(3));
        let near = 0x1234_5678 ^ (1 << 21);
        for asid in [A, b] {
            for addr in [0x1234_5678, near] {
                walk(w, asid, addr, 1, 4);
            }
        }
        assert_eq!(w.invalidate(Stale::Page(A, 0x1234_5678)), 3);
        let kept = w.lookup(A, near, 1, 4);
        assert_eq!(kept, Some(2), "another table's entry");
        assert_eq!(w.lookup(A, 0x1234_5678, 1, 4), None);
        w.invalidate(Stale::Asid(b));
        assert_eq!(w.lookup(b, near, 1, 4), None);
        w.invalidate(Stale::EntryLine(Line(1)));
        assert_eq!(w.lookup(A, near, 1, 4), None);
    }
}
