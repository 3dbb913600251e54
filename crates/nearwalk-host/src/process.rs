// SPDX-License-Identifier: GPL-2.0-or-later
//! Processes and threads.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::Error;
use crate::source::Source;

/// What a thread or a process has used is told in hundredths of a second, on
/// any x86 kernel (USER_HZ).
pub const TICK: Duration = Duration::from_millis(10);

fn dir(pid: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}"))
}

fn thread_dir(pid: u32, tid: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/task/{tid}"))
}

fn text(source: &mut dyn Source, path: &Path) -> Result<String, Error> {
    source.read(path).map_err(|error| Error::io(path, error))
}

fn numbers(source: &mut dyn Source, path: &Path) -> Result<Vec<u32>, Error> {
    let names = source.list(path).map_err(|error| Error::io(path, error))?;
    let mut numbers: Vec<u32> = names
        .iter()
        .filter_map(|name| name.to_str()?.parse().ok())
        .collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// The processes that this reader may see.
pub fn all(source: &mut dyn Source) -> Result<Vec<u32>, Error> {
    numbers(source, Path::new("/proc"))
}

/// The threads of a process.
pub fn threads(source: &mut dyn Source, pid: u32) -> Result<Vec<u32>, Error> {
    numbers(source, &dir(pid).join("task"))
}

/// The kernel's own threads, where the kernel lists them
/// (`CONFIG_PROC_CHILDREN`): the children of kthreadd, which is process 2.
pub fn kernel_threads(source: &mut dyn Source) -> Vec<u32> {
    let text = source.read(Path::new("/proc/2/task/2/children"));
    let words = text.unwrap_or_default();
    words
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .chain([2])
        .collect()
}

/// The process that a number stands for, which may be that of any thread.
pub fn leader(source: &mut dyn Source, tid: u32) -> Result<u32, Error> {
    let path = dir(tid).join("status");
    let text = text(source, &path)?;
    let Some(value) = text.lines().find_map(|line| line.strip_prefix("Tgid:")) else {
        return Err(Error::NoLine {
            path,
            line: "Tgid:",
        });
    };
    let number = value.trim().parse();
    number.map_err(|_| Error::value(&path, value.trim(), "a process number"))
}

/// Bytes of the page tables of a process's address space, as [`tables`]; of one
/// whose first thread has ended while others run, another thread tells.
pub fn tables_of_any_thread(source: &mut dyn Source, pid: u32) -> Result<Option<u64>, Error> {
    if let Some(bytes) = tables(source, pid)? {
        return Ok(Some(bytes));
    }
    for tid in threads(source, pid)? {
        let path = thread_dir(pid, tid).join("status");
        if let Ok(Some(bytes)) = text(source, &path).and_then(|text| vm_pte(&path, &text)) {
            return Ok(Some(bytes));
        }
    }
    Ok(None)
}

/// The path of a process's group below the mount point of cgroup v2.
pub fn group(source: &mut dyn Source, pid: u32) -> Option<String> {
    let text = source.read(&dir(pid).join("cgroup")).ok()?;
    let path = text.lines().find_map(|line| line.strip_prefix("0::/"))?;
    Some(path.to_owned())
}

/// `stat` of a thread, or of a process as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Its name.
    pub name: String,
    /// CPU time, rounded down to ticks.
    pub used: Duration,
    /// When it began, in ticks since the host did.
    pub started: u64,
    /// The CPU that it runs on, or ran on last.
    pub cpu: u32,
}

/// Reads `stat` of a thread.
pub fn thread_stat(source: &mut dyn Source, pid: u32, tid: u32) -> Result<Stat, Error> {
    read_stat(source, &thread_dir(pid, tid).join("stat"))
}

/// Reads `stat` of a process: the time is that of all of its threads, also of
/// those that have ended.
pub fn stat(source: &mut dyn Source, pid: u32) -> Result<Stat, Error> {
    read_stat(source, &dir(pid).join("stat"))
}

fn read_stat(source: &mut dyn Source, path: &Path) -> Result<Stat, Error> {
    let text = text(source, path)?;
    let bad = || {
        Error::value(
            path,
            text.trim(),
            "a line `PID (NAME) STATE ...` of 39 fields",
        )
    };
    // The name may hold anything, also blanks and parentheses.
    let (head, tail) = text.rsplit_once(')').ok_or_else(bad)?;
    let (_, name) = head.split_once('(').ok_or_else(bad)?;
    // Fields have numbers in proc(5); the one behind the name is 3.
    let fields: Vec<&str> = tail.split_whitespace().collect();
    let field = |number: usize| -> Result<u64, Error> {
        let value = fields.get(number - 3).ok_or_else(bad)?;
        value.parse().map_err(|_| bad())
    };
    let ticks = field(14)? + field(15)?;
    Ok(Stat {
        name: printable(name),
        used: TICK * u32::try_from(ticks).unwrap_or(u32::MAX),
        started: field(22)?,
        cpu: u32::try_from(field(39)?).map_err(|_| bad())?,
    })
}

/// A process may call itself anything; the terminal gets no control characters.
fn printable(name: &str) -> String {
    name.chars()
        .map(|c| if c.is_control() { '?' } else { c })
        .collect()
}

/// The CPU time of a thread to the nanosecond.
pub fn cpu_time(source: &mut dyn Source, pid: u32, tid: u32) -> Result<Duration, Error> {
    let path = thread_dir(pid, tid).join("schedstat");
    let text = text(source, &path)?;
    let value = text.split_whitespace().next().unwrap_or_default();
    match value.parse() {
        Ok(nanoseconds) => Ok(Duration::from_nanos(nanoseconds)),
        Err(_) => Err(Error::value(&path, value, "a number of nanoseconds")),
    }
}

/// Bytes of a process's page tables (`VmPTE`); none for one without an address
/// space: a kernel thread, or one that is ending.
pub fn tables(source: &mut dyn Source, pid: u32) -> Result<Option<u64>, Error> {
    let path = dir(pid).join("status");
    let text = text(source, &path)?;
    vm_pte(&path, &text)
}

fn vm_pte(path: &Path, text: &str) -> Result<Option<u64>, Error> {
    let Some(value) = text.lines().find_map(|line| line.strip_prefix("VmPTE:")) else {
        return Ok(None);
    };
    let kib = value
        .trim()
        .strip_suffix(" kB")
        .and_then(|n| n.parse().ok());
    match kib {
        Some(kib @ 0..=0xffff_ffff_ffff) => Ok(Some(kib << 10)),
        _ => Err(Error::value(path, value.trim(), "a number of kB")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Fixture;

    /// As Linux 6.12 writes it.
    const STAT: &str = "7 (a) b (c) R 1 7 7 0 -1 4194304 93 0 0 0 250 50 0 0 20 0 4 0 4711 \
        9000000 500 18446744073709551615 1 1 0 0 0 0 0 4096 0 0 0 0 17 42 0 0 0 0 0 0 0 0 0 0 0 0 0\n";

    #[test]
    fn stat_is_read_behind_any_name() {
        let mut host = Fixture::default()
            .file("/proc/7/task/8/stat", STAT)
            .file("/proc/7/stat", &STAT.replace("a) b (c", "x\x1b[2J"));
        let stat = thread_stat(&mut host, 7, 8).unwrap();
        assert_eq!(stat.name, "a) b (c");
        assert_eq!(stat.used, Duration::from_secs(3));
        assert_eq!((stat.started, stat.cpu), (4711, 42));
        assert_eq!(super::stat(&mut host, 7).unwrap().name, "x?[2J");
    }

    #[test]
    fn processes_and_threads_are_listed_by_number() {
        let mut host = Fixture::default()
            .file("/proc/10/task/10/stat", "")
            .file("/proc/10/task/9/stat", "")
            .file("/proc/9/stat", "")
            .file("/proc/sys/kernel/osrelease", "")
            .file("/proc/2/task/2/children", "3 4 77 ");
        assert_eq!(all(&mut host).unwrap(), [2, 9, 10]);
        assert_eq!(threads(&mut host, 10).unwrap(), [9, 10]);
        assert_eq!(kernel_threads(&mut host), [3, 4, 77, 2]);
        assert!(threads(&mut host, 11).unwrap_err().is_gone());
    }

    #[test]
    fn times_and_tables_are_read() {
        let mut host = Fixture::default()
            .file("/proc/7/task/8/schedstat", "123456789 5 6\n")
            .file(
                "/proc/7/status",
                "Name:\tx\nVmPTE:\t     760 kB\nThreads:\t1\n",
            )
            .file("/proc/3/status", "Name:\tkthread\n");
        let time = cpu_time(&mut host, 7, 8).unwrap();
        assert_eq!(time, Duration::from_nanos(123_456_789));
        assert_eq!(tables(&mut host, 7).unwrap(), Some(760 << 10));
        assert_eq!(tables(&mut host, 3).unwrap(), None);
    }

    #[test]
    fn a_process_is_found_by_any_of_its_threads() {
        let mut host = Fixture::default()
            .file("/proc/8/status", "Name:\tx\nTgid:\t7\nPid:\t8\n")
            .file("/proc/7/status", "Name:\tx\nState:\tZ (zombie)\nTgid:\t7\n")
            .file("/proc/7/task/7/status", "Name:\tx\n")
            .file("/proc/7/task/8/status", "Name:\tx\nVmPTE:\t 12 kB\n")
            .file("/proc/7/cgroup", "1:cpu:/\n0::/system.slice/x.service\n")
            .file("/proc/9/status", "Tgid:\tx\n");
        assert_eq!(leader(&mut host, 8).unwrap(), 7);
        assert_eq!(tables(&mut host, 7).unwrap(), None);
        assert_eq!(tables_of_any_thread(&mut host, 7).unwrap(), Some(12 << 10));
        assert_eq!(
            group(&mut host, 7).as_deref(),
            Some("system.slice/x.service")
        );
        assert_eq!(group(&mut host, 8), None);
        assert!(leader(&mut host, 9).is_err());
        assert!(leader(&mut host, 10).unwrap_err().is_gone());
    }

    #[test]
    fn errors_name_file_value_and_what_is_allowed() {
        let mut host = Fixture::default()
            .file("/proc/7/task/8/stat", "7 (x) R 1 2 3\n")
            .file("/proc/7/task/8/schedstat", "\n")
            .file("/proc/7/status", "VmPTE:\tmuch kB\n")
            .error("/proc/9/status", libc::EACCES);
        let error = thread_stat(&mut host, 7, 8).unwrap_err().to_string();
        assert!(
            error.starts_with("/proc/7/task/8/stat: `7 (x) R 1 2 3` is not a line"),
            "{error}"
        );
        let error = cpu_time(&mut host, 7, 8).unwrap_err().to_string();
        assert_eq!(
            error,
            "/proc/7/task/8/schedstat: `` is not a number of nanoseconds"
        );
        let error = tables(&mut host, 7).unwrap_err().to_string();
        assert_eq!(error, "/proc/7/status: `much kB` is not a number of kB");
        assert!(tables(&mut host, 9).unwrap_err().is_refused());
    }
}
