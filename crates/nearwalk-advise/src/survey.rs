// SPDX-License-Identifier: GPL-2.0-or-later
//! Reads a host and ranks who may walk remote page tables.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use nearwalk_host::cgroup::{self, Cpusets, Groups, Mounts};
use nearwalk_host::{Error, Machine, Source, process};

use crate::cpu_time::{CpuTimes, Observation, Observed, ProcessTime, Spent, Watched};
use crate::exposure::{self, CpuTime, Tables};
use crate::report::{IDLE, Kind, Known, LOCAL, LeftOut, Lost, Reason, Report, SEEN, Subject};

/// Who is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whom {
    /// Those who are worth a look.
    Exposed,
    /// Everyone with tables. Threads are looked at of those only whose tables
    /// are worth it.
    Everyone,
}

/// Someone with tables.
#[derive(Clone, Debug)]
struct Candidate {
    kind: Kind,
    name: String,
    tables: Tables,
    /// Index of who is watched for it.
    watched: usize,
    /// Walks hit the last-level cache.
    small: bool,
}

/// What a look around finds: who is there, and whose CPU time is to be watched.
#[derive(Debug)]
pub struct Survey {
    machine: Machine,
    whom: Whom,
    cpusets: Option<Cpusets>,
    /// Tables below this are left out.
    small: u64,
    watched: Vec<Watched>,
    /// Where the CPU time of those can go, by index of the node.
    allowed: Vec<Vec<usize>>,
    candidates: Vec<Candidate>,
    left_out: Vec<LeftOut>,
    counted: u64,
    foreign: usize,
    lost: Vec<Lost>,
    bad: Vec<String>,
}

/// Looks at a host for `length`.
pub fn survey(
    source: &mut dyn Source,
    times: &mut dyn CpuTimes,
    length: Duration,
) -> Result<Report, Error> {
    let machine = Machine::read(source)?;
    if machine.nodes.len() <= 1 {
        return Ok(Survey::new(machine, Whom::Exposed).blank(times.name()));
    }
    let survey = Survey::around(source, machine, Whom::Exposed)?;
    let mut seen = Observation::default();
    if !survey.watched().is_empty() {
        // What was read so far took its time; the looks begin now.
        source.wait(Duration::ZERO)?;
        seen = times.observe(source, survey.machine(), survey.watched(), length)?;
    }
    Ok(survey.report(source, &seen, times.name()))
}

impl Survey {
    fn new(machine: Machine, whom: Whom) -> Self {
        Self {
            small: machine.l3.unwrap_or(0) / 2,
            machine,
            whom,
            cpusets: None,
            watched: Vec::new(),
            allowed: Vec::new(),
            candidates: Vec::new(),
            left_out: Vec::new(),
            counted: 0,
            foreign: 0,
            lost: Vec::new(),
            bad: Vec::new(),
        }
    }

    /// Finds who is there.
    pub fn around(source: &mut dyn Source, machine: Machine, whom: Whom) -> Result<Self, Error> {
        let mut survey = Self::new(machine, whom);
        if survey.machine.l3.is_none() {
            survey.lost.push(Lost::NoL3);
        }
        survey.look_around(source)?;
        Ok(survey)
    }

    /// The host.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Those whose CPU time is to be observed.
    pub fn watched(&self) -> &[Watched] {
        &self.watched
    }

    fn blank(&self, times: &'static str) -> Report {
        Report {
            kernel: self.machine.kernel.clone(),
            nodes: self.machine.nodes.clone(),
            l3: self.machine.l3,
            length: Duration::ZERO,
            looks: 0,
            source: times,
            counted: (0, 0),
            seen: None,
            ranked: Vec::new(),
            left_out: Vec::new(),
            elsewhere: None,
            lost: Vec::new(),
        }
    }

    /// Finds who has tables that are worth a look.
    fn look_around(&mut self, source: &mut dyn Source) -> Result<(), Error> {
        let mounts = Mounts::read(source)?;
        if let Some(value) = mounts.hidepid {
            // It hides nothing from root and from the group that gid= names.
            if process::stat(source, 1).is_err() {
                self.lost.push(Lost::Hidepid(value));
            }
        }
        let loose = match (mounts.v2, mounts.v1_memory) {
            (Some(mount), None) => {
                let groups = cgroup::groups(source, &self.machine, &mount)?;
                self.cpusets = Some(Cpusets::new(&mount));
                self.groups(source, groups)
            }
            (_, Some(v1)) => {
                self.lost.push(Lost::CgroupV1(v1));
                process::all(source)?.into_iter().collect()
            }
            (None, None) => {
                self.lost.push(Lost::NoCgroups);
                process::all(source)?.into_iter().collect()
            }
        };
        self.loose(source, loose);
        Ok(())
    }

    /// Takes the groups that are worth a look, and returns the processes of
    /// which no group counts the tables.
    fn groups(&mut self, source: &mut dyn Source, groups: Groups) -> BTreeSet<u32> {
        let all = &groups.all;
        let counts = |index: usize| {
            let tables = all[index].tables.as_ref();
            tables.is_some_and(|tables| tables.own.is_some())
        };
        // Who counts a group's processes: itself, or one above it.
        let mut counted_by: Vec<Option<usize>> = vec![None; all.len()];
        let mut members: Vec<Vec<usize>> = vec![Vec::new(); all.len()];
        for index in 0..all.len() {
            if counts(index) {
                counted_by[index] = Some(index);
            }
            if let Some(by) = counted_by[index] {
                members[by].push(index);
            }
            for &below in &all[index].below {
                counted_by[below] = counted_by[index];
            }
        }
        let mut loose = BTreeSet::new();
        let mut without = 0;
        let mut lacks_tables = false;
        let mut lacks_nested = false;
        let mut removed = groups.removed;
        for (index, group) in all.iter().enumerate() {
            if let Some(tables) = &group.tables {
                lacks_tables |= tables.own.is_none();
                lacks_nested |= tables.nested.is_none();
            }
            match counted_by[index] {
                Some(by) if by == index => {
                    // What groups below count is theirs.
                    if !group.below.iter().any(|&below| counts(below)) {
                        let dirs = members[index].iter().map(|&i| all[i].dir.as_path());
                        self.group(source, group, &dirs.collect::<Vec<_>>());
                    }
                }
                Some(_) => {}
                None => match cgroup::processes(source, &group.dir) {
                    Ok((pids, foreign)) => {
                        self.foreign += foreign;
                        without += usize::from(
                            !pids.is_empty() && group.tables.is_none() && group.name != "/",
                        );
                        loose.extend(pids);
                    }
                    Err(error) if error.is_gone() => removed += 1,
                    Err(error) if error.is_refused() => {}
                    Err(error) => self.bad.push(error.to_string()),
                },
            }
        }
        if lacks_tables {
            self.lost.push(Lost::NoTables);
        } else if lacks_nested {
            self.lost.push(Lost::NoNested);
        }
        if without > 0 {
            self.lost.push(Lost::NoController(without));
        }
        if groups.refused > 0 {
            self.lost.push(Lost::GroupsRefused(groups.refused));
        }
        if removed > 0 {
            self.lost.push(Lost::Removed(removed));
        }
        self.bad.extend(groups.bad.iter().map(Error::to_string));
        for pid in process::kernel_threads(source) {
            loose.remove(&pid);
        }
        loose
    }

    /// Takes a group if its tables are worth a look. Its processes are in `dirs`.
    fn group(&mut self, source: &mut dyn Source, group: &cgroup::Group, dirs: &[&Path]) {
        let Some(tables) = &group.tables else {
            return;
        };
        let mut taken = false;
        let mut large = false;
        let mut some = false;
        let of = [(Kind::Group, &tables.own), (Kind::Vm, &tables.nested)];
        for (kind, bytes) in of {
            let Some(bytes) = bytes else {
                continue;
            };
            let total: u64 = bytes.iter().sum();
            some |= total > 0;
            if kind == Kind::Group {
                self.counted += total;
            }
            let small = total < self.small;
            if total > 0 && (!small || self.whom == Whom::Everyone) {
                taken = true;
                large |= !small;
                self.candidates.push(Candidate {
                    small,
                    kind,
                    name: group.name.clone(),
                    tables: Tables::Known(bytes.clone()),
                    watched: self.watched.len(),
                });
            }
        }
        if !taken {
            // Most empty groups are systemd's, for mounts and the like.
            if some {
                self.leave_out(Kind::Group, &group.name, Reason::FitsL3);
            }
            return;
        }
        let allowed = if large {
            self.allowed(source, &group.dir)
        } else {
            self.machine.with_cpus()
        };
        let mut watched = Watched {
            group: Some(group.dir.clone()),
            total_only: allowed.len() == 1 || !large,
            pids: Vec::new(),
        };
        let dirs = if large { dirs } else { &[] };
        for dir in dirs {
            match cgroup::processes(source, dir) {
                Ok((pids, foreign)) => {
                    self.foreign += foreign;
                    watched.pids.extend(pids);
                }
                Err(error) if error.is_gone() || error.is_refused() => {}
                Err(error) => self.bad.push(error.to_string()),
            }
        }
        self.watched.push(watched);
        self.allowed.push(allowed);
    }

    /// The nodes on whose CPUs a group may run.
    fn allowed(&mut self, source: &mut dyn Source, dir: &Path) -> Vec<usize> {
        let anywhere = self.machine.with_cpus();
        if anywhere.len() == 1 {
            return anywhere;
        }
        let cpus = self.cpusets.as_mut().map(|cpusets| cpusets.of(source, dir));
        match cpus {
            Some(Ok(Some(cpus))) => {
                let nodes = cpus.iter().filter_map(|&cpu| self.machine.node_of_cpu(cpu));
                let nodes: BTreeSet<usize> = nodes.collect();
                if nodes.is_empty() {
                    anywhere
                } else {
                    nodes.into_iter().collect()
                }
            }
            Some(Err(error)) => {
                self.bad.push(error.to_string());
                anywhere
            }
            _ => anywhere,
        }
    }

    /// Takes processes of which no group counts the tables.
    fn loose(&mut self, source: &mut dyn Source, pids: BTreeSet<u32>) {
        let most: Vec<u64> = self.machine.nodes.iter().map(|node| node.tables).collect();
        let anywhere = self.machine.with_cpus();
        for pid in pids {
            let total = match process::tables(source, pid) {
                Ok(Some(total)) => total,
                // A kernel thread.
                Ok(None) => continue,
                Err(error) => {
                    if !error.is_gone() && !error.is_refused() {
                        self.bad.push(error.to_string());
                    }
                    continue;
                }
            };
            let small = total == 0 || total < self.small;
            if small && self.whom == Whom::Exposed {
                self.leave_out(Kind::Process, &pid.to_string(), Reason::FitsL3);
                continue;
            }
            self.candidates.push(Candidate {
                small,
                kind: Kind::Process,
                name: pid.to_string(),
                tables: Tables::Within {
                    total,
                    most: most.clone(),
                },
                watched: self.watched.len(),
            });
            self.watched.push(Watched {
                group: None,
                total_only: anywhere.len() == 1 || small,
                pids: vec![pid],
            });
            self.allowed.push(anywhere.clone());
        }
    }

    fn leave_out(&mut self, kind: Kind, name: &str, reason: Reason) {
        self.left_out.push(LeftOut {
            kind,
            name: name.to_owned(),
            reason,
        });
    }

    /// Puts what was seen into a report, under the name of who observed it.
    pub fn report(
        &self,
        source: &mut dyn Source,
        seen: &Observation,
        times: &'static str,
    ) -> Report {
        let mut report = self.blank(times);
        report.left_out.clone_from(&self.left_out);
        let mut leave_out = |candidate: &Candidate, reason| {
            report.left_out.push(LeftOut {
                kind: candidate.kind,
                name: candidate.name.clone(),
                reason,
            });
        };
        for candidate in &self.candidates {
            match self.judge(candidate, seen) {
                Ok(Subject {
                    quiet: Some(reason),
                    ..
                }) if self.whom == Whom::Exposed => leave_out(candidate, reason),
                Ok(mut subject) => {
                    let watched = &self.watched[candidate.watched];
                    let quiet = matches!(subject.quiet, Some(Reason::Idle | Reason::FitsL3));
                    if let (Some(dir), false) = (&watched.group, quiet) {
                        if candidate.kind == Kind::Group {
                            subject.memory = cgroup::memory(source, dir).ok();
                            let within = self.processes(source, &subject, candidate, seen);
                            report.ranked.extend(within);
                        }
                    }
                    report.ranked.push(subject);
                }
                Err(reason) => leave_out(candidate, reason),
            }
        }
        report.ranked.sort_by(|a, b| {
            let certain = |subject: &Subject| subject.bounds.is_certainly_remote();
            certain(b)
                .cmp(&certain(a))
                .then_with(|| b.exposure().total_cmp(&a.exposure()))
                .then_with(|| (a.kind, &a.name, a.pid).cmp(&(b.kind, &b.name, b.pid)))
        });
        report.length = seen.length;
        report.looks = seen.looks;
        let (mut all, mut known) = (Duration::ZERO, Duration::ZERO);
        for (watched, observed) in self.watched.iter().zip(&seen.observed) {
            if let (Some(used), false) = (used(observed), watched.total_only) {
                all += used;
                known += spent(observed, &self.machine).total().min(used);
                report.counted.0 += usize::from(observed.counted.is_some());
                report.counted.1 += 1;
            }
        }
        report.seen = (!all.is_zero()).then(|| known.as_secs_f64() / all.as_secs_f64());
        let tables: u64 = self.machine.nodes.iter().map(|node| node.tables).sum();
        let elsewhere = tables.saturating_sub(self.counted);
        report.elsewhere = self.cpusets.is_some().then_some(elsewhere);
        report.lost.clone_from(&self.lost);
        if self.foreign > 0 {
            report.lost.push(Lost::Foreign(self.foreign));
        }
        if seen.refused > 0 {
            report.lost.push(Lost::Refused(seen.refused));
        }
        if let Some(first) = self.bad.iter().chain(&seen.bad).next() {
            let count = self.bad.len() + seen.bad.len();
            report.lost.push(Lost::Bad(first.clone(), count));
        }
        report
    }

    fn judge(&self, candidate: &Candidate, seen: &Observation) -> Result<Subject, Reason> {
        let observed = &seen.observed[candidate.watched];
        let used = used(observed).ok_or(Reason::Gone)?;
        let mut where_to = spent(observed, &self.machine);
        let mut used = used;
        let mut counted = observed.counted.is_some();
        let mut whole_group = false;
        if candidate.kind == Kind::Vm && !self.watched[candidate.watched].total_only {
            let vcpus: Vec<&Spent> = observed
                .processes
                .iter()
                .filter_map(|process| process.vcpus.as_ref())
                .collect();
            if vcpus.is_empty() {
                whole_group = true;
            } else {
                // These threads stay as long as the machine runs: their time
                // was seen to the nanosecond, whatever else is in the group.
                where_to = Spent {
                    by_node: vec![Duration::ZERO; self.machine.nodes.len()],
                    ..Spent::default()
                };
                for vcpu in vcpus {
                    where_to.extend(vcpu);
                }
                used = where_to.total();
                counted = false;
            }
        }
        let busiest = observed
            .processes
            .iter()
            .max_by_key(|process| process.spent.total())
            .map(|process| process.pid)
            .or_else(|| self.watched[candidate.watched].pids.first().copied());
        let name = match (candidate.kind, observed.processes.first()) {
            (Kind::Process, Some(process)) => process.name.clone(),
            _ => candidate.name.clone(),
        };
        let subject = self.subject(
            candidate.kind,
            name,
            busiest,
            Use {
                used,
                spent: &where_to,
                length: seen.length,
                watched: candidate.watched,
                small: candidate.small,
                counted,
            },
            candidate.tables.clone(),
        );
        Ok(Subject {
            whole_group,
            ..subject
        })
    }

    fn subject(
        &self,
        kind: Kind,
        name: String,
        pid: Option<u32>,
        of: Use<'_>,
        tables: Tables,
    ) -> Subject {
        let cpus = if of.length.is_zero() {
            0.0
        } else {
            of.used.as_secs_f64() / of.length.as_secs_f64()
        };
        let allowed = &self.allowed[of.watched];
        let total = of.spent.total();
        let share = |time: Duration| time.as_secs_f64() / total.as_secs_f64();
        let (time, known, seen) = if let [node] = allowed[..] {
            let mut shares = vec![0.0; self.machine.nodes.len()];
            shares[node] = 1.0;
            let known = if self.machine.with_cpus().len() == 1 {
                Known::OneNode
            } else {
                Known::Cpuset
            };
            (CpuTime::Shares(shares), known, None)
        } else if of.used.is_zero() {
            (CpuTime::Among(allowed.clone()), Known::No, None)
        } else {
            let seen = (total.as_secs_f64() / of.used.as_secs_f64()).min(1.0);
            if seen < SEEN {
                (CpuTime::Among(allowed.clone()), Known::No, Some(seen))
            } else {
                let shares = of.spent.by_node.iter().map(|&time| share(time));
                let time = CpuTime::Shares(shares.collect());
                let known = if of.counted {
                    Known::Counted
                } else {
                    Known::Observed
                };
                (time, known, Some(seen))
            }
        };
        let bounds = exposure::bounds(&time, &tables);
        let quiet = if of.small {
            Some(Reason::FitsL3)
        } else if cpus < IDLE {
            Some(Reason::Idle)
        } else {
            (bounds.upper < LOCAL).then_some(Reason::Local)
        };
        Subject {
            kind,
            name,
            group: None,
            pid,
            cpus,
            time,
            known,
            seen,
            moved: if total.is_zero() {
                0.0
            } else {
                share(of.spent.moved)
            },
            whole_group: false,
            tables,
            bounds,
            memory: None,
            quiet,
            watched: of.watched,
        }
    }

    /// The processes of a listed group that are worth a line of their own.
    fn processes(
        &self,
        source: &mut dyn Source,
        group: &Subject,
        candidate: &Candidate,
        seen: &Observation,
    ) -> Vec<Subject> {
        let observed = &seen.observed[candidate.watched];
        let Tables::Known(most) = &candidate.tables else {
            return Vec::new();
        };
        if observed.processes.len() < 2 {
            return Vec::new();
        }
        let subject = |process: &ProcessTime| {
            let used = process.used?;
            let idle = used.as_secs_f64() < IDLE * seen.length.as_secs_f64();
            if used.is_zero() || (idle && self.whom == Whom::Exposed) {
                return None;
            }
            let total = process::tables(source, process.pid).ok()??;
            let of = Use {
                used,
                spent: &process.spent,
                length: seen.length,
                watched: candidate.watched,
                small: total < self.small.max(1),
                counted: false,
            };
            let tables = Tables::Within {
                total,
                most: most.clone(),
            };
            let name = process.name.clone();
            let subject = self.subject(Kind::Process, name, Some(process.pid), of, tables);
            let listed = subject.quiet.is_none() || self.whom == Whom::Everyone;
            listed.then(|| Subject {
                group: Some(group.name.clone()),
                ..subject
            })
        };
        let subjects: Vec<Subject> = observed.processes.iter().filter_map(subject).collect();
        match &subjects[..] {
            // It is the group, next to.
            [one] if one.cpus > 0.9 * group.cpus && self.whom == Whom::Exposed => Vec::new(),
            _ => subjects,
        }
    }
}

/// The CPU time that was used, and where it was seen to go.
struct Use<'a> {
    used: Duration,
    spent: &'a Spent,
    length: Duration,
    watched: usize,
    small: bool,
    /// The kernel counted it.
    counted: bool,
}

/// What a group used, or the processes that were watched by themselves.
fn used(observed: &Observed) -> Option<Duration> {
    observed.used.or_else(|| {
        let [process] = &observed.processes[..] else {
            return None;
        };
        process.used
    })
}

fn spent(observed: &Observed, machine: &Machine) -> Spent {
    observed.spent(machine.nodes.len())
}
