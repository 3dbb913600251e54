// SPDX-License-Identifier: GPL-2.0-or-later
//! Which domains share a table: counts and lists, of lazy trees above all.

mod common;

use std::collections::{BTreeMap, BTreeSet};

use common::{GB, MB2, Sample, absent, data, expect, replicated_server, server, tables};
use nearwalk_dump::analysis::{LevelSharers, Share, SharedTable, Tally};
use nearwalk_dump::print::{self, Style};
use nearwalk_dump::stream::{DomainInfo, Kind, Reader, Run, StreamError, View};
use proptest::prelude::*;

const HUMAN: Style = Style {
    exact: false,
    width: 100,
};

/// Counts and the list of tables.
fn read(sample: &Sample) -> (Tally, Vec<SharedTable>) {
    let bytes = sample.bytes();
    let mut reader = Reader::new(&bytes[..]).unwrap();
    let mut list = Vec::new();
    let tally = Tally::read_each(&mut reader, |table| -> Result<(), StreamError> {
        list.push(table.clone());
        Ok(())
    });
    (tally.unwrap(), list)
}

/// Six domains, two on each node and counted from the last; domain 5 has no
/// tree. Four PTE tables: one that nobody has, one that only its node's domains
/// link to, one of which another has a copy, and one that everyone has a copy of.
fn lazy() -> Sample {
    let mut sample = Sample::with_domains(3);
    sample.header.nr_domains = 6;
    sample.domains = (0..6)
        .map(|domain| DomainInfo {
            domain,
            node: Some(2 - domain / 2),
        })
        .collect();
    let node = |domain: u32| 2 - domain / 2;
    let own = |domain: u32, level: u8| 0x1000 * u64::from(domain + 1) + u64::from(level) * 0x100;

    sample.table(4, 0, (1, 0), vec![tables(0, 1, 2, 0)]);
    sample.table(3, 0, (2, 0), vec![tables(0, 1, 3, 0)]);
    sample.table(2, 0, (3, 0), vec![tables(0, 4, 0x20, 0)]);
    sample.table(1, 0, (0x20, 0), vec![data(0, 512, 0x10000, 0)]);
    sample.table(1, MB2, (0x21, 1), vec![data(0, 256, 0x11000, 1)]);
    let swapped = vec![data(0, 100, 0x12000, 2), absent(100, 412, Kind::Swap)];
    sample.table(1, 2 * MB2, (0x22, 2), swapped);
    sample.table(1, 3 * MB2, (0x23, 0), vec![data(7, 64, 0x13000, 0)]);

    // Which tables a domain's PMD table leads to.
    let uses: [&[u64]; 5] = [&[2, 3], &[2, 3], &[1, 2, 3], &[1, 3], &[3]];
    for (domain, used) in (0..5).zip(uses) {
        let at = |level: u8| (own(domain, level), node(domain));
        let (frame, on) = at(4);
        sample.copy(domain, 4, 0, (frame, on));
        sample.copy(domain, 3, 0, at(3));
        let entry = |&table: &u64| {
            let linked = matches!((table, node(domain)), (1, 1) | (2, 2));
            let frame = if linked { 0x20 } else { own(domain, 1) };
            tables(table as u16, 1, frame + table, on)
        };
        let entries = used.iter().map(entry).collect();
        sample.replica(domain, 2, 0, at(2), entries);
    }
    for domain in [2, 3] {
        sample.link(domain, 1, MB2, (0x21, 1));
    }
    for domain in [0, 1] {
        sample.link(domain, 1, 2 * MB2, (0x22, 2));
    }
    sample.replica(
        2,
        1,
        2 * MB2,
        (own(2, 1) + 2, 1),
        vec![data(16, 8, 0x12010, 2)],
    );
    for domain in 0..4 {
        // Read a moment later: one entry that the canonical table has no more.
        let held = 8 * (domain as u16 + 1);
        let entries = vec![data(0, 1, 0x99, 0), data(7, held, 0x13000, 0)];
        sample.replica(
            domain,
            1,
            3 * MB2,
            (own(domain, 1) + 3, node(domain)),
            entries,
        );
    }
    sample.copy(4, 1, 3 * MB2, (own(4, 1) + 3, 0));
    sample
}

fn level(tally: &Tally, level: u8) -> &LevelSharers {
    &tally.sharers.levels[&level]
}

#[test]
fn tables_are_counted_by_the_number_of_their_sharers() {
    let (tally, list) = read(&lazy());
    assert_eq!(tally.sharers.domains, [0, 1, 2, 3, 4]);
    assert_eq!(level(&tally, 4).tables, [0, 0, 0, 0, 0, 1]);
    let leaf = level(&tally, 1);
    assert_eq!(leaf.tables, [1, 0, 1, 1, 0, 1]);
    assert_eq!((leaf.links, leaf.copies, leaf.partial), (4, 6, 5));
    assert_eq!(leaf.present, 100 + 5 * 64);
    assert_eq!(leaf.held, 8 + 8 + 16 + 24 + 32 + 64);
    let middle = level(&tally, 2);
    assert_eq!((middle.copies, middle.partial), (5, 5));
    assert_eq!((middle.present, middle.held), (20, 10));

    assert_eq!(list.len(), 7);
    let shared: Vec<u32> = list[5].sharers.iter().map(|(domain, _)| *domain).collect();
    assert_eq!((list[5].addr, list[5].entries), (2 * MB2, 100));
    assert_eq!(shared, [0, 1, 2]);
    assert_eq!(list[5].sharers[0].1, Share::Link);
    assert!(list[3].sharers.is_empty());
}

#[test]
fn what_is_printed_of_lazy_trees() {
    let (tally, list) = read(&lazy());
    expect("sharers.txt", &print::dump(&tally, HUMAN));
    let lines: String = list.iter().map(print::table).collect();
    let text = print::table_head(&tally.header) + &lines;
    expect("sharers-tables.txt", &text);
    let json = serde_json::to_value(print::json::dump(&tally, None)).unwrap();
    let mut text = serde_json::to_string_pretty(&json["sharers"]).unwrap();
    text += &serde_json::to_string_pretty(&json["domains"]).unwrap();
    let line = print::json::table(&tally.header, &list[5]);
    text += &serde_json::to_string_pretty(&line).unwrap();
    expect("sharers.json", &format!("{text}\n"));
}

#[test]
fn without_replication_there_are_no_sharers() {
    let (tally, list) = read(&server(1));
    assert!(tally.sharers.domains.is_empty());
    assert_eq!(level(&tally, 1).tables, [512]);
    assert!(list.iter().all(|table| table.sharers.is_empty()));
    assert!(!print::dump(&tally, HUMAN).contains("copies"));
}

#[test]
fn eager_trees_share_everything() {
    let (tally, list) = read(&replicated_server(2));
    for (number, l) in &tally.sharers.levels {
        assert_eq!(l.tables[..4], [0; 4], "level {number}");
        assert_eq!(l.held_share(), Some(1.0), "level {number}");
        assert_eq!(l.partial, 0, "level {number}");
    }
    assert_eq!(
        (level(&tally, 1).links, level(&tally, 1).copies),
        (1024, 3072)
    );
    assert!(list.iter().all(|table| table.sharers.len() == 4));
}

#[test]
fn a_list_that_cannot_be_printed_ends_the_reading() {
    let bytes = lazy().bytes();
    let mut reader = Reader::new(&bytes[..]).unwrap();
    let mut seen = 0;
    let result = Tally::read_each(&mut reader, |table| -> Result<(), StreamError> {
        seen += 1;
        Err(StreamError::Truncated { offset: table.addr })
    });
    assert!(result.is_err());
    assert_eq!(seen, 1);
}

/// What a domain has of a table: nothing, a link, a copy that is equal, or a
/// copy with these entries.
#[derive(Debug, Clone)]
enum Has {
    Nothing,
    Link,
    Same,
    Entries(BTreeSet<u16>),
}

fn entries() -> impl Strategy<Value = BTreeSet<u16>> {
    prop_oneof![
        prop::collection::btree_set(0u16..512, 0..20),
        Just((0..512).collect()),
    ]
}

fn has() -> impl Strategy<Value = Has> {
    prop_oneof![
        Just(Has::Nothing),
        Just(Has::Link),
        Just(Has::Same),
        entries().prop_map(Has::Entries),
    ]
}

fn runs(entries: &BTreeSet<u16>) -> Vec<Run> {
    // Not consecutive, so that each entry is a run.
    let run = |&i: &u16| data(i, 1, 0x1000 + 2 * u64::from(i), 0);
    entries.iter().map(run).collect()
}

const DOMAINS: u32 = 5;

proptest! {
    #[test]
    fn counts_and_list_agree_with_the_trees(
        all in prop::collection::vec((entries(), prop::collection::vec(has(), DOMAINS as usize)), 0..12),
        nodes in prop::collection::vec(0u32..3, DOMAINS as usize),
    ) {
        let mut sample = Sample::with_domains(3);
        sample.header.nr_domains = DOMAINS as u16;
        sample.domains = (0..).zip(&nodes).map(|(domain, &node)| DomainInfo { domain, node: Some(node) }).collect();
        for (addr, (canonical, domains)) in (0u64..).map(|i| i * MB2).zip(&all) {
            let frame = 0x10_0000 + addr / MB2 * 0x10;
            sample.table(1, addr, (frame, 0), runs(canonical));
            for (domain, has) in (0u32..).zip(domains) {
                let at = (frame + 1 + u64::from(domain), nodes[domain as usize]);
                match has {
                    Has::Nothing => continue,
                    Has::Link => sample.link(domain, 1, addr, (frame, 0)),
                    Has::Same => sample.copy(domain, 1, addr, at),
                    Has::Entries(entries) => sample.replica(domain, 1, addr, at, runs(entries)),
                };
            }
        }
        let (tally, list) = read(&sample);

        // The list says what went in.
        prop_assert_eq!(list.len(), all.len());
        let mut trees = BTreeSet::new();
        for (table, (canonical, domains)) in list.iter().zip(&all) {
            prop_assert_eq!(usize::from(table.entries), canonical.len());
            let shared: BTreeMap<u32, Share> = table.sharers.iter().copied().collect();
            prop_assert_eq!(shared.len(), table.sharers.len());
            prop_assert!(table.sharers.is_sorted_by_key(|(domain, _)| *domain));
            for (domain, has) in (0u32..).zip(domains) {
                let held = match (has, shared.get(&domain)) {
                    (Has::Nothing, None) | (Has::Link, Some(Share::Link)) => continue,
                    (_, Some(&Share::Copy { held, node, .. })) => {
                        prop_assert_eq!(node, Some(nodes[domain as usize]));
                        usize::from(held)
                    }
                    (has, share) => return Err(TestCaseError::fail(format!("{has:?} as {share:?}"))),
                };
                match has {
                    Has::Same => prop_assert_eq!(held, canonical.len()),
                    Has::Entries(own) => prop_assert_eq!(held, own.intersection(canonical).count()),
                    _ => unreachable!(),
                }
            }
            trees.extend(shared.into_keys());
        }

        // The counts are those of the list and of the trees.
        prop_assert!(trees.iter().eq(&tally.sharers.domains));
        let none = LevelSharers { tables: vec![0; trees.len() + 1], ..LevelSharers::default() };
        let l = tally.sharers.levels.get(&1).unwrap_or(&none);
        prop_assert_eq!(l.tables.len(), trees.len() + 1);
        prop_assert_eq!(l.tables.iter().sum::<u64>(), all.len() as u64);
        let sharers: u64 = l.tables.iter().zip(0u64..).map(|(n, sharers)| n * sharers).sum();
        prop_assert_eq!(sharers, l.links + l.copies);
        let (mut own, mut every) = (0, 0);
        for (view, tree) in &tally.views {
            if *view != View::Canonical {
                own += tree.tables().1;
                every += tree.tables().0;
            }
        }
        prop_assert_eq!((own, every), (l.copies, l.links + l.copies));
        prop_assert!(l.held <= l.present && l.partial <= l.copies);
        prop_assert_eq!(l.held < l.present, l.partial > 0);

        // And printing them does not depend on what they are.
        let text = print::dump(&tally, HUMAN);
        prop_assert_eq!(text.contains("links"), !trees.is_empty());
    }
}

#[test]
fn many_domains_and_addresses_fit_a_line() {
    let mut sample = Sample::with_domains(64);
    for domain in &mut sample.domains {
        domain.node = Some(63 - domain.domain);
    }
    let addr = (1 << 47) - GB;
    sample.table(3, addr & !((1 << 39) - 1), (5, 0), vec![]);
    sample.table(2, addr, (6, 3), vec![data(1, 2, 0x200, 3)]);
    for domain in 0..64 {
        let at = (0x1000 + u64::from(domain), 63 - domain);
        match domain {
            60 => sample.link(domain, 2, addr, (6, 3)),
            0..40 => sample.copy(domain, 2, addr, at),
            _ => sample.replica(domain, 2, addr, at, vec![data(1, 1, 0x200, 3)]),
        };
    }
    let (tally, list) = read(&sample);
    let line = print::table(&list[1]);
    assert!(
        line.contains("7fffc0000000  L2        3        2  60        0-39,40:1"),
        "{line}"
    );
    let text = print::dump(&tally, HUMAN);
    assert!(text.contains("how many of 64 domain trees have"), "{text}");
    assert!(text.contains("32-63  all"), "{text}");
}
