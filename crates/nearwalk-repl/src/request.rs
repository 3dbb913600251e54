// SPDX-License-Identifier: GPL-2.0-or-later
//! What a user asks for, in numactl's node-list grammar, and what the kernel is
//! asked for.

use std::fmt;
use std::str::FromStr;

use crate::error::Error;
use crate::nodes::{NodeSet, Topology, node_number};

/// Nodes as a user writes them.
///
/// `all`, `off`, `default`, or numactl's grammar: `N`, `N-N` and lists of them; a `!` in
/// front stands for every usable node but these, a `+` (after the `!`, if any)
/// counts within the nodes that the cpuset allows: `+0` is the first of them.
/// `lazy`, or `lazy:` before `all` or nodes, asks for lazy copies of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeSpec {
    /// What holds without a setting: the policy of the cgroup or the system.
    Default,
    /// No replication.
    Off,
    /// Every node with CPUs and memory.
    All,
    /// Lazily: all, or a list.
    Lazy(Box<NodeSpec>),
    /// A list of nodes.
    List {
        /// As it was written, for messages.
        text: String,
        /// Numbers, or positions if `relative`.
        nodes: NodeSet,
        /// `!`: all usable nodes but these.
        invert: bool,
        /// `+`: positions within the allowed nodes.
        relative: bool,
    },
}

impl FromStr for NodeSpec {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            "default" => return Ok(Self::Default),
            "off" => return Ok(Self::Off),
            "all" => return Ok(Self::All),
            "lazy" => return Ok(Self::Lazy(Box::new(Self::All))),
            _ => {}
        }
        if let Some(nodes) = text.strip_prefix("lazy:") {
            return match nodes.parse()? {
                nodes @ (Self::All | Self::List { .. }) => Ok(Self::Lazy(Box::new(nodes))),
                _ => Err(Error::BadNodeList {
                    text: text.to_owned(),
                    why: "only nodes can follow 'lazy:'".to_owned(),
                }),
            };
        }
        let bad = |why: String| Error::BadNodeList {
            text: text.to_owned(),
            why,
        };
        let (invert, list) = strip(text, '!');
        let (relative, list) = strip(list, '+');
        // The kernel's own reader takes empty parts; a user's are mistakes.
        for part in list.split(',') {
            if part.is_empty() {
                return Err(bad("a node number is missing".to_owned()));
            }
            if let Some((first, last)) = part.split_once('-') {
                node_number(first).map_err(bad)?;
                node_number(last).map_err(bad)?;
            }
        }
        Ok(Self::List {
            text: text.to_owned(),
            nodes: list.parse().map_err(bad)?,
            invert,
            relative,
        })
    }
}

fn strip(text: &str, prefix: char) -> (bool, &str) {
    match text.strip_prefix(prefix) {
        Some(rest) => (true, rest),
        None => (false, text),
    }
}

impl NodeSpec {
    /// What it means on this machine.
    ///
    /// # Errors
    ///
    /// Names the first node that does not exist or cannot be used.
    pub fn resolve(&self, topology: &Topology) -> Result<Request, Error> {
        let Self::List {
            text,
            nodes,
            invert,
            relative,
        } = self
        else {
            return Ok(match self {
                Self::Lazy(nodes) => Request::Lazy {
                    nodes: match nodes.resolve(topology)? {
                        Request::Nodes(nodes) => Some(nodes),
                        _ => None,
                    },
                    prefetch: None,
                },
                Self::Default => Request::Default,
                Self::Off => Request::Off,
                _ => Request::All,
            });
        };
        let bad = |why: String| Error::BadNodeList {
            text: text.clone(),
            why,
        };
        let mut nodes = nodes.clone();
        if *relative {
            let allowed: Vec<u32> = topology.allowed.iter().collect();
            nodes = nodes
                .iter()
                .map(|position| {
                    allowed.get(position as usize).copied().ok_or_else(|| {
                        bad(format!(
                            "there is no position {position} among the allowed nodes {}",
                            topology.allowed
                        ))
                    })
                })
                .collect::<Result<_, _>>()?;
        }
        if *invert {
            // A node to leave out need not be usable, but it must exist.
            if let Some(node) = nodes.difference(&topology.possible).iter().next() {
                return Err(Error::NoSuchNode {
                    node,
                    possible: topology.possible.clone(),
                });
            }
            nodes = topology.usable().difference(&nodes);
            if nodes.is_empty() {
                return Err(bad("no node is left".to_owned()));
            }
        }
        topology.check(&nodes)?;
        Ok(Request::Nodes(nodes))
    }
}

/// What the kernel is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// No setting of its own.
    Default,
    /// No replication.
    Off,
    /// Eager replication on every node that has CPUs and memory.
    All,
    /// Eager replication on these nodes.
    Nodes(NodeSet),
    /// Lazy replication.
    Lazy {
        /// On these nodes, or on every usable one.
        nodes: Option<NodeSet>,
        /// A fault is answered with 2 to the power of this many entries; as the
        /// system says if nothing is asked for.
        prefetch: Option<u8>,
    },
}

impl Request {
    /// The same with what a user asks of lazy fills.
    ///
    /// # Errors
    ///
    /// If something is asked for and this is not lazy.
    pub(crate) fn with_prefetch(mut self, asked: Option<u8>) -> Result<Self, Error> {
        match &mut self {
            Self::Lazy { prefetch, .. } => *prefetch = asked,
            _ if asked.is_some() => return Err(Error::PrefetchNotLazy(self)),
            _ => {}
        }
        Ok(self)
    }
}

impl Request {
    /// The text for `/proc/<pid>/pgtable_repl` and for groups, with what is asked for
    /// virtual machines, in the kernel's words.
    pub(crate) fn with_nested(&self, nested: Option<&str>) -> String {
        match nested {
            None => self.to_string(),
            Some(nested) => format!("{self} nested {nested}"),
        }
    }
}

/// The text for `/proc/<pid>/pgtable_repl`.
impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::Off => f.write_str("off"),
            Self::All => f.write_str("eager all"),
            Self::Nodes(nodes) => write!(f, "eager {nodes}"),
            Self::Lazy { nodes, prefetch } => {
                match nodes {
                    None => f.write_str("lazy all")?,
                    Some(nodes) => write!(f, "lazy {nodes}")?,
                }
                match prefetch {
                    None => Ok(()),
                    Some(prefetch) => write!(f, " prefetch={prefetch}"),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Fixture;

    fn resolve(text: &str, fixture: &Fixture) -> Result<String, String> {
        let topology = Topology::read(fixture).unwrap();
        text.parse::<NodeSpec>()
            .and_then(|spec| spec.resolve(&topology))
            .map(|request| request.to_string())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn numactls_grammar_is_understood() {
        let machine = Fixture::four_nodes();
        for (text, request) in [
            ("all", "eager all"),
            ("lazy", "lazy all"),
            ("lazy:all", "lazy all"),
            ("lazy:!1", "lazy 0,2-3"),
            ("off", "off"),
            ("default", "default"),
            ("0", "eager 0"),
            ("0,2", "eager 0,2"),
            ("0-3", "eager 0-3"),
            ("3,0-1", "eager 0-1,3"),
            ("!1", "eager 0,2-3"),
            ("!0-2", "eager 3"),
            ("+0", "eager 0"),
            ("+0-1,3", "eager 0-1,3"),
            ("!+0", "eager 1-3"),
        ] {
            assert_eq!(resolve(text, &machine).as_deref(), Ok(request), "{text}");
        }
    }

    #[test]
    fn relative_nodes_count_within_the_cpuset() {
        let mut machine = Fixture::four_nodes();
        machine.file("/proc/self/status", "Name:\tx\nMems_allowed_list:\t1,3\n");
        assert_eq!(resolve("+0", &machine).unwrap(), "eager 1");
        assert_eq!(resolve("+1", &machine).unwrap(), "eager 3");
        assert_eq!(
            resolve("+2", &machine).unwrap_err(),
            "bad node list `+2`: there is no position 2 among the allowed nodes 1,3; \
             write for example 0,2 or 0-3 or !1 or +0, all, off, or default"
        );
    }

    #[test]
    fn inversion_is_within_the_usable_nodes() {
        let machine = Fixture::lopsided();
        assert_eq!(resolve("!0", &machine).unwrap(), "eager 1");
        assert_eq!(resolve("!2", &machine).unwrap(), "eager 0-1");
        assert!(
            resolve("!0-1", &machine)
                .unwrap_err()
                .contains("no node is left")
        );
        assert!(resolve("!8", &machine).unwrap_err().contains("no node 8"));
    }

    #[test]
    fn mistakes_are_named() {
        let machine = Fixture::four_nodes();
        for (text, why) in [
            ("", "a node number is missing"),
            ("0,", "a node number is missing"),
            (",1", "a node number is missing"),
            ("ALL", "`ALL` is not a node number"),
            ("0-", "`` is not a node number"),
            ("1-2-3", "`2-3` is not a node number"),
            ("+!1", "`!1` is not a node number"),
            ("0 1", "`0 1` is not a node number"),
            ("2-1", "range 2-1 runs backwards"),
            ("4", "there is no node 4; this machine can have 0-3"),
            ("0-7", "there is no node 4; this machine can have 0-3"),
        ] {
            let error = resolve(text, &machine).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
