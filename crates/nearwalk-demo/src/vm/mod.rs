// SPDX-License-Identifier: GPL-2.0-or-later
//! `nearwalk demo-vm`: memcached in a guest of the machine, whose walks go through two
//! tables, goes from "one walk in sixteen is local in both halves" to "all are", and
//! back, while clients use it.
//!
//! One program in three places: on the host `cli` boots the machine, in which `driver`
//! starts a guest and changes its nested tables; in the guest, `inside` runs the server
//! and its clients.

mod cli;
mod driver;
mod inside;
mod model;
mod page;
mod story;

pub use cli::{Args, run};
