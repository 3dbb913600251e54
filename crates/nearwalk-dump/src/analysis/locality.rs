// SPDX-License-Identifier: GPL-2.0-or-later
//! From where leaf entries are found local.
//!
//! A walk ends with the load of a leaf entry. It is local to a CPU when the
//! table page that holds the entry lies on the CPU's node; where the mapped
//! memory itself lies does not matter to the walk (Mitosis, section 3.1 and
//! Figure 4). CPUs of a domain that has a tree of its own walk that tree, all
//! others the canonical one.

use super::tally::leaf_bytes;
use super::{Tally, ViewTally};
use crate::format;
use crate::stream::View;

/// Leaf entries, and the bytes that they map.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Leaves {
    pub entries: u64,
    pub bytes: u64,
}

impl Leaves {
    fn add(&mut self, entries: u64, level: u8) {
        self.entries += entries;
        self.bytes += entries * leaf_bytes(level);
    }
}

/// What walks from one node find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Viewpoint {
    pub node: u32,
    /// The tree that CPUs there load.
    pub tree: View,
    /// Leaf entries in table pages on the node.
    pub local: Leaves,
    /// Leaf entries in table pages elsewhere.
    pub remote: Leaves,
    /// Leaf entries of the canonical tree that this tree has not got: a walk
    /// there ends in a fault that fills them in.
    pub absent: Leaves,
    /// Entries of some tables were not read: these count as all that they could
    /// map, and their entries are not known.
    pub unread: bool,
}

impl Viewpoint {
    /// Share of the mapped memory whose leaf entries are remote; `None` when
    /// no leaf entry is found.
    pub fn remote_by_memory(&self) -> Option<f64> {
        fraction(self.remote.bytes, self.local.bytes)
    }

    /// Share of the leaf entries that are remote.
    pub fn remote_by_entries(&self) -> Option<f64> {
        if self.unread {
            return None;
        }
        fraction(self.remote.entries, self.local.entries)
    }
}

fn fraction(remote: u64, local: u64) -> Option<f64> {
    let all = remote + local;
    (all > 0).then(|| remote as f64 / all as f64)
}

/// The viewpoint of every node that has CPUs, in ascending order. A node that
/// is split into several domains has one for each that has a tree of its own,
/// and one for those that have none.
pub fn locality(tally: &Tally) -> Vec<Viewpoint> {
    let none = ViewTally::default();
    let canonical = tally.canonical().unwrap_or(&none);
    let mut points = Vec::new();

    for info in tally.nodes.infos().iter().filter(|info| info.cpus) {
        let slot = tally.nodes.slot(Some(info.node));
        let domains = tally
            .domains
            .iter()
            .map(|domain| (domain.node, View::Domain(domain.domain)));
        let mut seen_canonical = false;
        let before = points.len();
        for (_, view) in domains.filter(|(node, _)| *node == Some(info.node)) {
            if let Some(tree) = tally.views.get(&view) {
                points.push(viewpoint(info.node, slot, view, tree, canonical));
            } else {
                seen_canonical = true;
            }
        }
        if seen_canonical || points.len() == before {
            let view = View::Canonical;
            points.push(viewpoint(info.node, slot, view, canonical, canonical));
        }
    }
    points
}

fn viewpoint(
    node: u32,
    slot: usize,
    view: View,
    tree: &ViewTally,
    canonical: &ViewTally,
) -> Viewpoint {
    let mut point = Viewpoint {
        node,
        tree: view,
        local: Leaves::default(),
        remote: Leaves::default(),
        absent: Leaves::default(),
        unread: false,
    };
    for (&level, tally) in &tree.levels {
        for (at, &entries) in tally.leaves.iter().enumerate() {
            let side = if at == slot {
                &mut point.local
            } else {
                &mut point.remote
            };
            side.add(entries, level);
            side.bytes += tally.unread[at] * format::table_size(level);
            point.unread |= tally.unread[at] > 0;
        }
    }
    for (&level, tally) in &canonical.levels {
        let all: u64 = tally.leaves.iter().sum();
        let here = tree
            .levels
            .get(&level)
            .map_or(0, |tally| tally.leaves.iter().sum());
        // A tree may also be ahead of what was read of the canonical one.
        point.absent.add(all.saturating_sub(here), level);
    }
    point
}
