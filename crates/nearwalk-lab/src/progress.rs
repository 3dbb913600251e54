// SPDX-License-Identifier: GPL-2.0-or-later
//! A clock for the guest's signs of life that stands still while the host does
//! not run the guest. On a loaded host an emulated machine may get a tenth of
//! the CPU time it asks for; its silence then says nothing about its kernel.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// How long the share of CPU time is averaged: long against the kernel's own
/// accounting steps of 1/100 s, short against any limit.
const WINDOW: Duration = Duration::from_secs(1);

/// Time in which a process and its threads got the CPUs that they asked for.
/// Where the system does not tell, all time counts.
pub struct ProgressClock {
    process: PathBuf,
    last_tick: Instant,
    window: Window,
    cpu: Option<Duration>,
    elapsed: Duration,
}

#[derive(Default)]
struct Window {
    length: Duration,
    /// Sum over threads of the time in which each was ready to run.
    wanted: Duration,
}

impl ProgressClock {
    pub fn new(pid: u32) -> ProgressClock {
        let process = PathBuf::from(format!("/proc/{pid}"));
        ProgressClock {
            last_tick: Instant::now(),
            window: Window::default(),
            cpu: cpu_time(&process),
            elapsed: Duration::ZERO,
            process,
        }
    }

    /// Looks at the process again, and returns the time so far. To be called
    /// several times a second.
    pub fn tick(&mut self) -> Duration {
        let step = self.last_tick.elapsed();
        self.last_tick += step;
        self.window.length += step;
        self.window.wanted += step * runnable_threads(&self.process);
        if self.window.length >= WINDOW {
            let window = std::mem::take(&mut self.window);
            let cpu = cpu_time(&self.process);
            self.elapsed += match (self.cpu, cpu) {
                (Some(before), Some(now)) => window.progress(now.saturating_sub(before)),
                _ => window.length,
            };
            self.cpu = cpu;
        }
        self.elapsed
    }
}

impl Window {
    /// The part of the window that counts, when the process got this much CPU
    /// time in it. What was missing is shared by the threads that wanted it.
    fn progress(&self, got: Duration) -> Duration {
        let threads = self.wanted.div_duration_f64(self.length).max(1.0);
        let missing = self.wanted.saturating_sub(got).div_f64(threads);
        self.length.saturating_sub(missing)
    }
}

/// Threads that run or wait for a CPU.
fn runnable_threads(process: &Path) -> u32 {
    let Ok(threads) = fs::read_dir(process.join("task")) else {
        return 0;
    };
    let is_runnable = |thread: PathBuf| {
        fs::read_to_string(thread.join("stat"))
            .is_ok_and(|stat| after_name(&stat).next() == Some("R"))
    };
    threads
        .flatten()
        .filter(|thread| is_runnable(thread.path()))
        .count() as u32
}

/// User and system time of all threads.
fn cpu_time(process: &Path) -> Option<Duration> {
    let stat = fs::read_to_string(process.join("stat")).ok()?;
    // Fields 14 and 15 of proc(5); the first after the name is field 3.
    let mut times = after_name(&stat).skip(11).map(str::parse::<u64>);
    let ticks = times.next()?.ok()? + times.next()?.ok()?;
    // SAFETY: sysconf has no preconditions.
    let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    Some(Duration::from_secs(ticks) / u32::try_from(per_second).ok()?)
}

/// The fields of a stat file after the name, which may hold anything.
fn after_name(stat: &str) -> impl Iterator<Item = &str> {
    stat.rsplit_once(')')
        .map_or("", |(_, rest)| rest)
        .split_ascii_whitespace()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(wanted: u64, got: u64) -> u128 {
        let window = Window {
            length: Duration::from_millis(1000),
            wanted: Duration::from_millis(wanted),
        };
        window.progress(Duration::from_millis(got)).as_millis()
    }

    #[test]
    fn an_idle_or_satisfied_process_makes_full_progress() {
        assert_eq!(progress(0, 0), 1000);
        assert_eq!(progress(2000, 2000), 1000);
        // Sampling and accounting do not agree to the millisecond.
        assert_eq!(progress(1900, 2000), 1000);
    }

    #[test]
    fn a_starved_process_makes_the_progress_that_it_can() {
        assert_eq!(progress(2000, 200), 100);
        assert_eq!(progress(8000, 2000), 250);
        assert_eq!(progress(1000, 0), 0);
    }

    #[test]
    fn a_mostly_idle_process_loses_only_what_it_missed() {
        assert_eq!(progress(100, 20), 920);
    }

    #[test]
    fn this_process_can_be_read() {
        let me = Path::new("/proc/self");
        assert!(runnable_threads(me) >= 1);
        assert!(cpu_time(me).is_some());
        assert_eq!(cpu_time(Path::new("/proc/no-such-process")), None);
    }

    #[test]
    fn names_with_brackets_do_not_confuse() {
        assert_eq!(after_name("7 (a) b) R 1").collect::<Vec<_>>(), ["R", "1"]);
    }
}
