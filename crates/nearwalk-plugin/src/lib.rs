// SPDX-License-Identifier: GPL-2.0-or-later
//! A plugin for QEMU's emulator that watches the guest's memory accesses.
//!
//! `count` counts stores to other nodes' memory between marks of the guest's
//! program; `phases` counts instructions by the kernel's functions; `lens` feeds the
//! accesses of chosen processes to the timing model.
//! What the guest says to the plugin, and how, is in [`decode`].
//!
//! Reading order: [`options`], [`layout`] (which node an address and a CPU are
//! on), [`decode`], [`count`], [`phases`], [`ram`] (the guest's memory and page tables),
//! [`mod@lens`], and `qemu` (the only part that knows QEMU).

mod count;
mod decode;
mod layout;
mod lens;
mod options;
mod phases;
mod ram;

// Tests are programs of their own, without QEMU's half of these functions.
#[cfg(not(test))]
mod qemu;
