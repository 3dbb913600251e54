// SPDX-License-Identifier: GPL-2.0-or-later
//! What a host says of its nodes, control groups and processes, without any
//! privileges: readers of /proc, /sys and cgroup files.
//!
//! Everything outside of this process is behind [`Source`]: [`Live`] is the
//! running Linux, [`Recorder`] copies what is read into a directory, and
//! [`Recorded`] answers from one. The readers ([`Machine`], [`cgroup`],
//! [`process`]) take text only from there, so that they are tested on hosts
//! that were recorded or made up.

pub mod cgroup;
mod error;
mod list;
mod machine;
pub mod process;
pub mod recording;
mod source;

pub use error::Error;
pub use list::parse_list;
pub use machine::{Machine, Node};
pub use recording::{Recorded, Recorder};
pub use source::{Live, Source};

#[cfg(test)]
mod fixture;
