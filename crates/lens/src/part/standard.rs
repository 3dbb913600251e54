// SPDX-License-Identifier: GPL-2.0-or-later
//! The parts that servers have.

use super::Parts;
use super::cache::{L1L2, Sliced};
use super::memory::QueuedMemory;
use super::tlb::{PlainNestedTlb, TwoLevelTlb};
use super::walk_cache::SplitWalkCache;
use crate::machine::Machine;

/// What TLBs, caches and memory of today's servers are like.
#[derive(Debug, Clone, Copy)]
pub struct Standard;

impl Parts for Standard {
    type Tlb = TwoLevelTlb;
    type WalkCache = SplitWalkCache;
    type NestedTlb = PlainNestedTlb;
    type Private = L1L2;
    type Shared = Sliced;
    type Memory = QueuedMemory;

    fn tlb(m: &Machine) -> TwoLevelTlb {
        TwoLevelTlb::new(m)
    }
    fn walk_cache(m: &Machine) -> SplitWalkCache {
        let w = &m.walker;
        SplitWalkCache::new([w.level2, w.level3, w.level4, w.level5])
    }
    fn nested_walk_cache(m: &Machine) -> SplitWalkCache {
        let w = &m.walker;
        let top = w.nested_level4;
        SplitWalkCache::new([w.nested_level2, w.nested_level3, top, top])
    }
    fn nested_tlb(m: &Machine) -> PlainNestedTlb {
        PlainNestedTlb::new(m.walker.nested_tlb)
    }
    fn private(m: &Machine) -> L1L2 {
        L1L2::new(m)
    }
    fn shared(m: &Machine) -> Sliced {
        Sliced::new(m)
    }
    fn memory(m: &Machine) -> QueuedMemory {
        QueuedMemory::new(m)
    }
}
