// SPDX-License-Identifier: GPL-2.0-or-later
//! The answer for scripts. `docs/advise.md` names every member; members are
//! added, never renamed or removed, without a new `schema`.

use serde::Serialize;

use crate::exposure::{CpuTime, Tables};
use crate::report::{Kind, Known, LeftOut, Lost, Reason, Report, Subject};

pub const SCHEMA: &str = "nearwalk.advise-host.v1";

/// The report as one JSON object.
pub fn host(report: &Report) -> impl Serialize {
    Host {
        schema: SCHEMA,
        kernel: report.kernel.clone(),
        seconds: round(report.length.as_secs_f64()),
        nodes: report
            .nodes
            .iter()
            .map(|node| Node {
                node: node.id,
                cpus: node.cpus.len(),
                tables_bytes: node.tables,
                nested_bytes: node.nested,
            })
            .collect(),
        l3_bytes: report.l3,
        cpu_time: Source {
            source: (report.looks > 0).then_some(match report.counted {
                (counted @ 1.., all) if counted == all => "counted",
                _ => report.source,
            }),
            looks: report.looks,
            seen: report.seen.map(round),
        },
        ranked: report.ranked.iter().map(|s| row(report, s)).collect(),
        left_out: report.left_out.iter().map(left_out).collect(),
        elsewhere_bytes: report.elsewhere,
        lost: report.lost.iter().map(lost).collect(),
    }
}

#[derive(Serialize)]
struct Host {
    schema: &'static str,
    kernel: String,
    seconds: f64,
    nodes: Vec<Node>,
    l3_bytes: Option<u64>,
    cpu_time: Source,
    ranked: Vec<Row>,
    left_out: Vec<Out>,
    elsewhere_bytes: Option<u64>,
    lost: Vec<Gap>,
}

#[derive(Serialize)]
struct Node {
    node: u32,
    cpus: usize,
    tables_bytes: u64,
    nested_bytes: Option<u64>,
}

#[derive(Serialize)]
struct Source {
    source: Option<&'static str>,
    looks: usize,
    seen: Option<f64>,
}

#[derive(Serialize)]
struct Row {
    kind: &'static str,
    name: String,
    group: Option<String>,
    pid: Option<u32>,
    cpus: f64,
    /// Share by node, in the order of `nodes`; nothing if it is not known.
    cpu_time: Option<Vec<f64>>,
    /// The nodes where it can be then.
    cpu_time_among: Option<Vec<u32>>,
    cpu_time_known: &'static str,
    seen: Option<f64>,
    moved: f64,
    whole_group: bool,
    tables_bytes: u64,
    /// In the order of `nodes`; nothing if it is not known.
    tables_by_node: Option<Vec<u64>>,
    remote_lower: f64,
    remote_upper: f64,
    certain: bool,
    exposure: f64,
    memory_bytes: Option<u64>,
    huge_bytes: Option<u64>,
}

#[derive(Serialize)]
struct Out {
    kind: &'static str,
    name: String,
    reason: &'static str,
}

#[derive(Serialize)]
struct Gap {
    what: &'static str,
    text: String,
}

/// Six digits are more than any of this is right to.
fn round(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Group => "cgroup",
        Kind::Vm => "vm",
        Kind::Process => "process",
    }
}

fn row(report: &Report, subject: &Subject) -> Row {
    let (cpu_time, among) = match &subject.time {
        CpuTime::Shares(shares) => (Some(shares.iter().map(|&s| round(s)).collect()), None),
        CpuTime::Among(nodes) => (
            None,
            Some(nodes.iter().map(|&n| report.nodes[n].id).collect()),
        ),
    };
    Row {
        kind: kind(subject.kind),
        name: subject.name.clone(),
        group: subject.group.clone(),
        pid: subject.pid,
        cpus: round(subject.cpus),
        cpu_time,
        cpu_time_among: among,
        cpu_time_known: match subject.known {
            Known::OneNode => "one-node",
            Known::Cpuset => "cpuset",
            Known::Observed => report.source,
            Known::Counted => "counted",
            Known::No => "no",
        },
        seen: subject.seen.map(round),
        moved: round(subject.moved),
        whole_group: subject.whole_group,
        tables_bytes: subject.tables.total(),
        tables_by_node: match &subject.tables {
            Tables::Known(tables) => Some(tables.clone()),
            Tables::Within { .. } => None,
        },
        remote_lower: round(subject.bounds.lower),
        remote_upper: round(subject.bounds.upper),
        certain: subject.bounds.is_certain(),
        exposure: round(subject.exposure()),
        memory_bytes: subject.memory.map(|memory| memory.all),
        huge_bytes: subject.memory.map(|memory| memory.huge),
    }
}

fn left_out(left: &LeftOut) -> Out {
    Out {
        kind: kind(left.kind),
        name: left.name.clone(),
        reason: match left.reason {
            Reason::Idle => "idle",
            Reason::FitsL3 => "fits-l3",
            Reason::Local => "local",
            Reason::Gone => "gone",
        },
    }
}

fn lost(lost: &Lost) -> Gap {
    Gap {
        what: lost.name(),
        text: lost.to_string(),
    }
}
