// SPDX-License-Identifier: GPL-2.0-or-later
//! On which nodes the CPU time of groups and processes goes.
//!
//! `cpu.stat` says how much time a group uses, and not where. [`CpuTimes`] is
//! any way to find that out; [`Sampling`] needs no privileges. Where the source
//! tells what the kernel counts of each group and CPU, that is taken for groups.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use nearwalk_host::{Error, Machine, Source, cgroup, process};

/// A set of processes to look at.
#[derive(Clone, Debug, Default)]
pub struct Watched {
    /// The cgroup that counts their CPU time; without one, they are counted
    /// each by itself.
    pub group: Option<PathBuf>,
    /// Where its CPU time goes is known: only how much it is has to be counted.
    pub total_only: bool,
    /// The processes.
    pub pids: Vec<u32>,
}

/// Where the CPU time of some threads went.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Spent {
    /// By index of the node.
    pub by_node: Vec<Duration>,
    /// How much of it was between two looks with different nodes.
    pub moved: Duration,
}

impl Spent {
    fn new(nodes: usize) -> Self {
        Self {
            by_node: vec![Duration::ZERO; nodes],
            moved: Duration::ZERO,
        }
    }

    /// All of it.
    pub fn total(&self) -> Duration {
        self.by_node.iter().sum()
    }

    /// Half of the time goes to where it began, half to where it ended.
    fn add(&mut self, time: Duration, from: usize, to: usize) {
        self.by_node[from] += time / 2;
        self.by_node[to] += time - time / 2;
        if from != to {
            self.moved += time;
        }
    }

    /// Adds what others spent.
    pub fn extend(&mut self, other: &Self) {
        for (sum, time) in self.by_node.iter_mut().zip(&other.by_node) {
            *sum += *time;
        }
        self.moved += other.moved;
    }
}

/// What was seen of a process.
#[derive(Clone, Debug, PartialEq)]
pub struct ProcessTime {
    /// Its number.
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// All that it used, as the kernel counts it; none if it ended meanwhile.
    pub used: Option<Duration>,
    /// Where its threads ran.
    pub spent: Spent,
    /// Where those ran that are CPUs of a virtual machine; none if it has none.
    pub vcpus: Option<Spent>,
}

/// What was seen of a set of processes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observed {
    /// All that its group used; none without a group, or if it was removed.
    pub used: Option<Duration>,
    /// Where its group ran, if the kernel's counts of each CPU could be had.
    pub counted: Option<Spent>,
    /// Its processes, by number.
    pub processes: Vec<ProcessTime>,
}

impl Observed {
    /// Where it ran: as it was counted, else as its threads were seen.
    pub fn spent(&self, nodes: usize) -> Spent {
        if let Some(counted) = &self.counted {
            return counted.clone();
        }
        let mut sum = Spent::new(nodes);
        for process in &self.processes {
            sum.extend(&process.spent);
        }
        sum
    }
}

/// All that was seen, and for how long.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observation {
    /// For each that was to be watched, in the same order.
    pub observed: Vec<Observed>,
    /// From the first look to the last.
    pub length: Duration,
    /// How many looks there were.
    pub looks: usize,
    /// Processes that could not be looked into.
    pub refused: usize,
    /// What was not understood, and left out for that.
    pub bad: Vec<String>,
}

/// A way to find out where CPU time goes.
pub trait CpuTimes {
    /// What the answer calls it.
    fn name(&self) -> &'static str;

    /// Watches for `length`.
    fn observe(
        &mut self,
        source: &mut dyn Source,
        machine: &Machine,
        watched: &[Watched],
        length: Duration,
    ) -> Result<Observation, Error>;
}

/// Looks now and then at how much each thread has run, and where it is.
///
/// The distances are random, 0.1 to 1 s, so that they do not fall in step with
/// anything that runs periodically.
#[derive(Debug)]
pub struct Sampling {
    random: fastrand::Rng,
}

impl Default for Sampling {
    fn default() -> Self {
        Self {
            random: fastrand::Rng::new(),
        }
    }
}

/// Names of the threads that run a virtual CPU: QEMU's `CPU 3/KVM`.
fn is_vcpu(name: &str) -> bool {
    name.strip_prefix("CPU ")
        .and_then(|rest| rest.strip_suffix("/KVM"))
        .is_some_and(|number| number.parse::<u32>().is_ok())
}

#[derive(Debug)]
struct Thread {
    tid: u32,
    started: u64,
    node: Option<usize>,
    used: Duration,
    /// The kernel tells nanoseconds, not only ticks.
    fine: bool,
    vcpu: bool,
    has_run: bool,
    gone: bool,
}

#[derive(Debug)]
struct Process {
    pid: u32,
    name: String,
    used: Option<Duration>,
    threads: Vec<Thread>,
    spent: Spent,
    vcpus: Spent,
}

#[derive(Debug)]
struct Set {
    watched: Watched,
    used: Option<Duration>,
    by_cpu: Option<ByCpu>,
    processes: Vec<Process>,
}

/// CPU time of a group by CPU.
type ByCpu = BTreeMap<u32, Duration>;

/// Looks at some processes again and again.
///
/// All threads are looked at when it begins, at the next look, and before what
/// was seen is [taken](Watch::take); in between only those that have run, since
/// most threads of a host wait.
#[derive(Debug)]
pub struct Watch {
    sets: Vec<Set>,
    /// The source may tell what groups used on each CPU.
    by_cpu: bool,
    begin: Duration,
    seen: Observation,
}

impl Watch {
    /// Looks at them for the first time.
    pub fn begin(source: &mut dyn Source, machine: &Machine, watched: &[Watched]) -> Self {
        let mut seen = Observation {
            looks: 1,
            ..Observation::default()
        };
        let mut counts = true;
        // Asking for the first time takes long, so nobody's time runs yet.
        for first in watched.iter().filter(|watched| !watched.total_only).take(1) {
            by_cpu(source, first, &mut counts, &mut Vec::new());
        }
        let begin = source.now();
        let watched = watched.iter();
        let sets = watched
            .map(|watched| first_look(source, machine, watched, &mut counts, &mut seen))
            .collect();
        Self {
            sets,
            by_cpu: counts,
            begin,
            seen,
        }
    }

    /// Looks at them between two moments that matter.
    fn look(&mut self, source: &mut dyn Source, machine: &Machine) {
        self.seen.looks += 1;
        let at_all = self.seen.looks == 2;
        for process in self.sets.iter_mut().flat_map(|set| &mut set.processes) {
            look(source, machine, process, at_all, &mut self.seen.bad);
        }
    }

    /// Looks at them once more, and says what was seen since this was asked
    /// last, or since it began.
    pub fn take(&mut self, source: &mut dyn Source, machine: &Machine) -> Observation {
        let now = source.now();
        let mut seen = Observation {
            looks: self.seen.looks + 1,
            length: now.saturating_sub(self.begin),
            refused: self.seen.refused,
            bad: std::mem::take(&mut self.seen.bad),
            observed: Vec::new(),
        };
        for set in &mut self.sets {
            let counts = last_counts(source, set, &mut seen.bad);
            let by_cpu = by_cpu(source, &set.watched, &mut self.by_cpu, &mut seen.bad);
            let before = std::mem::replace(&mut set.by_cpu, by_cpu);
            let counted = counted(before.as_ref(), set.by_cpu.as_ref(), machine);
            for process in &mut set.processes {
                look(source, machine, process, true, &mut seen.bad);
            }
            let mut observed = take(set, counts, machine.nodes.len());
            observed.counted = counted;
            seen.observed.push(observed);
        }
        self.begin = now;
        self.seen.looks = 1;
        seen
    }
}

impl Sampling {
    /// What answers call it.
    pub const NAME: &str = "sampled";
}

impl CpuTimes for Sampling {
    fn name(&self) -> &'static str {
        Self::NAME
    }

    fn observe(
        &mut self,
        source: &mut dyn Source,
        machine: &Machine,
        watched: &[Watched],
        length: Duration,
    ) -> Result<Observation, Error> {
        let begin = source.now();
        let mut watch = Watch::begin(source, machine, watched);
        loop {
            let left = length.saturating_sub(source.now() - begin);
            if left.is_zero() {
                // Nobody was to be looked at for any time.
                return Ok(watch.take(source, machine));
            }
            let distance = Duration::from_micros(self.random.u64(100_000..1_000_000));
            // No look so shortly before the end that it says nothing.
            let distance = if left < distance + Duration::from_millis(100) {
                left
            } else {
                distance
            };
            source.wait(distance)?;
            if source.now() - begin >= length {
                return Ok(watch.take(source, machine));
            }
            watch.look(source, machine);
        }
    }
}

/// What can still be read: nothing of what is gone or closed, and nothing that
/// is not understood, which goes to `bad`.
fn if_there<T>(result: Result<T, Error>, bad: &mut Vec<String>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(error) => {
            if !error.is_gone() && !error.is_refused() {
                bad.push(error.to_string());
            }
            None
        }
    }
}

fn first_look(
    source: &mut dyn Source,
    machine: &Machine,
    watched: &Watched,
    counts: &mut bool,
    result: &mut Observation,
) -> Set {
    // The group's count comes before its threads' here and in the last look,
    // so that both are of the same length.
    let group = watched.group.as_ref();
    let mut set = Set {
        watched: watched.clone(),
        used: group.and_then(|dir| if_there(cgroup::cpu_time(source, dir), &mut result.bad)),
        by_cpu: by_cpu(source, watched, counts, &mut result.bad),
        processes: Vec::new(),
    };
    if watched.total_only && group.is_some() {
        return set;
    }
    for &pid in &watched.pids {
        match first_look_at(source, machine, pid, watched, &mut result.bad) {
            Ok(process) => set.processes.push(process),
            Err(error) if error.is_refused() => result.refused += 1,
            Err(error) => {
                if_there(Err::<(), _>(error), &mut result.bad);
            }
        }
    }
    set
}

/// What a group has used on each CPU, where that is told and of any use. A source
/// that does not tell once is not asked again.
fn by_cpu(
    source: &mut dyn Source,
    watched: &Watched,
    tells: &mut bool,
    bad: &mut Vec<String>,
) -> Option<ByCpu> {
    let dir = watched.group.as_ref()?;
    if watched.total_only || !*tells {
        return None;
    }
    let times = if_there(cgroup::cpu_time_by_cpu(source, dir), bad).flatten();
    *tells &= times.is_some() || cgroup::cpu_time(source, dir).is_err();
    times
}

/// Where a group ran between two counts.
fn counted(before: Option<&ByCpu>, now: Option<&ByCpu>, machine: &Machine) -> Option<Spent> {
    let mut spent = Spent::new(machine.nodes.len());
    let before = before?;
    for (cpu, &time) in now? {
        let since = before.get(cpu).copied().unwrap_or_default();
        // Groups that were removed take theirs along.
        let time = time.saturating_sub(since);
        if let Some(node) = machine.node_of_cpu(*cpu) {
            spent.add(time, node, node);
        }
    }
    Some(spent)
}

/// Whether processes have to be counted each by itself: the only process of a
/// group uses what the group uses.
fn counts_each(watched: &Watched) -> bool {
    watched.group.is_none() || watched.pids.len() > 1
}

fn first_look_at(
    source: &mut dyn Source,
    machine: &Machine,
    pid: u32,
    watched: &Watched,
    bad: &mut Vec<String>,
) -> Result<Process, Error> {
    let mut process = Process {
        pid,
        name: String::new(),
        used: None,
        threads: Vec::new(),
        spent: Spent::new(machine.nodes.len()),
        vcpus: Spent::new(machine.nodes.len()),
    };
    if counts_each(watched) {
        let stat = process::stat(source, pid)?;
        process.name = stat.name;
        process.used = Some(stat.used);
    }
    if watched.total_only {
        return Ok(process);
    }
    for tid in process::threads(source, pid)? {
        let Some(stat) = if_there(process::thread_stat(source, pid, tid), bad) else {
            continue;
        };
        let fine = if_there(process::cpu_time(source, pid, tid), bad);
        // Without CONFIG_SCHED_INFO the file says 0, or is not there.
        let fine = fine.filter(|time| !time.is_zero() || stat.used < 2 * process::TICK);
        if tid == pid || process.name.is_empty() {
            process.name.clone_from(&stat.name);
        }
        process.threads.push(Thread {
            tid,
            started: stat.started,
            node: machine.node_of_cpu(stat.cpu),
            used: fine.unwrap_or(stat.used),
            fine: fine.is_some(),
            vcpu: is_vcpu(&stat.name),
            has_run: false,
            gone: false,
        });
    }
    Ok(process)
}

/// What a group and its processes have used in all by now.
fn last_counts(
    source: &mut dyn Source,
    set: &Set,
    bad: &mut Vec<String>,
) -> (Option<Duration>, Vec<Option<Duration>>) {
    let group = set.watched.group.as_ref();
    let group = group.and_then(|dir| if_there(cgroup::cpu_time(source, dir), bad));
    let each = counts_each(&set.watched);
    let processes = set.processes.iter().map(|process| {
        let stat = each.then(|| if_there(process::stat(source, process.pid), bad));
        Some(stat??.used)
    });
    (group, processes.collect())
}

fn growth(before: Option<Duration>, now: Option<Duration>) -> Option<Duration> {
    Some(now?.saturating_sub(before?))
}

fn look(
    source: &mut dyn Source,
    machine: &Machine,
    process: &mut Process,
    at_all: bool,
    bad: &mut Vec<String>,
) {
    let pid = process.pid;
    for thread in &mut process.threads {
        if thread.gone || !(at_all || thread.has_run) {
            continue;
        }
        let mut used = thread.used;
        if thread.fine {
            match if_there(process::cpu_time(source, pid, thread.tid), bad) {
                // Most threads have not run: where they are does not matter.
                Some(now) if now <= thread.used => continue,
                Some(now) => used = now,
                None => {
                    thread.gone = true;
                    continue;
                }
            }
        }
        let stat = if_there(process::thread_stat(source, pid, thread.tid), bad);
        // Another thread may have its number by now.
        let Some(stat) = stat.filter(|stat| stat.started == thread.started) else {
            thread.gone = true;
            continue;
        };
        if !thread.fine {
            used = stat.used;
        }
        let time = used.saturating_sub(thread.used);
        let node = machine.node_of_cpu(stat.cpu);
        // Time on a CPU that is not online at either end is not seen.
        if let (Some(from), Some(to)) = (thread.node.or(node), node.or(thread.node)) {
            process.spent.add(time, from, to);
            if thread.vcpu {
                process.vcpus.add(time, from, to);
            }
        }
        thread.has_run |= !time.is_zero();
        thread.used = used;
        thread.node = node;
    }
}

/// What was seen of a set; what comes is counted from now on.
fn take(
    set: &mut Set,
    (group, counts): (Option<Duration>, Vec<Option<Duration>>),
    nodes: usize,
) -> Observed {
    let processes = set.processes.iter_mut().zip(counts);
    let processes = processes.map(|(process, count)| {
        let has_vcpus = process.threads.iter().any(|thread| thread.vcpu);
        let vcpus = std::mem::replace(&mut process.vcpus, Spent::new(nodes));
        ProcessTime {
            pid: process.pid,
            name: process.name.clone(),
            used: growth(std::mem::replace(&mut process.used, count), count),
            spent: std::mem::replace(&mut process.spent, Spent::new(nodes)),
            vcpus: has_vcpus.then_some(vcpus),
        }
    });
    Observed {
        processes: processes.collect(),
        used: growth(std::mem::replace(&mut set.used, group), group),
        counted: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn vcpu_threads_are_known_by_name() {
        assert!(is_vcpu("CPU 0/KVM") && is_vcpu("CPU 127/KVM"));
        for name in [
            "CPU x/KVM",
            "CPU 0",
            "qemu-system-x86",
            "IO mon_iothread",
            "CPU 0/TCG",
        ] {
            assert!(!is_vcpu(name), "{name}");
        }
    }

    #[test]
    fn time_goes_half_to_each_end() {
        let mut spent = Spent::new(2);
        spent.add(10 * MS, 0, 0);
        spent.add(5 * MS, 0, 1);
        assert_eq!(spent.by_node, [12 * MS + MS / 2, 2 * MS + MS / 2]);
        assert_eq!(spent.moved, 5 * MS);
        assert_eq!(spent.total(), 15 * MS);
    }

    #[test]
    fn counts_that_went_away_have_no_growth() {
        assert_eq!(growth(Some(2 * MS), Some(5 * MS)), Some(3 * MS));
        assert_eq!(growth(Some(2 * MS), None), None);
        assert_eq!(growth(None, Some(5 * MS)), None);
    }
}
