// SPDX-License-Identifier: GPL-2.0-or-later
//! What hardware and kernel do to page tables while a program runs: accessed
//! and dirty bits, lazily filled copies.
//!
//! Both keep state per page touched, in sparse maps, so they cost nothing for
//! memory that a simulated window does not reach.

use std::collections::{HashMap, HashSet};

/// Accessed and dirty bits of leaf entries, per copy of the tables.
///
/// The bits of a copy are set by walkers that use that copy only, which is why
/// a kernel with replicas must OR them.
#[derive(Debug, Clone, Default)]
pub struct LeafBits {
    /// For a copy and 64 neighbouring pages: accessed, dirty.
    bits: HashMap<(u32, u64), (u64, u64)>,
}

impl LeafBits {
    /// All bits clear, as after the kernel has scanned them.
    pub fn new() -> Self {
        Self::default()
    }

    /// Page number `page` is used through `copy`. True if a bit had to be set,
    /// which is a locked store to the entry.
    pub fn touch(&mut self, copy: u32, page: u64, write: bool) -> bool {
        let (accessed, dirty) = self.bits.entry((copy, page / 64)).or_default();
        let bit = 1 << (page % 64);
        let changes = *accessed & bit == 0 || (write && *dirty & bit == 0);
        *accessed |= bit;
        *dirty |= if write { bit } else { 0 };
        changes
    }

    /// Accessed and dirty of `page`, ORed over all copies below `copies`.
    pub fn read(&self, copies: u32, page: u64) -> (bool, bool) {
        let bit = 1 << (page % 64);
        (0..copies)
            .filter_map(|c| self.bits.get(&(c, page / 64)))
            .fold((false, false), |r, &(a, d)| {
                (r.0 || a & bit != 0, r.1 || d & bit != 0)
            })
    }
}

/// Copies that a domain fills as it faults.
#[derive(Debug, Clone)]
pub struct LazyFill {
    prefetch: u32,
    filled: HashSet<(usize, u64)>,
    /// Faults taken.
    pub faults: u64,
}

impl LazyFill {
    /// Nothing filled; each fault copies the entry and its neighbours in an
    /// aligned block of 2^`prefetch`, 0 to 9 (a whole table).
    ///
    /// # Panics
    /// If `prefetch` is above 9.
    pub fn new(prefetch: u32) -> Self {
        assert!(prefetch <= 9, "a table has 2^9 entries");
        LazyFill {
            prefetch,
            filled: HashSet::new(),
            faults: 0,
        }
    }

    /// Entry number `entry` of the leaf level is used in `domain`. True if the
    /// domain had to fault for it.
    pub fn touch(&mut self, domain: usize, entry: u64) -> bool {
        let fault = self.filled.insert((domain, entry >> self.prefetch));
        self.faults += u64::from(fault);
        fault
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_set_once_per_copy_and_read_over_all() {
        let mut b = LeafBits::new();
        assert!(b.touch(1, 100, false));
        assert!(!b.touch(1, 100, false));
        assert!(b.touch(1, 100, true), "dirty comes with the first store");
        assert!(!b.touch(1, 100, true));
        assert!(b.touch(2, 100, false), "another copy has bits of its own");
        assert_eq!(b.read(4, 100), (true, true));
        assert_eq!(b.read(4, 101), (false, false));
    }

    #[test]
    fn a_fault_brings_its_block_of_neighbours() {
        for d in 0..=9 {
            let mut l = LazyFill::new(d);
            (0..4096).for_each(|e| {
                l.touch(0, e);
            });
            assert_eq!(l.faults, 4096 >> d);
            assert!(l.touch(1, 0), "each domain for itself");
        }
    }
}
