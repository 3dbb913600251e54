// SPDX-License-Identifier: GPL-2.0-or-later
//! Showing the replication of processes and the system's settings and counters.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::path::Path;

use serde::Serialize;

use crate::error::Error;
use crate::nested::Nested;
use crate::set::{comm_path, process_error, status_path};
use crate::status::{Mode, Status};
use crate::system::System;
use crate::table::{self, Align};

/// One process.
#[derive(Debug, Serialize)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    /// Its name as `ps` shows it, at most 15 characters.
    pub(crate) command: String,
    #[serde(flatten)]
    pub(crate) status: Status,
}

/// Reads one process.
pub(crate) fn process(system: &impl System, pid: u32) -> Result<Process, Error> {
    let path = status_path(pid);
    let text = system.read(&path).map_err(|source| {
        // Processes without an address space have the file, but no answer.
        if source.raw_os_error() == Some(libc::ESRCH) && system.read(&comm_path(pid)).is_ok() {
            Error::NoAddressSpace(pid)
        } else {
            process_error(pid, source, path.clone())
        }
    })?;
    let command = system.read(&comm_path(pid)).unwrap_or_default();
    Ok(Process {
        pid,
        command: printable(command.trim_end()),
        status: text.parse()?,
    })
}

/// A process may call itself anything; the terminal gets no control characters.
fn printable(name: &str) -> String {
    name.chars()
        .map(|c| if c.is_control() { '?' } else { c })
        .collect()
}

/// Whether a process is replicated, or asks for something for its virtual machines.
fn concerns(status: &Status) -> bool {
    status.mode != Mode::Off || status.nested.as_ref().is_some_and(Nested::is_own)
}

/// All processes that are replicated, and how many could not be read.
pub(crate) fn replicated(system: &impl System) -> Result<(Vec<Process>, usize), Error> {
    let pids = system
        .processes()
        .map_err(|source| Error::io("/proc", source))?;
    let mut found = Vec::new();
    let mut unreadable = 0;
    for pid in pids {
        match process(system, pid) {
            Ok(process) if concerns(&process.status) => found.push(process),
            // Ended meanwhile, or has no address space: nothing to show.
            Ok(_) | Err(Error::NoProcess(_) | Error::NoAddressSpace(_)) => {}
            Err(Error::NotPermitted(_)) => unreadable += 1,
            Err(error) => return Err(error),
        }
    }
    Ok((found, unreadable))
}

/// The table of processes, with a column for each node that holds copies, with the
/// counters of lazy trees if one has them, and with what virtual machines get if
/// anything is asked for some.
pub(crate) fn render(processes: &[Process]) -> String {
    let nodes: BTreeSet<u32> = processes
        .iter()
        .flat_map(|process| process.status.pages.keys().copied())
        .collect();
    let mut header = vec![
        ("PID".to_owned(), Align::Right),
        ("COMMAND".to_owned(), Align::Left),
        ("MODE".to_owned(), Align::Left),
        ("NODES".to_owned(), Align::Left),
        ("SOURCE".to_owned(), Align::Left),
        ("FALLBACKS".to_owned(), Align::Right),
    ];
    let nested = processes.iter().any(|p| p.status.nested.is_some());
    if nested {
        header.push(("NESTED".to_owned(), Align::Left));
    }
    let lazy = processes.iter().any(|p| p.status.lazy.is_some());
    if lazy {
        header.extend(["FILLS", "IPIS", "SAVED"].map(|name| (name.to_owned(), Align::Right)));
    }
    header.extend(nodes.iter().map(|node| (format!("N{node}"), Align::Right)));
    let dash = |text: String| {
        if text.is_empty() {
            "-".to_owned()
        } else {
            text
        }
    };
    let rows: Vec<Vec<String>> = processes
        .iter()
        .map(
            |Process {
                 pid,
                 command,
                 status,
             }| {
                let mut row = vec![
                    pid.to_string(),
                    dash(command.clone()),
                    status.mode.to_string(),
                    dash(status.nodes.to_string()),
                    status.source.to_string(),
                    status.fallbacks.to_string(),
                ];
                if nested {
                    row.push(match &status.nested {
                        Some(nested) => nested.to_string(),
                        None => "-".to_owned(),
                    });
                }
                if lazy {
                    let counts = status.lazy.as_ref().map(|lazy| {
                        let saved = lazy.ipis_requested.saturating_sub(lazy.ipis_sent);
                        [lazy.fills, lazy.ipis_sent, saved]
                    });
                    row.extend(match counts {
                        Some(counts) => counts.map(|count| count.to_string()),
                        None => [(); 3].map(|()| "-".to_owned()),
                    });
                }
                row.extend(nodes.iter().map(|node| match status.pages.get(node) {
                    None | Some(0) if status.pending.contains(*node) => "soon".to_owned(),
                    pages => pages.copied().unwrap_or(0).to_string(),
                }));
                row
            },
        )
        .collect();
    table::render(&header, &rows)
}

/// The system's settings and counters; names without their prefixes' directory.
#[derive(Debug, Serialize)]
pub(crate) struct Settings {
    /// `vm.pgtable_repl_*`, with what a number means where it means something.
    pub(crate) sysctl: BTreeMap<String, Setting>,
    /// `/proc/vmstat`'s lines of this feature.
    pub(crate) vmstat: BTreeMap<String, u64>,
}

/// What a setting is set to: a number, but for the translation domains.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub(crate) enum Setting {
    Number(i64),
    Text(String),
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Text(text) => text.fmt(f),
        }
    }
}

const SYSCTLS: [&str; 9] = [
    "mode",
    "fixed_node",
    "reserve",
    "process_max",
    "node_max",
    "fork_delay",
    "prefetch",
    "idle",
    "domains",
];

/// Reads the system's part.
pub(crate) fn settings(system: &impl System) -> Result<Settings, Error> {
    let mut sysctl = BTreeMap::new();
    for name in SYSCTLS {
        let path = format!("/proc/sys/vm/pgtable_repl_{name}");
        let text = match system.read(Path::new(&path)) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(source) => return Err(Error::io(path, source)),
        };
        let value = match text.trim().parse() {
            // One CPU's list is a number, too.
            _ if name == "domains" => Setting::Text(text.trim().to_owned()),
            Ok(number) => Setting::Number(number),
            Err(_) => {
                return Err(Error::Answer {
                    line: format!("{path}: {}", text.trim()),
                    why: "not a number".to_owned(),
                });
            }
        };
        sysctl.insert(format!("vm.pgtable_repl_{name}"), value);
    }
    let text = system
        .read(Path::new("/proc/vmstat"))
        .map_err(|source| Error::io("/proc/vmstat", source))?;
    let vmstat = text
        .lines()
        .filter_map(|line| line.split_once(' '))
        .filter(|(name, _)| name.contains("pgtable_repl"))
        .filter_map(|(name, value)| Some((name.to_owned(), value.trim().parse().ok()?)))
        .collect();
    Ok(Settings { sysctl, vmstat })
}

fn explain(name: &str, value: &Setting) -> &'static str {
    let number = match value {
        Setting::Number(number) => *number,
        Setting::Text(_) => -1,
    };
    match (name, number) {
        ("vm.pgtable_repl_mode", 0) => "off",
        ("vm.pgtable_repl_mode", 1) => "per process",
        ("vm.pgtable_repl_mode", 2) => "per process, new tables on the fixed node",
        ("vm.pgtable_repl_mode", 3) => "every process",
        ("vm.pgtable_repl_mode", 4) => "every process, lazily",
        ("vm.pgtable_repl_fixed_node", _) => "where mode 2 puts tables",
        ("vm.pgtable_repl_reserve", _) => "4 KiB pages kept ready on each node",
        ("vm.pgtable_repl_process_max", 0) => "no limit for the copies of a process",
        ("vm.pgtable_repl_process_max", _) => "most 4 KiB pages that copies of a process take",
        ("vm.pgtable_repl_node_max", 100) => "no limit for the copies on a node",
        ("vm.pgtable_repl_node_max", _) => "most that copies take of a node, in per cent",
        ("vm.pgtable_repl_fork_delay", 0) => "children have copies from the start",
        ("vm.pgtable_repl_fork_delay", _) => "milliseconds that a child waits for its copies",
        ("vm.pgtable_repl_prefetch", _) => "log2 of the entries that a lazy fill copies",
        ("vm.pgtable_repl_idle", 0) => "lazy copies in disuse are kept",
        ("vm.pgtable_repl_idle", _) => "seconds between looks for lazy copies in disuse",
        ("vm.pgtable_repl_domains", _) => "CPUs that share their copies",
        ("nr_pgtable_repl_pages", _) => "copies in use now, 4 KiB pages",
        ("pgtable_repl_enable", _) => "times that a process was switched on or to other nodes",
        ("pgtable_repl_disable", _) => "times that a process was switched off",
        ("pgtable_repl_alloc", _) => "copies made",
        ("pgtable_repl_free", _) => "copies freed",
        ("pgtable_repl_fallback", _) => "copies not made for want of local memory",
        ("pgtable_repl_reload", _) => "CPUs made to load another root",
        ("pgtable_repl_fill", _) => "page faults answered from the tables that a lazy process has",
        ("pgtable_repl_idle", _) => "lazy copies dropped that were used no more",
        ("pgtable_repl_ipi_requested", _) => "CPUs that shootdowns of lazy processes were due to",
        ("pgtable_repl_ipi_sent", _) => "those of them that were interrupted",
        ("pgtable_repl_ipi_saved", _) => "those that were not",
        _ => "",
    }
}

/// The settings, then the counters, a line each.
pub(crate) fn render_settings(settings: &Settings) -> String {
    let sysctls = SYSCTLS
        .iter()
        .map(|name| format!("vm.pgtable_repl_{name}"))
        .filter_map(|name| Some((name.clone(), settings.sysctl.get(&name)?.clone())));
    let counters = settings.vmstat.iter().map(|(name, value)| {
        let number = i64::try_from(*value).unwrap_or(i64::MAX);
        (name.clone(), Setting::Number(number))
    });
    let rows: Vec<Vec<String>> = sysctls
        .chain(counters)
        .map(|(name, value)| {
            let meaning = explain(&name, &value).to_owned();
            vec![name, value.to_string(), meaning]
        })
        .collect();
    let header = [
        ("NAME".to_owned(), Align::Left),
        ("VALUE".to_owned(), Align::Right),
        ("MEANING".to_owned(), Align::Left),
    ];
    table::render(&header, &rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Fixture, OFF};

    const ON: &str = "mode:\teager\nnodes:\t0-3\nsource:\tproc\n\
                      pages:\tN0=9 N1=1024 N2=9 N3=9\nfallbacks:\t0\n";
    const HALF: &str = "mode:\teager\nnodes:\t0,2\nsource:\tinherited\n\
                        pages:\tN0=5 N2=6\nfallbacks:\t3\n";

    fn machine() -> Fixture {
        let mut fixture = Fixture::four_nodes();
        fixture.process(1, "init", OFF);
        fixture.process(42, "memcached", ON);
        fixture.process(4711, "sh\u{1b}[31m", HALF);
        fixture
    }

    #[test]
    fn replicated_processes_are_listed_with_their_pages() {
        let (processes, unreadable) = replicated(&machine()).unwrap();
        assert_eq!(unreadable, 0);
        assert_eq!(
            render(&processes),
            concat!(
                " PID  COMMAND    MODE   NODES  SOURCE     FALLBACKS  N0    N1  N2  N3\n",
                "  42  memcached  eager  0-3    proc               0   9  1024   9   9\n",
                "4711  sh?[31m    eager  0,2    inherited          3   5     0   6   0\n",
            )
        );
    }

    #[test]
    fn a_child_that_waits_for_its_copies_says_so() {
        let mut fixture = machine();
        let waits = HALF.replace("N0=5 N2=6", "") + "pending:\t0,2\n";
        fixture.process(4712, "forked", &waits);
        let text = render(&replicated(&fixture).unwrap().0);
        let line = text.lines().last().unwrap();
        let end: Vec<&str> = line.split_whitespace().rev().take(4).collect();
        assert_eq!(end, ["0", "soon", "0", "soon"], "{text}");
    }

    #[test]
    fn counters_of_lazy_processes_are_shown_beside_the_others() {
        let mut fixture = machine();
        let lazy = ON.replace("eager", "lazy")
            + "prefetch:\t3\nfills:\t658\nipis:\trequested=3771 sent=1003 saved=2768\n";
        fixture.process(43, "nginx", &lazy);
        let (processes, _) = replicated(&fixture).unwrap();
        assert_eq!(
            render(&processes),
            concat!(
                " PID  COMMAND    MODE   NODES  SOURCE     FALLBACKS  FILLS  IPIS  SAVED  N0    N1  N2  N3\n",
                "  42  memcached  eager  0-3    proc               0      -     -      -   9  1024   9   9\n",
                "  43  nginx      lazy   0-3    proc               0    658  1003   2768   9  1024   9   9\n",
                "4711  sh?[31m    eager  0,2    inherited          3      -     -      -   5     0   6   0\n",
            )
        );
        let json = serde_json::to_value(&processes[1]).unwrap();
        assert_eq!(
            json["lazy"],
            serde_json::json!({
                "prefetch": 3,
                "fills": 658,
                "ipis_requested": 3771,
                "ipis_sent": 1003,
            })
        );
    }

    #[test]
    fn what_machines_get_is_shown_if_something_is_asked_for_some() {
        let mut fixture = machine();
        let with = |status: &str, nested: &str| format!("{status}nested:\t{nested}\n");
        fixture.process(43, "qemu", &with(OFF, "lazy nodes=all source=proc"));
        fixture.process(44, "qemu", &with(ON, "migrate nodes=0-1 source=cgroup"));
        // It is its group that asks, and there may be no machine.
        fixture.process(45, "sh", &with(OFF, "lazy nodes=all source=cgroup"));
        assert_eq!(
            render(&replicated(&fixture).unwrap().0),
            concat!(
                " PID  COMMAND    MODE   NODES  SOURCE     FALLBACKS  NESTED                N0    N1  N2  N3\n",
                "  42  memcached  eager  0-3    proc               0  -                      9  1024   9   9\n",
                "  43  qemu       off    -      none               0  lazy                   0     0   0   0\n",
                "  44  qemu       eager  0-3    proc               0  migrate:0-1 (cgroup)   9  1024   9   9\n",
                "4711  sh?[31m    eager  0,2    inherited          3  -                      5     0   6   0\n",
            )
        );
    }

    #[test]
    fn every_counter_and_setting_is_explained() {
        let counters = [
            "nr_pgtable_repl_pages",
            "pgtable_repl_enable",
            "pgtable_repl_disable",
            "pgtable_repl_alloc",
            "pgtable_repl_free",
            "pgtable_repl_fallback",
            "pgtable_repl_reload",
            "pgtable_repl_fill",
            "pgtable_repl_idle",
            "pgtable_repl_ipi_requested",
            "pgtable_repl_ipi_sent",
            "pgtable_repl_ipi_saved",
        ];
        for name in counters {
            assert_ne!(explain(name, &Setting::Number(1)), "", "{name}");
        }
        for name in SYSCTLS {
            let meaning = explain(&format!("vm.pgtable_repl_{name}"), &Setting::Number(0));
            assert_ne!(meaning, "", "{name}");
        }
    }

    #[test]
    fn a_process_that_is_off_is_shown_when_asked_for() {
        let process = process(&machine(), 1).unwrap();
        assert_eq!(
            render(&[process]),
            "\
PID  COMMAND  MODE  NODES  SOURCE  FALLBACKS
  1  init     off   -      none            0
"
        );
    }

    #[test]
    fn processes_that_cannot_be_read_are_counted_or_passed_over() {
        let mut fixture = machine();
        fixture.process(2, "kthreadd", "");
        fixture.unreadable("/proc/2/pgtable_repl", libc::ESRCH);
        fixture.process(50, "other", "");
        fixture.unreadable("/proc/50/pgtable_repl", libc::EPERM);
        let (processes, unreadable) = replicated(&fixture).unwrap();
        assert_eq!((processes.len(), unreadable), (2, 1));
        assert!(matches!(
            process(&fixture, 2),
            Err(Error::NoAddressSpace(2))
        ));
        assert!(matches!(process(&fixture, 3), Err(Error::NoProcess(3))));
        assert!(matches!(
            process(&fixture, 50),
            Err(Error::NotPermitted(50))
        ));
    }

    #[test]
    fn json_has_the_same_facts() {
        let process = process(&machine(), 4711).unwrap();
        assert_eq!(
            serde_json::to_value(&process).unwrap(),
            serde_json::json!({
                "pid": 4711,
                "command": "sh?[31m",
                "mode": "eager",
                "nodes": [0, 2],
                "source": "inherited",
                "pages": {"0": 5, "2": 6},
                "fallbacks": 3,
            })
        );
    }

    #[test]
    fn the_systems_part_is_shown_with_its_meaning() {
        let mut fixture = machine();
        fixture.file("/proc/sys/vm/pgtable_repl_reserve", "64\n");
        fixture.file("/proc/sys/vm/pgtable_repl_node_max", "10\n");
        fixture.file("/proc/sys/vm/pgtable_repl_domains", "0\n");
        fixture.file(
            "/proc/vmstat",
            "nr_free_pages 99\nnr_pgtable_repl_pages 47\npgtable_repl_alloc 50\n",
        );
        let settings = settings(&fixture).unwrap();
        assert_eq!(
            render_settings(&settings),
            "\
NAME                      VALUE  MEANING
vm.pgtable_repl_mode          1  per process
vm.pgtable_repl_reserve      64  4 KiB pages kept ready on each node
vm.pgtable_repl_node_max     10  most that copies take of a node, in per cent
vm.pgtable_repl_domains       0  CPUs that share their copies
nr_pgtable_repl_pages        47  copies in use now, 4 KiB pages
pgtable_repl_alloc           50  copies made
"
        );
    }
}
