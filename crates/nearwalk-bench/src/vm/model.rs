// SPDX-License-Identifier: GPL-2.0-or-later
//! What the driver in the machine tells the host, and what comes of it. All of it is
//! counted; nothing is a time but the seconds of [`Sample`].

use std::collections::BTreeMap;

use nearwalk_vm::guest::Classes;
use serde::{Deserialize, Serialize};

/// A line of the driver's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// What is done now.
    Step(String),
    Walks(Walks),
    Tables(Tables),
    Faults(Faults),
    Sample(Sample),
    Cost(Cost),
    /// The driver could not go on.
    Failed(String),
}

/// Figure 2: what the walks of a guest's process find, by domain of the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Walks {
    /// Which guest.
    pub guest: String,
    /// Which tables are kept by domain.
    pub setting: String,
    /// Pages that the process has.
    pub pages: u64,
    pub classes: Vec<Classes>,
    /// Pages of nested tables in all trees.
    pub tables: u64,
}

/// Table 6: how many pages the nested tables are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tables {
    pub guest: String,
    pub setting: String,
    /// Trees that have tables.
    pub trees: u64,
    pub pages: u64,
    /// Pages by node of the host.
    pub on: BTreeMap<u32, u64>,
}

/// Nested page faults, by KVM's own counter (`pf_fixed`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Faults {
    pub kernel: String,
    pub guest: String,
    pub setting: String,
    /// What the guest did.
    pub action: String,
    /// Pages that it did it to.
    pub pages: u64,
    pub faults: u64,
}

/// Figure 6b: a moment of a guest that is moved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    pub setting: String,
    /// Since the guest's CPUs went to the other node; negative before.
    pub seconds: f64,
    /// Pages of the guest by where the node that runs it finds their leaf.
    pub local: u64,
    pub remote: u64,
    pub absent: u64,
    /// Pages of nested tables in all trees.
    pub tables: u64,
    /// Nested page faults since the move.
    pub faults: u64,
}

/// Instructions of the host's kernel for a nested page fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cost {
    pub kernel: String,
    pub setting: String,
    pub faults: u64,
    pub instructions: u64,
}

/// All of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Findings {
    pub walks: Vec<Walks>,
    pub tables: Vec<Tables>,
    pub faults: Vec<Faults>,
    pub samples: Vec<Sample>,
    pub costs: Vec<Cost>,
    /// Why a part is not there.
    pub failures: Vec<String>,
}

impl Findings {
    pub fn add(&mut self, event: Event) {
        match event {
            Event::Step(_) => {}
            Event::Walks(walks) => self.walks.push(walks),
            Event::Tables(tables) => self.tables.push(tables),
            Event::Faults(faults) => self.faults.push(faults),
            Event::Sample(sample) => self.samples.push(sample),
            Event::Cost(cost) => self.costs.push(cost),
            Event::Failed(why) => self.failures.push(why),
        }
    }
}

/// The classes in the order of the paper, and what is not there yet.
pub const CLASSES: [&str; 5] = ["LL", "LR", "RL", "RR", "absent"];

impl Walks {
    /// Pages of each class as one domain finds them. What its tree of the guest
    /// does not map is absent, as is what its nested tree does not.
    pub fn counts(&self, classes: &Classes) -> [u64; 5] {
        let c = classes;
        let known = c.ll + c.lr + c.rl + c.rr;
        [c.ll, c.lr, c.rl, c.rr, self.pages.saturating_sub(known)]
    }
}
