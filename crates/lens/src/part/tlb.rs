// SPDX-License-Identifier: GPL-2.0-or-later
//! TLBs.

use super::{NestedTlb, Tlb, TlbHit};
use crate::address::PageSize;
use crate::machine::{Entries, Machine};
use crate::simd::Host;
use crate::tags::{Key, LowBits, TagArray};

/// A store as `e` describes it.
pub(super) fn entries<const WAYS: usize>(e: Entries) -> TagArray<LowBits, WAYS> {
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

/// A nested TLB of one structure.
#[derive(Debug, Clone)]
pub struct PlainNestedTlb(TagArray<LowBits, 16>);

impl PlainNestedTlb {
    /// One of these entries.
    pub fn new(e: Entries) -> Self {
        PlainNestedTlb(entries(e))
    }
}

impl NestedTlb for PlainNestedTlb {
    #[inline(always)]
    fn lookup(&mut self, gpa: u64, size: PageSize, host: impl Host) -> bool {
        self.0.access(page_key(gpa, size), host)
    }
    fn flush(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::Plain;

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
}
