// SPDX-License-Identifier: GPL-2.0-or-later
//! Nodes as positions in counters.

use crate::stream::NodeInfo;

/// The nodes of a snapshot in ascending order, each with a *slot*: its
/// position in every vector of counters. One further slot, the last, is for
/// frames that belong to no node (device memory).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Nodes {
    infos: Vec<NodeInfo>,
}

impl Nodes {
    pub fn add(&mut self, info: NodeInfo) {
        let at = self.infos.partition_point(|known| known.node < info.node);
        self.infos.insert(at, info);
    }

    pub fn infos(&self) -> &[NodeInfo] {
        &self.infos
    }

    /// Length of a vector of counters.
    pub fn slots(&self) -> usize {
        self.infos.len() + 1
    }

    /// Slot of a node that was added, or of no node.
    ///
    /// # Panics
    /// When the node was not added; [`Reader`](crate::stream::Reader) lets no
    /// such node through.
    pub fn slot(&self, node: Option<u32>) -> usize {
        let Some(node) = node else {
            return self.infos.len();
        };
        self.infos
            .binary_search_by_key(&node, |info| info.node)
            .unwrap_or_else(|_| panic!("node {node} is not in the snapshot"))
    }
}
