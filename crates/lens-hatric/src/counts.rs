// SPDX-License-Identifier: GPL-2.0-or-later
//! What happened in a timed window.

use serde::{Deserialize, Serialize};

/// What a CPU was stopped for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// A fault: its exit and what the hypervisor does, but for what follows.
    Fault,
    /// Finding a victim, or a step of a daemon that has no CPU of its own.
    Evict,
    /// Waiting for copies.
    Copy,
    /// Telling others that translations are stale.
    Initiate,
    /// Being told.
    Target,
}

/// Counters of all CPUs together.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Counts {
    /// Accesses made.
    pub accesses: u64,
    /// Cycles in which retirement waited for data.
    pub data_cycles: f64,
    /// Cycles in which it waited for walks.
    pub walk_cycles: f64,
    /// Computation.
    pub base_cycles: f64,
    /// Cycles of faults without what has a line of its own.
    pub fault_cycles: f64,
    /// Cycles of finding victims.
    pub evict_cycles: f64,
    /// Cycles of waiting for copies.
    pub copy_cycles: f64,
    /// Cycles of telling others.
    pub initiate_cycles: f64,
    /// Cycles of being told.
    pub target_cycles: f64,
    /// Second-level TLB hits.
    pub tlb_l2_hits: u64,
    /// Walks.
    pub walks: u64,
    /// References that they made.
    pub walk_refs: u64,
    /// Of these, from memory.
    pub walk_memory: u64,
    /// Nested translations that the nested TLB did not have.
    pub nested_walks: u64,
    /// Look-ups of caches of the guest's tables.
    pub mmu_lookups: u64,
    /// Look-ups of the nested TLB.
    pub nested_lookups: u64,
    /// References that the first private cache did not have.
    pub l2_refs: u64,
    /// References that no private cache had.
    pub l3_refs: u64,
    /// Lines read from or written to stacked memory.
    pub stacked_lines: u64,
    /// The same off-chip.
    pub off_chip_lines: u64,
    /// Reads and updates of directory entries.
    pub directory_refs: u64,
    /// Of these, of lines of tables that a scheme tracks.
    pub directory_table_refs: u64,
    /// Data lines from memory.
    pub data_memory: u64,
    /// Data lines from the shared cache or another CPU's.
    pub data_llc: u64,
    /// Faults.
    pub faults: u64,
    /// Pages brought in because they were asked for.
    pub in_demanded: u64,
    /// Pages brought in beside these.
    pub in_prefetched: u64,
    /// Pages sent out while somebody waited.
    pub out_awaited: u64,
    /// Pages that the daemon sent out.
    pub out_ahead: u64,
    /// Pages moved within stacked memory.
    pub moved: u64,
    /// Of all these changes, those of pages of guest tables.
    pub table_pages: u64,
    /// Stores to entries that these changes made, one to each copy of a table.
    #[serde(default)]
    pub entry_stores: u64,
    /// Interrupts sent.
    pub ipis: u64,
    /// VM exits of CPUs that were told.
    pub exits: u64,
    /// Flushes of all of a CPU's translation structures.
    pub flushes: u64,
    /// Broadcast invalidations.
    pub broadcasts: u64,
    /// Entries that flushes dropped.
    pub flushed_entries: u64,
    /// Messages to a CPU whose structures might hold something of a line.
    pub messages: u64,
    /// Of these, to CPUs that held nothing of it.
    pub spurious: u64,
    /// Entries dropped that were stale.
    pub dropped_stale: u64,
    /// Entries dropped because they share a line with a stale one.
    pub dropped_line: u64,
    /// Entries dropped because their co-tags look the same.
    pub dropped_alias: u64,
    /// Co-tags compared.
    pub cotags: u64,
    /// Bits of them.
    pub cotag_bits: u64,
    /// Bits of addresses that reverse look-ups of whole TLBs compared (UNITD).
    pub cam_bits: u64,
    /// Directory entries that had to make room.
    pub directory_evictions: u64,
    /// Translations dropped because of that.
    pub back_invalidated: u64,
    /// Accesses or walks that used a translation which no nested entry has any
    /// more: 0, unless a scheme is broken.
    pub stale_uses: u64,
}

impl Counts {
    /// Adds time in which a CPU was stopped.
    pub fn stop(&mut self, why: Why, cycles: f64) {
        *match why {
            Why::Fault => &mut self.fault_cycles,
            Why::Evict => &mut self.evict_cycles,
            Why::Copy => &mut self.copy_cycles,
            Why::Initiate => &mut self.initiate_cycles,
            Why::Target => &mut self.target_cycles,
        } += cycles;
    }

    /// Adds `lines` of memory, which is off-chip or stacked.
    pub fn lines(&mut self, off_chip: bool, lines: u64) {
        *match off_chip {
            true => &mut self.off_chip_lines,
            false => &mut self.stacked_lines,
        } += lines;
    }

    /// Cycles of all CPUs together.
    pub fn cycles(&self) -> f64 {
        let stopped = self.fault_cycles + self.evict_cycles + self.copy_cycles;
        self.data_cycles + self.walk_cycles + self.base_cycles + stopped + self.coherence_cycles()
    }

    /// Those in which CPUs were stopped for translation coherence; refills of what
    /// was flushed count as walks.
    pub fn coherence_cycles(&self) -> f64 {
        self.initiate_cycles + self.target_cycles
    }

    /// Changes of nested entries.
    pub fn remaps(&self) -> u64 {
        self.in_demanded + self.in_prefetched + self.out_awaited + self.out_ahead + self.moved
    }
}
