// SPDX-License-Identifier: GPL-2.0-or-later
//! Placements under plain names: where data and tables are, how large pages are.

use anyhow::bail;
use clap::Args;
use lens::layout::{DataPolicy, HugePolicy, Nested, Policies, Shares, TablePolicy};
use lens::machine::Machine;
use lens_papers::config::{AUTONUMA_MOVED, Setup};
use lens_papers::workload::Scenario;

#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Placement by plain names, instead of --config; lists are compared")]
pub struct PlaceArgs {
    /// Data: a node, or first-touch, autonuma or interleave [default: 0]
    #[arg(long, value_delimiter = ',', value_parser = data, conflicts_with = "config")]
    data: Vec<Named<DataPolicy>>,
    /// Page tables (in a virtual machine the guest's): a node, or stock, replicated,
    /// migrated or random, or counts by node (14/32/29/25) [default: 0]
    #[arg(long, value_delimiter = ',', value_parser = tables, conflicts_with = "config")]
    gpt: Vec<Named<TablePolicy>>,
    /// Nested tables, for a virtual machine, likewise [default: no hypervisor]
    #[arg(long, value_delimiter = ',', value_parser = tables, conflicts_with = "config")]
    nested: Vec<Named<TablePolicy>>,
    /// Pages: 4k, 2m, 1g, or fragmented (2m where the machine finds them)
    /// [default: 4k]
    #[arg(long, value_delimiter = ',', value_parser = pages, conflicts_with = "config")]
    pages: Vec<Named<HugePolicy>>,
    /// Run on all nodes that have CPUs, not on node 0 alone
    #[arg(long, conflicts_with = "config")]
    wide: bool,
    /// Node with a bandwidth hog
    #[arg(long, value_name = "NODE", conflicts_with = "config")]
    hog: Option<usize>,
}

/// A choice, and the word for it.
#[derive(Debug, Clone, PartialEq)]
struct Named<T> {
    name: String,
    what: T,
}

fn named<T>(name: &str, what: Option<T>, allowed: &str) -> Result<Named<T>, String> {
    match what {
        Some(what) => Ok(Named {
            name: name.to_owned(),
            what,
        }),
        None => Err(format!("there are {allowed}")),
    }
}

fn data(name: &str) -> Result<Named<DataPolicy>, String> {
    let what = match name {
        "first-touch" => Some(DataPolicy::FirstTouch { moved: 0.0 }),
        "autonuma" => Some(DataPolicy::FirstTouch {
            moved: AUTONUMA_MOVED,
        }),
        "interleave" => Some(DataPolicy::Interleave),
        node => node.parse().ok().map(DataPolicy::Fixed),
    };
    named(
        name,
        what,
        "numbers of nodes, first-touch, autonuma and interleave",
    )
}

fn tables(name: &str) -> Result<Named<TablePolicy>, String> {
    let what = match name {
        "stock" => Some(TablePolicy::Stock),
        "replicated" => Some(TablePolicy::Replicated),
        "migrated" => Some(TablePolicy::Migrated),
        "random" => Some(TablePolicy::Random),
        counts if counts.contains('/') => {
            let counts = counts.split('/').map(|n| n.parse().map(u32::into));
            let counts: Option<Vec<u64>> = counts.collect::<Result<_, _>>().ok();
            let shares = counts.and_then(|counts| Shares::of(&counts));
            shares.map(TablePolicy::Found)
        }
        node => node.parse().ok().map(TablePolicy::Fixed),
    };
    named(
        name,
        what,
        "numbers of nodes, stock, replicated, migrated, random, and counts by node with `/` between",
    )
}

fn pages(name: &str) -> Result<Named<HugePolicy>, String> {
    let what = match name {
        "4k" => Some(HugePolicy::Never),
        "2m" => Some(HugePolicy::Transparent { available: 1.0 }),
        "1g" => Some(HugePolicy::Gigantic),
        "fragmented" => Some(HugePolicy::Fragmented),
        _ => None,
    };
    named(name, what, "4k, 2m, 1g and fragmented")
}

/// What was asked for, or `default`.
fn or<T>(list: &[Named<T>], default: Named<T>) -> Vec<Named<T>>
where
    T: Clone,
{
    match list {
        [] => vec![default],
        list => list.to_vec(),
    }
}

impl PlaceArgs {
    /// Whether any of them was given.
    pub fn is_given(&self) -> bool {
        let lists = self.data.len() + self.gpt.len() + self.nested.len() + self.pages.len();
        lists > 0 || self.wide || self.hog.is_some()
    }

    /// All combinations on `m`, the first of each list first.
    ///
    /// # Errors
    /// A node that `m` does not have.
    pub fn setups(&self, m: &Machine) -> anyhow::Result<Vec<Setup>> {
        let nested: Vec<Option<Named<TablePolicy>>> = match &*self.nested {
            [] => vec![None],
            list => list.iter().cloned().map(Some).collect(),
        };
        let mut out = Vec::new();
        for d in or(&self.data, data("0").expect("a node")) {
            for g in or(&self.gpt, tables("0").expect("a node")) {
                for n in &nested {
                    for p in or(&self.pages, pages("4k").expect("a size")) {
                        out.push(self.setup(&d, &g, n.as_ref(), &p));
                    }
                }
            }
        }
        let last = m.nodes().len() - 1;
        for s in &out {
            for node in nodes(s) {
                if node > last {
                    bail!(
                        "`{}` has node {node}; {} has nodes 0 to {last}",
                        s.name,
                        m.name
                    );
                }
            }
        }
        Ok(out)
    }

    fn setup(
        &self,
        data: &Named<DataPolicy>,
        gpt: &Named<TablePolicy>,
        nested: Option<&Named<TablePolicy>>,
        pages: &Named<HugePolicy>,
    ) -> Setup {
        let mut name = format!("data {} gpt {}", data.name, gpt.name);
        if let Some(n) = nested {
            name += &format!(" nested {}", n.name);
        }
        name += &format!(" {}", pages.name);
        if self.wide {
            name += " wide";
        }
        if let Some(node) = self.hog {
            name += &format!(" hog {node}");
        }
        let huge = if pages.what == HugePolicy::Never {
            0.0
        } else {
            1.0
        };
        Setup {
            name,
            scenario: match (self.wide, nested.is_some()) {
                (false, false) => Scenario::Thin,
                (true, false) => Scenario::Wide,
                (false, true) => Scenario::VirtualThin,
                (true, true) => Scenario::VirtualWide,
            },
            policies: Policies {
                data: data.what,
                tables: gpt.what,
                huge: pages.what,
                nested: nested.map(|n| Nested {
                    tables: n.what,
                    huge,
                }),
            },
            interferer: self.hog,
            baseline: "",
        }
    }
}

/// Nodes that `s` names.
fn nodes(s: &Setup) -> impl Iterator<Item = usize> {
    let data = match s.policies.data {
        DataPolicy::Fixed(n) => Some(n),
        _ => None,
    };
    let table = |t| match t {
        TablePolicy::Fixed(n) => Some(n),
        TablePolicy::Found(shares) => Some(shares.nodes() - 1),
        _ => None,
    };
    let nested = s.policies.nested.and_then(|n| table(n.tables));
    [data, table(s.policies.tables), nested, s.interferer]
        .into_iter()
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use lens_papers::config::Scheme;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        place: PlaceArgs,
        #[arg(long)]
        config: Option<String>,
    }

    fn place(words: &str) -> Result<PlaceArgs, String> {
        let words = std::iter::once("x").chain(words.split_whitespace());
        let cli = Cli::try_parse_from(words).map_err(|e| e.to_string())?;
        assert!(cli.config.is_none());
        Ok(cli.place)
    }

    fn setups(words: &str) -> anyhow::Result<Vec<Setup>> {
        let m = Machine::builtin("e7-4850v3").unwrap();
        place(words).unwrap().setups(&m)
    }

    #[test]
    fn plain_names_are_what_the_papers_names_stand_for() {
        for (words, scheme, name) in [
            ("--data 0", Scheme::Mitosis, "LP-LD"),
            ("--gpt 1 --data 0 --hog 1", Scheme::Mitosis, "RPI-LD"),
            ("--data 1 --pages 2m", Scheme::Mitosis, "TLP-RD"),
            (
                "--wide --data autonuma --gpt replicated",
                Scheme::Mitosis,
                "F-A+M",
            ),
            ("--gpt 1 --nested 1", Scheme::VMitosis, "RR"),
            (
                "--nested replicated --gpt replicated --wide --data interleave --pages 2m",
                Scheme::VMitosis,
                "TIM",
            ),
        ] {
            let ours = &setups(words).unwrap()[0];
            let theirs = Setup::parse(name, scheme).unwrap();
            assert_eq!(ours.policies, theirs.policies, "{words}");
            assert_eq!(
                (ours.scenario, ours.interferer),
                (theirs.scenario, theirs.interferer),
                "{words}"
            );
        }
    }

    #[test]
    fn lists_are_combined() {
        let all = setups("--data 0,1 --gpt 0,replicated").unwrap();
        let names: Vec<&str> = all.iter().map(|s| &*s.name).collect();
        assert_eq!(
            names,
            [
                "data 0 gpt 0 4k",
                "data 0 gpt replicated 4k",
                "data 1 gpt 0 4k",
                "data 1 gpt replicated 4k"
            ]
        );
    }

    #[test]
    fn counted_shares_of_tables_are_a_placement() {
        // Canneal in Mitosis' Figure 4: seen from the sockets, 86, 68, 71 and 75 % of
        // its leaf entries are remote.
        let s = &setups("--wide --gpt 14/32/29/25").unwrap()[0];
        assert_eq!(s.name, "data 0 gpt 14/32/29/25 4k wide");
        let m = Machine::builtin("e7-4850v3").unwrap();
        let w = lens_papers::workload::workload("Canneal", s.scenario).unwrap();
        let layout = lens::layout::Layout::on(&m, &w.regions, s.policies);
        for (socket, published) in [0.86, 0.68, 0.71, 0.75].into_iter().enumerate() {
            let remote = layout.remote_leaf_share(socket);
            assert!((remote - published).abs() < 0.02, "{socket}: {remote}");
        }
        let e = setups("--gpt 1/2/3/4/5").unwrap_err().to_string();
        assert!(e.contains("node 4") && e.contains("0 to 3"), "{e}");
        assert!(setups("--gpt 1/2/3/4/0").is_ok());
        for counts in ["0/0", "1/", "1/x"] {
            assert!(place(&format!("--gpt {counts}")).is_err(), "{counts}");
        }
    }

    #[test]
    fn other_words_and_nodes_are_refused() {
        let e = place("--gpt nowhere").unwrap_err();
        assert!(e.contains("nowhere") && e.contains("replicated"), "{e}");
        assert!(place("--data 0 --config LP-LD").is_err());
        let e = setups("--data 4").unwrap_err().to_string();
        assert!(e.contains("node 4") && e.contains("0 to 3"), "{e}");
        assert!(!place("").unwrap().is_given());
    }
}
