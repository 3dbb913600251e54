// SPDX-License-Identifier: GPL-2.0-or-later
//! Metrics that need no command: the CPU's counters, and where leaf tables are
//! walked from.

use std::fs::File;
use std::time::Duration;

use nearwalk_advise::cpu_time::{CpuTimes, Sampling, Watched};
use nearwalk_advise::subject::{Instruments, LiveInstruments};
use nearwalk_dump::analysis::locality::Viewpoint;
use nearwalk_host::{Machine, Node, Source, cgroup, process};
use nearwalk_perf::{Reading, Target};
use nearwalk_repl::Subject;

use crate::run::{Metric, Stop, wait};

/// Processes of a group whose tables are read, those that ran most first.
const READ: usize = 16;

/// Less of the CPU time than this says nothing of where the rest went.
const SEEN: f64 = 0.8;

/// The processes of a subject.
pub fn processes(source: &mut dyn Source, subject: &Subject) -> Result<Vec<u32>, Stop> {
    match subject {
        Subject::Process { pid, .. } => Ok(vec![*pid]),
        Subject::Cgroup { directory, .. } => {
            let found = cgroup::processes_below(source, directory);
            let (pids, _) = found.map_err(|error| Stop::Lost(error.to_string()))?;
            if pids.is_empty() {
                let name = directory.display();
                return Err(Stop::Lost(format!("group {name} has no processes here")));
            }
            Ok(pids)
        }
    }
}

/// The share of the memory whose leaf tables are on another node than the CPU,
/// over the CPUs' time.
pub struct RemoteLeaves {
    machine: Machine,
    subject: Subject,
    times: Sampling,
    instruments: LiveInstruments,
}

impl RemoteLeaves {
    /// Reads the tables once, to see that they can be.
    pub fn new(source: &mut dyn Source, subject: Subject) -> Result<Self, Stop> {
        let machine = Machine::read(source);
        let mut new = Self {
            machine: machine.map_err(|error| Stop::Metric(error.to_string()))?,
            subject,
            times: Sampling::default(),
            instruments: LiveInstruments::default(),
        };
        let pid = processes(source, &new.subject)?[0];
        new.instruments.viewpoints(pid).map_err(|why| {
            Stop::Metric(format!("remote-leaves: page tables cannot be read: {why}"))
        })?;
        Ok(new)
    }
}

impl Metric for RemoteLeaves {
    fn measure(&mut self, source: &mut dyn Source, length: Duration) -> Result<f64, Stop> {
        let watched = Watched {
            pids: processes(source, &self.subject)?,
            ..Watched::default()
        };
        let seen = self
            .times
            .observe(source, &self.machine, &[watched], length);
        let seen = seen.map_err(|_| Stop::Interrupted)?;
        let mut ran = seen.observed.into_iter().next().unwrap_or_default();
        let of_kernel: Duration = ran.processes.iter().filter_map(|one| one.used).sum();
        let sampled: Duration = ran.processes.iter().map(|one| one.spent.total()).sum();
        if sampled.is_zero() {
            return Err(Stop::Metric(
                "remote-leaves: it used no CPU time for a whole period: nothing was walked".into(),
            ));
        }
        // A tick more or less of each is no matter.
        let ticks = process::TICK * u32::try_from(ran.processes.len()).unwrap_or(u32::MAX);
        if (sampled + ticks).as_secs_f64() < SEEN * of_kernel.as_secs_f64() {
            return Err(Stop::Metric(format!(
                "remote-leaves: only {:.0} % of its CPU time could be seen, since its threads \
                 come and go",
                100.0 * sampled.as_secs_f64() / of_kernel.as_secs_f64()
            )));
        }
        ran.processes
            .sort_by_key(|one| std::cmp::Reverse(one.spent.total()));
        let (mut remote, mut all) = (0.0, 0.0);
        for one in ran.processes.iter().take(READ) {
            // It may have ended meanwhile; the switch is checked afterwards.
            let Ok(points) = self.instruments.viewpoints(one.pid) else {
                continue;
            };
            for (node, time) in self.machine.nodes.iter().zip(&one.spent.by_node) {
                if let Some(share) = share(node, &points).filter(|_| !time.is_zero()) {
                    remote += share * time.as_secs_f64();
                    all += time.as_secs_f64();
                }
            }
        }
        if all == 0.0 {
            return Err(Stop::Metric(
                "remote-leaves: no page tables could be read".into(),
            ));
        }
        Ok(remote / all)
    }
}

/// What is remote from a node, over all of its domains.
fn share(node: &Node, points: &[Viewpoint]) -> Option<f64> {
    let here = points.iter().filter(|point| point.node == node.id);
    let (remote, local) = here.fold((0, 0), |(remote, local), point| {
        (remote + point.remote.bytes, local + point.local.bytes)
    });
    (remote + local > 0).then(|| remote as f64 / (remote + local) as f64)
}

/// What of the counters is the metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// Cycles a walk.
    CyclesPerWalk,
    /// The share of the cycles in which a walk was under way.
    WalkShare,
}

/// What the CPU's counters say.
pub struct Counters {
    counted: Counted,
    subject: Subject,
    cpus: Vec<u32>,
    instruments: LiveInstruments,
}

impl Counters {
    /// Opens the counters once, to see that they can be.
    pub fn new(source: &mut dyn Source, subject: Subject, counted: Counted) -> Result<Self, Stop> {
        let machine = Machine::read(source).map_err(|error| Stop::Metric(error.to_string()))?;
        let cpus = machine.nodes.iter().flat_map(|node| node.cpus.clone());
        let mut new = Self {
            counted,
            subject,
            cpus: cpus.collect(),
            instruments: LiveInstruments::default(),
        };
        new.begin(source)?;
        Ok(new)
    }

    fn begin(&mut self, source: &mut dyn Source) -> Result<(), Stop> {
        let begun = match &self.subject {
            Subject::Cgroup { directory, .. } => {
                let file = File::open(directory);
                let file = file.map_err(|error| Stop::Lost(error.to_string()))?;
                self.instruments
                    .begin(source, &Target::Cgroup(&file, &self.cpus))
            }
            Subject::Process { pid, .. } => {
                let threads = process::threads(source, *pid).unwrap_or_default();
                self.instruments.begin(source, &Target::Threads(&threads))
            }
        };
        begun.map_err(|missing| Stop::Metric(format!("counters: {missing}")))
    }

    fn value(&self, reading: &Reading) -> Option<f64> {
        match self.counted {
            Counted::CyclesPerWalk => reading.cycles_per_walk().filter(|&cycles| cycles > 0.0),
            Counted::WalkShare => reading.walk_share(),
        }
    }
}

impl Metric for Counters {
    fn measure(&mut self, source: &mut dyn Source, length: Duration) -> Result<f64, Stop> {
        self.begin(source)?;
        wait(source, length)?;
        let reading = self.instruments.end(source);
        let reading = reading.map_err(|missing| Stop::Metric(format!("counters: {missing}")))?;
        self.value(&reading).ok_or_else(|| {
            Stop::Metric("counters: no walks were counted for a whole period".into())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearwalk_dump::analysis::locality::Leaves;
    use nearwalk_dump::stream::View;

    #[test]
    fn domains_of_a_node_are_added_up() {
        let leaves = |bytes| Leaves { entries: 1, bytes };
        let point = |node, local, remote| Viewpoint {
            node,
            tree: View::Canonical,
            local: leaves(local),
            remote: leaves(remote),
            absent: leaves(0),
            unread: false,
        };
        let points = [point(0, 30, 10), point(0, 0, 40), point(1, 0, 0)];
        let of = |id| {
            let node = Node {
                id,
                cpus: vec![id],
                tables: 0,
                nested: None,
            };
            share(&node, &points)
        };
        assert_eq!((of(0), of(1), of(2)), (Some(0.625), None, None));
    }
}
