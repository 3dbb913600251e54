// SPDX-License-Identifier: GPL-2.0-or-later
//! All that is known of one process or control group.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nearwalk_dump::analysis::Tally;
use nearwalk_dump::analysis::locality::{Viewpoint, locality};
use nearwalk_dump::live;
use nearwalk_dump::stream::Reader;
use nearwalk_host::cgroup::{self, Cpusets, Memory, Mounts};
use nearwalk_host::{Error, Machine, Node, Source, process};
use nearwalk_perf::{Missing, Perf, Reading, Target};
use nearwalk_repl::Status;
use serde::{Deserialize, Serialize};

use crate::cpu_time::{CpuTimes, Observed, Watched};
use crate::exposure::{self, Bounds, CpuTime, Tables};
use crate::report::{Known, SEEN};

/// Processes of a group whose tables are read one by one, those with the most
/// tables first.
const READ: usize = 16;

/// Whom to look at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Whom {
    /// A process, by the number of any of its threads.
    Process(u32),
    /// A control group, by its path or that below the mount point.
    Cgroup(String),
}

/// Why a subject could not be looked at.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Lost {
    /// It is not there, or not any more.
    #[error("{0}")]
    Gone(String),
    /// The host cannot be read.
    #[error(transparent)]
    Host(#[from] Error),
}

/// What reads more than text.
pub trait Instruments {
    /// Begins to count walks.
    fn begin(&mut self, source: &mut dyn Source, target: &Target<'_>) -> Result<(), Missing>;

    /// What was counted since.
    fn end(&mut self, source: &mut dyn Source) -> Result<Reading, Missing>;

    /// Bytes that are mapped by the leaf tables of a process, by the node where
    /// these tables lie; in the last line where they lie on no node.
    fn tables(&mut self, pid: u32) -> Result<Vec<(Option<u32>, u64)>, String>;
}

/// Those of the running host.
#[derive(Default)]
pub struct LiveInstruments {
    perf: Option<Perf>,
    reader: Option<Result<live::Source, String>>,
}

impl LiveInstruments {
    /// What walks of a process's tables find from each node.
    ///
    /// # Errors
    ///
    /// One line on why they cannot be read.
    pub fn viewpoints(&mut self, pid: u32) -> Result<Vec<Viewpoint>, String> {
        let open = || live::Source::open(None, None).map_err(|error| one_line(&error));
        let reader = self.reader.get_or_insert_with(open).as_mut();
        let reader = reader.map_err(|error| error.clone())?;
        let pid = i32::try_from(pid).map_err(|error| error.to_string())?;
        let stream = reader
            .snapshot(pid, true)
            .map_err(|error| one_line(&error))?;
        let tally = Reader::new(io::BufReader::new(stream))
            .and_then(|mut reader| Tally::read(&mut reader))
            .map_err(|error| one_line(&error))?;
        if !tally.end.complete {
            return Err(format!("process {pid} ended while it was read"));
        }
        Ok(locality(&tally))
    }
}

impl Instruments for LiveInstruments {
    fn begin(&mut self, source: &mut dyn Source, target: &Target<'_>) -> Result<(), Missing> {
        let model = nearwalk_perf::prepare(source)?;
        self.perf = Some(Perf::open(model, target, source)?);
        Ok(())
    }

    fn end(&mut self, source: &mut dyn Source) -> Result<Reading, Missing> {
        self.perf.as_ref().ok_or(Missing::Idle)?.read(source)
    }

    fn tables(&mut self, pid: u32) -> Result<Vec<(Option<u32>, u64)>, String> {
        let points = self.viewpoints(pid)?;
        let all = points.first().map_or(0, |p| p.local.bytes + p.remote.bytes);
        let here: u64 = points.iter().map(|point| point.local.bytes).sum();
        let mut tables: Vec<(Option<u32>, u64)> = points
            .iter()
            .map(|point| (Some(point.node), point.local.bytes))
            .collect();
        tables.push((None, all.saturating_sub(here)));
        Ok(tables)
    }
}

/// The first line of an error and its causes: further ones are for who builds a
/// module.
fn one_line(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text += &format!(": {cause}");
        source = cause.source();
    }
    text.lines().next().unwrap_or_default().to_owned()
}

/// All that is known of it.
#[derive(Clone, Debug)]
pub struct Subject {
    /// The nodes that are online.
    pub nodes: Vec<Node>,
    /// The kernel's release.
    pub kernel: String,
    /// Bytes of the smallest last-level cache.
    pub l3: Option<u64>,
    /// How far other nodes are, by index of the nodes, 10 being none.
    pub distances: Option<Vec<Vec<u32>>>,
    /// The kernel can place and copy page tables.
    pub ours: bool,
    /// What holds already, of each process that could be asked.
    pub set: Vec<Status>,
    /// vm.pgtable_repl_prefetch: what fills of lazy copies bring, log2 of entries.
    pub prefetch: Option<u32>,
    /// Bytes of nested tables of virtual machines in the group.
    pub nested: u64,
    /// Whether Linux makes huge pages by itself: `always`, `madvise` or `never`.
    pub huge_pages: Option<String>,
    /// The process, or those of the group.
    pub pids: Vec<u32>,
    /// The group, by its path below the mount point; of a process, the one that
    /// it is in, if it is alone there.
    pub group: Option<String>,
    /// Whether the subject is a group.
    pub is_group: bool,
    /// What it is called.
    pub name: String,
    /// How many threads were counted and watched.
    pub threads: usize,
    /// For how long it was looked at.
    pub length: Duration,
    /// How long a process has lived; nothing of groups.
    pub age: Option<Duration>,
    /// CPUs in use.
    pub cpus: f64,
    /// Where they are.
    pub time: CpuTime,
    /// How that is known.
    pub known: Known,
    /// Of how much of the CPU time it was seen where it went.
    pub seen: Option<f64>,
    /// Bytes of page tables.
    pub tables_bytes: u64,
    /// Where they are, or what their leaf tables map.
    pub tables: Tables,
    /// How that is known, or what hinders.
    pub tables_from: From,
    /// The share of its walks that may be remote.
    pub bounds: Bounds,
    /// What its memory is made of, and where it lies, if a group counts it alone.
    pub memory: Option<Memory>,
    /// Bytes of its data by node, likewise.
    pub data: Option<Vec<u64>>,
    /// What was counted.
    pub counters: Result<Reading, Missing>,
    /// What could not be found out besides.
    pub lost: Vec<String>,
}

/// How it is known where tables lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum From {
    /// The leaf tables of this many of so many processes were read.
    Read(usize, usize),
    /// The group counts them; why they were not read.
    Group(String),
    /// Only that no node has more than all tables of the host; likewise.
    Host(String),
}

/// Looks at someone for `length`.
pub fn look(
    source: &mut dyn Source,
    times: &mut dyn CpuTimes,
    instruments: &mut dyn Instruments,
    whom: &Whom,
    length: Duration,
) -> Result<Subject, Lost> {
    let machine = Machine::read(source)?;
    let mut found = find(source, &machine, whom)?;
    let one_node = machine.with_cpus().len() <= 1 && machine.nodes.len() <= 1;
    let allowed = allowed(source, &machine, &mut found);
    let watched = Watched {
        group: found.counted.clone(),
        total_only: allowed.len() == 1,
        pids: found.pids.clone(),
    };
    let mut threads = Vec::new();
    for &pid in &found.pids {
        threads.extend(process::threads(source, pid).unwrap_or_default());
    }
    let mut subject = Subject {
        kernel: machine.kernel.clone(),
        l3: machine.l3,
        distances: machine.distances(source),
        ours: source.read(Path::new("/proc/self/pgtable_repl")).is_ok(),
        set: set(source, &found.pids),
        prefetch: source
            .read(Path::new("/proc/sys/vm/pgtable_repl_prefetch"))
            .ok()
            .and_then(|text| text.trim().parse().ok()),
        nested: found.nested,
        huge_pages: huge_pages(source),
        pids: found.pids.clone(),
        group: found.group.clone(),
        is_group: matches!(whom, Whom::Cgroup(_)),
        name: found.name.clone(),
        threads: threads.len(),
        length: Duration::ZERO,
        age: age(source, whom, &found),
        cpus: 0.0,
        time: CpuTime::Among(allowed.clone()),
        known: Known::No,
        seen: None,
        tables_bytes: found.tables.total(),
        tables: found.tables.clone(),
        tables_from: From::Host(String::new()),
        bounds: Bounds {
            lower: 0.0,
            upper: 0.0,
        },
        memory: found
            .counted
            .as_ref()
            .and_then(|dir| cgroup::memory(source, dir).ok()),
        data: found
            .counted
            .as_ref()
            .and_then(|dir| cgroup::data(source, &machine, dir).ok()),
        counters: Err(Missing::Idle),
        lost: found.lost.clone(),
        nodes: machine.nodes.clone(),
    };
    if one_node {
        return Ok(subject);
    }
    // What was read so far took its time; the look begins now.
    source.wait(Duration::ZERO)?;
    let begun = begin(source, instruments, &machine, &found, &threads, &allowed);
    let seen = times.observe(source, &machine, &[watched], length)?;
    subject.counters = begun.and_then(|()| instruments.end(source));
    subject.lost.extend(seen.bad.iter().cloned());
    subject.length = seen.length;
    still_there(source, whom, &found, seen.length)?;
    where_it_ran(&mut subject, &seen.observed[0], &allowed, &machine);
    where_tables_lie(source, instruments, &mut subject, &found);
    subject.bounds = exposure::bounds(&subject.time, &subject.tables);
    Ok(subject)
}

/// Who it is, as far as text tells.
struct Found {
    pids: Vec<u32>,
    /// When the process began, in ticks since the host did.
    started: Option<u64>,
    name: String,
    /// The group that counts these processes and no other.
    counted: Option<PathBuf>,
    group: Option<String>,
    cpuset: Option<PathBuf>,
    mount: Option<PathBuf>,
    tables: Tables,
    nested: u64,
    /// The group counts tables by node.
    by_group: bool,
    lost: Vec<String>,
}

fn find(source: &mut dyn Source, machine: &Machine, whom: &Whom) -> Result<Found, Lost> {
    let mounts = Mounts::read(source)?;
    let mount = match (&mounts.v1_memory, mounts.v2) {
        (None, mount) => mount,
        (Some(_), _) => None,
    };
    match whom {
        Whom::Process(tid) => find_process(source, machine, *tid, mount),
        Whom::Cgroup(name) => find_group(source, machine, name, mount),
    }
}

fn host_tables(machine: &Machine, total: u64) -> Tables {
    Tables::Within {
        total,
        most: machine.nodes.iter().map(|node| node.tables).collect(),
    }
}

fn find_process(
    source: &mut dyn Source,
    machine: &Machine,
    tid: u32,
    mount: Option<PathBuf>,
) -> Result<Found, Lost> {
    let gone = |error: Error| match error {
        error if error.is_gone() => Lost::Gone(format!(
            "no process {tid}: it has ended, is of a PID namespace that cannot be seen from here, \
             or /proc is mounted with hidepid"
        )),
        error => Lost::Host(error),
    };
    let pid = process::leader(source, tid).map_err(gone)?;
    let stat = process::stat(source, pid).map_err(gone)?;
    let Some(total) = process::tables_of_any_thread(source, pid).map_err(gone)? else {
        return Err(Lost::Gone(format!(
            "process {pid} ({}) has no page tables of its own: it is a kernel thread, or is ending",
            stat.name
        )));
    };
    let mut lost = Vec::new();
    let group = process::group(source, pid);
    let dir = mount.as_ref().zip(group.as_ref());
    let dir = dir.map(|(mount, group)| mount.join(group));
    let alone = dir.as_ref().is_some_and(|dir| {
        cgroup::processes(source, dir).is_ok_and(|(pids, foreign)| pids == [pid] && foreign == 0)
    });
    let mut tables = host_tables(machine, total);
    let mut by_group = false;
    let mut nested = 0;
    if let Some(dir) = &dir {
        match cgroup::tables(source, machine, dir) {
            Ok(Some(counted)) => {
                if alone {
                    nested = counted.nested.iter().flatten().sum();
                }
                if let Some(most) = counted.own {
                    by_group = alone;
                    tables = if alone {
                        Tables::Known(most)
                    } else {
                        Tables::Within { total, most }
                    };
                }
            }
            Ok(None) => {}
            Err(error) => lost.push(error.to_string()),
        }
    }
    Ok(Found {
        pids: vec![pid],
        started: Some(stat.started),
        name: stat.name,
        counted: dir.clone().filter(|_| by_group),
        group: group.filter(|_| alone),
        cpuset: dir,
        mount,
        tables,
        nested,
        by_group,
        lost,
    })
}

fn find_group(
    source: &mut dyn Source,
    machine: &Machine,
    name: &str,
    mount: Option<PathBuf>,
) -> Result<Found, Lost> {
    let Some(mount) = mount else {
        return Err(Lost::Gone(format!(
            "no group {name}: there is no cgroup v2 with the memory controller here; name a process"
        )));
    };
    let below = name
        .strip_prefix(mount.to_str().unwrap_or_default())
        .unwrap_or(name)
        .trim_matches('/');
    if below.split('/').any(|part| part == "..") {
        return Err(Lost::Gone(format!("{name}: a group's path has no `..`")));
    }
    if below.is_empty() {
        return Err(Lost::Gone(
            "the group above all others is the whole host: `nearwalk advise` looks at that"
                .to_owned(),
        ));
    }
    let dir = mount.join(below);
    let (pids, foreign) = cgroup::processes_below(source, &dir).map_err(|error| {
        if error.is_gone() {
            Lost::Gone(format!(
                "no group {below} in {}: it was removed, or is misspelt",
                mount.display()
            ))
        } else {
            Lost::Host(error)
        }
    })?;
    if pids.is_empty() {
        let why = if foreign > 0 {
            "its processes are of another PID namespace: look from the host"
        } else {
            "it has no processes"
        };
        return Err(Lost::Gone(format!("group {below}: {why}")));
    }
    let mut lost = Vec::new();
    if foreign > 0 {
        lost.push(format!(
            "{foreign} of its processes are of other PID namespaces"
        ));
    }
    let counted = cgroup::tables(source, machine, &dir)?.unwrap_or_default();
    let nested = counted.nested.iter().flatten().sum();
    let counted = counted.own;
    let by_group = counted.is_some();
    let tables = match counted {
        Some(by_node) => Tables::Known(by_node),
        None => {
            lost.push(
                "the group does not count page tables by node: it has no memory controller \
                 (`echo +memory` to cgroup.subtree_control of the group above), or the kernel is \
                 older than Linux 6.1"
                    .to_owned(),
            );
            let mut total = 0;
            for &pid in &pids {
                let own = process::tables_of_any_thread(source, pid);
                total += own.ok().flatten().unwrap_or(0);
            }
            host_tables(machine, total)
        }
    };
    Ok(Found {
        pids,
        started: None,
        name: below.to_owned(),
        counted: Some(dir.clone()),
        group: Some(below.to_owned()),
        cpuset: Some(dir),
        mount: Some(mount),
        tables,
        nested,
        by_group,
        lost,
    })
}

/// The nodes on whose CPUs it may run.
fn allowed(source: &mut dyn Source, machine: &Machine, found: &mut Found) -> Vec<usize> {
    let anywhere = machine.with_cpus();
    let (Some(mount), Some(dir)) = (&found.mount, &found.cpuset) else {
        return anywhere;
    };
    let cpus = match Cpusets::new(mount).of(source, dir) {
        Ok(Some(cpus)) => cpus,
        Ok(None) => return anywhere,
        Err(error) => {
            found.lost.push(error.to_string());
            return anywhere;
        }
    };
    let mut nodes: Vec<usize> = cpus
        .iter()
        .filter_map(|&cpu| machine.node_of_cpu(cpu))
        .collect();
    nodes.sort_unstable();
    nodes.dedup();
    if nodes.is_empty() { anywhere } else { nodes }
}

/// What holds for these processes; nothing on stock kernels.
fn set(source: &mut dyn Source, pids: &[u32]) -> Vec<Status> {
    let mut all = Vec::new();
    for pid in pids {
        let text = source.read(&PathBuf::from(format!("/proc/{pid}/pgtable_repl")));
        all.extend(text.ok().and_then(|text| text.parse().ok()));
    }
    all
}

fn huge_pages(source: &mut dyn Source) -> Option<String> {
    let text = source.read(Path::new("/sys/kernel/mm/transparent_hugepage/enabled"));
    let text = text.ok()?;
    let (_, chosen) = text.split_once('[')?;
    Some(chosen.split_once(']')?.0.to_owned())
}

fn age(source: &mut dyn Source, whom: &Whom, found: &Found) -> Option<Duration> {
    let Whom::Process(_) = whom else {
        return None;
    };
    let text = source.read(Path::new("/proc/uptime")).ok()?;
    let up: f64 = text.split_whitespace().next()?.parse().ok()?;
    let started = process::TICK * u32::try_from(found.started?).ok()?;
    Duration::try_from_secs_f64(up - started.as_secs_f64()).ok()
}

/// By group where it has one of its own, else by thread.
fn begin(
    source: &mut dyn Source,
    instruments: &mut dyn Instruments,
    machine: &Machine,
    found: &Found,
    threads: &[u32],
    allowed: &[usize],
) -> Result<(), Missing> {
    if let Some(dir) = &found.counted {
        if let Ok(file) = File::open(dir) {
            let cpus = allowed.iter().flat_map(|&node| &machine.nodes[node].cpus);
            let cpus: Vec<u32> = cpus.copied().collect();
            let by_group = instruments.begin(source, &Target::Cgroup(&file, &cpus));
            match by_group {
                // Counting by CPU needs more rights than by thread.
                Err(Missing::Refused { .. } | Missing::TooMany { .. }) => {}
                begun => return begun,
            }
        }
    }
    instruments.begin(source, &Target::Threads(threads))
}

fn still_there(
    source: &mut dyn Source,
    whom: &Whom,
    found: &Found,
    length: Duration,
) -> Result<(), Lost> {
    let seconds = length.as_secs_f64();
    match whom {
        Whom::Process(_) => {
            let pid = found.pids[0];
            let started = process::stat(source, pid).ok().map(|stat| stat.started);
            let runs =
                process::tables_of_any_thread(source, pid).is_ok_and(|bytes| bytes.is_some());
            if started != found.started || !runs {
                return Err(Lost::Gone(format!(
                    "process {pid} ({}) ended within the {seconds:.1} s for which it was looked at; \
                     --seconds looks shorter",
                    found.name
                )));
            }
        }
        Whom::Cgroup(_) => {
            let dir = found.counted.as_ref().expect("a group has a directory");
            if cgroup::cpu_time(source, dir).is_err_and(|error| error.is_gone()) {
                return Err(Lost::Gone(format!(
                    "group {} was removed within the {seconds:.1} s for which it was looked at",
                    found.name
                )));
            }
        }
    }
    Ok(())
}

fn where_it_ran(subject: &mut Subject, observed: &Observed, allowed: &[usize], machine: &Machine) {
    let spent = observed.spent(machine.nodes.len());
    let own = observed.processes.iter().filter_map(|process| process.used);
    let own: Duration = own.sum();
    let used = observed.used.unwrap_or(own).as_secs_f64();
    subject.cpus = used / subject.length.as_secs_f64().max(1e-9);
    if let [node] = allowed[..] {
        let mut shares = vec![0.0; machine.nodes.len()];
        shares[node] = 1.0;
        subject.time = CpuTime::Shares(shares);
        subject.known = if machine.with_cpus().len() == 1 {
            Known::OneNode
        } else {
            Known::Cpuset
        };
        return;
    }
    let total = spent.total().as_secs_f64();
    let seen = if used > 0.0 { total / used } else { 0.0 }.min(1.0);
    subject.seen = Some(seen);
    if seen >= SEEN && total > 0.0 {
        let shares = spent.by_node.iter();
        subject.time = CpuTime::Shares(shares.map(|time| time.as_secs_f64() / total).collect());
        subject.known = if observed.counted.is_some() {
            Known::Counted
        } else {
            Known::Observed
        };
    }
}

/// Reads the leaf tables, where that can be had.
fn where_tables_lie(
    source: &mut dyn Source,
    instruments: &mut dyn Instruments,
    subject: &mut Subject,
    found: &Found,
) {
    let mut sized = Vec::new();
    for &pid in &found.pids {
        if let Ok(Some(bytes @ 1..)) = process::tables_of_any_thread(source, pid) {
            sized.push((bytes, pid));
        }
    }
    sized.sort_unstable_by(|a, b| b.cmp(a));
    let mut sums = vec![0; subject.nodes.len()];
    let mut done = 0;
    for &(_, pid) in sized.iter().take(READ) {
        match instruments.tables(pid) {
            Ok(by_node) => {
                for (node, bytes) in by_node {
                    let at = subject
                        .nodes
                        .iter()
                        .position(|known| Some(known.id) == node)
                        // Of no node that has CPUs: nobody is near.
                        .or_else(|| subject.nodes.iter().position(|node| node.cpus.is_empty()));
                    if let Some(at) = at {
                        sums[at] += bytes;
                    }
                }
                done += 1;
            }
            // Some may end meanwhile; if none can be read, there is a reason.
            Err(why) if done == 0 => {
                subject.tables_from = if found.by_group {
                    From::Group(why)
                } else {
                    From::Host(why)
                };
                return;
            }
            Err(_) => {}
        }
    }
    if sums.iter().sum::<u64>() > 0 {
        subject.tables = Tables::Known(sums);
        subject.tables_from = From::Read(done, found.pids.len());
    }
}
