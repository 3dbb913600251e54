// SPDX-License-Identifier: GPL-2.0-or-later
//! A system for tests: files in memory, errors on request, a log of what was
//! asked of it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};

use crate::request::Request;
use crate::system::System;

#[derive(Default)]
pub(crate) struct Fixture {
    files: BTreeMap<PathBuf, Result<String, i32>>,
    write_errors: BTreeMap<PathBuf, i32>,
    pub(crate) missing_programs: BTreeMap<String, i32>,
    pub(crate) prctl_error: Cell<Option<i32>>,
    pub(crate) exec_error: Cell<Option<i32>>,
    /// The inode of every directory.
    pub(crate) inode: Cell<u64>,
    /// What was written, set and exec'ed, in order.
    pub(crate) log: RefCell<Vec<String>>,
}

impl Fixture {
    /// Four nodes that are all alike, and a kernel with the feature.
    pub(crate) fn four_nodes() -> Self {
        let mut fixture = Self::default();
        for list in ["possible", "online", "has_cpu", "has_memory"] {
            fixture.file(&format!("/sys/devices/system/node/{list}"), "0-3\n");
        }
        fixture.file("/proc/self/status", "Name:\tx\nMems_allowed_list:\t0-3\n");
        fixture.file("/proc/self/pgtable_repl", OFF);
        fixture.file("/proc/sys/vm/pgtable_repl_mode", "1\n");
        fixture
    }

    /// Two whole nodes, one without CPUs (2), one without memory (3), and room
    /// for four more.
    pub(crate) fn lopsided() -> Self {
        let mut fixture = Self::four_nodes();
        for (list, nodes) in [
            ("possible", "0-7\n"),
            ("online", "0-3\n"),
            ("has_cpu", "0-1,3\n"),
            ("has_memory", "0-2\n"),
        ] {
            fixture.file(&format!("/sys/devices/system/node/{list}"), nodes);
        }
        fixture
    }

    pub(crate) fn file(&mut self, path: &str, text: &str) {
        self.files.insert(path.into(), Ok(text.to_owned()));
    }

    pub(crate) fn unreadable(&mut self, path: &str, errno: i32) {
        self.files.insert(path.into(), Err(errno));
    }

    pub(crate) fn unwritable(&mut self, path: &str, errno: i32) {
        self.write_errors.insert(path.into(), errno);
    }

    pub(crate) fn without(&mut self, path: &str) {
        self.files.remove(Path::new(path));
    }

    /// A process with that text in its `pgtable_repl`.
    pub(crate) fn process(&mut self, pid: u32, command: &str, text: &str) {
        self.file(&format!("/proc/{pid}/comm"), &format!("{command}\n"));
        self.file(&format!("/proc/{pid}/pgtable_repl"), text);
    }
}

pub(crate) const OFF: &str = "mode:\toff\nnodes:\t\nsource:\tnone\npages:\nfallbacks:\t0\n";

impl System for Fixture {
    fn read(&self, path: &Path) -> io::Result<String> {
        match self.files.get(path) {
            Some(Ok(text)) => Ok(text.clone()),
            Some(Err(errno)) => Err(io::Error::from_raw_os_error(*errno)),
            None => Err(io::Error::from_raw_os_error(libc::ENOENT)),
        }
    }

    fn write(&self, path: &Path, text: &str) -> io::Result<()> {
        if let Some(errno) = self.write_errors.get(path) {
            return Err(io::Error::from_raw_os_error(*errno));
        }
        if !self.files.contains_key(path) {
            return Err(io::Error::from_raw_os_error(libc::ENOENT));
        }
        self.log
            .borrow_mut()
            .push(format!("{} <- {text}", path.display()));
        Ok(())
    }

    fn inode(&self, path: &Path) -> io::Result<u64> {
        let below = |file: &PathBuf| file.starts_with(path);
        match self.files.keys().find(|file| below(file)) {
            Some(_) => Ok(self.inode.get()),
            None => Err(io::Error::from_raw_os_error(libc::ENOENT)),
        }
    }

    fn processes(&self) -> io::Result<Vec<u32>> {
        let mut pids: Vec<u32> = self
            .files
            .keys()
            .filter_map(|path| path.strip_prefix("/proc").ok()?.iter().next()?.to_str())
            .filter_map(|name| name.parse().ok())
            .collect();
        pids.sort_unstable();
        pids.dedup();
        Ok(pids)
    }

    fn set_own(&self, request: &Request) -> io::Result<()> {
        if let Some(errno) = self.prctl_error.get() {
            return Err(io::Error::from_raw_os_error(errno));
        }
        self.log.borrow_mut().push(format!("prctl {request}"));
        Ok(())
    }

    fn exec(&self, argv: &[OsString]) -> io::Error {
        let words: Vec<_> = argv.iter().map(|word| word.to_string_lossy()).collect();
        self.log
            .borrow_mut()
            .push(format!("exec {}", words.join(" ")));
        io::Error::from_raw_os_error(self.exec_error.get().unwrap_or(libc::ENOEXEC))
    }

    fn find_program(&self, name: &OsStr) -> io::Result<()> {
        match self.missing_programs.get(&*name.to_string_lossy()) {
            Some(errno) => Err(io::Error::from_raw_os_error(*errno)),
            None => Ok(()),
        }
    }
}
