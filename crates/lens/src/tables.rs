// SPDX-License-Identifier: GPL-2.0-or-later
//! What a walker and an access ask of page tables, and who answers by
//! arithmetic.
//!
//! [`crate::cpu`] makes accesses and walks and knows of pages and entries only
//! what [`Tables`] tell: of a modelled placement ([`Computed`]), or of a real
//! program's tables ([`crate::live`]).

use crate::access::Access;
use crate::address::{Asid, Dim, Line, PageSize};
use crate::hash::mix;
use crate::kernelside::{LazyFill, LeafBits};
use crate::layout::Layout;
use crate::part::Translation;

/// The address space of the one process, or of all that is fed.
pub(crate) const SPACE: Asid = Asid(0);

/// The levels that a walk goes through, from `root` down to `leaf`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Levels {
    pub leaf: u32,
    pub root: u32,
}

impl Levels {
    /// No level: a walk in a guest that has paging off. Comparisons with these
    /// come out for that.
    pub const NONE: Levels = Levels { leaf: 6, root: 5 };
}

/// Answers for one CPU. Levels count from 1, that of 4 KiB leaves; an entry's
/// `addr` is virtual, or guest-physical in [`Dim::Nested`].
///
/// An entry and its node are two questions, since who computes them would have
/// to do more to answer both, and the second is asked on a miss of all caches
/// only.
pub(crate) trait Tables {
    /// Whether there may be a nested dimension.
    const NESTED: bool;
    /// Whether lines are named by what a real program shares: then a store
    /// takes its line from all other caches. Generated accesses name lines by
    /// virtual address, and look for other holders where a line misses L2.
    const SHARED: bool;
    /// Size of the page at `va`, which the walk may find another of.
    fn page_size(&self, va: u64) -> PageSize;
    /// Size under which the TLB holds it: the smaller of the two dimensions'.
    fn held_size(&self, va: u64, size: PageSize) -> PageSize;
    /// Whether what the TLB has of the page was seen to be wrong.
    fn is_stale(&self, _va: u64, _held: PageSize) -> bool {
        false
    }
    /// Whether the page has to be mapped by a fault before it can be walked to.
    fn faults(&mut self, _va: u64, _size: PageSize) -> bool {
        false
    }
    /// Begins a walk. `None` if the translation comes without one.
    fn begin_walk(&mut self, va: u64, size: PageSize) -> Option<Levels>;
    /// What the walk has found.
    fn translation(&self, va: u64, size: PageSize, held: PageSize) -> Translation;
    /// Line of the entry of `level` for `addr`.
    fn entry(&self, dim: Dim, level: u32, addr: u64) -> u64;
    /// Node of that line.
    fn entry_node(&self, dim: Dim, level: u32, addr: u64) -> usize;
    /// Guest-physical address of the guest's entry of `level` for `va`, if
    /// there is a nested dimension.
    fn guest_entry(&self, level: u32, va: u64) -> Option<u64>;
    /// Guest-physical address of the data at `va`, likewise.
    fn guest_physical(&self, va: u64) -> Option<u64>;
    /// Size of the nested page that holds `gpa`, and the root of its table.
    fn nested_page(&self, gpa: u64) -> (PageSize, u32);
    /// Whether the access sets a bit of its leaf entry.
    fn sets_bits(&mut self, _a: Access, _size: PageSize) -> bool {
        false
    }
    /// Line of the data at `va`.
    fn data(&self, va: u64) -> u64;
    /// Node of that line.
    fn data_node(&self, va: u64) -> usize;
}

/// What tells the lines of tables from each other and from data, by dimension
/// and level.
pub(crate) type Salts = [[u64; 8]; 2];

pub(crate) fn salts() -> Salts {
    std::array::from_fn(|d| {
        std::array::from_fn(|l| mix(0x7461_626c_6500 + 8 * d as u64 + l as u64))
    })
}

/// The tables of a [`Layout`], as a CPU of one node sees them.
///
/// Lines are labels: a table's lines keep their order; levels, dimensions and
/// copies are kept apart by what is added.
pub(crate) struct Computed<'a, const NESTED: bool> {
    layout: &'a Layout,
    node: usize,
    root: u32,
    /// Those of the copies that it walks.
    salts: Salts,
    leaf_bits: &'a mut Option<LeafBits>,
    lazy: &'a mut Option<LazyFill>,
}

impl<'a, const NESTED: bool> Computed<'a, NESTED> {
    #[inline(always)]
    pub fn new(
        layout: &'a Layout,
        node: usize,
        root: u32,
        salts: &Salts,
        leaf_bits: &'a mut Option<LeafBits>,
        lazy: &'a mut Option<LazyFill>,
    ) -> Self {
        Computed {
            layout,
            node,
            root,
            salts: [Dim::Guest, Dim::Nested].map(|dim| {
                let copy = u64::from(layout.table_copy(dim, node)) << 48;
                salts[dim as usize].map(|salt| salt ^ copy)
            }),
            leaf_bits,
            lazy,
        }
    }
}

impl<const NESTED: bool> Tables for Computed<'_, NESTED> {
    const NESTED: bool = NESTED;
    const SHARED: bool = false;

    #[inline(always)]
    fn page_size(&self, va: u64) -> PageSize {
        self.layout.page_size(va)
    }

    #[inline(always)]
    fn held_size(&self, va: u64, size: PageSize) -> PageSize {
        if NESTED && size > PageSize::Size4K {
            size.min(self.layout.nested_size(self.layout.guest_physical(va)))
        } else {
            size
        }
    }

    #[inline(always)]
    fn faults(&mut self, va: u64, size: PageSize) -> bool {
        match self.lazy {
            Some(lazy) => lazy.touch(self.node, va >> size.shift()),
            None => false,
        }
    }

    #[inline(always)]
    fn begin_walk(&mut self, _va: u64, size: PageSize) -> Option<Levels> {
        Some(Levels {
            leaf: size.level(),
            root: self.root,
        })
    }

    #[inline(always)]
    fn translation(&self, va: u64, size: PageSize, held: PageSize) -> Translation {
        // Addresses that pages are known by, and the entry that a hypervisor
        // changes if there is one.
        let (pa, source) = match self.guest_physical(va) {
            Some(gpa) => {
                let level = self.layout.nested_size(gpa).level();
                (gpa, self.entry(Dim::Nested, level, gpa))
            }
            None => (va, self.entry(Dim::Guest, size.level(), va)),
        };
        Translation {
            asid: SPACE,
            addr: va,
            pa,
            size: held,
            run: 1,
            source: Line(source),
        }
    }

    #[inline(always)]
    fn entry(&self, dim: Dim, level: u32, addr: u64) -> u64 {
        (addr >> (9 * level + 6)) ^ self.salts[dim as usize][level as usize & 7]
    }

    #[inline(always)]
    fn entry_node(&self, dim: Dim, level: u32, addr: u64) -> usize {
        self.layout.table_home(dim, level, addr, self.node).node
    }

    #[inline(always)]
    fn guest_entry(&self, level: u32, va: u64) -> Option<u64> {
        let copy = self.layout.table_copy(Dim::Guest, self.node);
        NESTED.then(|| self.layout.guest_entry(level, va, copy))
    }

    #[inline(always)]
    fn guest_physical(&self, va: u64) -> Option<u64> {
        NESTED.then(|| self.layout.guest_physical(va))
    }

    #[inline(always)]
    fn nested_page(&self, gpa: u64) -> (PageSize, u32) {
        (self.layout.nested_size(gpa), self.root)
    }

    #[inline(always)]
    fn sets_bits(&mut self, a: Access, size: PageSize) -> bool {
        match self.leaf_bits {
            Some(bits) => {
                let copy = self.layout.table_copy(Dim::Guest, self.node);
                bits.touch(copy, a.va >> size.shift(), a.write)
            }
            None => false,
        }
    }

    #[inline(always)]
    fn data(&self, va: u64) -> u64 {
        va >> 6
    }

    #[inline(always)]
    fn data_node(&self, va: u64) -> usize {
        self.layout.data_node(va)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{
        Backing, DataPolicy, HugePolicy, Init, Nested, Policies, RegionSpec, TablePolicy,
    };
    use crate::units::Bytes;
    use std::collections::HashSet;

    fn layout() -> Layout {
        let spec = RegionSpec {
            name: "data",
            bytes: Bytes::gib(64),
            init: Init::Single,
            backing: Backing::Mapped,
        };
        let policies = Policies {
            data: DataPolicy::Fixed(0),
            tables: TablePolicy::Replicated,
            huge: HugePolicy::Never,
            nested: Some(Nested {
                tables: TablePolicy::Replicated,
                huge: 0.0,
            }),
        };
        Layout::new(&[spec], 4, Bytes::gib(128), policies)
    }

    #[test]
    fn lines_of_tables_are_nobody_elses() {
        let (layout, salts) = (layout(), salts());
        let (mut bits, mut lazy) = (None, None);
        let start = layout.start(0);
        let mut seen = HashSet::new();
        for node in 0..4 {
            let t = Computed::<true>::new(&layout, node, 4, &salts, &mut bits, &mut lazy);
            for (dim, level) in [Dim::Guest, Dim::Nested]
                .into_iter()
                .flat_map(|dim| (1..=4).map(move |level| (dim, level)))
            {
                // A line has the entries of eight neighbours, in whatever level.
                let reach = 4096u64 << (9 * (level - 1));
                let line = |entry: u64| t.entry(dim, level, start + entry * reach);
                assert!((0..8).all(|i| line(i) == line(0)), "{dim:?} {level}");
                assert_ne!(line(8), line(0));
                for entry in (0..64).step_by(8) {
                    assert!(seen.insert(line(entry)), "{node} {dim:?} {level} {entry}");
                }
                assert_eq!(t.entry_node(dim, level, start), node, "its own copy");
            }
            assert!(!seen.contains(&t.data(start)));
        }
        assert_eq!(seen.len(), 4 * 2 * 4 * 8);
    }
}
