// SPDX-License-Identifier: GPL-2.0-or-later
//! A whole machine running threads of one process.
//!
//! Threads advance in quanta. Within a quantum each runs on its own clock;
//! two threads of a core take turns so that the one behind goes next. What
//! they share (caches, memory queues) they share through state, so results
//! depend on the order of threads only within a quantum. There is no other
//! source of order, and none of randomness: the same input gives the same
//! cycles.

use crate::assoc::{Key, mix};
use crate::core::{Pipe, Thread};
use crate::fabric::{Fabric, Served};
use crate::kernelside::{LazyFill, LeafBits};
use crate::layout::{Dim, Layout, TableHome};
use crate::machine::Machine;
use crate::parts::{Memory, NestedTlb, Parts, Tlb, TlbHit, WalkCache};
use crate::stats::Stats;
use crate::units::PageSize;

/// One memory access of a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// Virtual address.
    pub va: u64,
    /// Stores take the line exclusively.
    pub write: bool,
    /// The address is known only when the previous access' value is there.
    pub dependent: bool,
    /// Work before the access, in units of the workload's base cycles.
    pub work: u8,
}

impl Access {
    /// A load that depends on the previous access.
    pub const fn chase(va: u64) -> Self {
        Access {
            va,
            write: false,
            dependent: true,
            work: 1,
        }
    }
    /// A load whose address is known in advance.
    pub const fn load(va: u64) -> Self {
        Access {
            va,
            write: false,
            dependent: false,
            work: 1,
        }
    }
    /// A store whose address is known in advance.
    pub const fn store(va: u64) -> Self {
        Access {
            va,
            write: true,
            dependent: false,
            work: 1,
        }
    }
    /// The same with `work` units of work before it.
    pub const fn with_work(mut self, work: u8) -> Self {
        self.work = work;
        self
    }
}

/// An endless stream of accesses of one thread.
pub trait Source {
    /// Appends the accesses of the next operation, at least one.
    fn fill(&mut self, out: &mut Vec<Access>);
}

/// A workload's own constants.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pace {
    /// Cycles of computation per unit of work.
    pub base: f64,
    /// Independent accesses in flight together, 1 to 32.
    pub window: f64,
}

/// A machine with its threads. See the module's documentation.
pub struct System<P: Parts> {
    fabric: Fabric<P>,
    layout: Layout,
    threads: Vec<Thread>,
    /// Threads of each core in use: a first, and perhaps a second.
    by_core: Vec<(usize, Option<usize>)>,
    quantum: f64,
    clock: f64,
    salts: [[u64; 6]; 2],
    leaf_bits: Option<LeafBits>,
    lazy: Option<LazyFill>,
}

impl<P: Parts> System<P> {
    /// A machine with nothing cached and thread `i` of `sources` on CPU
    /// `cpus[i]` (numbered node by node, core by core, hyper-thread last).
    ///
    /// # Panics
    /// If a CPU does not exist, is named twice, or the lists differ in length.
    pub fn new(
        m: &Machine,
        layout: Layout,
        pace: Pace,
        cpus: &[usize],
        sources: Vec<Box<dyn Source + Send>>,
    ) -> Self {
        assert_eq!(cpus.len(), sources.len());
        let mut by_core: Vec<(usize, Option<usize>)> = Vec::new();
        let mut core_ids: Vec<usize> = Vec::new();
        let mut threads = Vec::new();
        for (t, (&cpu, source)) in cpus.iter().zip(sources).enumerate() {
            assert!(cpu < m.cpus(), "CPU {cpu} of {}", m.cpus());
            let core = cpu / m.threads_per_core;
            let slot = match core_ids.iter().position(|&c| c == core) {
                Some(slot) => {
                    assert!(by_core[slot].1.is_none(), "CPU {cpu} is named twice");
                    by_core[slot].1 = Some(t);
                    slot
                }
                None => {
                    core_ids.push(core);
                    by_core.push((t, None));
                    core_ids.len() - 1
                }
            };
            threads.push(Thread::new(
                Pipe::new(slot, core / m.cores_per_socket, pace),
                source,
            ));
        }
        // Two threads of a core halve its reorder buffer between them.
        for (a, b) in by_core.iter().filter_map(|&(a, b)| Some((a, b?))) {
            threads[a].pipe.halve_window();
            threads[b].pipe.halve_window();
        }
        let nodes: std::collections::BTreeSet<_> = threads.iter().map(|t| t.pipe.node).collect();
        let salts = std::array::from_fn(|d| {
            std::array::from_fn(|l| mix(0x7461_626c_6500 + 8 * d as u64 + l as u64))
        });
        System {
            fabric: Fabric::new(m, core_ids.len(), nodes.len() > 1),
            layout,
            threads,
            by_core,
            // Long enough that the host's caches serve one simulated core
            // for a while, short against the time in which load changes.
            quantum: if nodes.len() > 1 { 100_000.0 } else { 20_000.0 },
            clock: 0.0,
            salts,
            leaf_bits: None,
            lazy: None,
        }
    }

    /// Puts a bandwidth hog on `node`.
    pub fn add_interferer(&mut self, node: usize) {
        self.fabric.memory.add_interferer(node);
    }

    /// Models accessed and dirty bits from now on, starting from `bits`.
    /// Without this they count as set already, as in a program that has run
    /// for a while.
    pub fn track_leaf_bits(&mut self, bits: LeafBits) {
        self.leaf_bits = Some(bits);
    }

    /// The bits that [`System::track_leaf_bits`] started to model.
    pub fn leaf_bits(&self) -> Option<&LeafBits> {
        self.leaf_bits.as_ref()
    }

    /// Fills replicas lazily from now on. Without this replicas are complete.
    pub fn fill_lazily(&mut self, lazy: LazyFill) {
        self.lazy = Some(lazy);
    }

    /// Thread `from` changes the entry for `va` and has every thread of
    /// `targets` drop its translation, interrupting those on other cores and
    /// waiting for them.
    ///
    /// # Panics
    /// If a thread does not exist.
    pub fn shootdown(&mut self, from: usize, targets: &[usize], va: u64) {
        let size = self.tlb_size(va, self.layout.page_size(va));
        let (core, node) = (self.threads[from].pipe.core, self.threads[from].pipe.node);
        let (mut sent, mut far) = (0u32, false);
        self.drop_translation(core, va, size);
        for &t in targets.iter().filter(|&&t| t != from) {
            let (target_core, target_node) = (self.threads[t].pipe.core, self.threads[t].pipe.node);
            self.drop_translation(target_core, va, size);
            self.interrupt(t, self.fabric.costs.ipi_handler);
            far |= target_node != node;
            sent += 1;
        }
        if sent > 0 {
            let wait = self.fabric.costs.ipi[usize::from(far)]
                + self.fabric.costs.ipi_each * f64::from(sent - 1);
            self.interrupt(from, wait);
            self.fabric.stats.ipis += u64::from(sent);
        }
    }

    fn interrupt(&mut self, thread: usize, cycles: f64) {
        self.fabric.stats.base += self.threads[thread].pipe.interrupt(cycles);
        self.fabric.stats.kernel += cycles;
    }

    fn drop_translation(&mut self, core: usize, va: u64, size: PageSize) {
        let c = &mut self.fabric.cores[core];
        c.tlb.invalidate(va, size);
        // INVLPG empties the walk caches too.
        c.walk_cache.flush();
        c.nested_cache.flush();
    }

    /// The layout in use.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The memory, for its own counters.
    pub fn memory(&self) -> &P::Memory {
        &self.fabric.memory
    }

    /// Runs until all threads together have made `accesses` more, and returns
    /// what happened meanwhile.
    pub fn run(&mut self, accesses: u64) -> Stats {
        let before: f64 = self.threads.iter().map(|t| t.pipe.done).sum();
        self.fabric.stats = Stats::default();
        while self.fabric.stats.accesses < accesses {
            let end = self.clock + self.quantum;
            for c in 0..self.by_core.len() {
                match self.by_core[c] {
                    (a, None) => self.run_thread(a, end),
                    (a, Some(b)) => self.run_pair(a, b, end),
                }
            }
            self.fabric.memory.end_quantum(self.quantum);
            self.clock = end;
        }
        let mut stats = std::mem::take(&mut self.fabric.stats);
        stats.cycles = self.threads.iter().map(|t| t.pipe.done).sum::<f64>() - before;
        stats
    }

    fn run_thread(&mut self, t: usize, end: f64) {
        while self.threads[t].pipe.done < end {
            self.step(t);
        }
    }

    fn run_pair(&mut self, a: usize, b: usize, end: f64) {
        loop {
            let t = if self.threads[a].pipe.done <= self.threads[b].pipe.done {
                a
            } else {
                b
            };
            if self.threads[t].pipe.done >= end {
                return;
            }
            self.step(t);
        }
    }

    #[inline(always)]
    fn step(&mut self, t: usize) {
        const AHEAD: usize = 6;
        let th = &mut self.threads[t];
        if th.next + AHEAD >= th.buffer.len() {
            th.refill();
        }
        let a = th.buffer[th.next];
        let soon = th.buffer[th.next + AHEAD - 1].va;
        th.next += 1;
        let (core, node) = (th.pipe.core, th.pipe.node);
        let mut issue = th.pipe.issue(a);
        self.prefetch(node, soon);
        let mut start = issue;
        let mut walk = 0.0;
        let size = self.layout.page_size(a.va);
        let held = self.tlb_size(a.va, size);
        match self.fabric.cores[core].tlb.lookup(a.va, held) {
            TlbHit::L1 => self.fabric.stats.tlb_l1 += 1,
            TlbHit::L2 => {
                self.fabric.stats.tlb_l2 += 1;
                start += self.fabric.costs.stlb;
            }
            TlbHit::Miss => {
                if let Some(lazy) = &mut self.lazy
                    && lazy.touch(node, a.va >> size.shift())
                {
                    self.fabric.stats.lazy_faults += 1;
                    self.interrupt(t, self.fabric.costs.fault);
                    issue = issue.max(self.threads[t].pipe.done);
                }
                walk = self.walk(core, node, a.va, size);
                start = self.fabric.occupy_walker(core, issue, walk);
                self.fabric.stats.walks += 1;
                self.fabric.stats.walk_cycles += walk;
            }
        }
        if self.leaf_bits.is_some() {
            start += self.set_leaf_bits(core, node, a, size);
        }
        let data = self.data(core, node, a);
        let (dt_data, dt_walk, dt_base) = self.threads[t].pipe.retire(issue, start, walk, data);
        self.fabric.stats.accesses += 1;
        self.fabric.stats.data_stall += dt_data;
        self.fabric.stats.walk_stall += dt_walk;
        self.fabric.stats.base += dt_base;
    }

    /// Cycles of setting bits of the leaf entry, if any are clear: a locked
    /// store to the entry that the walk has just read.
    fn set_leaf_bits(&mut self, core: usize, node: usize, a: Access, size: PageSize) -> f64 {
        let home = self.layout.table_home(Dim::Guest, size.level(), a.va, node);
        let Some(bits) = &mut self.leaf_bits else {
            return 0.0;
        };
        if !bits.touch(home.copy, a.va >> size.shift(), a.write) {
            return 0.0;
        }
        self.fabric.stats.bit_updates += 1;
        let line = self.table_line(Dim::Guest, size.level(), a.va, home);
        if self.fabric.multi_node {
            self.fabric.own(node, line);
        }
        self.fabric.costs.ad_update + self.table(core, node, Dim::Guest, size.level(), a.va)
    }

    /// Page size under which the TLB holds a translation: the smaller of the
    /// two dimensions'.
    #[inline(always)]
    fn tlb_size(&self, va: u64, guest: PageSize) -> PageSize {
        if self.layout.is_nested() && guest > PageSize::Size4K {
            guest.min(self.layout.nested_size(self.layout.guest_physical(va)))
        } else {
            guest
        }
    }

    #[inline(always)]
    fn prefetch(&self, node: usize, va: u64) {
        self.fabric.hint(node, va >> 6);
        if !self.fabric.multi_node {
            self.fabric.hint(node, (va >> 15) ^ self.salts[0][1]);
        }
    }

    #[inline(always)]
    fn data(&mut self, core: usize, node: usize, a: Access) -> f64 {
        let line = Key::new(a.va >> 6);
        let layout = &self.layout;
        let (cycles, served, remote) = self
            .fabric
            .reference(core, node, line, a.write, || layout.data_node(a.va));
        match served {
            Served::Private => {}
            Served::Shared => self.fabric.stats.data_l3 += 1,
            Served::Beyond => self.fabric.stats.data_mem[usize::from(remote)] += 1,
        }
        cycles
    }

    /// The cache line of a table entry. Lines of a table keep their order;
    /// levels, dimensions and copies are kept apart by what is added.
    #[inline(always)]
    fn table_line(&self, dim: Dim, level: u32, addr: u64, home: TableHome) -> Key {
        let salt = self.salts[dim as usize][level as usize];
        let copy = u64::from(home.copy) << 48;
        Key::new(((addr >> (15 + 9 * (level - 1))) ^ salt).wrapping_add(copy))
    }

    /// One reference to a table entry.
    #[inline(always)]
    fn table(&mut self, core: usize, node: usize, dim: Dim, level: u32, addr: u64) -> f64 {
        let home = self.layout.table_home(dim, level, addr, node);
        let line = self.table_line(dim, level, addr, home);
        let (cycles, served, remote) = self.fabric.reference(core, node, line, false, || home.node);
        let stats = &mut self.fabric.stats;
        stats.walk_refs += 1;
        match served {
            Served::Private => {}
            Served::Shared => stats.walk_l3 += 1,
            Served::Beyond => stats.walk_mem[dim as usize][usize::from(remote)] += 1,
        }
        cycles
    }

    /// Cycles of a walk for `va`, whose guest page is of `size`.
    #[inline(always)]
    pub(crate) fn walk(&mut self, core: usize, node: usize, va: u64, size: PageSize) -> f64 {
        let (leaf, root) = (size.level(), self.fabric.costs.root);
        let nested = self.layout.is_nested();
        let cached = self.fabric.cores[core].walk_cache.lowest(va, leaf, root);
        let top = cached.map_or(root, |l| l - 1);
        // A walk-cache entry holds the host-physical address of the next
        // table, so the first table after a hit needs no nested translation.
        let mut located = cached.is_some();
        let mut cycles = self.fabric.costs.walk_overhead;
        for level in (leaf..=top).rev() {
            if nested && !located {
                let copy = self.layout.table_home(Dim::Guest, level, va, node).copy;
                let gpa = self.layout.guest_entry(level, va, copy);
                cycles += self.nested_translate(core, node, gpa);
            }
            located = false;
            cycles += self.table(core, node, Dim::Guest, level, va);
            if level > leaf {
                self.fabric.cores[core].walk_cache.fill(va, level);
            }
        }
        if nested {
            let gpa = self.layout.guest_physical(va);
            cycles += self.nested_translate(core, node, gpa);
        }
        cycles
    }

    fn nested_translate(&mut self, core: usize, node: usize, gpa: u64) -> f64 {
        let size = self.layout.nested_size(gpa);
        if self.fabric.cores[core].nested_tlb.lookup(gpa, size) {
            return 0.0;
        }
        let (leaf, root) = (size.level(), self.fabric.costs.root);
        let top = self.fabric.cores[core]
            .nested_cache
            .lowest(gpa, leaf, root)
            .map_or(root, |l| l - 1);
        // A nested walk is a walk of its own, with what that costs besides
        // its references.
        let mut cycles = self.fabric.costs.walk_overhead;
        for level in (leaf..=top).rev() {
            cycles += self.table(core, node, Dim::Nested, level, gpa);
            if level > leaf {
                self.fabric.cores[core].nested_cache.fill(gpa, level);
            }
        }
        cycles
    }
}

#[cfg(test)]
#[path = "system_tests.rs"]
mod tests;
