// SPDX-License-Identifier: GPL-2.0-or-later
//! Passes that nobody waits for: switched on and off, and what they did so far.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::time::Duration;

use serde::Serialize;

use super::{OUTCOMES, lines, parse};
use crate::error::Error;
use crate::exchange::name;
use crate::memory::PAGE;
use crate::report::bytes;

/// What `/proc/PID/ranger` says.
#[derive(Debug)]
pub(super) struct Shown {
    pid: u32,
    name: String,
    counts: BTreeMap<String, u64>,
}

#[derive(Serialize)]
struct Json<'a> {
    pid: u32,
    command: &'a str,
    page_bytes: u64,
    on: bool,
    passes: u64,
    background_passes: u64,
    moved_pages: u64,
    exchanged_pages: u64,
    cpu_seconds: f64,
    rested_seconds: f64,
    /// Of the last pass: base pages, by what became of them.
    last: Option<BTreeMap<&'static str, u64>>,
}

impl Shown {
    pub(super) fn read(pid: u32) -> Result<Self, Error> {
        let path = format!("/proc/{pid}/ranger");
        let text = fs::read_to_string(path).map_err(|error| super::refused(pid, error))?;
        Ok(Shown {
            pid,
            name: name(pid),
            counts: parse(&text),
        })
    }

    fn count(&self, name: &str) -> u64 {
        self.counts.get(name).copied().unwrap_or(0)
    }

    fn time(&self, name: &str) -> Duration {
        Duration::from_micros(self.count(name))
    }

    pub(super) fn text(&self) -> String {
        let passes = self.count("passes");
        let mut text = format!(
            "{}, pid {}: {} in the background, {passes} {}, {} of them in the background\n",
            self.name,
            self.pid,
            if self.count("on") == 1 {
                "passes"
            } else {
                "no passes"
            },
            if passes == 1 { "pass" } else { "passes" },
            self.count("background"),
        );
        if passes == 0 {
            return text;
        }
        let _ = writeln!(
            text,
            "{} moved, {} exchanged, {:.3} s of CPU time, {:.3} s rested\n\nThe last pass:",
            bytes(self.count("all_moved") * PAGE),
            bytes(self.count("all_exchanged") * PAGE),
            self.time("cpu_us").as_secs_f64(),
            self.time("rested_us").as_secs_f64(),
        );
        text + &lines(|name| self.count(name))
    }

    pub(super) fn json(&self) -> String {
        let last = self.count("passes") != 0;
        let json = Json {
            pid: self.pid,
            command: &self.name,
            page_bytes: PAGE,
            on: self.count("on") == 1,
            passes: self.count("passes"),
            background_passes: self.count("background"),
            moved_pages: self.count("all_moved"),
            exchanged_pages: self.count("all_exchanged"),
            cpu_seconds: self.time("cpu_us").as_secs_f64(),
            rested_seconds: self.time("rested_us").as_secs_f64(),
            last: last.then(|| OUTCOMES.map(|(name, _)| (name, self.count(name))).into()),
        };
        serde_json::to_string(&json).expect("numbers and names") + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Shown {
        Shown {
            pid: 7,
            name: "x".into(),
            counts: parse(text),
        }
    }

    #[test]
    fn a_process_without_passes_is_one_line() {
        assert_eq!(
            shown("on 1\npasses 0\n").text(),
            "x, pid 7: passes in the background, 0 passes, 0 of them in the background\n"
        );
        let json: serde_json::Value =
            serde_json::from_str(&shown("on 0\npasses 0\n").json()).unwrap();
        assert_eq!(json["on"], false);
        assert!(json["last"].is_null());
    }

    #[test]
    fn sums_come_before_the_last_pass() {
        let shown = shown(
            "on 0\npasses 3\nbackground 2\nall_moved 512\nall_exchanged 1\ncpu_us 20000\n\
             rested_us 980000\ncomplete 1\nhome 5\nmoved 0\nkernel 2\n",
        );
        assert_eq!(
            shown.text(),
            "x, pid 7: no passes in the background, 3 passes, 2 of them in the background\n\
             2M moved, 4K exchanged, 0.020 s of CPU time, 0.980 s rested\n\n\
             The last pass:\n\
             in their place before                        5      20K\n\
             left: the kernel is in their place           2       8K\n"
        );
        let json: serde_json::Value = serde_json::from_str(&shown.json()).unwrap();
        assert_eq!(json["moved_pages"], 512);
        assert_eq!(json["cpu_seconds"], 0.02);
        assert_eq!(json["last"]["home"], 5);
    }
}
