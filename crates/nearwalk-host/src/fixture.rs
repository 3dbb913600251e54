// SPDX-License-Identifier: GPL-2.0-or-later
//! A host for tests: files in memory, errors on request.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::Error;
use crate::source::Source;

#[derive(Debug, Default)]
pub(crate) struct Fixture {
    files: BTreeMap<PathBuf, Result<String, i32>>,
    now: Duration,
}

impl Fixture {
    pub(crate) fn file(mut self, path: &str, text: &str) -> Self {
        self.files.insert(path.into(), Ok(text.to_owned()));
        self
    }

    pub(crate) fn error(mut self, path: &str, errno: i32) -> Self {
        self.files.insert(path.into(), Err(errno));
        self
    }

    fn directories(&self, path: &Path) -> BTreeSet<OsString> {
        let below = self.files.keys().filter_map(|file| {
            let mut rest = file.strip_prefix(path).ok()?.iter();
            let first = rest.next()?;
            rest.next().map(|_| first.to_owned())
        });
        below.collect()
    }
}

impl Source for Fixture {
    fn read(&mut self, path: &Path) -> io::Result<String> {
        match self.files.get(path) {
            Some(Ok(text)) => Ok(text.clone()),
            Some(Err(errno)) => Err(io::Error::from_raw_os_error(*errno)),
            None => Err(io::Error::from_raw_os_error(libc::ENOENT)),
        }
    }

    fn list(&mut self, path: &Path) -> io::Result<Vec<OsString>> {
        if !self.files.keys().any(|file| file.starts_with(path)) {
            return Err(io::Error::from_raw_os_error(libc::ENOENT));
        }
        Ok(self.directories(path).into_iter().collect())
    }

    fn now(&self) -> Duration {
        self.now
    }

    fn wait(&mut self, time: Duration) -> Result<(), Error> {
        self.now += time;
        Ok(())
    }
}

/// A path of a test's own, where nothing is.
pub(crate) fn scratch(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("nearwalk-host-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    dir
}
