// SPDX-License-Identifier: GPL-2.0-or-later
//! Where a guest's CPUs and memory lie on the nodes of the machine that runs it.

use std::{fmt, str::FromStr};

use nearwalk_host::{Live, Machine};

use crate::{Error, NodeSpec, VmConfig};

/// Nodes of the machine that runs QEMU. The default leaves all to its kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// Whose CPUs run the guest's: nodes of the guest get one each, in turn, CPUs
    /// of a guest of one node likewise. Empty: any CPU.
    pub cpus: Option<Nodes>,
    pub memory: MemoryPlace,
}

/// A list of nodes, at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nodes(Vec<u32>);

/// Where the guest's memory lies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum MemoryPlace {
    /// Where it is touched first, or as the kernel likes.
    #[default]
    Any,
    /// Each node's bound to where its CPUs run.
    Local,
    /// Page by page over these; `None`: over those whose CPUs run the guest's.
    Interleave(Option<Nodes>),
    /// The guest's nodes bound to one of these each, in turn.
    Bind(Nodes),
}

const MEMORY_ALLOWED: &str = "any, local, interleave, interleave:LIST, or a list such as 0-3";

impl Nodes {
    pub fn new(numbers: impl Into<Vec<u32>>) -> Option<Nodes> {
        let numbers = numbers.into();
        (!numbers.is_empty()).then_some(Nodes(numbers))
    }

    pub fn one(node: u32) -> Nodes {
        Nodes(vec![node])
    }

    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().copied()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        false
    }

    /// The one that is `index`'s turn.
    pub fn turn(&self, index: usize) -> u32 {
        self.0[index % self.0.len()]
    }
}

impl FromStr for Nodes {
    type Err = String;

    fn from_str(text: &str) -> Result<Nodes, String> {
        nearwalk_host::parse_list(text)
            .and_then(Nodes::new)
            .ok_or_else(|| format!("'{text}' is no list of nodes; allowed: one such as 0-3 or 0,2"))
    }
}

impl fmt::Display for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        for (index, node) in self.0.iter().enumerate() {
            write!(f, "{}{node}", if index > 0 { "," } else { "" })?;
        }
        Ok(())
    }
}

impl FromStr for MemoryPlace {
    type Err = String;

    fn from_str(text: &str) -> Result<MemoryPlace, String> {
        let list = |text: &str| {
            text.parse::<Nodes>()
                .map_err(|_| format!("'{text}' is no place for memory; allowed: {MEMORY_ALLOWED}"))
        };
        Ok(match (text, text.strip_prefix("interleave:")) {
            ("any", _) => MemoryPlace::Any,
            ("local", _) => MemoryPlace::Local,
            ("interleave", _) => MemoryPlace::Interleave(None),
            (_, Some(nodes)) => MemoryPlace::Interleave(Some(list(nodes)?)),
            _ => MemoryPlace::Bind(list(text)?),
        })
    }
}

impl fmt::Display for MemoryPlace {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            MemoryPlace::Any => write!(f, "any"),
            MemoryPlace::Local => write!(f, "local"),
            MemoryPlace::Interleave(None) => write!(f, "interleave"),
            MemoryPlace::Interleave(Some(nodes)) => write!(f, "interleave:{nodes}"),
            MemoryPlace::Bind(nodes) => write!(f, "{nodes}"),
        }
    }
}

/// How QEMU places one node's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    pub name: &'static str,
    pub nodes: Nodes,
}

impl Placement {
    /// Refuses what says two things, or nothing.
    pub fn validate(&self, guest: &[NodeSpec]) -> Result<(), Error> {
        let invalid = |message: String| Err(Error::Invalid(message));
        if let Some(cpus) = &self.cpus {
            if guest.len() > 1 && cpus.len() > guest.len() {
                return invalid(format!(
                    "--vcpus-on {cpus}: {} nodes for {} of the guest; allowed: at most as many",
                    cpus.len(),
                    guest.len()
                ));
            }
        }
        match (&self.memory, &self.cpus) {
            (MemoryPlace::Local | MemoryPlace::Interleave(None), None) => invalid(format!(
                "--memory-on {}: nothing says where the CPUs are; allowed: with --vcpus-on, \
                 or interleave:LIST, or a list such as 0-3",
                self.memory
            )),
            (MemoryPlace::Local, Some(cpus)) if guest.len() == 1 && cpus.len() > 1 => {
                invalid(format!(
                    "--memory-on local: the guest's one node has CPUs on nodes {cpus}; allowed: \
                     any, interleave, or a node"
                ))
            }
            (MemoryPlace::Bind(nodes), _) if nodes.len() > guest.len() => invalid(format!(
                "--memory-on {nodes}: {} nodes for {} of the guest; allowed: at most as many, \
                 or interleave:{nodes}",
                nodes.len(),
                guest.len()
            )),
            _ => Ok(()),
        }
    }

    /// The policy of the memory of the guest's node `index`.
    pub fn policy(&self, index: usize) -> Option<Policy> {
        let bind = |nodes: &Nodes| Policy {
            name: "bind",
            nodes: Nodes::one(nodes.turn(index)),
        };
        let interleave = |nodes: &Nodes| Policy {
            name: "interleave",
            nodes: nodes.clone(),
        };
        match &self.memory {
            MemoryPlace::Any => None,
            MemoryPlace::Local => self.cpus.as_ref().map(bind),
            MemoryPlace::Interleave(None) => self.cpus.as_ref().map(interleave),
            MemoryPlace::Interleave(Some(nodes)) => Some(interleave(nodes)),
            MemoryPlace::Bind(nodes) => Some(bind(nodes)),
        }
    }

    /// The node that runs each of the guest's CPUs, by their numbers; nothing if
    /// any may.
    pub fn node_of_cpus(&self, guest: &[NodeSpec]) -> Vec<u32> {
        let Some(nodes) = &self.cpus else {
            return Vec::new();
        };
        let mut on = Vec::new();
        for (index, node) in guest.iter().enumerate() {
            for _ in 0..node.cpus {
                let turn = if guest.len() > 1 { index } else { on.len() };
                on.push(nodes.turn(turn));
            }
        }
        on
    }
}

/// The CPUs of this machine that each of the guest's may run on; an error if a
/// node that the placement names is not here.
pub fn masks(config: &VmConfig) -> Result<Vec<Vec<u32>>, Error> {
    let placement = &config.placement;
    if *placement == Placement::default() {
        return Ok(Vec::new());
    }
    let machine = Machine::read(&mut Live::default())
        .map_err(|error| Error::Invalid(format!("--vcpus-on, --memory-on: {error}")))?;
    let here: Vec<u32> = machine.nodes.iter().map(|node| node.id).collect();
    let with_cpus: Vec<u32> = machine
        .with_cpus()
        .iter()
        .map(|&index| machine.nodes[index].id)
        .collect();
    check(config, &here, &with_cpus)?;
    let on = placement.node_of_cpus(&config.nodes);
    let cpus = |node| machine.nodes[machine.index(node).unwrap_or(0)].cpus.clone();
    Ok(on.into_iter().map(cpus).collect())
}

/// Whether the nodes that a placement names are among those that there are.
pub fn check(config: &VmConfig, nodes: &[u32], with_cpus: &[u32]) -> Result<(), Error> {
    let refuse = |option: &str, node: u32, what: &str, allowed: &[u32]| {
        let allowed = Nodes(allowed.to_vec());
        Err(Error::Invalid(format!(
            "{option}: the machine that runs the guest has no node {node}{what}; allowed: {allowed}"
        )))
    };
    let placement = &config.placement;
    for node in placement.cpus.iter().flat_map(Nodes::iter) {
        if !with_cpus.contains(&node) {
            return refuse("--vcpus-on", node, " with CPUs", with_cpus);
        }
    }
    for index in 0..config.nodes.len() {
        for node in placement.policy(index).iter().flat_map(|p| p.nodes.iter()) {
            if !nodes.contains(&node) {
                return refuse("--memory-on", node, "", nodes);
            }
        }
    }
    Ok(())
}

/// Lets a thread run on these CPUs only.
pub fn pin(thread: i32, cpus: &[u32]) -> std::io::Result<()> {
    // SAFETY: a set of bits, all clear, is a valid value; CPU_SET ignores numbers
    // beyond it; the kernel reads the set and nothing else.
    let done = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        for &cpu in cpus {
            libc::CPU_SET(cpu as usize, &mut set);
        }
        libc::sched_setaffinity(thread, size_of_val(&set), &set)
    };
    match done {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Size;

    fn guest(nodes: u32, cpus: u32) -> Vec<NodeSpec> {
        NodeSpec::even(nodes, cpus, Size::gib(1)).unwrap()
    }

    fn place(cpus: &str, memory: &str) -> Placement {
        Placement {
            cpus: (!cpus.is_empty()).then(|| cpus.parse().unwrap()),
            memory: memory.parse().unwrap(),
        }
    }

    fn policies(placement: &Placement, guest: &[NodeSpec]) -> Vec<String> {
        let policy = |index| match placement.policy(index) {
            None => "none".into(),
            Some(policy) => format!("{} {}", policy.name, policy.nodes),
        };
        (0..guest.len()).map(policy).collect()
    }

    #[test]
    fn a_wide_guest_has_a_node_on_each() {
        let (guest, placement) = (guest(4, 8), place("0-3", "local"));
        placement.validate(&guest).unwrap();
        assert_eq!(placement.node_of_cpus(&guest), [0, 0, 1, 1, 2, 2, 3, 3]);
        assert_eq!(
            policies(&placement, &guest),
            ["bind 0", "bind 1", "bind 2", "bind 3"]
        );
    }

    #[test]
    fn a_guest_that_sees_no_nodes_has_a_cpu_on_each() {
        let (guest, placement) = (guest(1, 4), place("1,3", "interleave"));
        placement.validate(&guest).unwrap();
        assert_eq!(placement.node_of_cpus(&guest), [1, 3, 1, 3]);
        assert_eq!(policies(&placement, &guest), ["interleave 1,3"]);
    }

    #[test]
    fn memory_may_lie_elsewhere() {
        let (one, two) = (guest(1, 2), guest(2, 2));
        assert_eq!(policies(&place("0", "1"), &one), ["bind 1"]);
        assert_eq!(policies(&place("0-1", "1,2"), &two), ["bind 1", "bind 2"]);
        assert_eq!(policies(&place("0", "2"), &two), ["bind 2", "bind 2"]);
        assert_eq!(policies(&place("0", "any"), &one), ["none"]);
        assert_eq!(
            policies(&place("", "interleave:0,2"), &one),
            ["interleave 0,2"]
        );
        assert!(place("", "any").node_of_cpus(&two).is_empty());
    }

    #[test]
    fn what_is_written_is_read_again() {
        for text in ["any", "local", "interleave", "interleave:0,2", "1,3"] {
            assert_eq!(text.parse::<MemoryPlace>().unwrap().to_string(), text);
        }
        for text in ["", "0-", "x", "3-1"] {
            let error = text.parse::<Nodes>().unwrap_err();
            assert!(error.contains(&format!("'{text}'")) && error.contains("0-3"));
        }
        let error = "near".parse::<MemoryPlace>().unwrap_err();
        assert!(
            error.contains("'near'") && error.contains("local"),
            "{error}"
        );
    }

    #[test]
    fn contradictions_are_named_with_what_is_allowed() {
        for (nodes, cpus, memory, value, allowed) in [
            (2, "0-3", "any", "--vcpus-on 0,1,2,3", "at most as many"),
            (1, "", "local", "--memory-on local", "with --vcpus-on"),
            (
                1,
                "",
                "interleave",
                "--memory-on interleave",
                "interleave:LIST",
            ),
            (1, "0,1", "local", "nodes 0,1", "interleave"),
            (1, "0", "0-1", "--memory-on 0,1", "interleave:0,1"),
        ] {
            let refused = place(cpus, memory).validate(&guest(nodes, nodes));
            let error = refused.unwrap_err().to_string();
            assert!(error.contains(value) && error.contains(allowed), "{error}");
        }
    }

    #[test]
    fn nodes_that_are_not_there_are_named() {
        let with = |cpus, memory| VmConfig {
            nodes: guest(1, 1),
            placement: place(cpus, memory),
            ..VmConfig::default()
        };
        check(&with("1", "2"), &[0, 1, 2], &[0, 1]).unwrap();
        let error = check(&with("2", "any"), &[0, 1, 2], &[0, 1]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "--vcpus-on: the machine that runs the guest has no node 2 with CPUs; allowed: 0,1"
        );
        let error = check(&with("0", "3"), &[0, 1, 2], &[0, 1]).unwrap_err();
        assert!(error.to_string().contains("no node 3; allowed: 0,1,2"));
    }

    #[test]
    fn a_thread_runs_where_it_is_pinned() {
        std::thread::spawn(|| {
            // SAFETY: takes nothing. It runs here, so it may.
            let here = || unsafe { libc::sched_getcpu() };
            let cpu = here();
            pin(0, &[cpu as u32]).unwrap();
            assert_eq!(here(), cpu);
            assert!(pin(0, &[]).is_err());
        })
        .join()
        .unwrap();
    }
}
