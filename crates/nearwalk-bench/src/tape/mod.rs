// SPDX-License-Identifier: GPL-2.0-or-later
//! `nearwalk bench tape`: records tapes for `nearwalk lens hatric` from the machine's KVM
//! while a pager moves a guest's pages between a fast node and a slow one, and counts
//! what a move brings about (Figure 2.3 of Yan's thesis).
//!
//! On the host [`cli`] boots a machine for each number of vCPUs and starts this same
//! program in it as the [`driver`]. That runs a [`guest`] without a kernel, moves what
//! the [`pager`] chooses, and has the kernel [`trace`] it; [`count`] finds in the trace
//! what each move brought about. What comes of it is told as [`model`] events, and
//! [`table`] shows it.

pub mod cli;
mod count;
mod driver;
mod guest;
mod model;
mod pager;
mod table;
mod trace;
