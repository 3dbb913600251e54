// SPDX-License-Identifier: GPL-2.0-or-later
//! What can be learnt from snapshots: counts ([`Tally`]), who finds leaf
//! entries local ([`locality`]), who shares a table ([`Sharers`]), how
//! contiguous memory is ([`contiguity`]), and what changed between two
//! ([`diff`]).

pub mod contiguity;
pub mod diff;
pub mod locality;
mod nodes;
mod pages;
mod sharers;
mod tally;

pub use nodes::Nodes;
pub use pages::{PageClass, PageState, Pages, SIZES};
pub use sharers::{LevelSharers, Share, SharedTable, Sharers};
pub use tally::{LevelTally, Tally, ViewTally};
