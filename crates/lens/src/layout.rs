// SPDX-License-Identifier: GPL-2.0-or-later
//! Where the pages and page tables of a process are: computed, not stored.
//!
//! A process is a few regions in allocation order. Which node holds a page,
//! how large the page is, and which node holds each table page follow from
//! who touched what first, the memory policy and the replication policy, by
//! arithmetic on the address. A layout of 8 TB therefore takes as many bytes
//! as one of 8 MB.

use crate::address::{Dim, PageSize};
use crate::hash::mix;
use crate::machine::Machine;
use crate::units::Bytes;

/// Who touches the pages of a region first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Init {
    /// One thread, from the first byte to the last.
    Single,
    /// All threads, each a contiguous share of its own.
    Parallel,
    /// All threads, in random order all over the region.
    Scatter,
}

/// What the region's memory came from, which decides whether transparent huge
/// pages can back it at the first touch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Backing {
    /// One large mapping: every aligned 2 MiB of it can be a huge page.
    Mapped,
    /// A heap that grows by less than 2 MiB at a time or gives pages back
    /// piecemeal. The first touch of most 2 MiB ranges finds them not wholly
    /// mapped and gets a 4 KiB page; only this share (0 to 1) becomes huge.
    Arena {
        /// Share of the heap in huge pages.
        huge: f64,
    },
}

/// A stretch of a process' address space.
#[derive(Debug, Clone, PartialEq)]
pub struct RegionSpec {
    /// What it holds, for reports.
    pub name: &'static str,
    /// Size.
    pub bytes: Bytes,
    /// First toucher.
    pub init: Init,
    /// Origin of the memory.
    pub backing: Backing,
}

/// Policy for data pages.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum DataPolicy {
    /// All on one node.
    Fixed(usize),
    /// On the node of the first toucher, the next node when that is full;
    /// optionally migrated afterwards by AutoNUMA.
    FirstTouch {
        /// Share of pages (0 to 1) that automatic balancing moved, to a
        /// random node with CPUs: threads everywhere use the data alike.
        moved: f64,
    },
    /// Round robin over all nodes.
    Interleave,
}

/// Policy for table pages of one dimension.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum TablePolicy {
    /// Stock kernel: where the first toucher of the table's range was.
    Stock,
    /// All forced onto, or left behind on, one node.
    Fixed(usize),
    /// Stock, but the toucher's node is unknown to who allocates
    /// (a NUMA-oblivious guest): any node with CPUs.
    Random,
    /// A copy on every node. Those that are filled lazily look the same once
    /// they are filled.
    Replicated,
    /// Moved to where most of their children are.
    Migrated,
    /// As found on a running system: this share of them on each node.
    Found(Shares),
}

/// Shares of table pages by node, of up to 64 nodes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shares {
    /// Sums up to and with each node, of 2^16 - 1.
    upto: [u16; 64],
}

impl Shares {
    /// From counts by node; `None` if there are none, or more than 64 nodes.
    pub fn of(counts: &[u64]) -> Option<Self> {
        let all: u64 = counts.iter().sum();
        if all == 0 || counts.len() > 64 {
            return None;
        }
        let mut upto = [u16::MAX; 64];
        let mut sum = 0;
        for (u, c) in upto.iter_mut().zip(counts) {
            sum += c;
            *u = (sum as f64 / all as f64 * f64::from(u16::MAX)).round() as u16;
        }
        Some(Shares { upto })
    }

    /// Nodes up to the last that has some.
    pub fn nodes(&self) -> usize {
        let full = self.upto.iter().position(|&u| u == u16::MAX);
        1 + full.unwrap_or(self.upto.len() - 1)
    }

    fn node(&self, x: u64) -> usize {
        let at = (mix(x ^ (0x666f << 40)) >> 48) as u16;
        self.upto.iter().position(|&u| at < u).unwrap_or(0)
    }
}

/// Policy for page sizes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum HugePolicy {
    /// 4 KiB everywhere.
    Never,
    /// Transparent huge pages; of 2 MiB ranges that could be huge, this share
    /// (0 to 1) finds 2 MiB of contiguous memory.
    Transparent {
        /// 1.0 on a fresh system, little on a fragmented one.
        available: f64,
    },
    /// Transparent huge pages on a machine whose memory is fragmented: as many
    /// as the machine's description says. [`Policies::on`] puts it in.
    Fragmented,
    /// 1 GiB pages everywhere (hugetlb).
    Gigantic,
}

/// How the tables of one dimension are placed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Policies {
    /// Data pages.
    pub data: DataPolicy,
    /// Native or guest tables.
    pub tables: TablePolicy,
    /// Page sizes of the native or guest table.
    pub huge: HugePolicy,
    /// Nested tables, for a virtual machine.
    pub nested: Option<Nested>,
}

impl Policies {
    /// The same on machine `m`, with what depends on the machine filled in.
    pub fn on(mut self, m: &Machine) -> Self {
        if self.huge == HugePolicy::Fragmented {
            let available = m.memory.fragmented_huge;
            self.huge = HugePolicy::Transparent { available };
            if let Some(n) = &mut self.nested {
                n.huge *= m.memory.fragmented_nested_huge;
            }
        }
        self
    }
}

/// The nested dimension.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Nested {
    /// Placement of nested tables.
    pub tables: TablePolicy,
    /// Share (0 to 1) of the guest's memory that the hypervisor maps by 2 MiB
    /// pages.
    pub huge: f64,
}

/// A copy of a table page: which one, and where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableHome {
    /// Node that holds it.
    pub node: usize,
    /// Which copy: a node's number plus 1, or 0 for the only one.
    pub copy: u32,
}

/// Guest-physical addresses of guest table pages lie above this bit; below it
/// guest-physical addresses equal virtual ones.
const GUEST_TABLES: u64 = 1 << 62;

#[derive(Debug, Clone)]
struct Region {
    start: u64,
    end: u64,
    /// Bytes that single-threaded initialisation had touched before this
    /// region.
    filled_before: u64,
    spec: RegionSpec,
}

/// A laid-out process.
#[derive(Debug, Clone)]
pub struct Layout {
    regions: Vec<Region>,
    nodes: usize,
    /// Of the first node.
    node_bytes: u64,
    /// Bytes of each node and all before it, in the order in which they fill.
    fills: Vec<(u64, usize)>,
    /// Nodes that have CPUs, and so touch memory.
    touchers: Vec<usize>,
    /// Bytes of all regions.
    bytes: u64,
    policies: Policies,
    /// There are no huge pages: the most frequent case, at a glance.
    only_small: bool,
}

/// Regions start at multiples of this, so none share a table page below
/// level 3.
const REGION_ALIGN: u64 = 1 << 30;
/// Address of the first region.
const FIRST_ADDRESS: u64 = 1 << 36;

impl Layout {
    /// Lays `specs` out in order on `nodes` nodes of `node_bytes` each, all
    /// with CPUs.
    ///
    /// # Panics
    /// With no node or no region.
    pub fn new(specs: &[RegionSpec], nodes: usize, node_bytes: Bytes, policies: Policies) -> Self {
        let touchers = (0..nodes).collect();
        Layout::with(specs, &vec![node_bytes.0; nodes], touchers, policies)
    }

    /// Lays `specs` out in order on the nodes of `m`.
    ///
    /// # Panics
    /// With no region.
    pub fn on(m: &Machine, specs: &[RegionSpec], policies: Policies) -> Self {
        let bytes: Vec<u64> = m.nodes().iter().map(|n| n.memory.0).collect();
        Layout::with(specs, &bytes, m.nodes_with_cpus(), policies.on(m))
    }

    fn with(specs: &[RegionSpec], bytes: &[u64], touchers: Vec<usize>, policies: Policies) -> Self {
        assert!(!bytes.is_empty() && !specs.is_empty());
        let (mut at, mut filled) = (FIRST_ADDRESS, 0);
        let regions = specs
            .iter()
            .map(|spec| {
                let start = at;
                let end = start + spec.bytes.0;
                at = end.next_multiple_of(REGION_ALIGN);
                let filled_before = filled;
                if spec.init == Init::Single {
                    filled += spec.bytes.0;
                }
                Region {
                    start,
                    end,
                    filled_before,
                    spec: spec.clone(),
                }
            })
            .collect();
        // Memory without CPUs is what the kernel falls back to last.
        let alone = (0..bytes.len()).filter(|n| !touchers.contains(n));
        let mut sum = 0;
        let fills = touchers
            .iter()
            .copied()
            .chain(alone)
            .map(|n| {
                sum += bytes[n];
                (sum, n)
            })
            .collect();
        Layout {
            regions,
            nodes: bytes.len(),
            node_bytes: bytes[0],
            fills,
            touchers,
            bytes: specs.iter().map(|s| s.bytes.0).sum::<u64>().max(1),
            policies,
            only_small: matches!(policies.huge, HugePolicy::Never | HugePolicy::Fragmented),
        }
    }

    /// A layout of addresses that are given: ascending, disjoint ranges of
    /// (first address, address beyond), each one mapping that `init` touched.
    ///
    /// # Panics
    /// With no range.
    pub fn of_ranges(m: &Machine, ranges: &[(u64, u64)], init: Init, policies: Policies) -> Self {
        let specs: Vec<RegionSpec> = ranges
            .iter()
            .map(|(start, end)| RegionSpec {
                name: "range",
                bytes: Bytes(end - start),
                init,
                backing: Backing::Mapped,
            })
            .collect();
        let mut layout = Layout::on(m, &specs, policies);
        for (r, &(start, end)) in layout.regions.iter_mut().zip(ranges) {
            (r.start, r.end) = (start, end);
        }
        layout
    }

    /// First address of region `i`.
    pub fn start(&self, i: usize) -> u64 {
        self.regions[i].start
    }

    /// Number of nodes.
    pub fn nodes(&self) -> usize {
        self.nodes
    }

    /// Whether there is a nested dimension.
    pub fn is_nested(&self) -> bool {
        self.policies.nested.is_some()
    }

    #[inline(always)]
    fn region(&self, va: u64) -> &Region {
        // Regions are few and ascending.
        let mut i = self.regions.len() - 1;
        while i > 0 && self.regions[i].start > va {
            i -= 1;
        }
        &self.regions[i]
    }

    /// Whether all pages of the native or guest table are of 4 KiB, at a glance.
    /// It may say no where they are.
    pub fn is_small(&self) -> bool {
        self.only_small
    }

    /// Size of the page at `va` in the native or guest table.
    #[inline(always)]
    pub fn page_size(&self, va: u64) -> PageSize {
        if self.only_small {
            return PageSize::Size4K;
        }
        match self.policies.huge {
            HugePolicy::Never | HugePolicy::Fragmented => PageSize::Size4K,
            HugePolicy::Gigantic => PageSize::Size1G,
            HugePolicy::Transparent { available } => self.transparent(va, available),
        }
    }

    fn transparent(&self, va: u64, available: f64) -> PageSize {
        let r = self.region(va);
        let backed = match r.spec.backing {
            Backing::Mapped => 1.0,
            Backing::Arena { huge } => huge,
        };
        let base = va & !(PageSize::Size2M.bytes() - 1);
        // The kernel takes huge pages from the first toucher's own node only,
        // and once that runs short the fault falls back to 4 KiB pages.
        // Published first-touch runs that need several nodes show about one
        // node's worth of huge pages, whoever touched first.
        let local = match self.policies.data {
            DataPolicy::FirstTouch { .. } => self.node_bytes as f64 / self.bytes as f64,
            _ => 1.0,
        };
        let fits = base >= r.start && base + PageSize::Size2M.bytes() <= r.end;
        if fits && unit(base ^ 0x7470) < backed * available * local.min(1.0) {
            PageSize::Size2M
        } else {
            PageSize::Size4K
        }
    }

    /// Node that single-threaded first touch from node 0 had reached at `va`.
    #[inline]
    fn fill_node(&self, r: &Region, va: u64) -> usize {
        let touched = r.filled_before + va.saturating_sub(r.start);
        let at = self.fills.partition_point(|&(upto, _)| upto <= touched);
        self.fills[at.min(self.fills.len() - 1)].1
    }

    /// Node of the thread that first touches the unit of `1 << shift` bytes
    /// that `va` is in.
    #[inline]
    fn toucher(&self, va: u64, shift: u32) -> usize {
        let r = self.region(va);
        let unit_start = (va >> shift << shift).max(r.start);
        match r.spec.init {
            Init::Single => self.fill_node(r, unit_start),
            Init::Parallel => {
                let n = self.touchers.len();
                let share = (r.end - r.start).div_ceil(n as u64).max(1);
                self.touchers[(((unit_start - r.start) / share) as usize).min(n - 1)]
            }
            Init::Scatter => self.some_toucher(va >> shift, u64::from(shift)),
        }
    }

    /// A node with CPUs, at random by `x`.
    #[inline]
    fn some_toucher(&self, x: u64, salt: u64) -> usize {
        self.touchers[scatter(x, salt, self.touchers.len())]
    }

    /// Node of the data page at `va`.
    #[inline(always)]
    pub fn data_node(&self, va: u64) -> usize {
        match self.policies.data {
            DataPolicy::Fixed(n) => n,
            DataPolicy::Interleave => {
                let shift = self.page_size(va).shift();
                ((va >> shift) % self.nodes as u64) as usize
            }
            DataPolicy::FirstTouch { moved } => {
                let shift = self.page_size(va).shift();
                let page = va >> shift;
                if moved > 0.0 && unit(page ^ 0x6d6f) < moved {
                    self.some_toucher(page, 0x6175_746f)
                } else {
                    self.toucher(va, shift)
                }
            }
        }
    }

    /// The table page of `level` that a CPU of node `from` reads for `addr`
    /// in dimension `dim`. Levels count from 1, the level of 4 KiB leaves.
    #[inline]
    pub fn table_home(&self, dim: Dim, level: u32, addr: u64, from: usize) -> TableHome {
        let policy = self.table_policy(dim);
        if let TablePolicy::Fixed(node) = *policy {
            return TableHome { node, copy: 0 };
        }
        let node = match policy {
            TablePolicy::Replicated => from,
            TablePolicy::Fixed(n) => *n,
            TablePolicy::Found(shares) => shares.node(addr >> (12 + 9 * level)),
            TablePolicy::Random => self.some_toucher(addr >> (12 + 9 * level), 0x726e),
            TablePolicy::Stock | TablePolicy::Migrated => self.stock_table(policy, level, addr),
        };
        let copy = self.table_copy(dim, from);
        TableHome { node, copy }
    }

    /// Which copy of the tables of `dim` a CPU of node `from` reads: the
    /// same for all of them, and quicker to tell than where one lies.
    #[inline(always)]
    pub fn table_copy(&self, dim: Dim, from: usize) -> u32 {
        match self.table_policy(dim) {
            TablePolicy::Replicated => from as u32 + 1,
            _ => 0,
        }
    }

    #[inline(always)]
    fn table_policy(&self, dim: Dim) -> &TablePolicy {
        match (dim, &self.policies.nested) {
            (Dim::Guest, _) => &self.policies.tables,
            (Dim::Nested, Some(n)) => &n.tables,
            (Dim::Nested, None) => &TablePolicy::Stock,
        }
    }

    fn stock_table(&self, policy: &TablePolicy, level: u32, addr: u64) -> usize {
        let shift = 12 + 9 * level;
        if addr & GUEST_TABLES != 0 {
            // A nested table that maps guest table pages: allocated with them.
            return self.some_toucher(addr >> shift, 0x6770);
        }
        match self.policies.data {
            // Migration follows the children; with balanced children it stays.
            DataPolicy::Fixed(n) if *policy == TablePolicy::Migrated => n,
            DataPolicy::Fixed(_) | DataPolicy::FirstTouch { .. } => self.toucher(addr, shift),
            // Table pages take their own turns in the round robin.
            DataPolicy::Interleave => scatter(addr >> shift, 0x696c, self.nodes),
        }
    }

    /// Guest-physical address of the data at `va`. A guest whose memory is not
    /// fragmented hands it out in order; a fragmented one takes it from
    /// wherever page cache was evicted, all over the node.
    #[inline(always)]
    pub fn guest_physical(&self, va: u64) -> u64 {
        match self.policies.huge {
            HugePolicy::Transparent { available } if available < 1.0 => {
                let shift = self.page_size(va).shift();
                let frames = (self.node_bytes >> shift).max(1);
                let frame = ((u128::from(mix(va >> shift)) * u128::from(frames)) >> 64) as u64;
                (frame << shift) | (va & ((1 << shift) - 1))
            }
            _ => va,
        }
    }

    /// Guest-physical address of the entry of `level` for `va` in copy `copy`
    /// of the guest's tables.
    #[inline(always)]
    pub fn guest_entry(&self, level: u32, va: u64, copy: u32) -> u64 {
        let entry = va >> (12 + 9 * (level - 1));
        GUEST_TABLES | (u64::from(copy) << 55) | (u64::from(level) << 52) | (entry * 8)
    }

    /// Size of the nested page that holds guest-physical `gpa`.
    #[inline(always)]
    pub fn nested_size(&self, gpa: u64) -> PageSize {
        match self.policies.nested {
            Some(n) if n.huge >= 1.0 => PageSize::Size2M,
            Some(n) if n.huge > 0.0 && unit((gpa >> 21) ^ 0x6e68) < n.huge => PageSize::Size2M,
            _ => PageSize::Size4K,
        }
    }

    /// Share of leaf table pages, by memory mapped, that a CPU of `from`
    /// finds on another node.
    pub fn remote_leaf_share(&self, from: usize) -> f64 {
        const SAMPLES: u64 = 4096;
        let (mut remote, mut all) = (0.0, 0.0);
        for r in &self.regions {
            let bytes = r.end - r.start;
            let weight = bytes as f64 / SAMPLES as f64;
            for i in 0..SAMPLES {
                let va = r.start + (u128::from(bytes) * u128::from(i) / u128::from(SAMPLES)) as u64;
                let level = self.page_size(va).level();
                let home = self.table_home(Dim::Guest, level, va, from);
                remote += if home.node == from { 0.0 } else { weight };
                all += weight;
            }
        }
        remote / all
    }
}

/// A hash of `x` as a number from 0 to 1.
#[inline]
fn unit(x: u64) -> f64 {
    (mix(x) >> 11) as f64 / (1u64 << 53) as f64
}

#[inline]
fn scatter(x: u64, salt: u64, nodes: usize) -> usize {
    (((mix(x ^ (salt << 40)) >> 32) * nodes as u64) >> 32) as usize
}

#[cfg(test)]
#[path = "layout_tests.rs"]
mod tests;
