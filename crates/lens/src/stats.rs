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
    /// Of these, in nested walks.
    pub nested_walk_cycles: f64,
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
    /// Of `walk_cycles`, those spent on lines of other nodes. Counted for
    /// supplied walks only ([`crate::live`]).
    pub walk_remote_cycles: f64,
    /// Latency of data that other nodes supplied, overlapped or not. Counted
    /// for supplied accesses only.
    pub data_remote_cycles: f64,
}

impl std::ops::AddAssign<&Stats> for Stats {
    fn add_assign(&mut self, o: &Stats) {
        self.accesses += o.accesses;
        self.cycles += o.cycles;
        self.data_stall += o.data_stall;
        self.walk_stall += o.walk_stall;
        self.kernel += o.kernel;
        self.base += o.base;
        self.tlb_l1 += o.tlb_l1;
        self.tlb_l2 += o.tlb_l2;
        self.walks += o.walks;
        self.walk_cycles += o.walk_cycles;
        self.nested_walk_cycles += o.nested_walk_cycles;
        self.walk_refs += o.walk_refs;
        self.walk_l3 += o.walk_l3;
        for d in 0..2 {
            for r in 0..2 {
                self.walk_mem[d][r] += o.walk_mem[d][r];
            }
            self.data_mem[d] += o.data_mem[d];
        }
        self.data_l3 += o.data_l3;
        self.bit_updates += o.bit_updates;
        self.lazy_faults += o.lazy_faults;
        self.ipis += o.ipis;
        self.forwards += o.forwards;
        self.walk_remote_cycles += o.walk_remote_cycles;
        self.data_remote_cycles += o.data_remote_cycles;
    }
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
    /// The part of that which is of nested walks.
    pub fn nested_share(&self) -> f64 {
        if self.cycles > 0.0 {
            self.nested_walk_cycles / self.cycles
        } else {
            0.0
        }
    }
    /// Mean cycles of a walk.
    pub fn cycles_per_walk(&self) -> f64 {
        self.walk_cycles / self.walks.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_two_stretches_add_up() {
        let one = Stats {
            accesses: 10,
            cycles: 400.0,
            data_stall: 100.0,
            walk_stall: 200.0,
            kernel: 40.0,
            base: 60.0,
            tlb_l1: 30,
            tlb_l2: 20,
            walks: 5,
            walk_cycles: 300.0,
            nested_walk_cycles: 100.0,
            walk_refs: 12,
            walk_l3: 4,
            walk_mem: [[5, 6], [7, 8]],
            data_l3: 6,
            data_mem: [7, 8],
            bit_updates: 9,
            lazy_faults: 10,
            ipis: 11,
            forwards: 12,
            walk_remote_cycles: 13.0,
            data_remote_cycles: 14.0,
        };
        let mut two = one.clone();
        two += &one;
        let doubled = format!("{one:?}");
        let doubled = doubled.split(|c: char| !c.is_ascii_digit() && c != '.');
        let sums = format!("{two:?}");
        let sums = sums.split(|c: char| !c.is_ascii_digit() && c != '.');
        for (a, b) in doubled.zip(sums) {
            if let (Ok(a), Ok(b)) = (a.parse::<f64>(), b.parse::<f64>()) {
                // Names have digits, too, up to 3: those are what they were.
                assert!(b == 2.0 * a || a == b && a <= 3.0, "{a} {b}");
            }
        }
        assert_eq!((one.cycles_per_access(), one.walk_share()), (40.0, 0.75));
        assert_eq!((one.cycles_per_walk(), one.nested_share()), (60.0, 0.25));
        let none = Stats::default();
        assert_eq!((none.walk_share(), none.nested_share()), (0.0, 0.0));
    }
}
