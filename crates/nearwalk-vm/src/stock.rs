// SPDX-License-Identifier: GPL-2.0-or-later
//! What any kernel since Linux 6.1 says: on which nodes nested tables lie, of a
//! group of processes and of the machine, and not whose CPUs walk them.

use nearwalk_host::cgroup::{self, Mounts};
use nearwalk_host::{Machine, process};
use serde::Serialize;

use crate::error::Error;
use crate::system::System;

/// Bytes of nested tables by node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ByNode {
    /// The control group; none is the whole machine.
    pub group: Option<String>,
    pub nodes: Vec<(u32, u64)>,
}

/// Of the group that a process is in, else of the machine; nothing where the kernel
/// does not count them.
pub fn by_node(system: &mut dyn System, pid: u32) -> Result<Option<ByNode>, Error> {
    let mut source = &mut *system;
    let machine = Machine::read(&mut source)?;
    if let Some(of) = of_group(system, &machine, pid)? {
        return Ok(Some(of));
    }
    let nodes = machine.nodes.iter();
    let nodes = nodes.map(|node| Some((node.id, node.nested?)));
    let nodes: Option<Vec<_>> = nodes.collect();
    Ok(nodes.map(|nodes| ByNode { group: None, nodes }))
}

fn of_group(
    mut source: &mut dyn System,
    machine: &Machine,
    pid: u32,
) -> Result<Option<ByNode>, Error> {
    let Some(group) = process::group(&mut source, pid).filter(|group| !group.is_empty()) else {
        return Ok(None);
    };
    let Some(mount) = Mounts::read(&mut source)?.v2 else {
        return Ok(None);
    };
    let dir = mount.join(&group);
    let tables = cgroup::tables(&mut source, machine, &dir)?;
    let nested = tables.and_then(|tables| tables.nested);
    Ok(nested.map(|bytes| ByNode {
        group: Some(group),
        nodes: machine
            .nodes
            .iter()
            .map(|node| node.id)
            .zip(bytes)
            .collect(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Fixture;

    #[test]
    fn the_group_tells_else_the_machine() {
        let mut host = Fixture::host();
        let of = by_node(&mut host, 140).unwrap().unwrap();
        assert_eq!(of.group.as_deref(), Some("machine/web"));
        assert_eq!(of.nodes, [(0, 8192), (1, 1 << 20)]);
        let of = by_node(&mut host, 150).unwrap().unwrap();
        assert_eq!(of.group, None);
        assert_eq!(of.nodes, [(0, 4 << 20), (1, 0)]);
    }

    #[test]
    fn a_kernel_that_does_not_count_says_nothing() {
        let node = "/sys/devices/system/node/node1/meminfo";
        let mut host = Fixture::host().file(node, "Node 1 PageTables: 12 kB\n");
        assert_eq!(by_node(&mut host, 150).unwrap(), None);
    }
}
