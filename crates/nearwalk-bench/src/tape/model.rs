// SPDX-License-Identifier: GPL-2.0-or-later
//! What is recorded, what the driver in the machine tells the host of it, and what comes
//! of that. All of it is counted.

use lens_hatric::tape::What;
use serde::{Deserialize, Serialize};

/// What the driver does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    pub vcpus: u32,
    /// Of the guest's memory that is paged; a power of two.
    pub pages: usize,
    /// As many as are on the fast node at most.
    pub fast: usize,
    /// The fast node and the slow one.
    pub nodes: [i32; 2],
    /// Moves to record.
    pub changes: usize,
    /// Accesses of each vCPU from one to the next.
    pub share: u32,
    pub seed: u64,
}

/// A page that was to move, and what was counted beside the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// Accesses of all vCPUs since the recording began.
    pub at: u64,
    pub what: What,
    pub page: u32,
    /// Whether it did move.
    pub done: bool,
    /// Flushes of all vCPUs that KVM asked for: one if the page had a nested entry.
    pub requests: u32,
    /// vCPUs that flushed all their translations.
    pub flushes: u32,
}

/// What a change, or several together, brought about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Interrupts with which KVM had vCPUs leave and flush.
    pub kvm_interrupts: u64,
    /// Interrupts that flushed the entry of the hypervisor's process.
    pub process_interrupts: u64,
    /// Exits of vCPUs by the first ones.
    pub kvm_exits: u64,
    /// By the second ones.
    pub process_exits: u64,
    /// By the first fault of each vCPU on the page, until it moves again.
    pub faults: u64,
    /// By its further ones: while a page moves, KVM has a vCPU fault again and again.
    pub retries: u64,
    /// Of the rest of the system call, and of whatever else interrupted in it but ticks.
    pub other_exits: u64,
}

impl Counts {
    pub fn add(&mut self, other: &Counts) {
        self.kvm_interrupts += other.kvm_interrupts;
        self.process_interrupts += other.process_interrupts;
        self.kvm_exits += other.kvm_exits;
        self.process_exits += other.process_exits;
        self.faults += other.faults;
        self.retries += other.retries;
        self.other_exits += other.other_exits;
    }

    /// Those that the change of an entry is the reason of.
    pub fn interrupts(&self) -> u64 {
        self.kvm_interrupts + self.process_interrupts
    }

    /// The same, but for retries: there are as many as moves are long.
    pub fn exits(&self) -> u64 {
        self.kvm_exits + self.process_exits + self.faults
    }
}

/// All changes of a recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sums {
    pub vcpus: u32,
    /// Pages that moved.
    pub changes: u64,
    /// Pages that were to move and did not.
    pub failed: u64,
    /// Changes of pages that had a nested entry.
    pub entries: u64,
    pub flushes: u64,
    #[serde(flatten)]
    pub counts: Counts,
    /// Accesses of all vCPUs.
    pub accesses: u64,
}

/// A line of the driver's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// What is done now.
    Step(String),
    /// A tape, as it is to be written.
    Recorded { sums: Sums, tape: String },
    /// The driver could not go on.
    Failed(String),
}

/// All of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Findings {
    pub recorded: Vec<Sums>,
    /// Why something is not there.
    pub failures: Vec<String>,
}
