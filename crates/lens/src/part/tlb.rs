// SPDX-License-Identifier: GPL-2.0-or-later
//! TLBs.

use super::hardware::{Level, Stale, Translation, Translations};
use crate::address::{Asid, PageSize};
use crate::hash::mix;
use crate::machine::{Entries, Machine};
use crate::simd::{Found, Host, Plain};
use crate::tags::{Key, LowBits, TagArray};
use std::collections::HashMap;

/// What tells the keys of address spaces apart.
///
/// To drop all of a space it gets another number: what is held under the old
/// one is found no more, and leaves first.
#[derive(Debug, Clone, Default)]
pub(super) struct Spaces {
    /// The space that was used last, and its number.
    last: (Asid, u32),
    /// Numbers of spaces of which everything was dropped.
    renewed: HashMap<Asid, u32>,
    renewals: u32,
}

impl Spaces {
    /// The number that keys of `asid` are salted with.
    #[inline(always)]
    pub fn salt(&mut self, asid: Asid) -> u32 {
        if asid != self.last.0 {
            self.switch(asid);
        }
        self.last.1
    }

    #[cold]
    #[inline(never)]
    fn switch(&mut self, asid: Asid) {
        let renewed = self.renewed.get(&asid).copied();
        // That of space 0 is 0.
        let salt = renewed.unwrap_or((mix(u64::from(asid.0)) >> 32) as u32);
        self.last = (asid, salt);
    }

    /// Gives `asid` a number that no space has had.
    pub fn renew(&mut self, asid: Asid) {
        self.renewals += 1;
        let salt = (mix(u64::from(self.renewals) << 16) >> 32) as u32;
        self.renewed.insert(asid, salt);
        self.switch(asid);
    }
}

/// A store as `e` describes it.
pub(super) fn entries<const WAYS: usize>(e: Entries) -> TagArray<LowBits, WAYS> {
    TagArray::new(e.sets(), e.ways)
}

/// First-level TLBs per page size over a unified second level.
#[derive(Debug, Clone)]
pub struct TwoLevelTlb {
    pub(super) l1: [TagArray<LowBits, 4>; 3],
    pub(super) l2: TagArray<LowBits, 8>,
    pub(super) l2_1g: TagArray<LowBits, 8>,
    l2_holds_2m: bool,
    pub(super) spaces: Spaces,
}

#[inline(always)]
pub(super) fn page_key(addr: u64, size: PageSize) -> Key {
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
            spaces: Spaces::default(),
        }
    }

    #[inline(always)]
    pub(super) fn second(&mut self, size: PageSize) -> Option<&mut TagArray<LowBits, 8>> {
        match size {
            PageSize::Size4K => Some(&mut self.l2),
            PageSize::Size2M => self.l2_holds_2m.then_some(&mut self.l2),
            PageSize::Size1G => (self.l2_1g.capacity() > 0).then_some(&mut self.l2_1g),
        }
    }

    #[inline(always)]
    pub(super) fn first(&mut self, size: PageSize) -> &mut TagArray<LowBits, 4> {
        &mut self.l1[size.level() as usize - 1]
    }
}

impl TwoLevelTlb {
    /// [`Translations::lookup`] by what the host has.
    #[inline(always)]
    pub(super) fn find(
        &mut self,
        asid: Asid,
        addr: u64,
        size: PageSize,
        host: impl Host,
    ) -> Option<Level> {
        let key = page_key(addr, size).salted(self.spaces.salt(asid));
        if self.first(size).find(key, host) == Found::Held {
            return Some(Level::First);
        }
        if self.second(size)?.find(key, host) == Found::Held {
            self.first(size).insert(key, host);
            return Some(Level::Second);
        }
        None
    }

    /// [`Translations::fill`], likewise.
    #[inline(always)]
    pub(super) fn take_in(&mut self, t: &Translation, host: impl Host) {
        let key = page_key(t.addr, t.size).salted(self.spaces.salt(t.asid));
        self.first(t.size).insert(key, host);
        if let Some(l2) = self.second(t.size) {
            l2.insert(key, host);
        }
    }
}

impl Translations for TwoLevelTlb {
    #[inline(always)]
    fn lookup(&mut self, asid: Asid, addr: u64, size: PageSize) -> Option<Level> {
        self.find(asid, addr, size, Plain)
    }

    #[inline(always)]
    fn fill(&mut self, t: &Translation) {
        self.take_in(t, Plain);
    }

    fn invalidate(&mut self, what: Stale) -> u32 {
        match what {
            Stale::Page(asid, addr) => {
                let salt = self.spaces.salt(asid);
                let mut dropped = 0;
                for size in PageSize::ALL {
                    let key = page_key(addr, size).salted(salt);
                    dropped += u32::from(self.first(size).invalidate(key));
                    if let Some(l2) = self.second(size) {
                        dropped += u32::from(l2.invalidate(key));
                    }
                }
                dropped
            }
            Stale::Asid(asid) => {
                self.spaces.renew(asid);
                0
            }
            Stale::EntryLine(_) | Stale::All => {
                let first: u32 = self.l1.iter_mut().map(TagArray::clear).sum();
                first + self.l2.clear() + self.l2_1g.clear()
            }
        }
    }
}

/// A nested TLB of one structure.
#[derive(Debug, Clone)]
pub struct PlainNestedTlb {
    pages: TagArray<LowBits, 16>,
    spaces: Spaces,
}

impl PlainNestedTlb {
    /// One of these entries.
    pub fn new(e: Entries) -> Self {
        PlainNestedTlb {
            pages: entries(e),
            spaces: Spaces::default(),
        }
    }
}

impl PlainNestedTlb {
    /// [`Translations::lookup`] by what the host has.
    #[inline(always)]
    pub(super) fn find(
        &mut self,
        asid: Asid,
        addr: u64,
        size: PageSize,
        host: impl Host,
    ) -> Option<Level> {
        let key = page_key(addr, size).salted(self.spaces.salt(asid));
        (self.pages.find(key, host) == Found::Held).then_some(Level::First)
    }

    /// [`Translations::fill`], likewise.
    #[inline(always)]
    pub(super) fn take_in(&mut self, t: &Translation, host: impl Host) {
        let key = page_key(t.addr, t.size).salted(self.spaces.salt(t.asid));
        self.pages.insert(key, host);
    }
}

impl Translations for PlainNestedTlb {
    #[inline(always)]
    fn lookup(&mut self, asid: Asid, addr: u64, size: PageSize) -> Option<Level> {
        self.find(asid, addr, size, Plain)
    }

    #[inline(always)]
    fn fill(&mut self, t: &Translation) {
        self.take_in(t, Plain);
    }

    fn invalidate(&mut self, what: Stale) -> u32 {
        match what {
            Stale::Page(asid, addr) => {
                let salt = self.spaces.salt(asid);
                let keys = PageSize::ALL.map(|size| page_key(addr, size).salted(salt));
                keys.map(|key| u32::from(self.pages.invalidate(key)))
                    .iter()
                    .sum()
            }
            Stale::Asid(asid) => {
                self.spaces.renew(asid);
                0
            }
            Stale::EntryLine(_) | Stale::All => self.pages.clear(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::Line;

    fn tlb() -> TwoLevelTlb {
        TwoLevelTlb::new(&Machine::builtin("e7-4850v3").unwrap())
    }

    const A: Asid = Asid(0);
    const SMALL: PageSize = PageSize::Size4K;

    /// Looks up, and fills what is absent as a walk does.
    fn touch(t: &mut impl Translations, asid: Asid, addr: u64, size: PageSize) -> Option<Level> {
        let hit = t.lookup(asid, addr, size);
        if hit.is_none() {
            t.fill(&Translation {
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

    #[test]
    fn tlb_reach_is_entries_times_page_size() {
        // Pages that differ in their low bits spread over the sets evenly, so
        // exactly `entries` of them stay, and one more per set evicts all.
        for (size, first, second) in [(PageSize::Size4K, 64, 1024), (PageSize::Size2M, 32, 1024)] {
            let mut t = tlb();
            let mut pass = |n: u64| -> [usize; 3] {
                let mut r = [0; 3];
                for p in 0..n {
                    let hit = touch(&mut t, A, p << size.shift(), size);
                    r[hit.map_or(2, |level| level as usize)] += 1;
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
    fn a_lookup_takes_nothing_in() {
        let mut t = tlb();
        assert_eq!(t.lookup(A, 0x1000, SMALL), None);
        assert_eq!(t.lookup(A, 0x1000, SMALL), None);
        assert_eq!(touch(&mut t, A, 0x1000, SMALL), None);
        assert_eq!(t.lookup(A, 0x1fff, SMALL), Some(Level::First));
        assert_eq!(t.lookup(A, 0x1000, PageSize::Size2M), None);
    }

    #[test]
    fn an_invalidated_page_misses_and_its_neighbour_does_not() {
        let mut t = tlb();
        for (addr, size) in [(0x1000, SMALL), (0x2000, SMALL), (0, PageSize::Size2M)] {
            touch(&mut t, A, addr, size);
        }
        // At both levels, and under whatever size.
        assert_eq!(t.invalidate(Stale::Page(A, 0x1000)), 4);
        assert_eq!(t.lookup(A, 0x2fff, SMALL), Some(Level::First));
        assert_eq!(t.lookup(A, 0x1000, SMALL), None);
        assert_eq!(t.invalidate(Stale::EntryLine(Line(7))), 2);
        assert_eq!(t.lookup(A, 0x2fff, SMALL), None);
    }

    #[test]
    fn spaces_share_a_tlb_and_are_dropped_one_by_one() {
        fn check(t: &mut impl Translations) {
            let b = Asid(5);
            assert_eq!(touch(t, A, 0x1000, SMALL), None);
            assert_eq!(touch(t, b, 0x1000, SMALL), None, "another's");
            for _ in 0..3 {
                t.invalidate(Stale::Asid(b));
                assert!(t.lookup(A, 0x1000, SMALL).is_some());
                assert_eq!(touch(t, b, 0x1000, SMALL), None);
                assert!(touch(t, b, 0x1000, SMALL).is_some());
            }
            t.invalidate(Stale::Asid(A));
            assert_eq!(t.lookup(A, 0x1000, SMALL), None);
            assert!(t.lookup(b, 0x1000, SMALL).is_some());
            t.invalidate(Stale::All);
            assert_eq!(t.lookup(b, 0x1000, SMALL), None);
        }
        let m = Machine::builtin("e7-4850v3").unwrap();
        check(&mut tlb());
        check(&mut PlainNestedTlb::new(m.walker.nested_tlb));
    }
}
