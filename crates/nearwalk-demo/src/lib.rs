// SPDX-License-Identifier: GPL-2.0-or-later
//! The demo: a real memcached in a machine with several memory nodes goes from
//! "most leaf PTEs are remote" to "every walk is local", and back, while
//! clients use it.
//!
//! One program, two places: on the host [`run`] boots the machine and starts
//! this same program in it as the driver (`guest`), which tells what it sees
//! as `model` events. On the host these are narrated as they come, gathered
//! into one `Run`, judged (`verdict`) and reported (`report`).
//!
//! [`vm`] is the same for a virtual machine: memcached runs in a guest of the machine.

mod cli;
#[cfg(test)]
mod fixture;
mod guest;
mod model;
mod modelled;
mod narrate;
mod number;
mod report;
mod screen;
mod verdict;
pub mod vm;

pub use cli::{Args, run};
