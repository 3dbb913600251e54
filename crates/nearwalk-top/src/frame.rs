// SPDX-License-Identifier: GPL-2.0-or-later
//! What was seen in one interval.

use std::collections::BTreeMap;

use nearwalk_advise::exposure::CpuTime;
use nearwalk_advise::report::{Kind, Report, Subject};
use nearwalk_repl::NodeSet;

/// All that is drawn.
#[derive(Clone, Debug)]
pub struct Frame {
    /// Everyone with page tables.
    pub report: Report,
    /// What our kernel does for them; none on other kernels.
    pub copies: Option<BTreeMap<Key, Copies>>,
}

impl Frame {
    /// What our kernel does for someone.
    pub fn copies_of(&self, subject: &Subject) -> Option<&Copies> {
        self.copies.as_ref()?.get(&Key::of(subject))
    }

    /// Puts those behind that have copies already.
    pub fn rank(&mut self) {
        let mut ranked = std::mem::take(&mut self.report.ranked);
        ranked.sort_by_cached_key(|subject| self.is_covered(subject));
        self.report.ranked = ranked;
    }

    /// Whether someone has copies wherever it runs.
    pub fn is_covered(&self, subject: &Subject) -> bool {
        let Some(copies) = self.copies_of(subject) else {
            return false;
        };
        let runs = |index: usize| match &subject.time {
            CpuTime::Shares(shares) => shares[index] > 0.0,
            CpuTime::Among(among) => among.contains(&index),
        };
        let mut nodes = self.report.nodes.iter().enumerate();
        copies.bytes > 0
            && nodes.all(|(index, node)| !runs(index) || copies.nodes.contains(node.id))
    }
}

/// A row, across frames.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// What it is.
    pub kind: Kind,
    /// The group's path, or the process's name.
    pub name: String,
    /// Of a process.
    pub pid: Option<u32>,
}

impl Key {
    /// The row of a subject.
    pub fn of(subject: &Subject) -> Self {
        Self {
            kind: subject.kind,
            name: subject.name.clone(),
            pid: subject.pid.filter(|_| subject.kind == Kind::Process),
        }
    }
}

/// What our kernel says of someone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copies {
    /// What holds: `off`, `eager` or `lazy`.
    pub mode: String,
    /// The nodes that have copies.
    pub nodes: NodeSet,
    /// Bytes of copies.
    pub bytes: u64,
    /// What lazy trees did since they began; of those that are lazy.
    pub lazy: Option<Lazy>,
}

/// Counts of lazy trees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lazy {
    /// Page faults answered from the canonical tree.
    pub fills: u64,
    /// CPUs that shootdowns would have interrupted.
    pub due: u64,
    /// CPUs that they interrupted.
    pub sent: u64,
}
