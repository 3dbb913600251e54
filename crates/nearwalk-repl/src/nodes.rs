// SPDX-License-Identifier: GPL-2.0-or-later
//! Sets of memory nodes and the nodes that this machine has.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::str::FromStr;

use serde::Serialize;

use crate::error::Error;
use crate::system::System;

/// The highest node number that any kernel can have, plus one
/// (`CONFIG_NODES_SHIFT` is at most 10).
pub(crate) const MAX_NODES: u32 = 1024;

/// A set of node numbers, shown as the kernel does: `0-1,3`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct NodeSet(BTreeSet<u32>);

impl NodeSet {
    /// Whether there is no node in it.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether `node` is in it.
    pub fn contains(&self, node: u32) -> bool {
        self.0.contains(&node)
    }

    /// The nodes, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().copied()
    }

    /// The nodes that are in both.
    pub fn intersection(&self, other: &Self) -> Self {
        Self(self.0.intersection(&other.0).copied().collect())
    }

    /// The nodes that are in `self` and not in `other`.
    pub fn difference(&self, other: &Self) -> Self {
        Self(self.0.difference(&other.0).copied().collect())
    }

    /// The set as `prctl()` takes it: an array of words, and its length in bits.
    pub(crate) fn to_words(&self) -> (Vec<libc::c_ulong>, libc::c_ulong) {
        let bits = libc::c_ulong::BITS;
        let words = self.0.last().map_or(1, |last| last / bits + 1);
        let mut mask = vec![0; words as usize];
        for node in self.iter() {
            mask[(node / bits) as usize] |= 1 << (node % bits);
        }
        (mask, libc::c_ulong::from(words * bits))
    }
}

impl FromIterator<u32> for NodeSet {
    fn from_iter<T: IntoIterator<Item = u32>>(nodes: T) -> Self {
        Self(nodes.into_iter().collect())
    }
}

impl fmt::Display for NodeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.iter().peekable();
        let mut separator = "";
        let mut text = String::new();
        while let Some(first) = rest.next() {
            let mut last = first;
            while let Some(next) = rest.next_if_eq(&(last + 1)) {
                last = next;
            }
            text += separator;
            text += &first.to_string();
            if last > first {
                text += &format!("-{last}");
            }
            separator = ",";
        }
        f.pad(&text)
    }
}

/// Reads the kernel's own lists, such as `0-1,3`; empty for no node.
impl FromStr for NodeSet {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut nodes = BTreeSet::new();
        for range in text.trim().split(',').filter(|range| !range.is_empty()) {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let first = node_number(first)?;
            let last = node_number(last)?;
            if last < first {
                return Err(format!("range {range} runs backwards"));
            }
            nodes.extend(first..=last);
        }
        Ok(Self(nodes))
    }
}

/// One node number; the message says what is wrong and what is allowed.
pub(crate) fn node_number(text: &str) -> Result<u32, String> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("`{text}` is not a node number"));
    }
    match text.parse() {
        Ok(node) if node < MAX_NODES => Ok(node),
        _ => Err(format!(
            "node {text} is out of range, 0 to {} are possible",
            MAX_NODES - 1
        )),
    }
}

/// The nodes of this machine and what they have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topology {
    /// Every number that can ever be in use.
    pub possible: NodeSet,
    /// Those in use now.
    pub online: NodeSet,
    /// Those with CPUs.
    pub has_cpu: NodeSet,
    /// Those with memory.
    pub has_memory: NodeSet,
    /// Those that this process's cpuset allows memory on.
    pub allowed: NodeSet,
}

impl Topology {
    /// Asks the kernel.
    pub fn read(system: &impl System) -> Result<Self, Error> {
        let list = |name: &str| {
            let path = Path::new("/sys/devices/system/node").join(name);
            let text = system
                .read(&path)
                .map_err(|source| Error::io(&path, source))?;
            parse_answer(&text)
        };
        let status_path = Path::new("/proc/self/status");
        let status = system
            .read(status_path)
            .map_err(|source| Error::io(status_path, source))?;
        let has_memory = list("has_memory")?;
        let allowed = match status
            .lines()
            .find_map(|line| line.strip_prefix("Mems_allowed_list:"))
        {
            Some(text) => parse_answer(text)?,
            None => has_memory.clone(),
        };
        Ok(Self {
            possible: list("possible")?,
            online: list("online")?,
            has_cpu: list("has_cpu")?,
            has_memory,
            allowed,
        })
    }

    /// The nodes on which page tables can be replicated: they need CPUs that
    /// walk the copies and memory to hold them.
    pub fn usable(&self) -> NodeSet {
        self.has_cpu.intersection(&self.has_memory)
    }

    /// Says which of `nodes` cannot be used, and why.
    pub fn check(&self, nodes: &NodeSet) -> Result<(), Error> {
        if let Some(node) = nodes.difference(&self.possible).iter().next() {
            return Err(Error::NoSuchNode {
                node,
                possible: self.possible.clone(),
            });
        }
        let usable = self.usable();
        let Some(node) = nodes.difference(&usable).iter().next() else {
            return Ok(());
        };
        let why = match (
            self.online.contains(node),
            self.has_cpu.contains(node),
            self.has_memory.contains(node),
        ) {
            (false, ..) => "is offline",
            (true, false, false) => "has neither CPUs nor memory",
            (true, false, true) => "has no CPUs",
            (true, true, _) => "has no memory",
        };
        Err(Error::UnusableNode { node, why, usable })
    }
}

fn parse_answer(text: &str) -> Result<NodeSet, Error> {
    text.parse().map_err(|why| Error::Answer {
        line: text.trim().to_owned(),
        why,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Fixture;

    fn set(text: &str) -> NodeSet {
        text.parse().unwrap()
    }

    #[test]
    fn lists_are_shown_as_the_kernel_shows_them() {
        for text in ["", "0", "0-3", "0,2-3", "1,3,5", "0-1,3,8-1023"] {
            assert_eq!(set(text).to_string(), text);
        }
        assert_eq!(set("0,1,2\n").to_string(), "0-2");
    }

    #[test]
    fn bad_lists_say_what_is_wrong() {
        for (text, why) in [
            ("x", "`x` is not a node number"),
            ("1-", "`` is not a node number"),
            ("3-1", "range 3-1 runs backwards"),
            ("1024", "node 1024 is out of range, 0 to 1023 are possible"),
            (
                "99999999999",
                "node 99999999999 is out of range, 0 to 1023 are possible",
            ),
        ] {
            assert_eq!(text.parse::<NodeSet>().unwrap_err(), why);
        }
    }

    #[test]
    fn masks_have_a_bit_for_each_node() {
        assert_eq!(set("0,2").to_words(), (vec![5], 64));
        assert_eq!(set("64").to_words(), (vec![0, 1], 128));
        assert_eq!(set("").to_words(), (vec![0], 64));
    }

    #[test]
    fn unusable_nodes_are_named_with_the_reason() {
        let topology = Topology::read(&Fixture::lopsided()).unwrap();
        assert_eq!(topology.usable(), set("0-1"));
        assert!(topology.check(&set("0-1")).is_ok());
        for (node, message) in [
            (
                "2",
                "node 2 has no CPUs; page tables can be replicated on 0-1",
            ),
            (
                "3",
                "node 3 has no memory; page tables can be replicated on 0-1",
            ),
            (
                "0,4",
                "node 4 is offline; page tables can be replicated on 0-1",
            ),
            ("1,9", "there is no node 9; this machine can have 0-7"),
        ] {
            let error = topology.check(&set(node)).unwrap_err();
            assert_eq!(error.to_string(), message);
        }
    }
}
