// SPDX-License-Identifier: GPL-2.0-or-later
//! Everything outside of this process.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use nearwalk_host::{Live, Source};
use nearwalk_repl::{NodeSet, Topology};

use crate::error::Error;

/// What this crate needs of the system, beside text.
pub trait System: Source {
    /// The files in a directory, sorted by name.
    fn files(&self, dir: &Path) -> io::Result<Vec<OsString>>;

    /// Writes a file's text with one `write()`, as the kernel wants it.
    fn write(&mut self, path: &Path, text: &str) -> io::Result<()>;

    /// The nodes of the pages at these addresses of a process; none for a page that
    /// is not there.
    fn nodes_of(&mut self, pid: u32, addresses: &[u64]) -> io::Result<Vec<Option<u32>>>;

    /// Whether there can be trees for these nodes; an error says why not.
    fn check_nodes(&self, nodes: &NodeSet) -> Result<(), Error>;
}

/// The running Linux.
#[derive(Debug, Default)]
pub struct Linux(Live);

impl Source for Linux {
    fn read(&mut self, path: &Path) -> io::Result<String> {
        self.0.read(path)
    }

    fn list(&mut self, path: &Path) -> io::Result<Vec<OsString>> {
        self.0.list(path)
    }

    fn now(&self) -> Duration {
        self.0.now()
    }

    fn wait(&mut self, time: Duration) -> Result<(), nearwalk_host::Error> {
        self.0.wait(time)
    }
}

impl System for Linux {
    fn files(&self, dir: &Path) -> io::Result<Vec<OsString>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(dir)? {
            names.push(entry?.file_name());
        }
        names.sort_unstable();
        Ok(names)
    }

    fn write(&mut self, path: &Path, text: &str) -> io::Result<()> {
        let mut file = fs::OpenOptions::new().write(true).open(path)?;
        match file.write(text.as_bytes())? {
            written if written < text.len() => Err(io::ErrorKind::WriteZero.into()),
            _ => Ok(()),
        }
    }

    fn nodes_of(&mut self, pid: u32, addresses: &[u64]) -> io::Result<Vec<Option<u32>>> {
        let mut status = vec![0i32; addresses.len()];
        // SAFETY: both arrays have as many elements as the kernel is told; the
        // addresses are of the other process and only looked up there.
        let done = unsafe {
            libc::syscall(
                libc::SYS_move_pages,
                pid,
                addresses.len(),
                addresses.as_ptr(),
                std::ptr::null::<libc::c_int>(),
                status.as_mut_ptr(),
                0,
            )
        };
        match done {
            0 => Ok(status.into_iter().map(|n| u32::try_from(n).ok()).collect()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn check_nodes(&self, nodes: &NodeSet) -> Result<(), Error> {
        Ok(Topology::read(&nearwalk_repl::Linux)?.check(nodes)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_is_there_has_a_node() {
        let page = vec![1u8; 3 << 12];
        let touched = page.as_ptr() as u64 & !4095;
        let nodes = Linux::default().nodes_of(std::process::id(), &[touched, 4096]);
        match nodes {
            Ok(nodes) => {
                assert!(nodes[0].is_some());
                assert_eq!(nodes[1], None);
            }
            // A kernel without nodes, or a container that may not.
            Err(error) => assert!(
                matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)),
                "{error}"
            ),
        }
    }
}
