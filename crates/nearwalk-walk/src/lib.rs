// SPDX-License-Identifier: GPL-2.0-or-later
//! Reads the page tables of a running process on an unmodified Linux.
//!
//! A BPF program answers one kind of question, "which table of level L
//! translates address A" ([`Tables`]); what to ask, and in which order, is
//! decided here ([`Walk`]), over any [`Tables`], so that it is tested without
//! a kernel. [`Kernel`] is the running one. [`Groups`] says on which CPUs control
//! groups have run.

#[cfg(feature = "bpf")]
mod bpf;
pub mod entry;
mod frames;
#[cfg(feature = "bpf")]
mod groups;
mod map;
mod refusal;
mod tables;
#[cfg(test)]
mod testing;
mod walk;

#[cfg(feature = "bpf")]
pub use bpf::{HugeZero, Kernel, Process};
pub use frames::Frames;
#[cfg(feature = "bpf")]
pub use groups::Groups;
pub use map::{Map, find_map, levels_of};
pub use refusal::{Refusal, refusal};
pub use tables::{ASKS, Ask, ENTRIES, State, Table, Tables, Vma};
pub use walk::{Found, Walk};
