// SPDX-License-Identifier: GPL-2.0-or-later
//! The demo: a real memcached in a machine with several memory nodes goes from
//! "most leaf PTEs are remote" to "every walk is local", and back, while
//! clients use it.
//!
//! [`drive`] runs in that machine and tells what it sees as `model` events.

mod guest;
mod model;

pub use guest::{Plan, drive};
