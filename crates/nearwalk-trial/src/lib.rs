// SPDX-License-Identifier: GPL-2.0-or-later
//! Whether copies of page tables help a running program: `nearwalk trial`.
//!
//! [`run`] switches them on and off in pairs of random order and has a metric
//! measured, by [`command`] or [`builtin`]; [`switch`] is what sets and checks.
//! [`stats`] and [`report`] say what the pairs tell, [`print`] shows it.
//! [`guard`] is the process that brings back what was found. [`cli`] holds the
//! command; `docs/trial.md` says what its answers mean.

pub mod builtin;
pub mod cli;
pub mod command;
pub mod guard;
pub mod print;
pub mod report;
pub mod run;
pub mod stats;
pub mod switch;
