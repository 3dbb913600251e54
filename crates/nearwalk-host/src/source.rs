// SPDX-License-Identifier: GPL-2.0-or-later
//! Where text comes from, and how time passes there.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::error::Error;

/// A host. Paths are absolute.
pub trait Source {
    /// The text of a file. Bytes that are no UTF-8 are replaced.
    fn read(&mut self, path: &Path) -> io::Result<String>;

    /// The directories in a directory, sorted by name.
    fn list(&mut self, path: &Path) -> io::Result<Vec<OsString>>;

    /// Time since the first moment.
    fn now(&self) -> Duration;

    /// Lets time pass: what is read next is read at another moment.
    fn wait(&mut self, time: Duration) -> Result<(), Error>;
}

impl<S: Source + ?Sized> Source for &mut S {
    fn read(&mut self, path: &Path) -> io::Result<String> {
        (**self).read(path)
    }

    fn list(&mut self, path: &Path) -> io::Result<Vec<OsString>> {
        (**self).list(path)
    }

    fn now(&self) -> Duration {
        (**self).now()
    }

    fn wait(&mut self, time: Duration) -> Result<(), Error> {
        (**self).wait(time)
    }
}

/// The running Linux.
#[derive(Debug)]
pub struct Live {
    start: Instant,
    buffer: Vec<u8>,
}

impl Default for Live {
    fn default() -> Self {
        Self {
            start: Instant::now(),
            // Most files of /proc and of cgroups come whole in one read().
            buffer: vec![0; 16 << 10],
        }
    }
}

impl Source for Live {
    fn read(&mut self, path: &Path) -> io::Result<String> {
        // Not fs::read(): it asks for a size, which these files have not.
        let mut file = File::open(path)?;
        let mut length = 0;
        loop {
            if length == self.buffer.len() {
                self.buffer.resize(2 * length, 0);
            }
            match file.read(&mut self.buffer[length..]) {
                Ok(0) => break,
                Ok(read) => length += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(String::from_utf8_lossy(&self.buffer[..length]).into_owned())
    }

    fn list(&mut self, path: &Path) -> io::Result<Vec<OsString>> {
        directories(path)
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn wait(&mut self, time: Duration) -> Result<(), Error> {
        std::thread::sleep(time);
        Ok(())
    }
}

pub(crate) fn directories(path: &Path) -> io::Result<Vec<OsString>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            names.push(entry.file_name());
        }
    }
    names.sort_unstable();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_longer_than_the_buffer_come_whole() {
        let mut live = Live::default();
        live.buffer.truncate(7);
        let text = live.read(Path::new("/proc/self/status")).unwrap();
        assert!(text.starts_with("Name:"), "{text}");
        assert!(text.contains("Threads:"), "{text}");
    }

    #[test]
    fn directories_are_listed_without_files() {
        let names = Live::default().list(Path::new("/proc/self")).unwrap();
        assert!(names.iter().any(|name| name == "task"));
        assert!(!names.iter().any(|name| name == "status"));
    }
}
