// SPDX-License-Identifier: GPL-2.0-or-later
//! What a survey of a host says.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use nearwalk_host::Node;
use nearwalk_host::cgroup::Memory;

use crate::exposure::{Bounds, CpuTime, Tables};

/// Who uses less than this many CPUs is idle.
pub const IDLE: f64 = 0.1;
/// Of how much of the CPU time it has to be known where it went.
pub const SEEN: f64 = 0.8;
/// Up to this upper bound tables are where they are walked: sampling is not
/// right to less than that.
pub const LOCAL: f64 = 0.05;

/// What is ranked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A control group and its processes' tables.
    Group,
    /// The nested tables of the virtual machines in a control group.
    Vm,
    /// A process: one of several in its group, or one that no group counts.
    Process,
}

/// How it is known where CPU time goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// Only one node has CPUs.
    OneNode,
    /// Its cpuset names CPUs of one node only.
    Cpuset,
    /// It was observed.
    Observed,
    /// The kernel counts it for each CPU.
    Counted,
    /// It is not: too little was seen.
    No,
}

/// Someone who may walk remote tables.
#[derive(Clone, Debug)]
pub struct Subject {
    /// What it is.
    pub kind: Kind,
    /// The group's path below the mount point, or the process's name.
    pub name: String,
    /// The group of a process, if one counts its tables.
    pub group: Option<String>,
    /// The process, or the busiest one of the group.
    pub pid: Option<u32>,
    /// CPUs in use.
    pub cpus: f64,
    /// Where they are.
    pub time: CpuTime,
    /// How that is known.
    pub known: Known,
    /// The share of its CPU time of which it was seen where it went; none if
    /// nobody looked.
    pub seen: Option<f64>,
    /// The share of what was seen that lay between two looks with different
    /// nodes.
    pub moved: f64,
    /// A virtual machine whose CPUs' threads have no names: the time is that
    /// of the whole group.
    pub whole_group: bool,
    /// Its tables.
    pub tables: Tables,
    /// The share of its walks that may be remote.
    pub bounds: Bounds,
    /// What its memory is made of; of groups only.
    pub memory: Option<Memory>,
    /// Why it is not worth a look, if it is not.
    pub quiet: Option<Reason>,
    /// Its index in [`Survey::watched`].
    pub watched: usize,
}

impl Subject {
    /// CPUs in use times the middle of the bounds. Subjects are ranked by it,
    /// behind those whose walks are remote for certain.
    pub fn exposure(&self) -> f64 {
        self.cpus * self.bounds.middle()
    }
}

/// Why someone is not listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// Uses less than [`IDLE`] CPUs.
    Idle,
    /// Walks hit the last-level cache.
    FitsL3,
    /// Next to nothing of what it walks is remote.
    Local,
    /// Ended or was removed meanwhile.
    Gone,
}

/// Someone who is not listed.
#[derive(Clone, Debug)]
pub struct LeftOut {
    /// What it is.
    pub kind: Kind,
    /// As [`Subject::name`].
    pub name: String,
    /// Why it is not listed.
    pub reason: Reason,
}

/// What could not be found out, and how it could.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Lost {
    /// The memory controller is cgroup v1's.
    CgroupV1(PathBuf),
    /// There is no cgroup v2.
    NoCgroups,
    /// Groups with processes without memory controller.
    NoController(usize),
    /// The kernel does not count tables by group.
    NoTables,
    /// The kernel does not count nested tables.
    NoNested,
    /// The size of the last-level cache is not known.
    NoL3,
    /// Other users' processes cannot be seen.
    Hidepid(String),
    /// Processes in groups here, but of another PID namespace.
    Foreign(usize),
    /// Processes closed to this reader.
    Refused(usize),
    /// Groups closed to this reader.
    GroupsRefused(usize),
    /// Groups removed while they were read.
    Removed(usize),
    /// Files that say what is not known here: the first, and how many.
    Bad(String, usize),
}

impl Lost {
    /// A word for scripts.
    pub fn name(&self) -> &'static str {
        match self {
            Self::CgroupV1(_) => "cgroup-v1",
            Self::NoCgroups => "no-cgroups",
            Self::NoController(_) => "no-memory-controller",
            Self::NoTables => "no-tables-by-group",
            Self::NoNested => "no-nested-tables",
            Self::NoL3 => "no-l3-size",
            Self::Hidepid(_) => "hidepid",
            Self::Foreign(_) => "pid-namespace",
            Self::Refused(_) => "processes-refused",
            Self::GroupsRefused(_) => "groups-refused",
            Self::Removed(_) => "groups-removed",
            Self::Bad(..) => "not-understood",
        }
    }
}

fn number(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const PROCESSES: &str = "processes are listed alone, and where their tables lie only as far as those of the \
             whole machine tell";
        match self {
            Self::CgroupV1(path) => write!(
                f,
                "page tables by group: the memory controller is that of cgroup v1 ({}), which does \
                 not count them; {PROCESSES}; booting with systemd.unified_cgroup_hierarchy=1 \
                 gives cgroup v2",
                path.display()
            ),
            Self::NoCgroups => write!(
                f,
                "page tables by group: cgroup v2 is not mounted; {PROCESSES}; `mount -t cgroup2 \
                 none /sys/fs/cgroup` mounts it"
            ),
            Self::NoController(count) => write!(
                f,
                "page tables of {} without memory controller: {PROCESSES}; `echo +memory` to \
                 cgroup.subtree_control of the group above enables it",
                number(*count, "group", "groups")
            ),
            Self::NoTables => write!(
                f,
                "page tables by group: memory.numa_stat has no line `pagetables` on this kernel; \
                 {PROCESSES}; Linux 6.1 and newer have it"
            ),
            Self::NoNested => f.write_str(
                "nested page tables of virtual machines: memory.numa_stat has no line \
                 `sec_pagetables` on this kernel; Linux 6.1 and newer have it",
            ),
            Self::NoL3 => f.write_str(
                "the size of the L3: sysfs does not tell; nobody is left out for small tables",
            ),
            Self::Hidepid(value) => write!(
                f,
                "processes of other users: /proc is mounted with hidepid={value}; root sees them, \
                 and so does the group that gid= names"
            ),
            Self::Foreign(count) => write!(
                f,
                "CPU time of {} of other PID namespaces: look from the host",
                number(*count, "process", "processes")
            ),
            Self::Refused(count) => write!(
                f,
                "CPU time of {}: no permission; root may look",
                number(*count, "process", "processes")
            ),
            Self::GroupsRefused(count) => write!(
                f,
                "{} that this user may not read: root may look",
                number(*count, "group", "groups")
            ),
            Self::Removed(count) => write!(
                f,
                "{} removed while being read",
                number(*count, "group that was", "groups that were")
            ),
            Self::Bad(first, 1) => f.write_str(first),
            Self::Bad(first, count) => write!(f, "{first} (and {} more like this)", count - 1),
        }
    }
}

/// The answer.
#[derive(Clone, Debug)]
pub struct Report {
    /// The kernel's release.
    pub kernel: String,
    /// The nodes that are online.
    pub nodes: Vec<Node>,
    /// Bytes of the smallest last-level cache.
    pub l3: Option<u64>,
    /// For how long somebody was watched.
    pub length: Duration,
    /// How often.
    pub looks: usize,
    /// How: the name of the source.
    pub source: &'static str,
    /// Of how many of them, and of how many in all, the kernel counted it for each
    /// CPU instead.
    pub counted: (usize, usize),
    /// The share of all CPU time watched of which it was seen where it went;
    /// none if nobody was.
    pub seen: Option<f64>,
    /// Those who may walk remote tables, the most exposed first.
    pub ranked: Vec<Subject>,
    /// Those who are not listed.
    pub left_out: Vec<LeftOut>,
    /// Bytes of tables that no group counts that was looked at; none if there
    /// were no groups.
    pub elsewhere: Option<u64>,
    /// What could not be found out.
    pub lost: Vec<Lost>,
}

impl Report {
    /// Nothing can be remote.
    pub fn one_node(&self) -> bool {
        self.nodes.len() <= 1
    }
}
