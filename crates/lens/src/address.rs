// SPDX-License-Identifier: GPL-2.0-or-later
//! What addresses are made of.

/// Number of an address space, as TLBs tell them apart; 0 where there is but
/// one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Asid(pub u16);

/// Number of a cache line: a physical address, or what stands for one, over 64.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Line(pub u64);

/// The two dimensions of translation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dim {
    /// Native tables, or the guest's.
    Guest = 0,
    /// The hypervisor's.
    Nested = 1,
}

/// The size of a page and of the leaf that maps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PageSize {
    /// 4 KiB, mapped at level 1.
    Size4K,
    /// 2 MiB, mapped at level 2.
    Size2M,
    /// 1 GiB, mapped at level 3.
    Size1G,
}

impl PageSize {
    /// All of them, ascending.
    pub const ALL: [PageSize; 3] = [PageSize::Size4K, PageSize::Size2M, PageSize::Size1G];

    /// log2 of the bytes mapped.
    #[inline]
    pub const fn shift(self) -> u32 {
        match self {
            PageSize::Size4K => 12,
            PageSize::Size2M => 21,
            PageSize::Size1G => 30,
        }
    }
    /// The page-table level that holds the leaf: 1, 2 or 3.
    #[inline]
    pub const fn level(self) -> u32 {
        match self {
            PageSize::Size4K => 1,
            PageSize::Size2M => 2,
            PageSize::Size1G => 3,
        }
    }
    /// The size that a leaf at `level` maps, if any.
    #[inline]
    pub const fn of_level(level: u32) -> Option<Self> {
        match level {
            1 => Some(PageSize::Size4K),
            2 => Some(PageSize::Size2M),
            3 => Some(PageSize::Size1G),
            _ => None,
        }
    }
    /// Bytes mapped by one leaf.
    pub const fn bytes(self) -> u64 {
        1 << self.shift()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_what_one_entry_of_its_level_maps() {
        for (size, level) in PageSize::ALL.into_iter().zip(1..) {
            assert_eq!(size.level(), level);
            assert_eq!(size.bytes(), 4096 * 512u64.pow(level - 1));
            assert_eq!(PageSize::of_level(level), Some(size));
        }
        assert_eq!(PageSize::of_level(4), None);
    }
}
