// SPDX-License-Identifier: GPL-2.0-or-later
//! `nearwalk bench tier`: which node serves the accesses of programs whose memory is on
//! a fast node and a slow one, with each policy of Figure 3.12 of Yan's thesis.
//!
//! On the host [`cli`] boots a machine for each policy of [`plan`] and starts this same
//! program in it as the [`driver`], which has programs do step after step and a round of
//! `memory.tier` in between, and tells what it counts as [`model`] events; [`table`]
//! shows them.

pub mod cli;
mod driver;
mod model;
mod plan;
mod table;
