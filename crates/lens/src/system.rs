// SPDX-License-Identifier: GPL-2.0-or-later
//! A whole machine running threads of one process.
//!
//! Threads advance in quanta. Within a quantum each runs on its own clock;
//! two threads of a core take turns so that the one behind goes next. What
//! they share (caches, memory queues) they share through state, so results
//! depend on the order of threads only within a quantum. There is no other
//! source of order, and none of randomness: the same input gives the same
//! cycles.

use crate::access::{Access, Source};
use crate::address::{Asid, Dim, Line, PageSize};
use crate::fabric::{Asked, Cached, Fabric, Seen};
use crate::hash::mix;
use crate::kernelside::{LazyFill, LeafBits};
use crate::layout::Layout;
use crate::machine::Machine;
use crate::part::{Level, Memory, Parts, Stale, Translation, Translations, WalkCache};
use crate::pipe::{Pace, Pipe};
#[cfg(target_arch = "x86_64")]
use crate::simd::avx2::Avx2;
use crate::simd::{Found, Host, Plain};
use crate::stats::Stats;
use crate::tags::Key;

/// A hardware thread and the program it runs.
struct Thread {
    /// The hardware.
    pipe: Pipe,
    /// Accesses to come.
    buffer: Vec<Access>,
    /// Next of them.
    next: usize,
    /// At which of them the host is to be told of more.
    hinted: usize,
    source: Box<dyn Source + Send>,
}

impl Thread {
    fn new(pipe: Pipe, source: Box<dyn Source + Send>) -> Self {
        Thread {
            pipe,
            buffer: Vec::with_capacity(256),
            next: 0,
            hinted: 0,
            source,
        }
    }

    /// Drops what was used and appends more. The buffer then holds at least
    /// as much as a caller looks ahead.
    #[cold]
    fn refill(&mut self) {
        self.buffer.drain(..self.next);
        self.next = 0;
        while self.buffer.len() < 128 {
            self.source.fill(&mut self.buffer);
        }
    }
}

/// What tells the lines of tables from each other and from data, by dimension
/// and level.
type Salts = [[u64; 8]; 2];

/// The address space of the one process.
const SPACE: Asid = Asid(0);

/// A machine with its threads. See the module's documentation.
pub struct System<P: Parts> {
    fabric: Fabric<P>,
    layout: Layout,
    threads: Vec<Thread>,
    /// Threads of each core in use: a first, and perhaps a second.
    by_core: Vec<(usize, Option<usize>)>,
    quantum: f64,
    clock: f64,
    salts: Salts,
    leaf_bits: Option<LeafBits>,
    lazy: Option<LazyFill>,
    equal_shares: bool,
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
            equal_shares: false,
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

    /// Divides the work of each run evenly among the threads from now on, as
    /// a loop with a barrier behind it does: who is faster sleeps until the
    /// slowest has come. Without this every thread makes what it can.
    pub fn share_equally(&mut self) {
        self.equal_shares = true;
    }

    /// Thread `from` changes the entry for `va` and has every thread of
    /// `targets` drop its translation, interrupting those on other cores and
    /// waiting for them.
    ///
    /// # Panics
    /// If a thread does not exist.
    pub fn shootdown(&mut self, from: usize, targets: &[usize], va: u64) {
        let (core, node) = (self.threads[from].pipe.core, self.threads[from].pipe.node);
        let (mut sent, mut far) = (0u32, false);
        self.drop_translation(core, va);
        for &t in targets.iter().filter(|&&t| t != from) {
            let (target_core, target_node) = (self.threads[t].pipe.core, self.threads[t].pipe.node);
            self.drop_translation(target_core, va);
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

    fn drop_translation(&mut self, core: usize, va: u64) {
        let c = &mut self.fabric.cores[core];
        c.tlb.invalidate(Stale::Page(SPACE, va));
        // INVLPG empties the walk caches too.
        c.walk_cache.invalidate(Stale::All);
        c.nested_cache.invalidate(Stale::All);
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
        let accesses = if self.equal_shares {
            self.allot(accesses)
        } else {
            accesses
        };
        let before: f64 = self.threads.iter().map(|t| t.pipe.done).sum();
        self.fabric.stats = Stats::default();
        while self.fabric.stats.accesses < accesses {
            let end = self.clock + self.quantum;
            self.run_quantum(end);
            self.fabric.memory.end_quantum(self.quantum);
            self.clock = end;
        }
        let mut stats = std::mem::take(&mut self.fabric.stats);
        stats.cycles = self.threads.iter().map(|t| t.pipe.done).sum::<f64>() - before;
        stats
    }

    /// Gives every thread the same part of `accesses`, to begin together.
    /// Returns the sum.
    fn allot(&mut self, accesses: u64) -> u64 {
        let threads = self.threads.len() as u64;
        let share = accesses.div_ceil(threads);
        for t in &mut self.threads {
            t.pipe.resume(self.clock);
            t.pipe.allot(share);
        }
        share * threads
    }

    /// Runs all cores until `end`, with the vector and bit instructions that
    /// the host has.
    fn run_quantum(&mut self, end: f64) {
        #[cfg(target_arch = "x86_64")]
        if let Some(host) = Avx2::detect() {
            // SAFETY: the host has what the function is compiled for.
            return unsafe { self.run_cores_avx2(end, host) };
        }
        self.run_cores(end, Plain);
    }

    /// # Safety
    /// The host must have AVX2, BMI1 and BMI2.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,bmi1,bmi2")]
    unsafe fn run_cores_avx2(&mut self, end: f64, host: Avx2) {
        for c in 0..self.by_core.len() {
            if self.is_usual(c) {
                self.run_usual_core(c, end, host.usual());
            } else {
                self.run_core(c, end, host);
            }
        }
    }

    /// Whether core `c` is a case that [`Host::USUAL`] is for: one thread, small
    /// pages, no virtual machine, nothing to track, and parts of usual shapes.
    fn is_usual(&self, c: usize) -> bool {
        let (a, b) = self.by_core[c];
        let pipe = &self.threads[a].pipe;
        b.is_none()
            && !self.layout.is_nested()
            && self.layout.is_small()
            && self.leaf_bits.is_none()
            && self.lazy.is_none()
            && self.fabric.is_usual(pipe.core, pipe.node)
    }

    /// [`System::run_core`] in that case.
    #[inline(always)]
    fn run_usual_core(&mut self, c: usize, end: f64, host: impl Host) {
        let (a, _) = self.by_core[c];
        let Pipe { core, node, .. } = self.threads[a].pipe;
        let (mut running, threads) = self.running::<_, false>(host, core, node);
        running.run(&mut threads[a], end);
    }

    /// In line, as everything on the way to the tag arrays is, so that it is
    /// compiled for the instructions of its caller.
    #[inline(always)]
    fn run_cores(&mut self, end: f64, host: impl Host) {
        for c in 0..self.by_core.len() {
            self.run_core(c, end, host);
        }
    }

    #[inline(always)]
    fn run_core(&mut self, c: usize, end: f64, host: impl Host) {
        // What virtual machines need is not even compiled into what native
        // programs run.
        if self.layout.is_nested() {
            self.run_core_in::<true>(c, end, host);
        } else {
            self.run_core_in::<false>(c, end, host);
        }
    }

    #[inline(always)]
    fn run_core_in<const NESTED: bool>(&mut self, c: usize, end: f64, host: impl Host) {
        let (a, b) = self.by_core[c];
        let Pipe { core, node, .. } = self.threads[a].pipe;
        let (mut running, threads) = self.running::<_, NESTED>(host, core, node);
        match b {
            None => {
                running.run(&mut threads[a], end);
            }
            Some(b) => {
                // A core's first thread comes first in the list, too.
                let (first, second) = threads.split_at_mut(b);
                let (a, b) = (&mut first[a], &mut second[0]);
                loop {
                    let (behind, other) = if a.pipe.done <= b.pipe.done {
                        (&mut *a, &mut *b)
                    } else {
                        (&mut *b, &mut *a)
                    };
                    if behind.pipe.done >= end {
                        return;
                    }
                    if behind.pipe.has_finished() {
                        return running.run(other, end);
                    }
                    running.step(behind);
                }
            }
        }
    }

    #[inline(always)]
    fn running<H: Host, const NESTED: bool>(
        &mut self,
        host: H,
        core: usize,
        node: usize,
    ) -> (Running<'_, P, H, NESTED>, &mut [Thread]) {
        let running = Running {
            host,
            at: self.fabric.seen_from(core, node),
            layout: &self.layout,
            salts: [Dim::Guest, Dim::Nested].map(|dim| {
                let copy = u64::from(self.layout.table_copy(dim, node)) << 48;
                self.salts[dim as usize].map(|salt| salt ^ copy)
            }),
            leaf_bits: &mut self.leaf_bits,
            lazy: &mut self.lazy,
        };
        (running, &mut self.threads)
    }
}

/// Page size under which the TLB holds a translation: the smaller of the two
/// dimensions'.
#[inline(always)]
fn tlb_size(layout: &Layout, va: u64, guest: PageSize) -> PageSize {
    if layout.is_nested() && guest > PageSize::Size4K {
        guest.min(layout.nested_size(layout.guest_physical(va)))
    } else {
        guest
    }
}

/// What translating an address has brought about, in cycles.
struct Translated {
    /// When the access issued, after a fault if there was one.
    issue: f64,
    /// When the data may be asked for.
    start: f64,
    /// Length of the walk; 0 without one.
    walk: f64,
}

/// One core at work, in a virtual machine if `NESTED`.
struct Running<'a, P: Parts, H: Host, const NESTED: bool> {
    host: H,
    at: Seen<'a, P>,
    layout: &'a Layout,
    /// Those of the copies that it walks.
    salts: Salts,
    leaf_bits: &'a mut Option<LeafBits>,
    lazy: &'a mut Option<LazyFill>,
}

impl<P: Parts, H: Host, const NESTED: bool> Running<'_, P, H, NESTED> {
    /// Runs `th` alone until `end`.
    #[inline(always)]
    fn run(&mut self, th: &mut Thread, end: f64) {
        while th.pipe.done < end && !th.pipe.has_finished() {
            self.step(th);
        }
    }

    /// Makes the next access of `th`, which runs on this core.
    #[inline(always)]
    fn step(&mut self, th: &mut Thread) {
        if th.next == th.hinted {
            self.look_ahead(th);
        }
        // By field: a copy of the whole would also move its padding.
        let Access {
            va,
            write,
            dependent,
            locked,
            work,
        } = th.buffer[th.next];
        let a = Access {
            va,
            write,
            dependent,
            locked,
            work,
        };
        th.next += 1;
        let issue = th.pipe.issue(a);
        let size = match H::USUAL {
            true => PageSize::Size4K,
            false => self.layout.page_size(a.va),
        };
        let Translated {
            issue,
            mut start,
            walk,
        } = match size {
            // What is constant for the most frequent case folds away.
            PageSize::Size4K if !NESTED => self.translate(th, a.va, PageSize::Size4K, issue),
            _ => self.translate(th, a.va, size, issue),
        };
        if !H::USUAL && self.leaf_bits.is_some() {
            start += self.set_leaf_bits(a, size);
        }
        let data = self.data(a);
        let (dt_data, dt_walk, dt_base) = th.pipe.retire(issue, start, walk, data);
        let stats = &mut *self.at.stats;
        stats.accesses += 1;
        stats.data_stall += dt_data;
        stats.walk_stall += dt_walk;
        stats.base += dt_base;
    }

    /// Looks for the translation of `va`, whose guest page is of `size`, from
    /// `issue` on.
    #[inline(always)]
    fn translate(&mut self, th: &mut Thread, va: u64, size: PageSize, issue: f64) -> Translated {
        let held = match NESTED {
            true => tlb_size(self.layout, va, size),
            false => size,
        };
        let mut t = Translated {
            issue,
            start: issue,
            walk: 0.0,
        };
        let tlb = &mut self.at.core.tlb;
        let hit = match H::USUAL {
            true => tlb.lookup_or_fill(SPACE, va, held, self.host),
            false => tlb.lookup(SPACE, va, held, self.host),
        };
        match hit {
            Some(Level::First) => self.at.stats.tlb_l1 += 1,
            Some(Level::Second) => {
                self.at.stats.tlb_l2 += 1;
                t.start += self.at.costs.stlb;
            }
            None => {
                if let (false, Some(lazy)) = (H::USUAL, &mut *self.lazy) {
                    if lazy.touch(self.at.node, va >> size.shift()) {
                        self.at.stats.lazy_faults += 1;
                        let fault = self.at.costs.fault;
                        self.at.stats.base += th.pipe.interrupt(fault);
                        self.at.stats.kernel += fault;
                        t.issue = t.issue.max(th.pipe.done);
                    }
                }
                t.walk = self.walk(va, size);
                if !H::USUAL {
                    self.fill(va, size, held);
                }
                t.start = self.at.occupy_walker(t.issue, t.walk);
                self.at.stats.walks += 1;
                self.at.stats.walk_cycles += t.walk;
            }
        }
        t
    }

    /// Takes the translation of `va` into the TLB, which a walk has found: a guest
    /// page of `size`, held as one of size `held`.
    #[inline(always)]
    fn fill(&mut self, va: u64, size: PageSize, held: PageSize) {
        // Addresses that pages are known by, and the entry that a hypervisor
        // changes if there is one.
        let (pa, source) = match NESTED {
            true => {
                let gpa = self.layout.guest_physical(va);
                let level = self.layout.nested_size(gpa).level();
                (gpa, self.table_line(Dim::Nested, level, gpa))
            }
            false => (va, self.table_line(Dim::Guest, size.level(), va)),
        };
        self.at.core.tlb.fill(&Translation {
            asid: SPACE,
            addr: va,
            pa,
            size: held,
            run: 1,
            source: Line(source),
        });
    }

    /// Cycles of setting bits of the leaf entry, if any are clear: a locked
    /// store to the entry that the walk has just read.
    #[cold]
    fn set_leaf_bits(&mut self, a: Access, size: PageSize) -> f64 {
        let copy = self.layout.table_copy(Dim::Guest, self.at.node);
        let Some(bits) = self.leaf_bits else {
            return 0.0;
        };
        if !bits.touch(copy, a.va >> size.shift(), a.write) {
            return 0.0;
        }
        self.at.stats.bit_updates += 1;
        self.at.stats.walk_refs += 1;
        if self.at.multi_node {
            let line = self.table_line(Dim::Guest, size.level(), a.va);
            self.at.own(Key::new(line));
        }
        self.at.costs.ad_update + self.table(Dim::Guest, size.level(), a.va)
    }

    /// Tells the host what some of the accesses to come will look up, as far as
    /// the host's own caches are too small for it.
    #[inline(never)]
    fn look_ahead(&self, th: &mut Thread) {
        /// Accesses at a time, and how many come before them.
        const CHUNK: usize = 4;
        const AHEAD: usize = 4;
        if th.next + AHEAD + CHUNK > th.buffer.len() {
            th.refill();
        }
        th.hinted = th.next + CHUNK;
        for a in &th.buffer[th.next + AHEAD..][..CHUNK] {
            self.at.hint(a.va >> 6);
            self.at.hint(self.table_line(Dim::Guest, 1, a.va));
            self.at.hint(self.table_line(Dim::Guest, 2, a.va));
        }
    }

    #[inline(always)]
    fn data(&mut self, a: Access) -> f64 {
        let line = Key::new(a.va >> 6);
        match self.at.cached(line, a.write, false, self.host) {
            Cached::Held { cycles, shared } => {
                self.at.stats.data_l3 += u64::from(shared);
                cycles
            }
            Cached::No(missing) => {
                let home = self.layout.data_node(a.va);
                self.at.stats.data_mem[usize::from(home != self.at.node)] += 1;
                self.at.fetch(line, missing, a.write, home, self.host)
            }
        }
    }

    /// The cache line of a table entry. Lines of a table keep their order;
    /// levels, dimensions and copies are kept apart by what is added.
    #[inline(always)]
    fn table_line(&self, dim: Dim, level: u32, addr: u64) -> u64 {
        (addr >> (9 * level + 6)) ^ self.salts[dim as usize][level as usize & 7]
    }

    /// One reference to a table entry, which the caller counts.
    #[inline(always)]
    fn table(&mut self, dim: Dim, level: u32, addr: u64) -> f64 {
        let line = Key::new(self.table_line(dim, level, addr));
        let node = self.at.node;
        if level == 1 {
            // L3 may have nearly all of these, or half, or few.
            match self.at.cached_evenly(line, self.host) {
                Some(Asked::Private(cycles)) => return cycles,
                Some(Asked::Shared(found)) => {
                    let held = found == Found::Held;
                    let home = self.layout.table_home(dim, level, addr, node).node;
                    self.at.stats.walk_l3 += u64::from(held);
                    self.at.stats.walk_mem[dim as usize][usize::from(home != node)] +=
                        u64::from(!held);
                    return self.at.fetch_unless_held(found, home);
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
                let home = self.layout.table_home(dim, level, addr, node).node;
                self.at.stats.walk_mem[dim as usize][usize::from(home != node)] += 1;
                self.at.fetch(line, missing, false, home, self.host)
            }
        }
    }

    /// Cycles of a walk's step at `level`, whose table has a host-physical
    /// address already if `located`.
    #[inline(always)]
    fn descend(&mut self, level: u32, va: u64, located: &mut bool) -> f64 {
        if NESTED && !std::mem::replace(located, false) {
            let copy = self.layout.table_copy(Dim::Guest, self.at.node);
            let gpa = self.layout.guest_entry(level, va, copy);
            return self.nested_translate(gpa) + self.table(Dim::Guest, level, va);
        }
        self.table(Dim::Guest, level, va)
    }

    /// Cycles of a walk for `va`, whose guest page is of `size`.
    #[inline(always)]
    fn walk(&mut self, va: u64, size: PageSize) -> f64 {
        let (leaf, root) = (size.level(), self.at.costs.root);
        let cache = &mut self.at.core.walk_cache;
        let cached = match H::USUAL {
            true => cache.lookup_or_fill(SPACE, va, leaf, root, self.host),
            false => cache.lookup(SPACE, va, leaf, root, self.host),
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
                let source = Line(self.table_line(Dim::Guest, level, va));
                self.at.core.walk_cache.fill(SPACE, va, level, source);
            }
        }
        if NESTED {
            let gpa = self.layout.guest_physical(va);
            cycles += self.nested_translate(gpa);
        }
        cycles
    }

    fn nested_translate(&mut self, gpa: u64) -> f64 {
        let size = self.layout.nested_size(gpa);
        let held = self.at.core.nested_tlb.lookup(SPACE, gpa, size, self.host);
        if held.is_some() {
            return 0.0;
        }
        let (leaf, root) = (size.level(), self.at.costs.root);
        let top = self
            .at
            .core
            .nested_cache
            .lookup(SPACE, gpa, leaf, root, self.host)
            .map_or(root, |l| l - 1);
        // A nested walk is a walk of its own, with what that costs besides
        // its references.
        self.at.stats.walk_refs += u64::from(top + 1 - leaf);
        let mut cycles = self.at.costs.walk_overhead;
        let mut level = top;
        while level >= leaf {
            cycles += self.table(Dim::Nested, level, gpa);
            if level > leaf {
                let source = Line(self.table_line(Dim::Nested, level, gpa));
                let cache = &mut self.at.core.nested_cache;
                cache.fill(SPACE, gpa, level, source);
            }
            level -= 1;
        }
        let source = self.table_line(Dim::Nested, leaf, gpa);
        self.at.core.nested_tlb.fill(&Translation {
            asid: SPACE,
            addr: gpa,
            pa: gpa,
            size,
            run: 1,
            source: Line(source),
        });
        cycles
    }
}

#[cfg(test)]
#[path = "system_tests.rs"]
mod tests;
