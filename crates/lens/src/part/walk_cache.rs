// SPDX-License-Identifier: GPL-2.0-or-later
//! Page-walk caches.

use super::WalkCache;
use super::tlb::entries;
use crate::machine::Entries;
use crate::simd::Host;
use crate::tags::{Key, LowBits, TagArray};

/// One small cache per level, after Barr et al. (ISCA'10), split translation
/// caches.
#[derive(Debug, Clone)]
pub struct SplitWalkCache {
    /// Index 0 is level 2.
    levels: [TagArray<LowBits, 4>; 4],
}

impl SplitWalkCache {
    /// Caches of entries of levels 2 to 5.
    pub fn new(levels: [Entries; 4]) -> Self {
        SplitWalkCache {
            levels: levels.map(entries),
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;
    use crate::part::Parts;
    use crate::part::standard::Standard;
    use crate::simd::Plain;

    fn machine() -> Machine {
        Machine::builtin("e7-4850v3").unwrap()
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
