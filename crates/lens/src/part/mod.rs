// SPDX-License-Identifier: GPL-2.0-or-later
//! The replaceable parts of the model, as traits.
//!
//! A [`crate::system::System`] is generic over [`Parts`], so a hardware
//! proposal (a coalescing TLB, a directory that knows tables) is another `impl` of
//! one trait and costs the others nothing at run time. The contract of each
//! part stands at its trait and says what hardware does; the modules below
//! implement what servers have, and [`standard`] puts it together. How the
//! host does any of it quickly is in [`quick`], and nobody else's business.

pub mod cache;
mod hardware;
pub mod memory;
pub mod quick;
mod shortcuts;
pub mod standard;
pub mod tlb;
pub mod walk_cache;

pub use hardware::{
    Level, Memory, PrivateCache, PrivateHit, SharedCache, Stale, Translation, Translations,
    WalkCache,
};

use crate::machine::{Machine, MachineError};
use quick::{QuickMemory, QuickPrivate, QuickShared, QuickTranslations, QuickWalkCache};

/// One choice of every part.
///
/// What the `Quick` traits ask beyond the hardware's is all optional: a part
/// that the model does not come with names them and implements nothing.
pub trait Parts {
    /// TLBs.
    type Tlb: QuickTranslations;
    /// Page-walk caches.
    type WalkCache: QuickWalkCache;
    /// Nested TLB.
    type NestedTlb: QuickTranslations;
    /// Private caches.
    type Private: QuickPrivate;
    /// Shared cache.
    type Shared: QuickShared;
    /// Memory.
    type Memory: QuickMemory;
    /// Whether these parts can be what `m` says. A set with tables of its own
    /// (`[part.NAME]`) reads them here; others refuse all such tables.
    ///
    /// # Errors
    /// What a part says of its table, or that nobody reads one.
    fn check(m: &Machine) -> Result<(), MachineError> {
        m.check_parts(&[])
    }
    /// TLBs for one core of `m`.
    fn tlb(m: &Machine) -> Self::Tlb;
    /// Native (guest) walk caches for one core of `m`.
    fn walk_cache(m: &Machine) -> Self::WalkCache;
    /// Nested walk caches for one core of `m`.
    fn nested_walk_cache(m: &Machine) -> Self::WalkCache;
    /// Nested TLB for one core of `m`.
    fn nested_tlb(m: &Machine) -> Self::NestedTlb;
    /// Private caches for one core of `m`.
    fn private(m: &Machine) -> Self::Private;
    /// Shared cache for one node of `m`.
    fn shared(m: &Machine) -> Self::Shared;
    /// Memory of `m`.
    fn memory(m: &Machine) -> Self::Memory;
}
