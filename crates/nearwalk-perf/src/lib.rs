// SPDX-License-Identifier: GPL-2.0-or-later
//! Counts walks of page tables, and the cycles that they take, by the CPU's
//! own counters.
//!
//! [`Cpu`] says which model this is, [`Model`] which of its events count walks
//! (`events.toml`, generated from the kernel's own lists), [`Perf`] counts them
//! for a process or a control group, and [`Reading`] is what came of it: text
//! that can be kept, and read without a CPU. Whatever is lacking is a
//! [`Missing`], which says in one line what and how it could be had.

mod count;
mod cpu;
mod events;
mod missing;
mod reading;

pub use count::{Perf, Target};
pub use cpu::{Cpu, prepare};
pub use events::{Event, KERNEL, Model, Role};
pub use missing::Missing;
pub use reading::{Count, Reading};
