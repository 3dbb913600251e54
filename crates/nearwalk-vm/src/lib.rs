// SPDX-License-Identifier: GPL-2.0-or-later
//! The nested page tables of virtual machines: who has which, and on which node the
//! CPUs of each domain find them.
//!
//! [`text`] reads the kernel's three files of a virtual machine ([`Status`],
//! [`Dump`], [`Report`]), [`find`] knows which there are and how they are called,
//! [`share`] counts, [`guest`] joins a guest's own page tables, and [`cli`] holds
//! `nearwalk vm`.

pub mod cli;
mod error;
pub mod find;
pub mod guest;
mod print;
pub mod share;
mod stock;
mod system;
pub mod text;

#[cfg(test)]
mod fixture;

pub use error::Error;
pub use system::{Linux, System};
pub use text::{Dump, Report, Status, TextError};
