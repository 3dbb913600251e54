// SPDX-License-Identifier: GPL-2.0-or-later
//! What the commands print of hand-built snapshots, kept in `snapshots/`.

mod common;

use common::{
    CODE, DATA, GB, MB2, Sample, absent, data, expect, replicated_server, run, server, tables,
};
use nearwalk_dump::analysis::Tally;
use nearwalk_dump::analysis::diff::{Diff, diff};
use nearwalk_dump::analysis::locality::locality;
use nearwalk_dump::print::{self, Style};
use nearwalk_dump::stream::{Attrs, Kind, NodeInfo, Reader, View};
use proptest::prelude::*;

const HUMAN: Style = Style {
    exact: false,
    width: 100,
};
const EXACT: Style = Style {
    exact: true,
    width: 100,
};

fn changed(old: &Sample, new: &Sample) -> Diff {
    let (old, new) = (old.bytes(), new.bytes());
    diff(
        &mut Reader::new(&old[..]).unwrap(),
        &mut Reader::new(&new[..]).unwrap(),
    )
    .unwrap()
}

/// All kinds of entries, on two nodes and a third that has memory only.
fn mixture() -> Sample {
    let mut sample = Sample::new(4);
    sample.nodes[2].cpus = false;
    // Possible, but not there.
    sample.nodes[3] = NodeInfo {
        node: 3,
        online: false,
        cpus: false,
        memory: false,
    };
    sample.header.levels = 5;
    sample.table(5, 0, (1, 0), vec![tables(0, 1, 2, 0)]);
    sample.table(4, 0, (2, 0), vec![tables(0, 1, 3, 1)]);
    let gigantic = run(7, 1, Kind::Page, DATA, 0x4_0000, 2);
    sample.table(3, 0, (3, 1), vec![tables(0, 1, 4, 0), gigantic]);
    sample.table(
        2,
        0,
        (4, 0),
        vec![
            tables(0, 1, 5, 1),
            run(1, 3, Kind::Page, DATA, 0x200, 0),
            run(4, 1, Kind::Hint, DATA, 0x800, 1),
            run(5, 1, Kind::Page, DATA | Attrs::SPECIAL, 0xa00, 0),
            absent(6, 1, Kind::Migration),
        ],
    );
    sample.table(
        1,
        0,
        (5, 1),
        vec![
            run(0, 10, Kind::Page, CODE, 0x1000, 0),
            run(10, 20, Kind::Page, DATA | Attrs::DIRTY, 0x2000, 1),
            run(30, 5, Kind::Hint, DATA, 0x3000, 1),
            run(35, 2, Kind::Hint, CODE, 0x3100, 0),
            run(37, 4, Kind::ProtNone, DATA, 0x4000, 2),
            run(41, 2, Kind::Page, DATA | Attrs::SPECIAL, 0x5000, 0),
            absent(50, 100, Kind::Swap),
            absent(160, 2, Kind::Other),
        ],
    );
    let mut io = run(170, 1, Kind::Page, DATA | Attrs::SPECIAL, 0xf_ebf0, 0);
    io.node = None;
    sample.tables.last_mut().unwrap().1.push(io);
    sample
}

#[test]
fn a_server_on_four_nodes() {
    let tally = server(8).tally();
    expect("server.txt", &print::dump(&tally, HUMAN));
    expect("server-exact.txt", &print::dump(&tally, EXACT));
    let narrow = Style { width: 80, ..HUMAN };
    expect("server-80.txt", &print::dump(&tally, narrow));
    expect("server-locality.txt", &print::locality(&tally, HUMAN));
}

#[test]
fn a_replicated_server() {
    let tally = replicated_server(2).tally();
    expect("replicated.txt", &print::dump(&tally, HUMAN));
    expect("replicated-locality.txt", &print::locality(&tally, HUMAN));
}

#[test]
fn every_kind_of_entry() {
    let tally = mixture().tally();
    expect("mixture.txt", &print::dump(&tally, HUMAN));
    expect("mixture-locality.txt", &print::locality(&tally, HUMAN));
    let json = serde_json::to_value(print::json::dump(&tally, None)).unwrap();
    let pretty = serde_json::to_string_pretty(&json).unwrap();
    expect("mixture.json", &format!("{pretty}\n"));
}

#[test]
fn many_nodes_wrap_into_blocks() {
    let mut sample = Sample::new(32);
    let all = |node: u32| {
        (0..32).map(move |n| {
            data(
                n * 16,
                16,
                u64::from(n) << 20 | 1 << 12,
                (u32::from(n) + node) % 32,
            )
        })
    };
    for node in 0..32 {
        sample.table(
            1,
            u64::from(node) * MB2,
            (u64::from(node) << 20, node),
            all(node).collect(),
        );
    }
    let tally = sample.tally();
    expect("many-nodes.txt", &print::dump(&tally, HUMAN));
}

#[test]
fn an_exited_process_is_said_to_be_incomplete() {
    let mut sample = Sample::new(2);
    sample.end.complete = false;
    let tally = sample.tally();
    assert!(print::dump(&tally, HUMAN).contains("the process exited while it was read"));
    assert!(print::locality(&tally, HUMAN).contains("the process exited while it was read"));
    expect("empty.txt", &print::dump(&tally, HUMAN));
}

#[test]
fn locality_follows_the_tree_that_the_cpus_load() {
    let shared = locality(&server(1).tally());
    assert!(shared.iter().all(|p| p.tree == View::Canonical));
    assert!(shared.iter().all(|p| p.remote_by_memory() == Some(0.75)));

    let own = locality(&replicated_server(1).tally());
    for (point, node) in own.iter().zip(0..) {
        assert_eq!(point.tree, View::Domain(node));
        assert_eq!(point.remote_by_memory(), Some(0.0));
        assert_eq!(point.remote_by_entries(), Some(0.0));
        assert_eq!(point.local.bytes, GB);
        assert_eq!(point.absent.entries, 0);
    }
}

#[test]
fn locality_weighs_by_memory() {
    let mut sample = Sample::new(2);
    sample.table(4, 0, (1, 0), vec![tables(0, 1, 2, 0)]);
    sample.table(3, 0, (2, 0), vec![tables(0, 1, 3, 0)]);
    sample.table(2, 0, (3, 0), vec![tables(0, 1, 4, 1), data(1, 1, 512, 1)]);
    sample.table(1, 0, (4, 1), vec![data(0, 512, 4096, 0)]);
    let points = locality(&sample.tally());
    // Node 0 has the entry of one huge page, node 1 those of 512 small ones.
    assert_eq!(points[0].remote_by_memory(), Some(0.5));
    assert_eq!(points[0].remote_by_entries(), Some(512.0 / 513.0));
    assert_eq!(points[1].remote_by_entries(), Some(1.0 / 513.0));
}

#[test]
fn leaf_tables_that_were_not_read_count_by_the_entries_that_name_them() {
    let mut sample = Sample::new(2);
    sample.header.outside = true;
    sample.table(4, 0, (1, 0), vec![tables(0, 1, 2, 0)]);
    sample.table(3, 0, (2, 0), vec![tables(0, 1, 3, 0)]);
    let named = vec![tables(0, 3, 4, 1), tables(3, 1, 9, 0), data(4, 1, 512, 1)];
    sample.table(2, 0, (3, 0), named);
    let tally = sample.tally();
    assert_eq!(tally.unread(), 4);
    assert_eq!(tally.canonical().unwrap().levels[&1].tables, [1, 3, 0]);
    let points = locality(&tally);
    // Of 2 MiB each; the huge page's entry is on node 0.
    assert_eq!(points[0].local.bytes, 4 << 20);
    assert_eq!(points[0].remote.bytes, 6 << 20);
    assert_eq!(points[0].remote_by_entries(), None);

    // One that was read is not counted again.
    sample.table(1, 0, (4, 1), vec![data(0, 512, 4096, 0)]);
    assert_eq!(sample.tally().unread(), 0);
}

#[test]
fn domains_without_tree_see_the_canonical_one() {
    let mut sample = Sample::with_domains(2);
    sample.table(4, 0, (1, 0), vec![tables(0, 1, 2, 0)]);
    sample.table(3, 0, (2, 0), vec![data(1, 1, 1 << 18, 0)]);
    // Domain 1 has not filled in anything below its root.
    sample.replica(1, 4, 0, (9, 1), vec![]);
    let points = locality(&sample.tally());
    assert_eq!(points[0].tree, View::Canonical);
    assert_eq!(points[0].remote_by_memory(), Some(0.0));
    assert_eq!(points[1].tree, View::Domain(1));
    assert_eq!(points[1].remote_by_memory(), None);
    assert_eq!(points[1].absent.bytes, GB);
    let text = print::locality(&sample.tally(), HUMAN);
    assert!(text.contains("not filled in: 1G, 1 PTEs"), "{text}");
}

#[test]
fn a_node_split_into_domains_has_a_line_for_each() {
    let mut sample = Sample::with_domains(2);
    for domain in &mut sample.domains {
        domain.node = Some(1);
    }
    sample.table(4, 0, (1, 0), vec![tables(0, 1, 2, 0)]);
    sample.replica(0, 4, 0, (7, 1), vec![]);
    let trees: Vec<(u32, View)> = locality(&sample.tally())
        .iter()
        .map(|p| (p.node, p.tree))
        .collect();
    assert_eq!(
        trees,
        [
            (0, View::Canonical),
            (1, View::Domain(0)),
            (1, View::Canonical)
        ]
    );
}

#[test]
fn nothing_changes_between_equal_snapshots() {
    let sample = replicated_server(1);
    let diff = changed(&sample, &sample);
    assert!(diff.tables.is_empty());
    assert_eq!(diff.table_moves.total() + diff.table_moves.replaced, 0);
    assert!(diff.page_moves.iter().all(|m| m.total() + m.replaced == 0));
    let text = print::changes(&sample.tally(), &diff, HUMAN);
    assert!(!text.contains('+'), "{text}");
    assert!(
        text.ends_with("migrated: 0 of memory, 0 table pages\n"),
        "{text}"
    );
}

/// Level 1 tables with random runs, some of them in a domain's tree as well.
fn leaf_tables() -> impl Strategy<Value = Sample> {
    let run = (0u16..60, 1u16..60, 0u32..3, 0u64..2000, 0usize..4);
    let table = (
        0u64..6,
        0u64..3,
        prop::collection::vec(run, 0..12),
        any::<bool>(),
    );
    prop::collection::vec(table, 0..8).prop_map(|tables| {
        let mut sample = Sample::with_domains(3);
        let mut seen = std::collections::BTreeSet::new();
        for (at, frame, parts, replicated) in tables {
            if !seen.insert(at) {
                continue;
            }
            let (mut index, mut runs) = (0, Vec::new());
            for (gap, count, node, frame, kind) in parts {
                index += gap;
                if index + count > 512 {
                    break;
                }
                let kind = [Kind::Page, Kind::Hint, Kind::Page, Kind::Swap][kind];
                runs.push(match kind {
                    Kind::Swap => absent(index, count, kind),
                    _ => common::run(index, count, kind, DATA, frame, node),
                });
                index += count;
            }
            sample.table(1, at * MB2, (0x900 + frame, frame as u32), runs);
            if replicated {
                sample.copy(1, 1, at * MB2, (0x990 + frame, 1));
            }
        }
        sample
    })
}

#[test]
fn the_same_frame_on_another_node_is_a_move() {
    let on = |node: u32| {
        let mut sample = Sample::with_domains(3);
        sample.table(
            1,
            0,
            (0x900, node),
            vec![common::run(5, 1, Kind::Page, DATA, 77, node)],
        );
        sample
    };
    let (old, new) = (on(0), on(2));
    let diff = changed(&old, &new);
    assert_eq!(diff.page_moves[0].matrix[0][2], 1);
    assert_eq!(diff.table_moves.matrix[0][2], 1);
    let tables = &diff.tables[&(View::Canonical, 1)];
    assert_eq!((tables.removed[0], tables.added[2]), (1, 1));
}

proptest! {
    #[test]
    fn any_two_snapshots_and_their_changes_add_up(old in leaf_tables(), new in leaf_tables()) {
        let diff = changed(&old, &new);
        let (before, after) = (old.tally(), new.tally());
        for class in nearwalk_dump::analysis::PageClass::all() {
            for slot in 0..before.nodes.slots() {
                prop_assert_eq!(
                    before.pages.of(class)[slot] + diff.pages_added.of(class)[slot],
                    after.pages.of(class)[slot] + diff.pages_removed.of(class)[slot]
                );
            }
        }
        for view in [View::Canonical, View::Domain(1)] {
            for slot in 0..before.nodes.slots() {
                let tables = |tally: &Tally| -> u64 {
                    let level = tally.views.get(&view).and_then(|v| v.levels.get(&1));
                    level.map_or(0, |l| l.tables[slot])
                };
                let (added, removed) = diff
                    .tables
                    .get(&(view, 1))
                    .map_or((0, 0), |c| (c.added[slot], c.removed[slot]));
                prop_assert_eq!(tables(&before) + added, tables(&after) + removed);
            }
        }
    }
}

/// Two snapshots with every kind of change between them.
fn before_and_after() -> (Sample, Sample) {
    let mut old = Sample::new(3);
    old.table(4, 0, (1, 0), vec![tables(0, 1, 2, 0)]);
    old.table(3, 0, (2, 0), vec![tables(0, 1, 3, 0)]);
    let huge = vec![tables(0, 3, 4, 0), data(5, 2, 0x800, 0)];
    old.table(2, 0, (3, 0), huge);
    old.table(1, 0, (4, 0), vec![data(0, 200, 0x1000, 0)]);
    old.table(1, MB2, (5, 0), vec![data(0, 512, 0x2000, 1)]);
    old.table(1, 2 * MB2, (6, 0), vec![data(0, 7, 0x3000, 2)]);

    let mut new = old.clone();
    new.header.boottime_ns += 5_000_000_000;
    new.header.realtime_ns += 5_000_000_000;
    new.tables.clear();
    // The root was replaced on its node, the next table moved.
    new.table(4, 0, (100, 0), vec![tables(0, 1, 200, 1)]);
    new.table(3, 0, (200, 1), vec![tables(0, 1, 3, 0)]);
    // One table collapsed to a huge page, one vanished; of the two huge pages
    // one was split and one moved.
    let entries = vec![
        tables(0, 1, 4, 0),
        data(1, 1, 0xa00, 1),
        tables(5, 1, 7, 2),
        data(6, 1, 0xe00, 2),
    ];
    new.table(2, 0, (3, 0), entries);
    new.table(5 - 4, 5 * MB2, (7, 2), vec![data(0, 512, 0x800, 0)]);
    // Of the 200 pages 100 stay, 50 become hints, 20 move, 10 are replaced,
    // 20 are unmapped; 30 are new.
    let pages = vec![
        data(0, 100, 0x1000, 0),
        run(100, 50, Kind::Hint, DATA, 0x1000 + 100, 0),
        data(150, 20, 0x5000, 2),
        data(170, 10, 0x6000, 0),
        run(300, 30, Kind::Page, CODE, 0x7000, 1),
    ];
    new.table(1, 0, (4, 0), pages);
    (old, new)
}

#[test]
fn changes_add_up() {
    let (old, new) = before_and_after();
    let diff = changed(&old, &new);
    assert_eq!(diff.elapsed_ns, 5_000_000_000);
    assert_eq!(diff.split, 1);
    assert_eq!(diff.collapsed, 1);
    assert_eq!(diff.table_moves.matrix[0][1], 1);
    assert_eq!(diff.table_moves.replaced, 1);
    assert_eq!(diff.page_moves[0].matrix[0][2], 20);
    assert_eq!(diff.page_moves[0].replaced, 10);
    assert_eq!(diff.page_moves[1].matrix[0][2], 1);

    let (before, after) = (old.tally(), new.tally());
    for class in nearwalk_dump::analysis::PageClass::all() {
        for slot in 0..4 {
            assert_eq!(
                before.pages.of(class)[slot] + diff.pages_added.of(class)[slot],
                after.pages.of(class)[slot] + diff.pages_removed.of(class)[slot],
                "{class:?} in slot {slot}"
            );
        }
    }
    expect("changes.txt", &print::changes(&after, &diff, HUMAN));
    let json = serde_json::to_value(print::json::dump(&after, Some(&diff))).unwrap();
    let pretty = serde_json::to_string_pretty(&json["changes"]).unwrap();
    expect("changes.json", &format!("{pretty}\n"));
}

#[test]
fn replication_shows_as_added_tables_of_each_domain() {
    let mut old = Sample::with_domains(4);
    old.tables = server(1).tables;
    let new = replicated_server(1);
    let diff = changed(&old, &new);
    for domain in 0..4u32 {
        for level in 1..=4 {
            let change = &diff.tables[&(View::Domain(domain), level)];
            let want = if level == 1 { 512 } else { 1 };
            assert_eq!(change.added[domain as usize], want);
        }
    }
    assert!(!diff.tables.contains_key(&(View::Canonical, 1)));
    expect(
        "replication.txt",
        &print::changes(&new.tally(), &diff, HUMAN),
    );
}
