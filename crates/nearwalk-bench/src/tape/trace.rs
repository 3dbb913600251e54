// SPDX-License-Identifier: GPL-2.0-or-later
//! The kernel's trace of what moves bring about, in an instance of its own. The machine
//! ends with the recording: nothing is put back.

use std::{
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};

use super::count;
use crate::drive::write;

const INSTANCES: &str = "/sys/kernel/tracing/instances";
/// Of each CPU.
const BUFFER_KIB: &str = "8192";
/// The same on all CPUs.
const CLOCK: &str = "mono";

pub struct Trace {
    dir: PathBuf,
    marker: File,
}

impl Trace {
    /// Makes one, in which there is nothing before [`Trace::go`].
    pub fn new() -> anyhow::Result<Trace> {
        let dir = Path::new(INSTANCES).join("nearwalk");
        fs::create_dir(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        write(dir.join("tracing_on"), "0")?;
        write(dir.join("trace_clock"), CLOCK)?;
        write(dir.join("buffer_size_kb"), BUFFER_KIB)?;
        for event in count::EVENTS {
            write(dir.join(format!("events/{event}/enable")), "1")?;
        }
        let path = dir.join("trace_marker");
        let marker = File::options().write(true).open(&path);
        let marker = marker.with_context(|| format!("cannot open {}", path.display()))?;
        Ok(Trace { dir, marker })
    }

    pub fn go(&self) -> anyhow::Result<()> {
        write(self.dir.join("tracing_on"), "1")
    }

    pub fn mark(&mut self, begins: bool, number: usize) -> anyhow::Result<()> {
        let mark = count::mark(begins, number);
        let wrote = self.marker.write_all(mark.as_bytes());
        wrote.context("cannot write into the trace")
    }

    /// Stops it; all that it has, which it then has no more.
    pub fn take(&self) -> anyhow::Result<String> {
        write(self.dir.join("tracing_on"), "0")?;
        for cpu in fs::read_dir(self.dir.join("per_cpu"))? {
            let path = cpu?.path().join("stats");
            let text = fs::read_to_string(&path)
                .with_context(|| format!("cannot read {}", path.display()))?;
            if let Some(lost) = lost(&text) {
                bail!("{} says '{lost}': events are missing", path.display());
            }
        }
        let path = self.dir.join("trace");
        let text = fs::read_to_string(&path);
        let text = text.with_context(|| format!("cannot read {}", path.display()))?;
        // Whoever opens it to write empties it.
        write(&path, "")?;
        Ok(text)
    }
}

/// A line that says that events are missing, in what a buffer says of itself.
fn lost(stats: &str) -> Option<&str> {
    stats.lines().find(|line| {
        let (name, count) = line.split_once(": ").unwrap_or_default();
        matches!(name, "overrun" | "commit overrun" | "dropped events") && count.trim() != "0"
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_that_are_missing_are_noticed() {
        let stats = "entries: 12\noverrun: 0\ncommit overrun: 0\nbytes: 700\n\
                     dropped events: 0\nread events: 0\n";
        assert_eq!(lost(stats), None);
        let with = |from, to| stats.replace(from, to);
        assert_eq!(
            lost(&with("\noverrun: 0", "\noverrun: 3")),
            Some("overrun: 3")
        );
        let dropped = with("events: 0\nread", "events: 1\nread");
        assert_eq!(lost(&dropped), Some("dropped events: 1"));
    }
}
