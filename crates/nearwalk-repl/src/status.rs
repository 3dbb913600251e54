// SPDX-License-Identifier: GPL-2.0-or-later
//! What `/proc/<pid>/pgtable_repl` says.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::Serialize;

use crate::error::Error;
use crate::nested::Nested;
use crate::nodes::NodeSet;

/// How a process's page tables are replicated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Not at all.
    Off,
    /// Each table is copied when it is linked (Mitosis, section 5).
    Eager,
    /// A node gets what its CPUs fault on (Hydra, section 3).
    Lazy,
    /// A mode that this program does not know yet.
    #[serde(untagged)]
    Other(String),
}

/// Who asked for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// Nobody.
    None,
    /// The process itself.
    Prctl,
    /// Someone who wrote to `/proc/<pid>/pgtable_repl`.
    Proc,
    /// Its parent, or the program that it was before.
    Inherited,
    /// Its cgroup, or one above.
    Cgroup,
    /// `vm.pgtable_repl_mode` is 3 or 4.
    System,
    /// A source that this program does not know yet.
    #[serde(untagged)]
    Other(String),
}

impl From<&str> for Mode {
    fn from(text: &str) -> Self {
        match text {
            "off" => Self::Off,
            "eager" => Self::Eager,
            "lazy" => Self::Lazy,
            other => Self::Other(other.to_owned()),
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Off => "off",
            Self::Eager => "eager",
            Self::Lazy => "lazy",
            Self::Other(text) => text,
        })
    }
}

impl From<&str> for Source {
    fn from(text: &str) -> Self {
        match text {
            "none" => Self::None,
            "prctl" => Self::Prctl,
            "proc" => Self::Proc,
            "inherited" => Self::Inherited,
            "cgroup" => Self::Cgroup,
            "system" => Self::System,
            other => Self::Other(other.to_owned()),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::None => "none",
            Self::Prctl => "prctl",
            Self::Proc => "proc",
            Self::Inherited => "inherited",
            Self::Cgroup => "cgroup",
            Self::System => "system",
            Self::Other(text) => text,
        })
    }
}

/// The replication of one process, at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Status {
    /// How it is replicated.
    pub mode: Mode,
    /// On which nodes; empty when off.
    pub nodes: NodeSet,
    /// Who asked.
    pub source: Source,
    /// Replica pages (4 KiB each) by node; nodes without any may be missing.
    pub pages: BTreeMap<u32, u64>,
    /// Links to a remote canonical table that were made because there was no
    /// local memory for a copy.
    pub fallbacks: u64,
    /// On these nodes a child gets its copies when it has lived for a while.
    #[serde(skip_serializing_if = "NodeSet::is_empty")]
    pub pending: NodeSet,
    /// What lazy trees did; nothing in other modes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lazy: Option<Lazy>,
    /// What holds for its virtual machines, if anything is asked for them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nested: Option<Nested>,
}

/// Counters of lazy trees, since the process has had any.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Lazy {
    /// A fault is answered with 2 to the power of this many entries.
    pub prefetch: u32,
    /// Page faults answered from the canonical tree.
    pub fills: u64,
    /// CPUs that TLB shootdowns would have interrupted.
    pub ipis_requested: u64,
    /// CPUs that they were sent to.
    pub ipis_sent: u64,
}

impl Lazy {
    /// From the values of the lines `prefetch`, `fills` and `ipis`.
    fn parse(prefetch: &str, fills: &str, ipis: &str) -> Option<Self> {
        let count = |name: &str| {
            ipis.split_whitespace()
                .find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
                .and_then(|count| count.parse().ok())
        };
        Some(Self {
            prefetch: prefetch.parse().ok()?,
            fills: fills.parse().ok()?,
            ipis_requested: count("requested")?,
            ipis_sent: count("sent")?,
        })
    }
}

/// Unknown lines are passed over, so that a newer kernel may add some.
impl FromStr for Status {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let value = |name: &str| {
            text.lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
                .map(str::trim)
                .ok_or_else(|| Error::Answer {
                    line: name.to_owned(),
                    why: "it is missing".to_owned(),
                })
        };
        let wrong = |name: &str, text: &str, why: String| Error::Answer {
            line: format!("{name}: {text}"),
            why,
        };

        let nodes = value("nodes")?;
        let fallbacks = value("fallbacks")?;
        let mut pages = BTreeMap::new();
        for word in value("pages")?.split_whitespace() {
            let (node, count) = word
                .strip_prefix('N')
                .and_then(|rest| rest.split_once('='))
                .and_then(|(node, count)| Some((node.parse().ok()?, count.parse().ok()?)))
                .ok_or_else(|| wrong("pages", word, "not N<node>=<pages>".to_owned()))?;
            pages.insert(node, count);
        }
        let lazy = match value("prefetch") {
            Ok(prefetch) => {
                let (fills, ipis) = (value("fills")?, value("ipis")?);
                let lazy = Lazy::parse(prefetch, fills, ipis);
                Some(lazy.ok_or_else(|| wrong("ipis", ipis, "not counts".to_owned()))?)
            }
            Err(_) => None,
        };
        let pending = value("pending").unwrap_or_default();
        let nested = value("nested")
            .ok()
            .map(|nested| Nested::parse(nested).map_err(|why| wrong("nested", nested, why)));
        Ok(Self {
            lazy,
            nested: nested.transpose()?,
            pending: pending
                .parse()
                .map_err(|why| wrong("pending", pending, why))?,
            mode: value("mode")?.into(),
            nodes: nodes.parse().map_err(|why| wrong("nodes", nodes, why))?,
            source: value("source")?.into(),
            pages,
            fallbacks: fallbacks
                .parse()
                .map_err(|_| wrong("fallbacks", fallbacks, "not a number".to_owned()))?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ON: &str = "mode:\teager\nnodes:\t0-1,3\nsource:\tprctl\n\
                      pages:\tN0=12 N1=11 N3=9\nfallbacks:\t2\n";
    const OFF: &str = "mode:\toff\nnodes:\t\nsource:\tnone\npages:\nfallbacks:\t0\n";

    #[test]
    fn a_replicated_process_is_read() {
        let status: Status = ON.parse().unwrap();
        assert_eq!(status.mode, Mode::Eager);
        assert_eq!(status.nodes.to_string(), "0-1,3");
        assert_eq!(status.source, Source::Prctl);
        assert_eq!(status.pages, [(0, 12), (1, 11), (3, 9)].into());
        assert_eq!(status.fallbacks, 2);
    }

    #[test]
    fn a_process_that_is_off_is_read() {
        let status: Status = OFF.parse().unwrap();
        assert_eq!(status.mode, Mode::Off);
        assert!(status.nodes.is_empty() && status.pages.is_empty());
    }

    #[test]
    fn newer_kernels_may_say_more() {
        let text = format!("{ON}colour:\tblue\n").replace("eager", "keen");
        let status: Status = text.parse().unwrap();
        assert_eq!(status.mode, Mode::Other("keen".to_owned()));
        assert_eq!(
            serde_json::to_value(&status).unwrap()["mode"],
            serde_json::json!("keen")
        );
    }

    #[test]
    fn a_child_that_waits_is_read() {
        let text = ON.replace("N0=12 N1=11 N3=9", "") + "pending:\t0-1,3\n";
        let status: Status = text.parse().unwrap();
        assert_eq!(status.pending, status.nodes);
        let json = serde_json::to_value(&status).unwrap();
        assert_eq!(json["pending"], json["nodes"]);
        let json = serde_json::to_value(ON.parse::<Status>().unwrap()).unwrap();
        assert_eq!(json.get("pending"), None);
        let error = text.replace("pending:\t0", "pending:\tx").parse::<Status>();
        let error = error.unwrap_err().to_string();
        assert!(error.contains("`pending: x-1,3`"), "{error}");
    }

    #[test]
    fn counters_of_lazy_trees_are_read() {
        let text = ON.replace("eager", "lazy")
            + "prefetch:\t3\nfills:\t70\nipis:\trequested=40 sent=2 saved=38\n";
        let status: Status = text.parse().unwrap();
        assert_eq!(status.mode, Mode::Lazy);
        let lazy = status.lazy.unwrap();
        assert_eq!((lazy.prefetch, lazy.fills), (3, 70));
        assert_eq!((lazy.ipis_requested, lazy.ipis_sent), (40, 2));
        let error = text.replace("sent=2", "sent=").parse::<Status>();
        assert!(error.unwrap_err().to_string().contains("not counts"));
        assert_eq!(ON.parse::<Status>().unwrap().lazy, None);
    }

    #[test]
    fn what_machines_get_is_read() {
        let text = format!("{OFF}nested:\tlazy nodes=0-1 source=proc\n");
        let status: Status = text.parse().unwrap();
        assert_eq!(
            serde_json::to_value(&status).unwrap()["nested"],
            serde_json::json!({"mode": "lazy", "nodes": [0, 1], "source": "proc"})
        );
        assert_eq!(OFF.parse::<Status>().unwrap().nested, None);
        let error = text.replace("0-1", "x").parse::<Status>().unwrap_err();
        assert!(
            error.to_string().contains("`nested: lazy nodes=x"),
            "{error}"
        );
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        for (from, to, message) in [
            (
                "mode:\teager\n",
                "",
                "cannot read the kernel's answer: line `mode`: it is missing",
            ),
            (
                "N1=11",
                "N1",
                "cannot read the kernel's answer: line `pages: N1`: not N<node>=<pages>",
            ),
            (
                "fallbacks:\t2",
                "fallbacks:\t-",
                "cannot read the kernel's answer: line `fallbacks: -`: not a number",
            ),
            (
                "0-1,3",
                "0-x",
                "cannot read the kernel's answer: line `nodes: 0-x`: `x` is not a node number",
            ),
        ] {
            let error = ON.replace(from, to).parse::<Status>().unwrap_err();
            assert_eq!(error.to_string(), message);
        }
    }
}
