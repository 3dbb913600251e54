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
use crate::address::Dim;
use crate::cpu::{Cpu, interrupt};
use crate::fabric::Fabric;
use crate::kernelside::{LazyFill, LeafBits};
use crate::layout::Layout;
use crate::machine::Machine;
use crate::part::{Memory, Parts};
use crate::pipe::{Pace, Pipe};
use crate::simd::{self, Host, Loop};
use crate::stats::Stats;
use crate::tables::{Computed, SPACE, Salts, Tables, salts};

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
    /// Since the last run ended, [`System::shootdown`] included.
    stats: Stats,
}

impl<P: Parts> System<P> {
    /// A machine with nothing cached and thread `i` of `sources` on CPU
    /// `cpus[i]` (numbered node by node, core by core, hyper-thread last).
    ///
    /// # Panics
    /// If a CPU does not exist, is named twice, or the lists differ in length, and
    /// if [`Parts::check`] refuses `m`.
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
        let nodes = m.node_of_cores();
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
            threads.push(Thread::new(Pipe::new(slot, nodes[core], pace), source));
        }
        // Two threads of a core halve its reorder buffer between them.
        for (a, b) in by_core.iter().filter_map(|&(a, b)| Some((a, b?))) {
            threads[a].pipe.halve_window();
            threads[b].pipe.halve_window();
        }
        let nodes: std::collections::BTreeSet<_> = threads.iter().map(|t| t.pipe.node).collect();
        System {
            fabric: Fabric::new(m, core_ids.len(), nodes.len() > 1),
            layout,
            threads,
            by_core,
            // Long enough that the host's caches serve one simulated core
            // for a while, short against the time in which load changes.
            quantum: if nodes.len() > 1 { 100_000.0 } else { 20_000.0 },
            clock: 0.0,
            salts: salts(),
            leaf_bits: None,
            lazy: None,
            equal_shares: false,
            stats: Stats::default(),
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
    /// waiting for them. What that costs is part of the next run's counters.
    ///
    /// # Panics
    /// If a thread does not exist.
    pub fn shootdown(&mut self, from: usize, targets: &[usize], va: u64) {
        let (core, node) = (self.threads[from].pipe.core, self.threads[from].pipe.node);
        let (mut sent, mut far) = (0u32, false);
        self.fabric.cores[core].drop_page(SPACE, va);
        for &t in targets.iter().filter(|&&t| t != from) {
            let (target_core, target_node) = (self.threads[t].pipe.core, self.threads[t].pipe.node);
            self.fabric.cores[target_core].drop_page(SPACE, va);
            self.interrupt(t, self.fabric.costs.ipi_handler);
            far |= target_node != node;
            sent += 1;
        }
        if sent > 0 {
            let wait = self.fabric.costs.ipi[usize::from(far)]
                + self.fabric.costs.ipi_each * f64::from(sent - 1);
            self.interrupt(from, wait);
            self.stats.ipis += u64::from(sent);
        }
    }

    fn interrupt(&mut self, thread: usize, cycles: f64) {
        let drained = interrupt(&mut self.threads[thread].pipe, &mut self.stats, cycles);
        self.stats.cycles += drained + cycles;
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
    /// what happened meanwhile and since the run before.
    pub fn run(&mut self, accesses: u64) -> Stats {
        let accesses = if self.equal_shares {
            self.allot(accesses)
        } else {
            accesses
        };
        let before: f64 = self.threads.iter().map(|t| t.pipe.done).sum();
        while self.stats.accesses < accesses {
            let end = self.clock + self.quantum;
            simd::on_this_host(Quantum { system: self, end });
            self.fabric.memory.end_quantum(self.quantum);
            self.clock = end;
        }
        let mut stats = std::mem::take(&mut self.stats);
        stats.cycles += self.threads.iter().map(|t| t.pipe.done).sum::<f64>() - before;
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
        let (mut cpu, threads) = self.cpu::<_, false>(host, core, node);
        run(&mut cpu, &mut threads[a], end);
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
        let (mut cpu, threads) = self.cpu::<_, NESTED>(host, core, node);
        match b {
            None => run(&mut cpu, &mut threads[a], end),
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
                        return run(&mut cpu, other, end);
                    }
                    step(&mut cpu, behind);
                }
            }
        }
    }

    #[inline(always)]
    fn cpu<H: Host, const NESTED: bool>(
        &mut self,
        host: H,
        core: usize,
        node: usize,
    ) -> (Cpu<'_, P, H, Computed<'_, NESTED>>, &mut [Thread]) {
        let at = self.fabric.seen_from(core, node, &mut self.stats);
        let tables = Computed::new(
            &self.layout,
            node,
            at.costs.root,
            &self.salts,
            &mut self.leaf_bits,
            &mut self.lazy,
        );
        (Cpu { host, at, tables }, &mut self.threads)
    }
}

/// All cores of a system until `end`.
struct Quantum<'a, P: Parts> {
    system: &'a mut System<P>,
    end: f64,
}

impl<P: Parts> Loop for Quantum<'_, P> {
    /// In line, as everything on the way to the tag arrays is, so that it is
    /// compiled for the instructions of its caller.
    #[inline(always)]
    fn run<H: Host>(self, host: H) {
        let Quantum { system, end } = self;
        for c in 0..system.by_core.len() {
            if H::HAS_USUAL && system.is_usual(c) {
                system.run_usual_core(c, end, host.usual());
            } else {
                system.run_core(c, end, host);
            }
        }
    }
}

/// Runs `th` alone until `end`.
#[inline(always)]
fn run<P: Parts, T: Tables>(cpu: &mut Cpu<'_, P, impl Host, T>, th: &mut Thread, end: f64) {
    while th.pipe.done < end && !th.pipe.has_finished() {
        step(cpu, th);
    }
}

/// Makes the next access of `th`.
#[inline(always)]
fn step<P: Parts, T: Tables>(cpu: &mut Cpu<'_, P, impl Host, T>, th: &mut Thread) {
    if th.next == th.hinted {
        look_ahead(cpu, th);
    }
    // By field: a copy of the whole would also move its padding.
    let Access {
        va,
        write,
        dependent,
        locked,
        work,
    } = th.buffer[th.next];
    th.next += 1;
    cpu.access(
        &mut th.pipe,
        Access {
            va,
            write,
            dependent,
            locked,
            work,
        },
    );
}

/// Tells the host what some of the accesses to come will look up, as far as
/// the host's own caches are too small for it.
#[inline(never)]
fn look_ahead<P: Parts, T: Tables>(cpu: &Cpu<'_, P, impl Host, T>, th: &mut Thread) {
    /// Accesses at a time, and how many come before them.
    const CHUNK: usize = 4;
    const AHEAD: usize = 4;
    if th.next + AHEAD + CHUNK > th.buffer.len() {
        th.refill();
    }
    th.hinted = th.next + CHUNK;
    for a in &th.buffer[th.next + AHEAD..][..CHUNK] {
        let Cpu { at, tables, .. } = cpu;
        at.hint(tables.data(a.va));
        at.hint(tables.entry(Dim::Guest, 1, a.va));
        at.hint(tables.entry(Dim::Guest, 2, a.va));
        let nested = [tables.guest_physical(a.va), tables.guest_entry(1, a.va)];
        for gpa in nested.into_iter().flatten() {
            let (size, _) = tables.nested_page(gpa);
            at.hint(tables.entry(Dim::Nested, size.level(), gpa));
        }
        if at.multi_node {
            at.hint_at(tables.data(a.va), tables.data_node(a.va));
            let node = tables.entry_node(Dim::Guest, 1, a.va);
            at.hint_at(tables.entry(Dim::Guest, 1, a.va), node);
        }
    }
}

#[cfg(test)]
#[path = "system_tests.rs"]
mod tests;
