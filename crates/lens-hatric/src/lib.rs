// SPDX-License-Identifier: GPL-2.0-or-later
//! Translation coherence when a hypervisor pages between stacked memory and memory
//! off-chip: HATRIC and what it is compared with, after chapter 2 of Zi Yan's thesis
//! (Rutgers, 2019). "The thesis" means that chapter everywhere in this crate.
//!
//! Reading order: [`machine`], [`guest`] (where things are), [`program`], [`pager`]
//! (who is in stacked memory), [`cotag`], [`directory`], [`cores`] (an access and its
//! walk), [`scheme`], [`sim`] (a run), [`tape`] (remaps that were recorded),
//! [`energy`].
//!
//! It takes TLB and cache shapes, memory with its queues, the shared cache, page
//! walkers and the core's pipe from [`lens`]. Translation structures and the second
//! private cache are its own: they need whole keys, which the lens hashes.

pub mod assoc;
pub mod cores;
pub mod cotag;
pub mod counts;
pub mod directory;
pub mod energy;
pub mod guest;
pub mod machine;
pub mod pager;
pub mod program;
pub mod scheme;
pub mod sim;
pub mod tape;
