// SPDX-License-Identifier: GPL-2.0-or-later
//! Reads, analyses and prints the page tables of a process.
//!
//! From the inside out: [`stream`] turns the bytes that the kernel module
//! writes into records, [`analysis`] counts and compares, [`print`] shows;
//! [`live`] gets the bytes of a running process, and [`cli`] holds the
//! commands `nearwalk dump`, `nearwalk locality` and `nearwalk contiguity`.

pub mod analysis;
pub mod cli;
pub mod format;
pub mod live;
pub mod print;
pub mod stream;
