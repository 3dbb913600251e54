// SPDX-License-Identifier: GPL-2.0-or-later
//! Setting a process or group on the running kernel.

use std::path::Path;
use std::time::Duration;

use nearwalk_host::{Source, process};
use nearwalk_repl::held::Note;
use nearwalk_repl::{Error, Linux, NodeSet, Request, Subject, System, Topology, is_building};

use crate::builtin::processes;
use crate::guard::Guard;
use crate::run::{Arm, Stop, Switch, wait};

const OFF: &str = "off";

/// How often it is looked whether tables are still being copied.
const LOOK: Duration = Duration::from_millis(100);

/// What copies are tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copies {
    /// In the kernel's words, each node named.
    pub text: String,
    /// The nodes that they are on.
    pub nodes: NodeSet,
    /// All tables are copied, whatever is used.
    pub eager: bool,
}

impl Copies {
    /// What a user asks for. Nothing if that are no copies.
    pub fn new(request: &Request, topology: &Topology) -> Option<Self> {
        let (nodes, eager) = match request {
            Request::All => (topology.usable(), true),
            Request::Nodes(nodes) => (nodes.clone(), true),
            Request::Lazy { nodes, .. } => {
                (nodes.clone().unwrap_or_else(|| topology.usable()), false)
            }
            Request::Off | Request::Default => return None,
        };
        let asked = if eager {
            Request::Nodes(nodes.clone())
        } else {
            Request::Lazy {
                nodes: Some(nodes.clone()),
                prefetch: None,
            }
        };
        Some(Self {
            text: asked.to_string(),
            nodes,
            eager,
        })
    }

    /// What a trial sets.
    pub fn sets(&self) -> Vec<String> {
        vec![OFF.to_owned(), self.text.clone()]
    }

    /// Fails if a node has no room for copies of all tables.
    pub fn check_room(&self, source: &mut dyn Source, subject: &Subject) -> Result<(), String> {
        if !self.eager {
            return Ok(());
        }
        let mut tables = 0;
        for pid in processes(source, subject).map_err(|stop| stop.to_string())? {
            let own = process::tables_of_any_thread(source, pid);
            tables += own.ok().flatten().unwrap_or(0) >> 10;
        }
        let limit = number(&Linux, Path::new("/proc/sys/vm/pgtable_repl_node_max"));
        for node in self.nodes.iter() {
            let path = format!("/sys/devices/system/node/node{node}/meminfo");
            let text = source.read(Path::new(&path)).unwrap_or_default();
            let (Some(all), Some(free)) = (kib(&text, "MemTotal:"), kib(&text, "MemFree:")) else {
                continue;
            };
            let may = limit.map_or(all, |percent| all * percent / 100);
            if tables > may {
                return Err(format!(
                    "no room for copies on node {node}: the page tables take {tables} KiB, and \
                     vm.pgtable_repl_node_max allows {may} KiB there"
                ));
            }
            if tables > free {
                return Err(format!(
                    "no room for copies on node {node}: the page tables take {tables} KiB, and \
                     {free} KiB are free there"
                ));
            }
        }
        Ok(())
    }
}

fn number(system: &impl System, path: &Path) -> Option<u64> {
    system.read(path).ok()?.trim().parse().ok()
}

/// A line of a node's meminfo: `Node 0 MemFree: 1234 kB`.
fn kib(text: &str, label: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.split_once(label))?;
    line.1.split_whitespace().next()?.parse().ok()
}

/// Copies that could not be made, over all processes of the subject.
pub fn fallbacks(source: &mut dyn Source, subject: &Subject) -> u64 {
    let mut all = 0;
    for pid in processes(source, subject).unwrap_or_default() {
        let text = source.read(Path::new(&format!("/proc/{pid}/pgtable_repl")));
        let status = text.ok().and_then(|text| text.parse().ok());
        all += status.map_or(0, |status: nearwalk_repl::Status| status.fallbacks);
    }
    all
}

/// A subject whose setting is looked after by a guard.
pub struct Guarded<'a> {
    note: &'a Note,
    copies: &'a Copies,
    guard: &'a mut Guard,
    last: Option<String>,
}

impl<'a> Guarded<'a> {
    /// As it was found.
    pub fn new(note: &'a Note, copies: &'a Copies, guard: &'a mut Guard) -> Self {
        Self {
            note,
            copies,
            guard,
            last: None,
        }
    }

    fn lost(&self, error: Error) -> Stop {
        match error {
            Error::NoProcess(_) | Error::NoAddressSpace(_) | Error::NoCgroup(_) => {
                Stop::Lost(format!("{} has gone", self.note.name))
            }
            error => Stop::Refused(error),
        }
    }
}

impl Switch for Guarded<'_> {
    fn set(&mut self, source: &mut dyn Source, arm: Arm) -> Result<(), Stop> {
        self.check()?;
        if !self.guard.is_alive() {
            return Err(Stop::Metric(
                "the process that would bring back what was set before was killed".into(),
            ));
        }
        let text = match arm {
            Arm::Off => OFF,
            Arm::On => &self.copies.text,
        };
        let set = self.note.subject.set(&Linux, text);
        set.map_err(|error| self.lost(error))?;
        self.last = Some(text.to_owned());
        loop {
            let pids = processes(source, &self.note.subject)?;
            if !pids.iter().any(|&pid| is_building(&Linux, pid)) {
                return Ok(());
            }
            wait(source, LOOK)?;
        }
    }

    fn check(&mut self) -> Result<(), Stop> {
        let now = self.note.subject.setting(&Linux);
        let now = now.map_err(|error| self.lost(error))?;
        let ours = match &self.last {
            Some(last) => now.is_of(last),
            None => now.text == self.note.found,
        };
        if ours {
            return Ok(());
        }
        Err(Stop::Theirs {
            name: self.note.name.clone(),
            text: now.text,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_meminfo_are_read() {
        let text = "Node 1 MemTotal:       2048 kB\nNode 1 MemFree:   12 kB\n";
        assert_eq!(kib(text, "MemTotal:"), Some(2048));
        assert_eq!(kib(text, "MemFree:"), Some(12));
        assert_eq!(kib(text, "MemUsed:"), None);
    }
}
