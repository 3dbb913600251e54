// SPDX-License-Identifier: GPL-2.0-or-later
//! What is counted, and on what machine.

use std::{fmt, time::Duration};

use clap::ValueEnum;
use nearwalk_lab::{Kernel, Size};

/// Each is a run of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// Figure 2: local and remote halves of walks, by setting
    Walks,
    /// Section 4.2.2: a guest's copies on the wrong nodes
    Misplaced,
    /// Table 6: pages of nested tables, and that they come back
    Tables,
    /// Figure 6b: a thin guest that is moved
    Move,
    /// Nested page faults, stock and ours
    Faults,
    /// Instructions of a nested page fault, stock and ours
    Cost,
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value().expect("none is skipped");
        f.write_str(value.get_name())
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Of the machine, and of a wide guest.
    pub nodes: u32,
    /// Of a guest, all nodes together.
    pub memory: Size,
    /// What its process uses of that.
    pub fill: Size,
    /// The settings that differ most, and no more.
    pub quick: bool,
    /// How long a guest is watched after its move.
    pub watch: Duration,
    /// Of guests.
    pub kernel: Kernel,
    /// What runs the machine, as it is named in tables.
    pub host: String,
}

impl Plan {
    /// Whether the machine's kernel is Nearwalk's.
    pub fn ours(&self) -> bool {
        self.host != STOCK
    }
}

pub const STOCK: &str = "stock";
pub const OURS: &str = "ours";
