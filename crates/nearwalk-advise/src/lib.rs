// SPDX-License-Identifier: GPL-2.0-or-later
//! Who may walk remote page tables: `nearwalk advise`.
//!
//! [`exposure`] bounds the share of walks that may be remote, [`cpu_time`] says
//! on which nodes the CPU time of groups and processes goes, [`survey`] reads
//! a host and ranks what it finds, [`print`] and [`json`] show it, and [`cli`]
//! holds the command. `docs/advise.md` says what the answer means.

pub mod cli;
pub mod cpu_time;
pub mod exposure;
pub mod json;
pub mod print;
pub mod survey;
