// SPDX-License-Identifier: GPL-2.0-or-later
//! The parts that servers have.

use super::Parts;
use super::cache::{L1L2, Sliced};
use super::hardware::Translations;
use super::memory::QueuedMemory;
use super::tlb::{PlainNestedTlb, TwoLevelTlb};
use super::walk_cache::SplitWalkCache;
use crate::machine::{Machine, MachineError};
use std::marker::PhantomData;

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

/// TLBs that a table of the machine file describes.
pub trait OwnTlb: Translations + Sized {
    /// The table is `[part.NAME]`.
    const NAME: &'static str;
    /// TLBs for one core of `m`.
    ///
    /// # Errors
    /// What is wrong with the table, or that it is missing.
    fn of(m: &Machine) -> Result<Self, MachineError>;
}

/// The standard parts, but for the TLBs.
#[derive(Debug, Clone, Copy)]
pub struct WithTlb<T>(PhantomData<T>);

impl<T: OwnTlb> Parts for WithTlb<T> {
    type Tlb = T;
    type WalkCache = SplitWalkCache;
    type NestedTlb = PlainNestedTlb;
    type Private = L1L2;
    type Shared = Sliced;
    type Memory = QueuedMemory;

    fn check(m: &Machine) -> Result<(), MachineError> {
        m.check_parts(&[T::NAME])?;
        T::of(m).map(|_| ())
    }
    fn tlb(m: &Machine) -> T {
        T::of(m).unwrap_or_else(|e| panic!("{e}"))
    }
    fn walk_cache(m: &Machine) -> SplitWalkCache {
        Standard::walk_cache(m)
    }
    fn nested_walk_cache(m: &Machine) -> SplitWalkCache {
        Standard::nested_walk_cache(m)
    }
    fn nested_tlb(m: &Machine) -> PlainNestedTlb {
        Standard::nested_tlb(m)
    }
    fn private(m: &Machine) -> L1L2 {
        Standard::private(m)
    }
    fn shared(m: &Machine) -> Sliced {
        Standard::shared(m)
    }
    fn memory(m: &Machine) -> QueuedMemory {
        Standard::memory(m)
    }
}
