// SPDX-License-Identifier: GPL-2.0-or-later
//! Nodes that differ, and what lies between them.
//!
//! `sockets` nodes are alike, as the flat keys of a machine file say. Each
//! `[[node]]` adds more behind them: with slower or faster memory, with or
//! without CPUs. A `[matrix]` says what the way between two nodes is like,
//! where one number for all pairs is not enough.

use super::error::{MachineError, in_range};
use crate::units::{Bandwidth, Bytes, Latency};
use serde::Deserialize;

const fn one() -> usize {
    1
}

/// Nodes of one kind besides the sockets. What is left out is as a socket
/// has it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeClass {
    /// How many there are.
    #[serde(default = "one")]
    pub count: usize,
    /// Physical cores of each; 0, unless given, is a node of memory alone.
    #[serde(default)]
    pub cores: usize,
    /// Memory on each.
    pub memory: Option<Bytes>,
    /// Unloaded load-to-use latency of it, without the way from another node.
    pub latency: Option<Latency>,
    /// Peak throughput of its memory, streaming.
    pub bandwidth: Option<Bandwidth>,
    /// Share of that which single lines at random addresses reach.
    pub random_efficiency: Option<f64>,
}

/// What lies between nodes: rows are those that ask, columns those that hold
/// what is asked for, sockets first and then classes in file order.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MatrixConfig {
    /// Unloaded load-to-use latency; the diagonal is of local memory.
    pub latency: Option<Vec<Vec<Latency>>>,
    /// Peak throughput towards who asks; nothing reads the diagonal.
    pub link_bandwidth: Option<Vec<Vec<Bandwidth>>>,
}

/// One node.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Node {
    /// Physical cores.
    pub cores: usize,
    /// Memory.
    pub memory: Bytes,
    /// Unloaded latency of that from here.
    pub latency: Latency,
    /// Peak throughput of its memory, streaming.
    pub bandwidth: Bandwidth,
    /// Share of that which lines at random addresses reach.
    pub random_efficiency: f64,
}

/// All nodes: `sockets` like `socket`, then those of `classes`.
pub(super) fn in_order(
    socket: Node,
    sockets: usize,
    classes: &[NodeClass],
    matrix: &MatrixConfig,
) -> Vec<Node> {
    let mut nodes = vec![socket; sockets];
    for class in classes {
        let node = Node {
            cores: class.cores,
            memory: class.memory.unwrap_or(socket.memory),
            latency: class.latency.unwrap_or(socket.latency),
            bandwidth: class.bandwidth.unwrap_or(socket.bandwidth),
            random_efficiency: class.random_efficiency.unwrap_or(socket.random_efficiency),
        };
        nodes.extend(std::iter::repeat_n(node, class.count));
    }
    let diagonal = matrix.latency.iter().flatten().enumerate();
    for (node, (n, row)) in nodes.iter_mut().zip(diagonal) {
        // A row too short is refused when the file is read.
        node.latency = row.get(n).copied().unwrap_or(node.latency);
    }
    nodes
}

/// Refuses nodes and ways between them that cannot be.
pub(super) fn check(
    nodes: &[Node],
    classes: &[NodeClass],
    matrix: &MatrixConfig,
) -> Result<(), MachineError> {
    let range = in_range;
    for (i, class) in classes.iter().enumerate() {
        let key = |k: &str| format!("node {}, {k}", i + 1);
        range(&key("count"), class.count as f64, 1.0, 64.0)?;
        range(&key("cores"), class.cores as f64, 0.0, 1024.0)?;
    }
    range("nodes", nodes.len() as f64, 1.0, 64.0)?;
    for (i, n) in nodes.iter().enumerate() {
        let key = |k: &str| format!("{k} of node {i}");
        range(&key("bandwidth (B/s)"), n.bandwidth.0, 1e8, 1e13)?;
        range(&key("random_efficiency"), n.random_efficiency, 0.1, 1.0)?;
        range(&key("memory (B)"), n.memory.0 as f64, 4096.0, 1e18)?;
    }
    let square = |key: &str, rows: Option<Vec<usize>>| {
        let n = nodes.len();
        match rows {
            Some(rows) if rows.len() != n || rows.iter().any(|&r| r != n) => {
                Err(MachineError::Range {
                    key: key.to_owned(),
                    value: format!("of {} rows with {rows:?} columns", rows.len()),
                    allowed: format!("{n} rows of {n} are, as there are nodes"),
                })
            }
            _ => Ok(()),
        }
    };
    square("matrix.latency", matrix.latency.as_deref().map(lengths))?;
    let links = matrix.link_bandwidth.as_ref();
    square(
        "matrix.link_bandwidth",
        links.map(Vec::as_slice).map(lengths),
    )?;
    for (from, row) in links.iter().flat_map(|l| l.iter().enumerate()) {
        for (home, b) in row.iter().enumerate().filter(|(h, _)| *h != from) {
            let key = format!("matrix.link_bandwidth from {home} to {from} (B/s)");
            range(&key, b.0, 1e8, 1e13)?;
        }
    }
    Ok(())
}

fn lengths<T>(rows: &[Vec<T>]) -> Vec<usize> {
    rows.iter().map(Vec::len).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{BUILTIN, Machine};

    const SLOW: &str = "
[[node]]
count = 2
memory = \"1 TiB\"
latency = \"700 cycles\"
bandwidth = \"10 GB/s\"
[[node]]
cores = 4
";

    fn with(more: &str) -> Result<Machine, MachineError> {
        Machine::from_toml(&format!("{}{more}", BUILTIN[0].1))
    }

    #[test]
    fn classes_come_behind_the_sockets_and_say_what_differs() {
        let m = with(SLOW).unwrap();
        let nodes = m.nodes();
        assert_eq!(nodes.len(), 7);
        assert_eq!((nodes[4].cores, nodes[4].memory), (0, Bytes::gib(1024)));
        assert_eq!((nodes[6].cores, nodes[6].memory), (4, Bytes::gib(128)));
        assert_eq!(nodes[5].bandwidth.0, 10e9);
        assert_eq!(m.nodes_with_cpus(), [0, 1, 2, 3, 6]);
        let cores = m.node_of_cores();
        assert_eq!((cores.len(), cores[55], cores[56]), (60, 3, 6));
        assert_eq!(m.cpus(), 120);
        let latencies = [(0, 0), (0, 1), (0, 4), (4, 4), (4, 0)].map(|(f, h)| m.latency(f, h));
        assert_eq!(latencies, [280.0, 580.0, 1000.0, 700.0, 580.0]);
    }

    const PAIRS: &str = "
[matrix]
latency = [
    [\"100 ns\", \"150 ns\", \"200 ns\", \"250 ns\"],
    [\"150 ns\", \"100 ns\", \"250 ns\", \"200 ns\"],
    [\"200 ns\", \"250 ns\", \"100 ns\", \"150 ns\"],
    [\"250 ns\", \"200 ns\", \"150 ns\", \"90 ns\"],
]
";

    #[test]
    fn a_matrix_says_each_pair() {
        let m = with(PAIRS).unwrap();
        assert_eq!((m.latency(0, 3), m.latency(3, 2)), (550.0, 330.0));
        assert_eq!(m.latency(3, 3), 198.0);
        assert_eq!(m.link_bandwidth(0, 3).0, 11e9);
    }

    #[test]
    fn a_line_of_a_nearer_cache_comes_sooner_where_pairs_differ() {
        let flat = with("").unwrap();
        let of = |m: &Machine| [1, 2, 3].map(|holder| m.cache_latency(0, holder).round());
        assert_eq!(of(&flat), [360.0; 3]);
        // Of pairs that take 200 ns in the mean.
        assert_eq!(of(&with(PAIRS).unwrap()), [270.0, 360.0, 450.0]);
        let memory_alone = PAIRS.replace("[matrix]", "[[node]]\n[matrix]");
        let memory_alone = memory_alone
            .replace("ns\"],", "ns\", \"900 ns\"],")
            .replace(
                "],\n]",
                "],\n    [\"900 ns\", \"900 ns\", \"900 ns\", \"900 ns\", \"500 ns\"],\n]",
            );
        let m = with(&memory_alone).unwrap();
        assert_eq!(of(&m), [270.0, 360.0, 450.0], "no cache is there");
    }

    #[test]
    fn what_a_matrix_says_cannot_be_said_otherwise() {
        let text = format!("{}{PAIRS}", BUILTIN[0].1);
        for key in ["memory.remote", "memory.local"] {
            let e = Machine::from_toml_with(&text, &[(key, "700 cycles")]);
            let e = e.unwrap_err().to_string();
            let says = format!("{key} is 700 cycles; nothing reads it: matrix.latency");
            assert!(e.contains(&says), "{e}");
        }
        let links = "memory.link_bandwidth";
        let m = Machine::from_toml_with(&text, &[(links, "5 GB/s")]).unwrap();
        assert_eq!(
            m.link_bandwidth(0, 1).0,
            5e9,
            "the matrix has latencies alone"
        );
        let row = "[\"9 GB/s\", \"9 GB/s\", \"9 GB/s\", \"9 GB/s\"],";
        let text = format!("{text}link_bandwidth = [{}]\n", row.repeat(4));
        let e = Machine::from_toml_with(&text, &[(links, "5 GB/s")]);
        let e = e.unwrap_err().to_string();
        assert!(e.contains("matrix.link_bandwidth"), "{e}");
    }

    #[test]
    fn longer_ways_leave_what_is_near_as_it_is() {
        let m = with(SLOW).unwrap().with_ways(1.5);
        let latencies = [(0, 0), (0, 1), (0, 4), (4, 4)].map(|(f, h)| m.latency(f, h));
        assert_eq!(latencies, [280.0, 730.0, 1150.0, 700.0]);
        let m = with(PAIRS).unwrap().with_ways(2.0);
        let latencies = [(0, 0), (0, 1), (0, 3), (3, 0)].map(|(f, h)| m.latency(f, h).round());
        // Twice 50 ns, 160 ns and 150 ns more than where it is.
        assert_eq!(latencies, [220.0, 440.0, 902.0, 880.0]);
    }

    #[test]
    fn nodes_that_cannot_be_are_refused() {
        let why = |more| with(more).unwrap_err().to_string();
        let e = why("[[node]]\ncount = 61\n");
        assert!(e.contains("nodes is 65") && e.contains("64"), "{e}");
        let e = why("[[node]]\nbandwidth = \"1 MB/s\"\n");
        assert!(e.contains("of node 4"), "{e}");
        let e = why("[matrix]\nlatency = [[\"1 ns\"], [\"1 ns\"]]\n");
        assert!(e.contains("matrix.latency") && e.contains("4 rows"), "{e}");
        let e = why("[[node]]\nbandwith = \"10 GB/s\"\n");
        assert!(e.contains("bandwith"), "{e}");
    }
}
