// SPDX-License-Identifier: GPL-2.0-or-later
//! `nearwalk move`: moves the memory of a process to another node, and tells what
//! became of it page by page.
//!
//! Reading order: [`outcome`] (what can become of a page), [`memory`] (the process
//! as the kernel shows it, behind a trait), [`mover`] (what is asked of the kernel,
//! and again, until each page's fate is known), [`report`], and [`cli`].
//!
//! `nearwalk exchange`: pages of a process change places. [`pairs`] (who with whom,
//! and what became of them), [`device`] (who does it), [`verify`], and [`exchange`].
//!
//! `nearwalk ranger`: pages of a process are brought together. [`regions`] (how its
//! memory lies), and [`ranger`].
//!
//! [`tier`]: `nearwalk tier` has hot and cold pages of a group on two nodes.

pub mod cli;
mod device;
mod error;
pub mod exchange;
mod memory;
mod mover;
mod outcome;
mod pairs;
pub mod ranger;
mod regions;
mod report;
pub mod tier;
mod verify;

pub use error::Error;
pub use outcome::{Outcome, Outcomes};
