// SPDX-License-Identifier: GPL-2.0-or-later
//! `nearwalk bench vm`: what the vMitosis paper shows of guests, as far as it can be
//! counted in the lab.
//!
//! One program in three places: on the host [`cli`] boots the machine and starts this
//! same program in it as the driver (`machine`), which starts guests ([`nested`]) with
//! this same program in them (`inside`). The driver tells what it counts as [`model`]
//! events; `table` and `picture` show them.

pub mod cli;
mod cost;
mod inside;
mod machine;
pub mod model;
pub mod nested;
mod picture;
mod plan;
mod table;
pub mod wire;

pub use inside::dump;
