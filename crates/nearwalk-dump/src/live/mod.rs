// SPDX-License-Identifier: GPL-2.0-or-later
//! Snapshots of running processes, by BPF or through the dump module.

#[cfg_attr(not(feature = "bpf"), allow(dead_code))]
mod classify;
mod error;
mod linux;
mod module;
#[cfg(feature = "bpf")]
mod outside;
mod proc;
mod source;

use std::io::{self, Read};
use std::path::{Path, PathBuf};

pub use error::LiveError;
pub use linux::Linux;
pub use source::{ReaderKind, Source};

use crate::format;

/// What is needed of the kernel; [`Linux`] is the running one.
pub trait System {
    type Device: Device;

    /// Release of the kernel, as `uname -r` prints it.
    fn release(&self) -> io::Result<String>;
    /// Opens the module's device. `NotFound` when there is none.
    fn open_device(&self) -> io::Result<Self::Device>;
    /// The module is there, whether or not its device can be seen.
    fn is_loaded(&self) -> bool;
    /// The kernel replicates page tables.
    fn has_replication(&self) -> bool;
    /// Contents of a module file.
    fn read_module(&self, path: &Path) -> io::Result<Vec<u8>>;
    /// Loads a module file.
    fn load(&self, path: &Path) -> io::Result<()>;
    /// Loads a module by name from where the distribution keeps modules; on
    /// failure, what `modprobe` had to say.
    fn modprobe(&self, name: &str) -> Result<(), String>;
    /// Directories in which a build of Nearwalk may lie, best first.
    fn build_roots(&self) -> Vec<PathBuf>;
}

/// An open device of the module.
pub trait Device: Read {
    /// Version of the format that the module writes.
    fn version(&self) -> io::Result<(u16, u16)>;
    /// Makes the following reads return a snapshot of `pid`.
    fn begin(&mut self, pid: i32) -> io::Result<()>;
}

/// Takes snapshots of running processes.
pub struct Live<D> {
    device: D,
}

impl<D: Device> Live<D> {
    /// Opens the device; loads the module first when it is not there, from
    /// `module` when given.
    ///
    /// # Errors
    /// Without `CAP_SYS_ADMIN`, and when there is no module for this kernel.
    pub fn open<S>(system: &S, module: Option<&Path>) -> Result<Self, LiveError>
    where
        S: System<Device = D>,
    {
        let device = match system.open_device() {
            Err(e) if is_absent(&e) => {
                module::load(system, module)?;
                system.open_device()
            }
            opened => opened,
        };
        let device = device.map_err(|source| match source.kind() {
            io::ErrorKind::PermissionDenied => LiveError::Permission,
            io::ErrorKind::NotFound if system.is_loaded() => LiveError::NoDevice,
            _ => LiveError::Open { source },
        })?;

        let version = device
            .version()
            .map_err(|source| LiveError::Open { source })?;
        if version.0 != format::MAJOR {
            return Err(LiveError::Version { found: version });
        }
        Ok(Live { device })
    }

    /// Begins a snapshot; what is read next is its stream.
    ///
    /// # Errors
    /// When there is no such process or it has no user address space.
    pub fn snapshot(&mut self, pid: i32) -> Result<impl Read + '_, LiveError> {
        self.begin(pid)?;
        Ok(&mut self.device)
    }

    fn begin(&mut self, pid: i32) -> Result<(), LiveError> {
        self.device
            .begin(pid)
            .map_err(|source| match source.raw_os_error() {
                Some(libc::ESRCH) => LiveError::NoProcess { pid },
                Some(libc::ENODATA) => LiveError::NoMemory { pid },
                Some(libc::EPERM) => LiveError::Permission,
                _ => LiveError::Snapshot { pid, source },
            })
    }
}

/// The device is not there at all: no node, or a stale one.
fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ENOENT | libc::ENODEV | libc::ENXIO)
    )
}
