// SPDX-License-Identifier: GPL-2.0-or-later
//! The running host, with what its kernel counts of each group and CPU.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::time::Duration;

use nearwalk_host::cgroup::CPU_TIME;
use nearwalk_host::{Error, Live, Source};

#[cfg(feature = "bpf")]
use nearwalk_walk::Groups;

/// Reads the host, and [`CPU_TIME`] of groups by BPF, where that can be had.
#[derive(Default)]
pub struct Counting {
    live: Live,
    /// Loaded when it is first asked for; none inside where it cannot be.
    #[cfg(feature = "bpf")]
    groups: Option<Option<Groups>>,
}

impl Counting {
    #[cfg(feature = "bpf")]
    fn cpu_time(&mut self, dir: &Path) -> io::Result<String> {
        use std::fmt::Write;

        let groups = self.groups.get_or_insert_with(|| Groups::load().ok());
        let Some(groups) = groups else {
            return absent();
        };
        let mut text = String::new();
        for (cpu, time) in groups.cpu_time(dir)?.iter().enumerate() {
            if !time.is_zero() {
                let _ = writeln!(text, "{cpu} {}", time.as_nanos());
            }
        }
        Ok(text)
    }

    #[cfg(not(feature = "bpf"))]
    fn cpu_time(&mut self, _: &Path) -> io::Result<String> {
        absent()
    }
}

/// As for any file that is not there.
fn absent() -> io::Result<String> {
    const ENOENT: i32 = 2;
    Err(io::Error::from_raw_os_error(ENOENT))
}

impl Source for Counting {
    fn read(&mut self, path: &Path) -> io::Result<String> {
        match path.parent() {
            Some(dir) if path.ends_with(CPU_TIME) => self.cpu_time(dir),
            _ => self.live.read(path),
        }
    }

    fn list(&mut self, path: &Path) -> io::Result<Vec<OsString>> {
        self.live.list(path)
    }

    fn now(&self) -> Duration {
        self.live.now()
    }

    fn wait(&mut self, time: Duration) -> Result<(), Error> {
        self.live.wait(time)
    }
}
