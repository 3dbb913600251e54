// SPDX-License-Identifier: GPL-2.0-or-later
//! Where things are: pages of programs, their page tables, and the hypervisor's.
//!
//! One VM runs all programs. Each has an address space of its own, whose data are
//! contiguous in guest-virtual and in guest-physical addresses, followed by its
//! page tables. Entries of tables are eight bytes apart in the order of what they
//! map, so neighbours share lines.

use lens::address::PageSize;

/// A guest-physical page of 4 KiB, by number.
pub type Gpn = u64;

/// Guest-virtual address of every program's first byte of data, over 4 KiB. Its
/// index in tables of each level is 0, as that of large mappings is.
const FIRST_PAGE: u64 = 0x5000_0000_0000 >> 12;
/// System-physical address of the hypervisor's tables, one region a level. They
/// begin at different sets of caches.
const NESTED: [u64; 4] = [
    0x10_0000_0000,
    0x10_4004_0000,
    0x10_4080_0000,
    0x10_4081_3000,
];
/// System-physical address of memory off-chip.
pub const OFF_CHIP_BASE: u64 = 0x8_0000_0000;

/// An address space.
#[derive(Debug, Clone)]
pub struct Space {
    /// Its number in TLBs.
    pub asid: u64,
    /// Pages of data.
    pub pages: u64,
    /// Size of those, in both dimensions.
    pub size: PageSize,
    /// First page of data.
    first: Gpn,
    /// First page of tables of levels 1 to 4.
    tables: [Gpn; 4],
    /// First page behind all that.
    end: Gpn,
}

impl Space {
    /// `pages` of `size` and their tables, from `first` on.
    pub fn new(asid: u64, pages: u64, size: PageSize, first: Gpn) -> Self {
        let small = pages << (size.shift() - 12);
        let mut at = first + small;
        let mut tables = [0; 4];
        for (level, table) in tables.iter_mut().enumerate() {
            *table = at;
            at += match level + 1 < size.level() as usize {
                true => 0,
                false => small.div_ceil(512 << (9 * level)),
            };
        }
        Space {
            asid,
            pages,
            size,
            first,
            tables,
            end: at,
        }
    }

    /// First guest-physical page behind it, aligned to 2 MiB.
    pub fn next(&self) -> Gpn {
        self.end.next_multiple_of(512)
    }

    /// First guest-physical page of its data.
    pub fn data(&self) -> std::ops::Range<Gpn> {
        self.first..self.tables[0]
    }

    /// Its table pages.
    pub fn table_pages(&self) -> std::ops::Range<Gpn> {
        self.tables[0]..self.end
    }

    /// Those of the level whose entries map data.
    pub fn leaf_tables(&self) -> std::ops::Range<Gpn> {
        let level = self.size.level() as usize;
        self.tables[level - 1]..self.tables[level]
    }

    /// 4 KiB page number of data page `page`, guest-virtual.
    #[inline]
    pub fn virtual_page(&self, page: u64) -> u64 {
        FIRST_PAGE + (page << (self.size.shift() - 12))
    }

    /// The same, guest-physical.
    #[inline]
    pub fn physical_page(&self, page: u64) -> Gpn {
        self.first + (page << (self.size.shift() - 12))
    }

    /// Page of the table of `level` on the way to `page`, and the number of the
    /// entry in it.
    #[inline]
    pub fn entry(&self, level: u32, page: u64) -> (Gpn, u64) {
        let small = page << (self.size.shift() - 12);
        let number = small >> (9 * (level - 1));
        (self.tables[level as usize - 1] + number / 512, number % 512)
    }

    /// What a TLB finds `page` by, and what picks its set.
    #[inline]
    pub fn tlb_key(&self, page: u64) -> (u64, u64) {
        let number = self.virtual_page(page) >> (self.size.shift() - 12);
        let size = u64::from(self.size.level() - 1) << 56;
        (size | self.asid << 40 | number, number)
    }

    /// The data page that `gpn` is in, if it is one of its data.
    pub fn page_of(&self, gpn: Gpn) -> Option<u64> {
        let data = self.data();
        data.contains(&gpn)
            .then(|| (gpn - data.start) >> (self.size.shift() - 12))
    }
}

/// All spaces of the VM.
#[derive(Debug, Clone)]
pub struct Guest {
    /// One a program.
    pub spaces: Vec<Space>,
}

impl Guest {
    /// Lays programs out, each given as pages and their size.
    pub fn new(programs: impl IntoIterator<Item = (u64, PageSize)>) -> Self {
        let mut spaces: Vec<Space> = Vec::new();
        for (pages, size) in programs {
            let first = spaces.last().map_or(0, Space::next);
            spaces.push(Space::new(spaces.len() as u64, pages, size, first));
        }
        Guest { spaces }
    }

    /// Guest-physical pages of 4 KiB.
    pub fn pages(&self) -> u64 {
        self.spaces.last().map_or(0, Space::next)
    }

    /// Space and data page that `gpn` is of, unless it is of a table.
    pub fn owner(&self, gpn: Gpn) -> Option<(&Space, u64)> {
        let at = self.spaces.partition_point(|s| s.next() <= gpn);
        let space = self.spaces.get(at)?;
        space.page_of(gpn).map(|page| (space, page))
    }

    /// Whether `gpn` is of a table.
    pub fn is_table(&self, gpn: Gpn) -> bool {
        let at = self.spaces.partition_point(|s| s.next() <= gpn);
        let space = self.spaces.get(at);
        space.is_some_and(|s| s.table_pages().contains(&gpn))
    }
}

/// Address of the hypervisor's entry of `level` for `gpn`.
#[inline]
pub fn nested_entry(level: u32, gpn: Gpn) -> u64 {
    NESTED[level as usize - 1] + (gpn >> (9 * (level - 1))) * 8
}

/// Bytes from an entry to the same of the next copy of its table.
pub const COPY: u64 = 1 << 40;

/// The first page that the entry at `address`, of any copy, maps, where that is one of
/// `level`.
#[inline]
pub fn mapped_by(level: u32, address: u64) -> Gpn {
    ((address % COPY - NESTED[level as usize - 1]) / 8) << (9 * (level - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_follow_their_data_and_nothing_overlaps() {
        let g = Guest::new([(2000, PageSize::Size4K), (3, PageSize::Size2M)]);
        let [a, b] = [&g.spaces[0], &g.spaces[1]];
        assert_eq!(a.data(), 0..2000);
        // 4 pages of leaf tables, then one of each level above.
        assert_eq!((a.leaf_tables(), a.table_pages()), (2000..2004, 2000..2007));
        assert_eq!(b.data(), 2048..2048 + 3 * 512);
        assert_eq!(b.table_pages().count(), 3, "levels 2 to 4");
        assert_eq!(a.entry(1, 513), (2001, 1));
        assert_eq!(a.entry(2, 513), (2004, 1));
        assert_eq!(b.entry(2, 2), (b.leaf_tables().start, 2));
        assert_eq!(g.owner(1999).map(|(s, p)| (s.asid, p)), Some((0, 1999)));
        assert!(g.owner(2001).is_none(), "a table");
        let of = g.owner(2048 + 700).map(|(s, p)| (s.asid, p));
        assert_eq!(of, Some((1, 1)));
        assert!(g.owner(1 << 30).is_none());
    }

    #[test]
    fn keys_of_spaces_and_sizes_differ_and_neighbours_have_neighbouring_sets() {
        let g = Guest::new([(8, PageSize::Size4K), (8, PageSize::Size2M)]);
        let keys: Vec<_> = g
            .spaces
            .iter()
            .flat_map(|s| [0, 1].map(|p| s.tlb_key(p)))
            .collect();
        for (i, a) in keys.iter().enumerate() {
            assert!(keys[..i].iter().all(|b| a.0 != b.0));
        }
        assert_eq!(keys[1].1 - keys[0].1, 1);
        assert_eq!(keys[3].1 - keys[2].1, 1);
    }

    #[test]
    fn an_entry_says_what_it_maps() {
        for level in 1..=4 {
            let span = 1 << (9 * (level - 1));
            assert_eq!(
                mapped_by(level, nested_entry(level, 3 * span + span / 2)),
                3 * span
            );
        }
        // Eight neighbours share a line.
        assert_eq!(nested_entry(1, 8) / 64, nested_entry(1, 15) / 64);
        assert_ne!(nested_entry(1, 7) / 64, nested_entry(1, 8) / 64);
    }
}
