// SPDX-License-Identifier: GPL-2.0-or-later
//! What a run of the demo finds out. The driver in the machine sends it as it
//! happens, one JSON object a line; the host gathers it for the reports.

use serde::{Deserialize, Serialize};

/// Whether, and where, the server's page tables are replicated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// One set of tables, as on any Linux.
    Before,
    /// A copy on every node.
    Replicated,
    /// A copy on one node.
    OneNode,
    /// One set of tables again.
    Off,
}

/// What happens to the server's tables while the clients ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// They are in this stage.
    Stay(Stage),
    /// The kernel is bringing them into this stage.
    Switch(Stage),
}

/// A node that has CPUs, as the guest's kernel numbers it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    pub node: u32,
    pub cpus: Vec<u32>,
}

/// What runs a virtual machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Hypervisor {
    /// QEMU's emulator.
    Tcg,
    Kvm,
    /// Another, by the signature that CPUID gives.
    Other(String),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Machine {
    /// As `uname -r` prints it.
    pub release: String,
    /// What runs the machine, if it is a virtual one.
    pub hypervisor: Option<Hypervisor>,
    /// The kernel moved pages to the nodes that used them.
    pub numa_balancing: bool,
    pub nodes: Vec<Node>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Server {
    pub version: String,
    pub pid: u32,
    /// Worker threads, each on a CPU of its own.
    pub workers: usize,
    /// Connections, one for each worker.
    pub clients: usize,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Fill {
    pub values: u64,
    /// Bytes of one value.
    pub value_size: u64,
    pub seconds: f64,
}

/// Page tables as seen from one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct View {
    pub node: u32,
    /// CPUs there walk a tree of their own.
    pub own_tree: bool,
    /// Leaf PTEs of the tree that CPUs there walk, in table pages on the node.
    pub local: u64,
    /// The same, in table pages elsewhere.
    pub remote: u64,
    /// Table pages of all levels that lie on this node: Linux's own...
    pub canonical_pages: u64,
    /// ... and copies.
    pub replica_pages: u64,
}

impl View {
    /// Share of the leaf PTEs that are remote, from 0 to 1.
    pub fn remote_share(&self) -> f64 {
        let all = self.local + self.remote;
        if all == 0 {
            return 0.0;
        }
        self.remote as f64 / all as f64
    }
}

/// What a snapshot of the server's page tables shows.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Picture {
    pub stage: Stage,
    /// Seconds since the clients began.
    pub at: f64,
    pub views: Vec<View>,
}

/// A change of the server's setting, as it serves.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Switch {
    pub stage: Stage,
    /// What was asked of the kernel.
    pub request: String,
    /// The node, when it is one.
    pub node: Option<u32>,
    /// Seconds since the clients began.
    pub at: f64,
    /// What the system call took, in seconds.
    pub seconds: f64,
    /// Copies that could not be made on their node.
    pub fallbacks: u64,
}

/// The kernel's own comparison of every copy with the original.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    pub stage: Stage,
    pub tables: u64,
    pub entries: u64,
    pub differences: u64,
    /// The first of them, in the kernel's words.
    pub examples: Vec<String>,
}

/// Copies of page tables in the whole machine after all was switched off.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leftover {
    /// Pages in use before the first switch and after the last.
    pub before: u64,
    pub after: u64,
    /// Pages allocated and freed since.
    pub allocated: u64,
    pub freed: u64,
}

/// What the clients saw in one phase.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Span {
    pub phase: Phase,
    /// Seconds since the clients began.
    pub start: f64,
    pub end: f64,
    /// Requests answered.
    pub requests: u64,
    /// Longest wait of a client for one answer, of the requests that any part
    /// of the phase fell into; seconds.
    pub longest: f64,
}

/// What the clients saw.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Load {
    pub spans: Vec<Span>,
    pub gets: u64,
    pub sets: u64,
    /// Requests without a proper answer.
    pub failed: u64,
    /// Answers whose content was not what had been stored.
    pub wrong: u64,
    /// The first of both kinds.
    pub examples: Vec<String>,
    /// Values read back at the end, each once; part of `gets`.
    pub read_back: u64,
    /// Answers in each interval of `rate_step` seconds.
    pub rate: Vec<u64>,
    pub rate_step: f64,
}

/// What a request to a large server costs whose tables lie as this run's do:
/// computed by the lens, not measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Modelled {
    /// Name of the modelled machine.
    pub machine: String,
    /// Size of the modelled server.
    pub bytes: u64,
    /// Cycles of a GET with tables as they were before...
    pub before: f64,
    /// ... and with a copy on every node.
    pub replicated: f64,
    /// Factors of the latter over the former, between which nine of ten published
    /// runs of this kind would lie.
    pub low: f64,
    pub high: f64,
}

/// What the driver tells.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    Machine(Machine),
    Server(Server),
    Progress(Progress),
    Fill(Fill),
    Picture(Picture),
    Switch(Switch),
    Check(Check),
    Leftover(Leftover),
    Load(Load),
    /// The demo cannot go on.
    Failed(String),
    /// It has come to its end.
    Finished,
}

/// How far a long step has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Progress {
    /// Bytes of values.
    Stored { done: u64, of: u64 },
    /// Requests answered so far.
    Asked { requests: u64 },
    /// Values.
    ReadBack { done: u64, of: u64 },
}

/// Everything of one run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Run {
    pub machine: Option<Machine>,
    /// From the start of the virtual machine to that of the driver.
    pub boot_seconds: Option<f64>,
    pub server: Option<Server>,
    pub fill: Option<Fill>,
    pub pictures: Vec<Picture>,
    pub switches: Vec<Switch>,
    pub checks: Vec<Check>,
    pub leftover: Option<Leftover>,
    pub modelled: Option<Modelled>,
    pub load: Option<Load>,
    pub failure: Option<String>,
    pub finished: bool,
    /// What the guest's kernel had to complain of.
    pub kernel_report: Option<String>,
    pub total_seconds: f64,
}

impl Run {
    pub fn add(&mut self, event: Event) {
        match event {
            Event::Machine(machine) => self.machine = Some(machine),
            Event::Server(server) => self.server = Some(server),
            Event::Progress(_) => {}
            Event::Fill(fill) => self.fill = Some(fill),
            Event::Picture(picture) => self.pictures.push(picture),
            Event::Switch(switch) => self.switches.push(switch),
            Event::Check(check) => self.checks.push(check),
            Event::Leftover(leftover) => self.leftover = Some(leftover),
            Event::Load(load) => self.load = Some(load),
            Event::Failed(reason) => self.failure = Some(reason),
            Event::Finished => self.finished = true,
        }
    }

    pub fn picture(&self, stage: Stage) -> Option<&Picture> {
        self.pictures.iter().find(|picture| picture.stage == stage)
    }

    pub fn switch(&self, stage: Stage) -> Option<&Switch> {
        self.switches.iter().find(|switch| switch.stage == stage)
    }
}
