// SPDX-License-Identifier: GPL-2.0-or-later
//! `nearwalk bench ranger`: how contiguous the memory of programs is on a machine whose
//! memory is fragmented, without Translation Ranger and with it: Figures 4.8 and 4.9 of
//! Yan's thesis, as far as they can be counted in the lab.
//!
//! One program in two places: on the host [`cli`] boots a machine for each setting of
//! [`plan`] and starts this same program in it as the [`driver`], which fragments memory,
//! has programs do step after step, and tells what it counts as [`model`] events.
//! [`memory`] is how it looks at theirs; [`table`] shows what was told.

pub mod cli;
mod driver;
mod memory;
mod model;
mod plan;
mod table;
