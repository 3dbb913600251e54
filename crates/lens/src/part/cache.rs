// SPDX-License-Identifier: GPL-2.0-or-later
//! Caches of data and tables.

use super::{PrivateCache, PrivateHit, SharedCache};
use crate::machine::{Cache, Machine};
use crate::simd::{Found, Host};
use crate::tags::{Hashed, Index, Key, LowBits, TagArray};

/// First- and second-level cache of a core, filled together.
#[derive(Debug, Clone)]
pub struct L1L2 {
    l1: TagArray<LowBits, 8>,
    l2: TagArray<LowBits, 8>,
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

impl Sliced {
    /// The last-level cache that `m` describes.
    pub fn new(m: &Machine) -> Self {
        Sliced(lines(m.cache.l3))
    }
}

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
