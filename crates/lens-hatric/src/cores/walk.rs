// SPDX-License-Identifier: GPL-2.0-or-later
//! Walks of both dimensions.

use super::{Cores, From};
use crate::cotag::{Mmu, Source, nested_key};
use crate::guest::{Gpn, nested_entry};
use lens::address::PageSize;

impl Cores {
    /// A reference of the walker to an entry.
    #[inline]
    pub(super) fn table(&mut self, cpu: usize, address: u64, noted: bool) -> f64 {
        let (cycles, from) = self.reference(cpu, address / 64, false, noted);
        self.counts.walk_refs += 1;
        self.counts.walk_memory += u64::from(from == From::Memory);
        cycles
    }

    /// The page that a structure gave, or the right one if that was stale.
    #[inline]
    pub(super) fn checked(&mut self, gpn: Gpn, held: u32, size: PageSize) -> u32 {
        let now = self.page(gpn & !((1 << (size.shift() - 12)) - 1));
        self.counts.stale_uses += u64::from(held != now);
        now
    }

    /// Translates a guest-physical page of `size`. Returns cycles and the source.
    pub(super) fn nested(&mut self, cpu: usize, gpn: Gpn, size: PageSize) -> (f64, Source) {
        let (key, index) = nested_key(gpn, size);
        let copy = self.copy_of(cpu);
        self.counts.nested_lookups += u64::from(!self.native);
        if let Some(s) = self.cpus[cpu].held.nested.find(key, index).copied() {
            self.checked(gpn, s.page, size);
            return (0.0, s);
        }
        self.counts.nested_walks += 1;
        let leaf = size.level();
        let mut top = 4;
        for level in leaf.max(1) + 1..=4 {
            let cache = &mut self.cpus[cpu].held.nested_upper[level as usize - 2];
            let number = gpn >> (9 * (level - 1));
            if cache.find(number, number).is_some() {
                top = level - 1;
                break;
            }
        }
        let mut cycles = self.lat.walk;
        for level in (leaf..=top).rev() {
            let entry = nested_entry(level, gpn) + copy;
            let upper = level > leaf;
            let kept = upper && self.cpus[cpu].held.nested_upper[level as usize - 2].capacity() > 0;
            cycles += self.table(cpu, entry, !upper || kept);
            if kept {
                let number = gpn >> (9 * (level - 1));
                let cache = &mut self.cpus[cpu].held.nested_upper[level as usize - 2];
                let out = cache.insert(number, number, Source { page: 0, entry });
                self.pushed_out(cpu, out);
            }
        }
        let first = gpn & !((1 << (size.shift() - 12)) - 1);
        let source = Source {
            page: self.page(first),
            entry: nested_entry(leaf, gpn) + copy,
        };
        let out = self.cpus[cpu].held.nested.insert(key, index, source);
        self.pushed_out(cpu, out);
        (cycles, source)
    }

    /// Walks both dimensions for data page `page` of space `number`.
    pub(super) fn walk(&mut self, cpu: usize, number: usize, page: u64) -> (f64, Source) {
        let space = self.guest.spaces[number].clone();
        let leaf = space.size.level();
        let small = space.virtual_page(page);
        let key = |level: u32| space.asid << 40 | small >> (9 * (level - 1));
        let mut cycles = self.lat.walk;
        let mut top = 4;
        let mut located = None;
        self.counts.mmu_lookups += 1;
        if self.native {
            return self.nested(cpu, space.physical_page(page), space.size);
        }
        if let Mmu::Virtual(levels) = &mut self.cpus[cpu].held.mmu {
            for level in leaf + 1..=4 {
                let cache = &mut levels[level as usize - 2];
                if let Some(s) = cache.find(key(level), key(level)) {
                    located = Some(*s);
                    top = level - 1;
                    break;
                }
            }
        }
        // The source of the table that was read last but one is what the entry
        // above it depends on.
        for level in (leaf..=top).rev() {
            let (table, entry) = space.entry(level, page);
            let source = match located.take() {
                Some(s) => {
                    self.checked(table, s.page, PageSize::Size4K);
                    s
                }
                None => {
                    let (more, s) = self.table_page(cpu, table);
                    cycles += more;
                    self.remember(cpu, level + 1, key(level + 1), s);
                    s
                }
            };
            let at = (u64::from(source.page) << 12) | (entry * 8);
            cycles += self.table(cpu, at, false);
        }
        let (more, source) = self.nested(cpu, space.physical_page(page), space.size);
        (cycles + more, source)
    }

    /// Where the guest's table page `gpn` is.
    pub(super) fn table_page(&mut self, cpu: usize, gpn: Gpn) -> (f64, Source) {
        if let Mmu::Physical(pages) = &mut self.cpus[cpu].held.mmu {
            if let Some(s) = pages.find(gpn, gpn).copied() {
                self.checked(gpn, s.page, PageSize::Size4K);
                return (0.0, s);
            }
        }
        let (cycles, s) = self.nested(cpu, gpn, PageSize::Size4K);
        if let Mmu::Physical(pages) = &mut self.cpus[cpu].held.mmu {
            let out = pages.insert(gpn, gpn, s);
            self.pushed_out(cpu, out);
        }
        (cycles, s)
    }

    /// Puts the guest's entry of `level`, which leads to the table that `source`
    /// says, into the cache of that level, if there is one.
    pub(super) fn remember(&mut self, cpu: usize, level: u32, key: u64, source: Source) {
        if let Mmu::Virtual(levels) = &mut self.cpus[cpu].held.mmu {
            if let Some(cache) = levels.get_mut(level as usize - 2) {
                let out = cache.insert(key, key, source);
                self.pushed_out(cpu, out);
            }
        }
    }
}
