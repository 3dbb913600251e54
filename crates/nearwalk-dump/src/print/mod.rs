// SPDX-License-Identifier: GPL-2.0-or-later
//! What people and programs get to see.

mod changes;
mod contiguity;
mod curve;
mod dump;
mod grid;
pub mod json;
mod locality;
mod number;
mod rows;
mod sharers;

pub use changes::changes;
pub use contiguity::{contiguity, csv_head, csv_lines, split_text};
pub use curve::{Curve, Curves};
pub use dump::dump;
pub use locality::{locality, processes};
pub use sharers::{table, table_head};

/// How numbers and columns are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    /// Every digit, instead of 11k and 6M.
    pub exact: bool,
    /// Characters in a line.
    pub width: usize,
}
