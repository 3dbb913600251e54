// SPDX-License-Identifier: GPL-2.0-or-later
//! What happened during a run.

/// Counters of one stretch of a run, over all threads.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Stats {
    /// Accesses made.
    pub accesses: u64,
    /// Cycles of all threads together: `data_stall + walk_stall + base +
    /// kernel`.
    pub cycles: f64,
    /// Cycles in which retirement waited for data.
    pub data_stall: f64,
    /// Cycles in which it waited for a walk or for a walker.
    pub walk_stall: f64,
    /// Cycles of faults and interrupts.
    pub kernel: f64,
    /// The rest: computation.
    pub base: f64,
    /// Hits of the first-level TLB.
    pub tlb_l1: u64,
    /// Hits of the second-level TLB.
    pub tlb_l2: u64,
    /// Walks.
    pub walks: u64,
    /// Cycles in which a walker was active, as performance counters have it;
    /// walks that overlap with other work count in full.
    pub walk_cycles: f64,
    /// References that walks made.
    pub walk_refs: u64,
    /// Of these, hits in L3.
    pub walk_l3: u64,
    /// Of these, misses of all caches: by dimension (native or guest,
    /// nested), local and remote.
    pub walk_mem: [[u64; 2]; 2],
    /// Data accesses that hit L3.
    pub data_l3: u64,
    /// Data accesses that missed all caches, local and remote.
    pub data_mem: [u64; 2],
    /// Accessed or dirty bits that walks had to set.
    pub bit_updates: u64,
    /// Faults that filled lazily replicated tables.
    pub lazy_faults: u64,
    /// Inter-processor interrupts sent.
    pub ipis: u64,
    /// Lines supplied by another node's L3.
    pub forwards: u64,
}

impl Stats {
    /// Mean cycles of an access.
    pub fn cycles_per_access(&self) -> f64 {
        self.cycles / self.accesses.max(1) as f64
    }
    /// Walker-active cycles over all cycles; above 1 with several walkers.
    pub fn walk_share(&self) -> f64 {
        if self.cycles > 0.0 {
            self.walk_cycles / self.cycles
        } else {
            0.0
        }
    }
    /// Mean cycles of a walk.
    pub fn cycles_per_walk(&self) -> f64 {
        self.walk_cycles / self.walks.max(1) as f64
    }
}
