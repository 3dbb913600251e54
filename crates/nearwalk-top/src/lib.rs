// SPDX-License-Identifier: GPL-2.0-or-later
//! Who may walk remote page tables, live: `nearwalk top`.
//!
//! [`sample`] surveys a host again and again and puts what it sees into a
//! [`frame::Frame`]; [`draw`] shows one, as a function of it and of [`view`],
//! what the user has chosen. [`app`] is what keys do, [`live`] has the terminal
//! and the threads, [`cli`] the command. `docs/top.md` says what is on the screen.

pub mod app;
pub mod cli;
mod copies;
pub mod draw;
pub mod frame;
pub mod live;
pub mod sample;
pub mod view;
