// SPDX-License-Identifier: GPL-2.0-or-later
//! The lab: boots a virtual machine with several memory nodes under QEMU, or a
//! simple one under Bochs, and runs a command of the host in it.
//!
//! ```no_run
//! use nearwalk_lab::{Job, Vm, VmConfig};
//!
//! let job = Job::new(["numactl", "--hardware"]);
//! let outcome = Vm::start(&VmConfig::default(), job)?.wait()?;
//! assert_eq!(outcome.exit_code(), 0);
//! # Ok::<(), nearwalk_lab::Error>(())
//! ```
//!
//! [`VmConfig`] says what machine to boot, [`Job`] what to run in it and where
//! its output goes, [`Vm`] is the machine while it runs, [`Outcome`] how it
//! ended: the command's own status, or what the kernel said on its console
//! that no passing test may say.

mod accel;
mod bochs;
mod cli;
mod clock;
mod config;
mod console;
mod cpio;
mod error;
mod initramfs;
mod job;
mod lens;
mod limit;
mod modules;
mod nested;
mod outcome;
mod paths;
mod placement;
mod plugin;
mod progress;
mod qemu;
mod qmp;
mod relay;
mod size;
mod terminal;
mod vm;

pub use accel::Accel;
pub use cli::{Args, run};
pub use config::{AccelChoice, Dimm, Emulator, Kernel, NodeSpec, Pti, VmConfig};
pub use console::{Finding, FindingKind};
pub use error::Error;
pub use job::{Input, Job, Terminal};
pub use lens::Lens;
pub use outcome::{End, Outcome};
pub use paths::build_dir;
pub use placement::{MemoryPlace, Nodes, Placement};
pub use plugin::Plugin;
pub use size::Size;
pub use vm::{Vm, VmHandle};
