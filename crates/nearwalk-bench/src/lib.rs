// SPDX-License-Identifier: GPL-2.0-or-later
//! Counts what virtual-memory operations cost per page: instructions, in lab
//! VMs whose clock counts them, on the stock kernel, on Nearwalk's with
//! replication off, and with it on over several numbers of nodes.
//!
//! [`plan`] says which machines there are and how much is measured, [`guest`]
//! boots one and reads what the program in it found, [`stores`] what QEMU's
//! plugin saw of it, [`table`] compares. [`moves`] counts what moving pages to
//! another node costs, by phase. [`vm`] counts what guests of KVM have, in guests of
//! the lab's machine. [`ranger`] counts how contiguous the memory of programs is on a
//! machine whose memory is fragmented, [`tier`] which node serves their accesses. [`tape`]
//! records what KVM does while a guest's pages move.

mod cli;
mod drive;
mod guest;
mod kvm;
mod moves;
mod plan;
mod ranger;
mod stores;
mod table;
mod tape;
mod tier;
pub mod vm;

pub use cli::{Args, run};
