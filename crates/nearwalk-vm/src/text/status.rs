// SPDX-License-Identifier: GPL-2.0-or-later
//! `pgtable_repl`.

use serde::Serialize;

use super::{Line, TextError, lines, missing};

const FILE: &str = "pgtable_repl";

/// What is in force for a virtual machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Status {
    pub mode: Mode,
    /// Who says so: `hand`, `process`, `cgroup`, `parameter` or `none`; nothing on kernels
    /// that do not tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Why it cannot have trees by domain, if it cannot.
    pub unable: Option<String>,
    /// Changes of the host's domains, as of the virtual machine's map and as of the
    /// host.
    pub generation: (u64, u64),
    /// The tree of those that have none of their own.
    pub fallback: Option<u32>,
    pub keys: Vec<Key>,
    /// The most that trees may take beside the largest, in bytes; nothing without a limit.
    pub max: Option<u64>,
    /// What they take; nothing on kernels that do not say.
    pub copies: Option<u64>,
    /// In the kernel's order: `switches`, `fallbacks` and so on.
    pub counters: Vec<(String, u64)>,
}

/// A mode with its nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mode {
    pub name: String,
    pub nodes: Vec<u32>,
}

/// A tree, or a domain that can have one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Key {
    pub key: u32,
    /// Whose tree it is.
    pub domain: Option<u32>,
    /// Where its tables are to be.
    pub node: Option<u32>,
    pub tables: u64,
    /// Virtual CPUs that have a root of it loaded.
    pub vcpus: u32,
    /// Tables by node: node, count.
    pub on: Vec<(u32, u64)>,
}

impl Mode {
    pub(super) fn parse(line: &mut Line) -> Result<Mode, TextError> {
        Ok(Mode {
            name: line.word("mode")?.to_owned(),
            nodes: line.list("nodes")?,
        })
    }
}

impl Status {
    /// Reads the file's text.
    pub fn parse(text: &str) -> Result<Status, TextError> {
        let (mut mode, mut able) = (None, None);
        let mut status = Status {
            mode: Mode {
                name: String::new(),
                nodes: Vec::new(),
            },
            source: None,
            unable: None,
            generation: (0, 0),
            fallback: None,
            keys: Vec::new(),
            max: None,
            copies: None,
            counters: Vec::new(),
        };
        for mut line in lines(FILE, text) {
            let Ok(word) = line.word("word") else {
                continue;
            };
            match word {
                "mode" => mode = Some(Mode::parse(&mut line)?),
                "source" => status.source = Some(line.word("source")?.to_owned()),
                "able" => able = Some(parse_able(&mut line)?),
                "generation" => {
                    let map = line.number("generation of the map")?;
                    status.generation = (map, line.number("generation of the host")?);
                }
                "fallback" => status.fallback = line.optional("key")?,
                "key" => status.keys.push(parse_key(&mut line)?),
                "max" => status.max = line.optional("bytes")?,
                "copies" => status.copies = Some(line.number("bytes")?),
                "switches" | "fallbacks" | "drops" | "refused" | "cloned_entries"
                | "cloned_tables" | "moved_tables" | "looks" | "hints" | "limited" => {
                    let count = line.number("count")?;
                    status.counters.push((word.to_owned(), count));
                }
                _ => {}
            }
        }
        status.mode = mode.ok_or_else(|| missing(FILE, text, "mode"))?;
        status.unable = able.ok_or_else(|| missing(FILE, text, "able"))?;
        Ok(status)
    }
}

fn parse_able(line: &mut Line) -> Result<Option<String>, TextError> {
    match line.word("yes or no")? {
        "yes" => Ok(None),
        "no" => Ok(Some(line.tail().to_owned())),
        word => Err(line.bad(format!("`{word}` is neither yes nor no"))),
    }
}

fn parse_key(line: &mut Line) -> Result<Key, TextError> {
    let key = line.number("key")?;
    line.expect("domain")?;
    let domain = line.optional("domain")?;
    line.expect("node")?;
    let node = line.optional("node")?;
    line.expect("tables")?;
    let tables = line.number("number of tables")?;
    line.expect("vcpus")?;
    let vcpus = line.number("number of vCPUs")?;
    line.expect("on")?;
    let mut on = Vec::new();
    let places = line.word("tables by node")?;
    for place in places.split(',').filter(|_| places != "-") {
        let pair = place
            .split_once(':')
            .and_then(|(node, count)| Some((node.parse().ok()?, count.parse().ok()?)));
        on.push(pair.ok_or_else(|| line.bad(format!("`{place}` is not a count such as 0:12")))?);
    }
    Ok(Key {
        key,
        domain,
        node,
        tables,
        vcpus,
        on,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the kernel's page has it.
    pub(crate) const LAZY: &str = "\
mode lazy 0-3
able yes
generation 1 1
fallback 0
key 0 domain 1 node 1 tables 12 vcpus 1 on 0:1,1:11
key 1 domain 0 node 0 tables 9 vcpus 1 on 0:9
key 3 domain 2 node 2 tables 9 vcpus 1 on 2:9
key 4 domain 3 node 3 tables 0 vcpus 0 on -
switches 7
fallbacks 0
drops 0
refused 0
cloned_entries 1021
cloned_tables 2
max 65536
copies 49152
limited 3
";

    #[test]
    fn a_lazy_machine_has_a_tree_for_each_domain() {
        let status = Status::parse(LAZY).unwrap();
        assert_eq!(status.mode.name, "lazy");
        assert_eq!(status.mode.nodes, [0, 1, 2, 3]);
        assert_eq!(status.unable, None);
        assert_eq!(status.fallback, Some(0));
        assert_eq!(status.keys.len(), 4);
        assert_eq!(status.keys[0].domain, Some(1));
        assert_eq!(status.keys[0].on, [(0, 1), (1, 11)]);
        assert_eq!(status.keys[3].on, []);
        assert_eq!(status.counters[0], ("switches".into(), 7));
        assert_eq!(status.counters[4], ("cloned_entries".into(), 1021));
        assert_eq!(status.counters[5], ("cloned_tables".into(), 2));
        assert_eq!(status.counters[6], ("limited".into(), 3));
        assert_eq!((status.max, status.copies), (Some(65536), Some(49152)));
        let without = Status::parse(&LAZY.replace("max 65536", "max -")).unwrap();
        assert_eq!(without.max, None);
        assert_eq!(without.source, None);
        let asked = LAZY.replace("able yes", "source cgroup\nable yes");
        let asked = Status::parse(&asked).unwrap();
        assert_eq!(asked.source.as_deref(), Some("cgroup"));
    }

    #[test]
    fn one_that_cannot_says_why() {
        let text = "mode off -\nable no the TDP MMU is off\nfallback -\n\
                    key 0 domain - node - tables 3 vcpus 0 on 0:3 and more\nnew 1 2 3\n";
        let status = Status::parse(text).unwrap();
        assert!(status.mode.nodes.is_empty());
        assert_eq!(status.unable.as_deref(), Some("the TDP MMU is off"));
        assert_eq!(status.fallback, None);
        assert_eq!((status.keys[0].domain, status.keys[0].node), (None, None));
        assert_eq!((status.max, status.copies), (None, None));
    }

    #[test]
    fn errors_name_the_line_and_what_is_wrong() {
        for (from, to, message) in [
            (
                "mode lazy 0-3",
                "mode lazy x",
                "pgtable_repl, line 1, `mode lazy x`: nodes `x` is not a list such as 0-3,8",
            ),
            (
                "able yes",
                "able maybe",
                "line 2, `able maybe`: `maybe` is neither yes nor no",
            ),
            ("tables 12", "tables -12", "`-12` is not a number"),
            (
                "tables 12",
                "leaves 12",
                "`leaves` where `tables` should be",
            ),
            (
                "on 0:1,1:11",
                "on 0:1,11",
                "line 5, `key 0 domain 1 node 1 tables 12 vcpus 1 on 0:1,11`: `11` is not a count",
            ),
            (
                "switches 7",
                "switches",
                "line 9, `switches`: there is no count",
            ),
            ("max 65536", "max much", "`much` is not a number"),
            ("mode", "mood", "line 18, ``: there is no line `mode`"),
            ("able yes\n", "", "line 17, ``: there is no line `able`"),
        ] {
            let error = Status::parse(&LAZY.replacen(from, to, 1)).unwrap_err();
            assert!(error.to_string().contains(message), "{error}");
        }
    }
}
