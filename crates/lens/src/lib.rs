// SPDX-License-Identifier: GPL-2.0-or-later
//! A timing model of NUMA machines: TLBs, page walks, caches, memory.
//!
//! The lens answers what placement of page tables costs on hardware that is
//! not here. It has no I/O of its own: callers hand it machine descriptions
//! as text and accesses as values.
//!
//! Reading order: [`units`], [`machine`] (what a description says), [`parts`]
//! (the traits), [`layout`] (where pages and tables are), [`system`] (how an
//! access is walked and fetched), `core` (what overlaps).
//!
//! Programs that bring accesses and page tables of their own (an emulator's
//! plugin, say) feed them to [`live::Live`].

pub mod assoc;
pub mod champsim;
pub mod config;
mod core;
pub mod experiment;
mod fabric;
pub mod fit;
pub mod host;
pub mod kernelside;
pub mod layout;
pub mod live;
pub mod machine;
pub mod memory;
#[cfg(test)]
mod net;
pub mod overhead;
pub mod parts;
pub mod reference;
pub mod stats;
pub mod system;
pub mod trace;
pub mod units;
pub mod validate;
pub mod workload;
