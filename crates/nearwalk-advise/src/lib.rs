// SPDX-License-Identifier: GPL-2.0-or-later
//! Who may walk remote page tables: `nearwalk advise`.
//!
//! Of a whole host: [`exposure`] bounds the share of walks that may be remote, [`cpu_time`] says
//! on which nodes the CPU time of groups and processes goes, with [`counting`] what the kernel
//! counts of it, [`survey`] reads a host and ranks what it finds, [`report`] is what it says,
//! [`print`] and [`json`] show it. Of one process
//! or group: [`subject`] finds out all that is known, [`gain`] what local tables
//! would save, [`advice`] what to do about it; [`shown`] shows that, and
//! [`evidence`] keeps what instruments said. [`cli`] holds the command.
//! `docs/advise.md` says what the answers mean.

pub mod advice;
pub mod cli;
pub mod counting;
pub mod cpu_time;
pub mod evidence;
pub mod exposure;
pub mod gain;
pub mod json;
pub mod print;
pub mod report;
pub mod shown;
pub mod subject;
pub mod survey;
