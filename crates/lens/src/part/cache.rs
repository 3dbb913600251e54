// SPDX-License-Identifier: GPL-2.0-or-later
//! Caches of data and tables.

use super::hardware::{PrivateCache, PrivateHit, SharedCache};
use crate::machine::{Cache, Machine};
use crate::simd::{Found, Plain};
use crate::tags::{Hashed, Index, Key, LowBits, TagArray};

/// First- and second-level cache of a core, filled together.
#[derive(Debug, Clone)]
pub struct L1L2 {
    pub(super) l1: TagArray<LowBits, 8>,
    pub(super) l2: TagArray<LowBits, 8>,
}

impl L1L2 {
    /// The private caches that `m` describes.
    pub fn new(m: &Machine) -> Self {
        L1L2 {
            l1: lines(m.cache.l1),
            l2: lines(m.cache.l2),
        }
    }
}

fn lines<I: Index, const WAYS: usize, const ENTER: usize>(c: Cache) -> TagArray<I, WAYS, ENTER> {
    TagArray::with_entry(c.sets(), c.ways, c.insertion_way)
}

impl PrivateCache for L1L2 {
    #[inline(always)]
    fn access(&mut self, line: Key) -> PrivateHit {
        if self.l1.access(line, Plain) {
            PrivateHit::L1
        } else if self.l2.access(line, Plain) {
            PrivateHit::L2
        } else {
            PrivateHit::Miss
        }
    }
    fn invalidate(&mut self, line: Key) {
        self.l1.invalidate(line);
        self.l2.invalidate(line);
    }
}

/// A sliced last-level cache: sets picked by a hash.
#[derive(Debug, Clone)]
pub struct Sliced(pub(super) TagArray<Hashed, 20, 6>);

impl Sliced {
    /// The last-level cache that `m` describes.
    pub fn new(m: &Machine) -> Self {
        Sliced(lines(m.cache.l3))
    }
}

impl SharedCache for Sliced {
    #[inline(always)]
    fn find(&mut self, line: Key) -> Found {
        self.0.find(line, Plain)
    }
    #[inline(always)]
    fn insert(&mut self, line: Key) {
        self.0.insert(line, Plain);
    }
    #[inline]
    fn contains(&self, line: Key) -> bool {
        self.0.contains(line)
    }
    fn invalidate(&mut self, line: Key) {
        self.0.invalidate(line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::part::Parts;
    use crate::part::standard::Standard;

    /// How often each of `n` lines is found where, the second time around.
    fn second_pass(c: &mut L1L2, n: u64) -> [usize; 3] {
        let mut found = [0; 3];
        for i in 0..2 * n {
            let hit = c.access(Key::new(i % n));
            found[hit as usize] += usize::from(i >= n);
        }
        found
    }

    #[test]
    fn lines_stay_where_there_is_room_for_them() {
        let m = Machine::builtin("e7-4850v3").unwrap();
        let private = || Standard::private(&m);
        let lines = |c: Cache| c.size.0 / 64;
        let (l1, l2) = (lines(m.cache.l1), lines(m.cache.l2));
        assert_eq!(second_pass(&mut private(), l1), [l1 as usize, 0, 0]);
        assert_eq!(second_pass(&mut private(), l2), [0, l2 as usize, 0]);
        let more = second_pass(&mut private(), l2 + l2 / 8);
        assert_eq!(more, [0, 0, (l2 + l2 / 8) as usize]);
    }

    #[test]
    fn a_shared_cache_drops_what_is_taken_from_it() {
        let mut c = Standard::shared(&Machine::builtin("e7-4850v3").unwrap());
        let line = Key::new(0x40);
        assert_eq!(c.find(line), Found::Absent { other: false });
        c.insert(line);
        assert_eq!(c.find(line.other()), Found::Absent { other: true });
        assert_eq!(c.find(line), Found::Held);
        c.invalidate(line);
        assert!(!c.contains(line));
    }
}
