// SPDX-License-Identifier: GPL-2.0-or-later
//! One access, and the walk that it may need.
//!
//! Whoever drives CPUs ([`crate::system`], [`crate::live`]) makes accesses
//! here; what they and their walks find is what their [`Tables`] say.

use crate::access::Access;
use crate::address::{Dim, Line, PageSize};
use crate::fabric::{Asked, Cached, Seen};
use crate::part::quick::{QuickTranslations, QuickWalkCache};
use crate::part::{Level, Parts, Stale, Translation, Translations};
use crate::pipe::Pipe;
use crate::simd::{Found, Host};
use crate::stats::Stats;
use crate::tables::{Levels, SPACE, Tables};
use crate::tags::Key;

/// What translating an address has brought about, in cycles.
struct Translated {
    /// When the access issued, after a fault if there was one.
    issue: f64,
    /// When the data may be asked for.
    start: f64,
    /// Length of the walk; 0 without one.
    walk: f64,
}

/// Stops the thread that `pipe` is of for `cycles` of the kernel's. Returns what
/// waiting for accesses under way costs besides.
pub(crate) fn interrupt(pipe: &mut Pipe, stats: &mut Stats, cycles: f64) -> f64 {
    let drained = pipe.interrupt(cycles);
    stats.base += drained;
    stats.kernel += cycles;
    drained
}

/// A CPU at work: its core's parts, and the tables that it walks.
pub(crate) struct Cpu<'a, P: Parts, H: Host, T: Tables> {
    pub host: H,
    pub at: Seen<'a, P>,
    pub tables: T,
}

impl<P: Parts, H: Host, T: Tables> Cpu<'_, P, H, T> {
    /// Makes access `a` of the thread that `pipe` is of.
    #[inline(always)]
    pub fn access(&mut self, pipe: &mut Pipe, a: Access) {
        let issue = pipe.issue(a);
        let size = match H::USUAL {
            true => PageSize::Size4K,
            false => self.tables.page_size(a.va),
        };
        let Translated {
            issue,
            mut start,
            walk,
        } = match size {
            // What is constant for the most frequent case folds away.
            PageSize::Size4K if !T::NESTED => self.translate(pipe, a.va, PageSize::Size4K, issue),
            _ => self.translate(pipe, a.va, size, issue),
        };
        if !H::USUAL && self.tables.sets_bits(a, size) {
            start += self.set_leaf_bits(a, size);
        }
        let data = self.data(a);
        let (dt_data, dt_walk, dt_base) = pipe.retire(issue, start, walk, data);
        let stats = &mut *self.at.stats;
        stats.accesses += 1;
        stats.data_stall += dt_data;
        stats.walk_stall += dt_walk;
        stats.base += dt_base;
    }

    /// Looks for the translation of `va`, whose page is of `size`, from `issue`
    /// on.
    #[inline(always)]
    fn translate(&mut self, pipe: &mut Pipe, va: u64, size: PageSize, issue: f64) -> Translated {
        let held = self.tables.held_size(va, size);
        let mut t = Translated {
            issue,
            start: issue,
            walk: 0.0,
        };
        let tlb = &mut self.at.core.tlb;
        let mut hit = match H::USUAL {
            true => tlb.lookup_or_fill(SPACE, va, held, self.host),
            false => tlb.lookup_on(SPACE, va, held, self.host),
        };
        if hit.is_some() && self.tables.is_stale(va, held) {
            tlb.invalidate(Stale::Page(SPACE, va));
            hit = None;
        }
        match hit {
            Some(Level::First) => self.at.stats.tlb_l1 += 1,
            Some(Level::Second) => {
                self.at.stats.tlb_l2 += 1;
                t.start += self.at.costs.stlb;
            }
            None => {
                if !H::USUAL && self.tables.faults(va, size) {
                    self.at.stats.lazy_faults += 1;
                    interrupt(pipe, self.at.stats, self.at.costs.fault);
                    t.issue = t.issue.max(pipe.done);
                }
                if let Some(levels) = self.tables.begin_walk(va, size) {
                    if T::SHARED && levels != Levels::NONE {
                        // Which was not known earlier.
                        self.at.hint(self.tables.entry(Dim::Guest, levels.leaf, va));
                    }
                    t.walk = self.walk(va, levels);
                    t.start = self.at.occupy_walker(t.issue, t.walk);
                    self.at.stats.walks += 1;
                    self.at.stats.walk_cycles += t.walk;
                }
                if !H::USUAL {
                    let found = self.tables.translation(va, size, held);
                    self.at.core.tlb.fill_on(&found, self.host);
                }
            }
        }
        t
    }

    /// Cycles of setting bits of the leaf entry: a locked store to the entry
    /// that the walk has just read.
    #[cold]
    fn set_leaf_bits(&mut self, a: Access, size: PageSize) -> f64 {
        self.at.stats.bit_updates += 1;
        self.at.stats.walk_refs += 1;
        let line = self.tables.entry(Dim::Guest, size.level(), a.va);
        self.at.own_among_nodes(Key::new(line));
        self.at.costs.ad_update + self.table(Dim::Guest, size.level(), a.va)
    }

    #[inline(always)]
    fn data(&mut self, a: Access) -> f64 {
        let line = Key::new(self.tables.data(a.va));
        if T::SHARED && a.write {
            self.at.take_from_other_cores(line);
        }
        match self.at.cached(line, a.write, false, self.host) {
            Cached::Held { cycles, shared } => {
                // What is fetched is taken from there when it has come.
                if T::SHARED && a.write && !shared {
                    self.at.own_among_nodes(line);
                }
                self.at.stats.data_l3 += u64::from(shared);
                cycles
            }
            Cached::No(missing) => {
                let home = self.tables.data_node(a.va);
                let remote = home != self.at.node;
                self.at.stats.data_mem[usize::from(remote)] += 1;
                let cycles = self.at.fetch(line, missing, a.write, home, self.host);
                if T::SHARED && remote {
                    self.at.stats.data_remote_cycles += cycles;
                }
                cycles
            }
        }
    }

    /// One reference to a table entry, which the caller counts.
    #[inline(always)]
    fn table(&mut self, dim: Dim, level: u32, addr: u64) -> f64 {
        let line = Key::new(self.tables.entry(dim, level, addr));
        if level == 1 {
            // L3 may have nearly all of these, or half, or few.
            match self.at.cached_evenly(line, self.host) {
                Some(Asked::Private(cycles)) => return cycles,
                Some(Asked::Shared(found)) => {
                    let held = found == Found::Held;
                    let home = self.tables.entry_node(dim, level, addr);
                    let remote = home != self.at.node;
                    self.at.stats.walk_l3 += u64::from(held);
                    self.at.stats.walk_mem[dim as usize][usize::from(remote)] += u64::from(!held);
                    let cycles = self.at.fetch_unless_held(found, home);
                    if T::SHARED && remote && !held {
                        self.at.stats.walk_remote_cycles += cycles;
                    }
                    return cycles;
                }
                None => {}
            }
        }
        // Lines of upper levels are few enough for any cache to have them.
        match self.at.cached(line, false, level > 1, self.host) {
            Cached::Held { cycles, shared } => {
                self.at.stats.walk_l3 += u64::from(shared);
                cycles
            }
            Cached::No(missing) => {
                let home = self.tables.entry_node(dim, level, addr);
                let remote = home != self.at.node;
                self.at.stats.walk_mem[dim as usize][usize::from(remote)] += 1;
                let cycles = self.at.fetch(line, missing, false, home, self.host);
                if T::SHARED && remote {
                    self.at.stats.walk_remote_cycles += cycles;
                }
                cycles
            }
        }
    }

    /// Cycles of a walk's step at `level`, whose table has a host-physical
    /// address already if `located`.
    #[inline(always)]
    fn descend(&mut self, level: u32, va: u64, located: &mut bool) -> f64 {
        if T::NESTED && !std::mem::replace(located, false) {
            if let Some(gpa) = self.tables.guest_entry(level, va) {
                return self.nested_translate(gpa) + self.table(Dim::Guest, level, va);
            }
        }
        self.table(Dim::Guest, level, va)
    }

    /// Cycles of a walk for `va` through `levels`.
    #[inline(always)]
    pub fn walk(&mut self, va: u64, levels: Levels) -> f64 {
        let Levels { leaf, root } = levels;
        let cache = &mut self.at.core.walk_cache;
        let cached = match H::USUAL {
            true => cache.lookup_or_fill(SPACE, va, leaf, root, self.host),
            false => cache.lookup_on(SPACE, va, leaf, root, self.host),
        };
        let top = cached.map_or(root, |l| l - 1);
        // A walk-cache entry holds the host-physical address of the next
        // table, so the first table after a hit needs no nested translation.
        let mut located = cached.is_some();
        self.at.stats.walk_refs += u64::from(top + 1 - leaf);
        let mut cycles = self.at.costs.walk_overhead;
        // A piece of code for each level: whether its line is cached is told
        // by the level more than by anything else.
        if top > 2 {
            let mut level = top;
            while level > 2 && level >= leaf {
                cycles += self.descend(level, va, &mut located);
                level -= 1;
            }
        }
        if top >= 2 && leaf <= 2 {
            cycles += self.descend(2, va, &mut located);
        }
        if leaf == 1 {
            cycles += self.descend(1, va, &mut located);
        }
        if !H::USUAL {
            for level in leaf + 1..=top {
                let source = Line(self.tables.entry(Dim::Guest, level, va));
                let cache = &mut self.at.core.walk_cache;
                cache.fill_on(SPACE, va, level, source, self.host);
            }
        }
        if T::NESTED {
            if let Some(gpa) = self.tables.guest_physical(va) {
                cycles += self.nested_translate(gpa);
            }
        }
        cycles
    }

    fn nested_translate(&mut self, gpa: u64) -> f64 {
        let (size, root) = self.tables.nested_page(gpa);
        let core = &mut *self.at.core;
        let held = core.nested_tlb.lookup_on(SPACE, gpa, size, self.host);
        if held.is_some() {
            return 0.0;
        }
        let leaf = size.level();
        let cached = core
            .nested_cache
            .lookup_on(SPACE, gpa, leaf, root, self.host);
        let top = cached.map_or(root, |l| l - 1);
        // A nested walk is a walk of its own, with what that costs besides
        // its references.
        self.at.stats.walk_refs += u64::from(top + 1 - leaf);
        let mut cycles = self.at.costs.walk_overhead;
        let mut level = top;
        while level >= leaf {
            cycles += self.table(Dim::Nested, level, gpa);
            if level > leaf {
                let source = Line(self.tables.entry(Dim::Nested, level, gpa));
                let cache = &mut self.at.core.nested_cache;
                cache.fill_on(SPACE, gpa, level, source, self.host);
            }
            level -= 1;
        }
        let source = self.tables.entry(Dim::Nested, leaf, gpa);
        let found = Translation {
            asid: SPACE,
            addr: gpa,
            pa: gpa,
            size,
            run: 1,
            source: Line(source),
        };
        self.at.core.nested_tlb.fill_on(&found, self.host);
        self.at.stats.nested_walk_cycles += cycles;
        cycles
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::Fabric;
    use crate::layout::{
        Backing, DataPolicy, HugePolicy, Init, Layout, Nested, Policies, RegionSpec, TablePolicy,
    };
    use crate::machine::Machine;
    use crate::part::standard::Standard;
    use crate::pipe::Pace;
    use crate::simd::Plain;
    use crate::tables::{Computed, salts};
    use crate::units::Bytes;

    fn layout(m: &Machine, tables: usize, nested: Option<usize>) -> Layout {
        let region = RegionSpec {
            name: "r",
            bytes: Bytes::gib(1),
            init: Init::Single,
            backing: Backing::Mapped,
        };
        let policies = Policies {
            data: DataPolicy::Fixed(0),
            tables: TablePolicy::Fixed(tables),
            huge: HugePolicy::Never,
            nested: nested.map(|node| Nested {
                tables: TablePolicy::Fixed(node),
                huge: 0.0,
            }),
        };
        Layout::on(m, &[region], policies)
    }

    /// Counters of each of `accesses`, made one after the other by the CPU of a
    /// cold machine, on node 0.
    fn each<const NESTED: bool>(m: &Machine, l: &Layout, accesses: &[Access]) -> Vec<Stats> {
        let mut fabric = Fabric::<Standard>::new(m, 1, false);
        let pace = Pace {
            base: 0.0,
            window: 1.0,
        };
        let mut pipe = Pipe::new(0, 0, pace);
        let (mut bits, mut lazy) = (None, None);
        accesses
            .iter()
            .map(|&a| {
                let mut stats = Stats::default();
                let levels = m.page_table_levels;
                let tables = Computed::<NESTED>::new(l, 0, levels, &salts(), &mut bits, &mut lazy);
                let at = fabric.seen_from(0, 0, &mut stats);
                let host = Plain;
                Cpu { host, at, tables }.access(&mut pipe, a);
                stats
            })
            .collect()
    }

    #[test]
    fn an_access_is_a_walk_and_a_line_and_the_next_one_what_is_left_of_them() {
        let m = Machine::builtin("e7-4850v3").unwrap();
        let at = |l: crate::units::Latency| l.at(m.clock).0;
        let l = layout(&m, 1, None);
        let va = l.start(0);
        let [first, again, page] = [va, va, va + 4096].map(Access::load);
        let s = each::<false>(&m, &l, &[first, again, page]);
        let overhead = at(m.walker.overhead);
        assert_eq!((s[0].walks, s[0].walk_refs), (1, 4));
        assert_eq!(s[0].walk_mem, [[0, 4], [0, 0]]);
        assert_eq!(s[0].walk_cycles, overhead + 4.0 * 580.0);
        assert_eq!(
            (s[0].walk_stall, s[0].data_stall),
            (s[0].walk_cycles, 280.0)
        );
        assert_eq!(
            (s[1].walks, s[1].tlb_l1, s[1].data_stall),
            (0, 1, at(m.cache.l1.latency))
        );
        // The neighbour's entry is in the same line, below a walk-cache hit.
        assert_eq!((s[2].walk_refs, s[2].walk_mem), (1, [[0; 2]; 2]));
        assert_eq!(s[2].walk_cycles, overhead + at(m.cache.l1.latency));
        assert!(s.iter().all(|s| s.nested_walk_cycles == 0.0));
    }

    #[test]
    fn nested_walks_are_counted_apart_from_those_that_need_them() {
        let m = Machine::builtin("e7-4850v3").unwrap();
        let overhead = m.walker.overhead.at(m.clock).0;
        for (guest, nested) in [(0, 0), (1, 0), (0, 1), (1, 1)] {
            let l = layout(&m, guest, Some(nested));
            let s = &each::<true>(&m, &l, &[Access::load(l.start(0))])[0];
            let [guest, nested] = [guest, nested].map(|n| [280.0, 580.0][n]);
            assert_eq!((s.walks, s.walk_refs), (1, 24));
            // One for each of the guest's tables and one for the data.
            let nested = 5.0 * (overhead + 4.0 * nested);
            assert!((s.nested_walk_cycles - nested).abs() < 1e-6, "{s:?}");
            let all = nested + overhead + 4.0 * guest;
            assert!((s.walk_cycles - all).abs() < 1e-6, "{s:?}");
        }
    }
}
