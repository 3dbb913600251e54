// SPDX-License-Identifier: GPL-2.0-or-later
//! A timing model of NUMA machines: TLBs, page walks, caches, memory.
//!
//! The lens answers what placement of page tables costs on hardware that is
//! not here. It has no I/O of its own: callers hand it machine descriptions
//! as text and accesses as values.
//!
//! Reading order: [`units`], [`address`], [`access`], [`machine`] (what a
//! description says), [`part`] (the traits), [`layout`] (where pages and tables
//! are), [`pipe`] (what overlaps), `tables` and `cpu` (how an access is walked
//! and fetched), [`system`] (threads of generated accesses).
//!
//! Programs that bring accesses and page tables of their own (an emulator's
//! plugin, say) feed them to [`live::Live`].

#![deny(unsafe_code)]

pub mod access;
pub mod address;
pub mod champsim;
mod cpu;
mod fabric;
pub mod hash;
pub mod kernelside;
pub mod layout;
pub mod live;
pub mod machine;
#[cfg(test)]
mod order;
pub mod part;
pub mod pipe;
#[allow(unsafe_code, reason = "vector instructions; nothing else is")]
pub mod simd;
pub mod stats;
pub mod system;
mod tables;
pub mod tags;
pub mod trace;
pub mod units;

pub use fabric::Walkers;

/// Version of the model: another whenever its numbers are.
pub const MODEL: &str = "lens-3";
