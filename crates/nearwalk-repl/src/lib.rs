// SPDX-License-Identifier: GPL-2.0-or-later
//! Page-table replication of processes: the verbs `run`, `set` and `show`.
//!
//! [`NodeSpec`] is what a user writes (numactl's grammar), [`Request`] what the
//! kernel is asked for, [`Status`] what it says of a process. Everything outside
//! of this process is behind [`System`], whose real implementation is [`Linux`].
//!
//! The kernel's side is described in its
//! `Documentation/admin-guide/mm/pgtable_repl.rst`, this command and the C
//! library in `docs/interface.md`.

mod cgroup;
mod cli;
mod error;
pub mod held;
mod launch;
mod list;
mod nested;
mod nodes;
mod progress;
mod request;
mod set;
mod show;
mod status;
mod subject;
mod system;
mod table;

#[cfg(test)]
mod fixture;

pub use cgroup::Limit;
pub use cli::{Args, run};
pub use error::Error;
pub use nested::{Nested, NestedSpec};
pub use nodes::{NodeSet, Topology};
pub use progress::is_building;
pub use request::{NodeSpec, Request};
pub use status::{Mode, Source, Status};
pub use subject::{Setting, Subject};
pub use system::{Linux, System};
