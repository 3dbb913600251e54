// SPDX-License-Identifier: GPL-2.0-or-later
//! The commands: arguments in, text out.

mod clock;
pub mod contiguity;
pub mod dump;
mod ended;
mod files;
pub mod locality;
mod numbers;
mod output;
mod snapshots;
#[cfg(test)]
mod testing;
