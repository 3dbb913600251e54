// SPDX-License-Identifier: GPL-2.0-or-later
//! `pgtable_repl_dump`.

use std::ops::RangeInclusive;

use super::{Line, Mode, TextError, lines, missing};

const FILE: &str = "pgtable_repl_dump";
const VERSION: u32 = 1;
/// Entries of a table.
pub const ENTRIES: u16 = 512;
const MAX_LEVEL: u8 = 5;

/// All nested tables of a virtual machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dump {
    pub mode: Mode,
    pub slots: Vec<Slot>,
    pub domains: Vec<Domain>,
    pub vcpus: Vec<Vcpu>,
    pub trees: Vec<Tree>,
    /// Mappings were taken away, or roots came or went, while it was read.
    pub changed: bool,
}

/// Guest memory, and where it is in the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    /// 0, or 1 for what only system management mode sees.
    pub space: u32,
    pub gfn: u64,
    pub pages: u64,
    pub address: u64,
}

/// CPUs of the host that use the same tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Domain {
    pub domain: u32,
    pub node: u32,
    pub key: u32,
    pub cpus: Vec<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vcpu {
    pub id: u32,
    /// Where it runs, or ran last.
    pub cpu: Option<u32>,
    pub domain: Option<u32>,
    /// The tree that it is to use, and that of the root that it has.
    pub key: u32,
    pub loaded: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tree {
    pub key: u32,
    pub space: u32,
    pub level: u8,
    pub node: Option<u32>,
    pub tables: Vec<Table>,
}

/// A page of tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    pub level: u8,
    /// The first guest page that it can map.
    pub gfn: u64,
    pub node: Option<u32>,
    pub present: u16,
    /// Numbers of the entries that are leaves, ascending.
    pub leaves: Vec<RangeInclusive<u16>>,
}

impl Table {
    /// Guest pages that an entry maps.
    pub fn entry_pages(&self) -> u64 {
        1 << (9 * u32::from(self.level - 1))
    }

    /// The guest pages that its leaves map.
    pub fn pages(&self) -> impl Iterator<Item = std::ops::Range<u64>> + '_ {
        let pages = self.entry_pages();
        let at = move |entry: u16| self.gfn + u64::from(entry) * pages;
        let range = move |run: &RangeInclusive<u16>| at(*run.start())..at(*run.end()) + pages;
        self.leaves.iter().map(range)
    }
}

impl Dump {
    /// Reads the file's text.
    pub fn parse(text: &str) -> Result<Dump, TextError> {
        let mut all = lines(FILE, text);
        let first = all.next().ok_or_else(|| missing(FILE, text, "dump"))?;
        check_version(first)?;
        let mut dump = Dump {
            mode: Mode {
                name: "off".into(),
                nodes: Vec::new(),
            },
            slots: Vec::new(),
            domains: Vec::new(),
            vcpus: Vec::new(),
            trees: Vec::new(),
            changed: false,
        };
        for mut line in all {
            let Ok(word) = line.word("word") else {
                continue;
            };
            match word {
                "mode" => dump.mode = Mode::parse(&mut line)?,
                "slot" => dump.slots.push(parse_slot(&mut line)?),
                "domain" => dump.domains.push(parse_domain(&mut line)?),
                "vcpu" => dump.vcpus.push(parse_vcpu(&mut line)?),
                "tree" => dump.trees.push(parse_tree(&mut line)?),
                "table" => {
                    let Some(tree) = dump.trees.last_mut() else {
                        return Err(line.bad("a table before any tree"));
                    };
                    let table = parse_table(&mut line, tree)?;
                    tree.tables.push(table);
                }
                "end" => {
                    dump.changed = line.number::<u64>("number of changes")? != 0;
                    return Ok(dump);
                }
                _ => {}
            }
        }
        Err(missing(FILE, text, "end"))
    }
}

fn check_version(mut line: Line) -> Result<(), TextError> {
    line.expect("dump")?;
    match line.number::<u32>("version")? {
        VERSION => Ok(()),
        other => Err(line.bad(format!(
            "version {other}; this nearwalk reads version {VERSION}"
        ))),
    }
}

fn parse_slot(line: &mut Line) -> Result<Slot, TextError> {
    let space = line.number("address space")?;
    let _id: u64 = line.number("slot")?;
    let gfn = line.hex("gfn")?;
    let pages: u64 = line.number("number of pages")?;
    let address = line.hex("address")?;
    let last = pages.checked_mul(4096).and_then(|n| n.checked_add(address));
    if last.is_none() || gfn.checked_add(pages).is_none() {
        return Err(line.bad("more pages than there are addresses"));
    }
    Ok(Slot {
        space,
        gfn,
        pages,
        address,
    })
}

fn parse_domain(line: &mut Line) -> Result<Domain, TextError> {
    let domain = line.number("domain")?;
    line.expect("node")?;
    let node = line.number("node")?;
    line.expect("key")?;
    let key = line.number("key")?;
    line.expect("cpus")?;
    // One may have none that is online.
    let cpus = match line.tail() {
        "" => Vec::new(),
        _ => line.list("CPUs")?,
    };
    Ok(Domain {
        domain,
        node,
        key,
        cpus,
    })
}

fn parse_vcpu(line: &mut Line) -> Result<Vcpu, TextError> {
    let id = line.number("number")?;
    line.expect("cpu")?;
    let cpu = line.optional("CPU")?;
    line.expect("domain")?;
    let domain = line.optional("domain")?;
    line.expect("key")?;
    let key = line.number("key")?;
    line.expect("loaded")?;
    Ok(Vcpu {
        id,
        cpu,
        domain,
        key,
        loaded: line.optional("loaded key")?,
    })
}

fn parse_level(line: &mut Line) -> Result<u8, TextError> {
    match line.number("level")? {
        level @ 1..=MAX_LEVEL => Ok(level),
        level => Err(line.bad(format!("level {level} is not one of 1 to {MAX_LEVEL}"))),
    }
}

fn parse_tree(line: &mut Line) -> Result<Tree, TextError> {
    Ok(Tree {
        key: line.number("key")?,
        space: line.number("address space")?,
        level: parse_level(line)?,
        node: line.optional("node")?,
        tables: Vec::new(),
    })
}

fn parse_table(line: &mut Line, tree: &Tree) -> Result<Table, TextError> {
    let (key, space) = (
        line.number::<u32>("key")?,
        line.number::<u32>("address space")?,
    );
    if (key, space) != (tree.key, tree.space) {
        return Err(line.bad(format!("a table of another tree than {}", tree.key)));
    }
    let level = parse_level(line)?;
    if level > tree.level {
        return Err(line.bad(format!("level {level} in a tree of {}", tree.level)));
    }
    let gfn = line.hex("gfn")?;
    let pages = 1u64 << (9 * u32::from(level));
    if gfn % pages != 0 || gfn.checked_add(pages).is_none() {
        return Err(line.bad(format!("no table of level {level} begins at {gfn:#x}")));
    }
    let node = line.optional("node")?;
    let present: u16 = line.number("number of present entries")?;
    let leaves: u16 = line.number("number of leaves")?;
    if present > ENTRIES || leaves > present {
        return Err(line.bad(format!(
            "{leaves} leaves of {present} entries; a table has {ENTRIES}"
        )));
    }
    let word = line.word("numbers of leaves")?;
    let runs = match word {
        "-" => Some(Vec::new()),
        word => parse_runs(word),
    };
    let count = |runs: &Vec<RangeInclusive<u16>>| runs.iter().map(|run| run.len()).sum::<usize>();
    let table = runs
        .filter(|runs| count(runs) == usize::from(leaves))
        .map(|leaves| Table {
            level,
            gfn,
            node,
            present,
            leaves,
        });
    table.ok_or_else(|| line.bad(format!("`{word}` are not the numbers of {leaves} leaves")))
}

/// `0-3,17`: ascending, each an entry of a table.
fn parse_runs(word: &str) -> Option<Vec<RangeInclusive<u16>>> {
    let mut runs: Vec<RangeInclusive<u16>> = Vec::new();
    for part in word.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
        let behind = runs.last().is_none_or(|run| *run.end() < first);
        if !behind || last < first || last >= ENTRIES {
            return None;
        }
        runs.push(first..=last);
    }
    Some(runs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::DUMP;
    use proptest::prelude::*;

    #[test]
    fn a_dump_is_read() {
        let dump = Dump::parse(DUMP).unwrap();
        assert_eq!(dump.mode.name, "lazy");
        assert_eq!(dump.slots[0].address, 0x7f12_0000_0000);
        assert_eq!(dump.domains[1].cpus, [2, 3]);
        assert_eq!(dump.vcpus[1].loaded, Some(0));
        assert_eq!(dump.trees.len(), 2);
        let tables = &dump.trees[0].tables;
        assert_eq!(tables.len(), 5);
        assert_eq!(tables[4].leaves, [0..=1, 17..=17]);
        let pages: Vec<_> = tables[4].pages().collect();
        assert_eq!(pages, [0x200..0x202, 0x211..0x212]);
        assert!(!dump.changed);
    }

    #[test]
    fn huge_leaves_map_more_pages() {
        let table = Table {
            level: 2,
            gfn: 0x40000,
            node: Some(0),
            present: 2,
            leaves: vec![1..=2],
        };
        let mut pages = table.pages();
        assert_eq!((pages.next(), pages.next()), (Some(0x40200..0x40600), None));
    }

    #[test]
    fn unknown_words_and_fields_are_skipped() {
        let text = DUMP.replace("vcpu 0", "weather fine\nvcpu 0");
        let text = text.replace("loaded 1\n", "loaded 1 since 5\n");
        assert_eq!(Dump::parse(&text), Dump::parse(DUMP));
    }

    #[test]
    fn a_domain_may_have_no_cpus() {
        let dump = Dump::parse(&DUMP.replace("cpus 2-3", "cpus ")).unwrap();
        assert!(dump.domains[1].cpus.is_empty());
    }

    #[test]
    fn errors_name_the_line() {
        for (from, to, message) in [
            (
                "dump 1",
                "dump 2",
                "line 1, `dump 2`: version 2; this nearwalk reads version 1",
            ),
            ("dump 1", "dunp 1", "`dunp` where `dump` should be"),
            ("end 0\n", "", "there is no line `end`"),
            ("cpus 0-1", "cpus 1-0", "CPUs `1-0` is not a list"),
            (
                "0x7f1200000000",
                "7f1200000000",
                "is not a number such as 0x1f",
            ),
            (
                "1536 0x7f12",
                "99999999999999999 0x7f12",
                "more pages than there are addresses",
            ),
            (
                "table 1 0 1 0x0 0",
                "table 0 0 1 0x0 0",
                "a table of another tree than 1",
            ),
            (
                "table 1 0 1 0x0 0",
                "table 1 0 6 0x0 0",
                "level 6 is not one of 1 to 5",
            ),
            (
                "table 1 0 1 0x0 0",
                "table 1 0 5 0x0 0",
                "level 5 in a tree of 4",
            ),
            (
                "table 1 0 1 0x200 0 3 3",
                "table 1 0 1 0x201 0 3 3",
                "no table of level 1 begins at 0x201",
            ),
            (
                "512 512 0-511",
                "512 512 0-512",
                "`0-512` are not the numbers of 512 leaves",
            ),
            (
                "3 3 0-1,17",
                "3 3 0-1,1",
                "`0-1,1` are not the numbers of 3 leaves",
            ),
            ("3 3 0-1,17", "2 3 0-1,17", "3 leaves of 2 entries"),
            ("3 3 0-1,17", "3 3", "there is no numbers of leaves"),
            (
                "tree 1 0 4 0 2",
                "three 1 0 4 0 2",
                "a table before any tree",
            ),
        ] {
            assert!(DUMP.contains(from), "{from}");
            let error = Dump::parse(&DUMP.replacen(from, to, 1)).unwrap_err();
            assert!(error.to_string().contains(message), "{error}");
        }
        let error = Dump::parse("").unwrap_err();
        assert!(error.to_string().contains("line 1, ``"), "{error}");
    }

    proptest! {
        /// Whatever the text, an answer or an error whose line is there.
        #[test]
        fn no_text_is_too_odd(lines in proptest::collection::vec(line(), 0..12)) {
            let text = format!("dump 1\n{}\n", lines.join("\n"));
            if let Err(error) = Dump::parse(&text) {
                prop_assert!(error.line <= text.lines().count() + 1);
            }
        }

        /// A cut in it never goes unnoticed.
        #[test]
        fn a_part_is_no_dump(cut in 0..DUMP.len() - "end 0\n".len()) {
            prop_assert!(Dump::parse(&DUMP[..cut]).is_err());
        }
    }

    fn line() -> impl Strategy<Value = String> {
        let words = [
            "table",
            "tree",
            "slot",
            "vcpu",
            "domain",
            "end",
            "mode",
            "-",
            "0",
            "1",
            "512",
            "0x0",
            "0x200",
            "0-511",
            "node",
            "key",
            "cpus",
            "loaded",
            "18446744073709551615",
            "\u{e9}",
        ];
        let words = proptest::collection::vec(proptest::sample::select(words.to_vec()), 0..9);
        words.prop_map(|words| words.join(" "))
    }
}
