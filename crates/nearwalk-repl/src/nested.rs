// SPDX-License-Identifier: GPL-2.0-or-later
//! What a process or group asks for the nested page tables of its virtual machines.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use crate::error::Error;
use crate::nodes::{NodeSet, Topology};
use crate::request::{NodeSpec, Request};
use crate::status::Source;

/// A mode as a user writes it: `off`, `lazy` or `migrate`, and nodes behind the
/// latter two, as in `lazy:0-1`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NestedSpec {
    mode: &'static str,
    nodes: Option<NodeSpec>,
}

impl FromStr for NestedSpec {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let bad = |why: String| Error::BadNested {
            text: text.to_owned(),
            why,
        };
        let (mode, nodes) = match text.split_once(':') {
            Some((mode, nodes)) => (mode, Some(nodes)),
            None => (text, None),
        };
        let mode = match mode {
            "off" if nodes.is_some() => return Err(bad("nodes do not go with off".to_owned())),
            "off" => "off",
            "lazy" => "lazy",
            "migrate" => "migrate",
            _ => return Err(bad(format!("there is no mode `{mode}`"))),
        };
        let nodes = nodes.map(|list| match list.parse::<NodeSpec>() {
            Ok(nodes @ (NodeSpec::All | NodeSpec::List { .. })) => Ok(nodes),
            Err(Error::BadNodeList { why, .. }) => Err(bad(why)),
            _ => Err(bad(format!("only nodes can follow '{mode}:'"))),
        });
        Ok(Self {
            mode,
            nodes: nodes.transpose()?,
        })
    }
}

impl NestedSpec {
    /// What it means on this machine, in the kernel's words. Without nodes, those of
    /// the policy that it stands behind, or all.
    ///
    /// # Errors
    ///
    /// Names the first node that does not exist or cannot be used.
    pub(crate) fn resolve(&self, topology: &Topology) -> Result<String, Error> {
        let Some(nodes) = &self.nodes else {
            return Ok(self.mode.to_owned());
        };
        Ok(match nodes.resolve(topology)? {
            Request::Nodes(nodes) => format!("{} {nodes}", self.mode),
            _ => format!("{} all", self.mode),
        })
    }
}

/// What holds for the virtual machines of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Nested {
    /// `off`, `lazy` or `migrate`, or one that this program does not know yet.
    pub mode: String,
    /// Its nodes; nothing for all.
    pub nodes: Option<NodeSet>,
    /// Who asked.
    pub source: Source,
}

impl Nested {
    /// From the value of the line `nested`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut words = text.split_whitespace();
        let mode = words.next().ok_or("it is empty")?.to_owned();
        let field = |name: &str| {
            text.split_whitespace()
                .find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
                .ok_or_else(|| format!("{name}= is missing"))
        };
        let nodes = match field("nodes")? {
            "all" => None,
            list => Some(list.parse::<NodeSet>()?),
        };
        Ok(Self {
            mode,
            nodes,
            source: field("source")?.into(),
        })
    }

    /// Whether it is the process's own, rather than its group's.
    pub(crate) fn is_own(&self) -> bool {
        self.source != Source::Cgroup
    }

    /// As it is written behind a policy.
    pub(crate) fn written(&self) -> String {
        match &self.nodes {
            _ if self.mode == "off" => "off".to_owned(),
            None => format!("{} all", self.mode),
            Some(nodes) => format!("{} {nodes}", self.mode),
        }
    }
}

/// As a user writes it, and whether it is the group that asks.
impl fmt::Display for Nested {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.mode)?;
        if let Some(nodes) = self.nodes.as_ref().filter(|nodes| !nodes.is_empty()) {
            write!(f, ":{nodes}")?;
        }
        if !self.is_own() {
            f.write_str(" (cgroup)")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Fixture;

    fn resolve(text: &str) -> Result<String, String> {
        let topology = Topology::read(&Fixture::four_nodes()).unwrap();
        text.parse::<NestedSpec>()
            .and_then(|spec| spec.resolve(&topology))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn modes_are_written_as_the_kernel_reads_them() {
        for (text, written) in [
            ("off", "off"),
            ("lazy", "lazy"),
            ("migrate", "migrate"),
            ("lazy:all", "lazy all"),
            ("lazy:0-1", "lazy 0-1"),
            ("migrate:!0", "migrate 1-3"),
            ("lazy:+0", "lazy 0"),
        ] {
            assert_eq!(resolve(text).as_deref(), Ok(written), "{text}");
        }
    }

    #[test]
    fn mistakes_are_named_with_what_is_allowed() {
        for (text, why) in [
            ("", "there is no mode ``"),
            ("eager", "there is no mode `eager`"),
            ("LAZY", "there is no mode `LAZY`"),
            ("fixed:0", "there is no mode `fixed`"),
            ("off:0", "nodes do not go with off"),
            ("lazy:off", "only nodes can follow 'lazy:'"),
            ("lazy:lazy", "only nodes can follow 'lazy:'"),
            ("lazy:", "a node number is missing"),
            ("lazy:2-1", "range 2-1 runs backwards"),
        ] {
            let error = resolve(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
            assert!(error.contains("write off, lazy or migrate"), "{error}");
        }
        let error = resolve("lazy:4").unwrap_err();
        assert_eq!(error, "there is no node 4; this machine can have 0-3");
    }

    #[test]
    fn what_holds_is_read_and_written_again() {
        for (text, written, shown) in [
            ("lazy nodes=all source=proc", "lazy all", "lazy"),
            ("lazy nodes=0-1 source=inherited", "lazy 0-1", "lazy:0-1"),
            ("off nodes= source=proc", "off", "off"),
            (
                "migrate nodes=all source=cgroup",
                "migrate all",
                "migrate (cgroup)",
            ),
            (
                "lazy nodes=2 source=cgroup more=5",
                "lazy 2",
                "lazy:2 (cgroup)",
            ),
        ] {
            let nested = Nested::parse(text).unwrap();
            assert_eq!(nested.written(), written, "{text}");
            assert_eq!(nested.to_string(), shown, "{text}");
        }
        for (text, why) in [
            ("", "it is empty"),
            ("lazy", "nodes= is missing"),
            ("lazy nodes=all", "source= is missing"),
            ("lazy nodes=x source=proc", "`x` is not a node number"),
        ] {
            let error = Nested::parse(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
