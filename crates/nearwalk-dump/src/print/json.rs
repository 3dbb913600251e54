// SPDX-License-Identifier: GPL-2.0-or-later
//! The same as JSON. The README of this crate documents every member;
//! members are added, never renamed or removed, without a new `schema`.

use serde::Serialize;

use crate::analysis::contiguity::{Figures, Group, LARGER, SHARES, Summary};
use crate::analysis::diff::{Change, Diff, Moves};
use crate::analysis::locality::{Leaves, Viewpoint, locality as viewpoints};
use crate::analysis::{
    LevelTally, Nodes, PageClass, PageState, Pages, SIZES, Share, SharedTable, Tally,
};
use crate::format;
use crate::stream::{DomainInfo, Header, Kind, NodeInfo, View};

pub const DUMP_SCHEMA: &str = "nearwalk.dump.v1";
pub const TABLE_SCHEMA: &str = "nearwalk.table.v1";
pub const LOCALITY_SCHEMA: &str = "nearwalk.locality.v1";
pub const CONTIGUITY_SCHEMA: &str = "nearwalk.contiguity.v1";

/// `nearwalk dump --json`; `diff` when there was a snapshot before.
pub fn dump(tally: &Tally, diff: Option<&Diff>) -> impl Serialize {
    Dump {
        snapshot: Snapshot::new(tally, DUMP_SCHEMA),
        trees: trees(tally),
        pages: page_counts(&tally.pages, &tally.nodes),
        not_present: not_present(tally),
        locality: viewpoints(tally).iter().map(Point::new).collect(),
        domains: domains(tally),
        sharers: sharers(tally),
        changes: diff.map(|d| Changes::new(d, tally)),
    }
}

/// A line of `nearwalk dump --json --tables`.
pub fn table(header: &Header, table: &SharedTable) -> impl Serialize {
    let linked = |&(domain, share): &(u32, Share)| matches!(share, Share::Link).then_some(domain);
    let copy = |&(domain, share): &(u32, Share)| match share {
        Share::Link => None,
        Share::Copy { frame, node, held } => Some(TableCopy {
            domain,
            frame,
            node,
            entries_held: held,
        }),
    };
    TableLine {
        schema: TABLE_SCHEMA,
        pid: header.pid,
        boottime_ns: header.boottime_ns,
        level: table.level,
        address: table.addr,
        frame: table.frame,
        node: table.node,
        entries: table.entries,
        linked: table.sharers.iter().filter_map(linked).collect(),
        copies: table.sharers.iter().filter_map(copy).collect(),
    }
}

#[derive(Serialize)]
struct TableLine {
    schema: &'static str,
    pid: i32,
    /// As the snapshot's.
    boottime_ns: u64,
    level: u8,
    address: u64,
    frame: u64,
    node: Option<u32>,
    entries: u16,
    linked: Vec<u32>,
    copies: Vec<TableCopy>,
}

#[derive(Serialize)]
struct TableCopy {
    domain: u32,
    frame: u64,
    node: Option<u32>,
    entries_held: u16,
}

/// `nearwalk locality --json`.
pub fn locality(tally: &Tally) -> impl Serialize {
    Locality {
        snapshot: Snapshot::new(tally, LOCALITY_SCHEMA),
        locality: viewpoints(tally).iter().map(Point::new).collect(),
    }
}

/// `nearwalk contiguity --json`.
pub fn contiguity(tally: &Tally, summary: &Summary) -> impl Serialize {
    Contiguous {
        snapshot: Snapshot::new(tally, CONTIGUITY_SCHEMA),
        split: summary.split.name(),
        all: (&summary.all).into(),
        histogram: summary
            .histogram
            .iter()
            .map(|bucket| Sizes {
                from_bytes: bucket.from,
                regions: bucket.regions,
                bytes: bucket.bytes,
            })
            .collect(),
        groups: summary
            .groups
            .iter()
            .map(|(group, figures)| {
                let (mapping, permissions) = match group {
                    Group::Mapping(vma) => (Some(vma), Some(vma.flags)),
                    Group::Permissions(flags) => (None, Some(*flags)),
                    Group::Unmapped => (None, None),
                };
                Apart {
                    start: mapping.map(|vma| vma.start),
                    end: mapping.map(|vma| vma.end),
                    permissions: permissions.map(super::contiguity::permissions),
                    figures: figures.into(),
                }
            })
            .collect(),
    }
}

#[derive(Serialize)]
struct Contiguous {
    #[serde(flatten)]
    snapshot: Snapshot,
    split: &'static str,
    #[serde(flatten)]
    all: Figured,
    histogram: Vec<Sizes>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    groups: Vec<Apart>,
}

#[derive(Serialize)]
struct Apart {
    start: Option<u64>,
    end: Option<u64>,
    permissions: Option<String>,
    #[serde(flatten)]
    figures: Figured,
}

#[derive(Serialize)]
struct Figured {
    bytes: u64,
    regions: usize,
    coverage: Vec<Covered>,
    needed: Vec<Needed>,
    largest: Option<Largest>,
    aligned: Vec<Aligned>,
}

impl From<&Figures> for Figured {
    fn from(figures: &Figures) -> Self {
        Figured {
            bytes: figures.bytes,
            regions: figures.regions,
            coverage: figures
                .coverage
                .iter()
                .map(|&(regions, share)| Covered { regions, share })
                .collect(),
            needed: std::iter::zip(SHARES, figures.needed)
                .map(|(percent, regions)| Needed { percent, regions })
                .collect(),
            largest: figures.largest.map(|region| Largest {
                address: region.addr,
                frame: region.frame,
                bytes: region.bytes(),
                node: region.node(),
            }),
            aligned: std::iter::zip(LARGER, figures.aligned)
                .map(|(size, pages)| Aligned { size, pages })
                .collect(),
        }
    }
}

#[derive(Serialize)]
struct Covered {
    regions: usize,
    share: Option<f64>,
}

#[derive(Serialize)]
struct Needed {
    percent: u64,
    regions: usize,
}

#[derive(Serialize)]
struct Largest {
    address: u64,
    frame: u64,
    bytes: u64,
    node: Option<u32>,
}

#[derive(Serialize)]
struct Aligned {
    size: u64,
    pages: u64,
}

#[derive(Serialize)]
struct Sizes {
    from_bytes: u64,
    regions: u64,
    bytes: u64,
}

#[derive(Serialize)]
struct Dump {
    #[serde(flatten)]
    snapshot: Snapshot,
    trees: Vec<Tree>,
    pages: Vec<PageCount>,
    not_present: Vec<NotPresent>,
    locality: Vec<Point>,
    domains: Vec<Domain>,
    sharers: Vec<LevelShared>,
    #[serde(skip_serializing_if = "Option::is_none")]
    changes: Option<Changes>,
}

#[derive(Serialize)]
struct Locality {
    #[serde(flatten)]
    snapshot: Snapshot,
    locality: Vec<Point>,
}

#[derive(Serialize)]
struct Snapshot {
    schema: &'static str,
    pid: i32,
    comm: String,
    kernel: String,
    replication: bool,
    levels: u8,
    realtime_ns: u64,
    boottime_ns: u64,
    start_time_ns: u64,
    duration_ns: u64,
    lock_stretches: u64,
    stream_bytes: u64,
    complete: bool,
    nodes: Vec<Node>,
}

impl Snapshot {
    fn new(tally: &Tally, schema: &'static str) -> Self {
        let header = &tally.header;
        Snapshot {
            schema,
            pid: header.pid,
            comm: header.comm.clone(),
            kernel: header.release.clone(),
            replication: header.replication,
            levels: header.levels,
            realtime_ns: header.realtime_ns,
            boottime_ns: header.boottime_ns,
            start_time_ns: header.start_time_ns,
            duration_ns: tally.end.duration_ns,
            lock_stretches: tally.end.stretches,
            stream_bytes: tally.bytes,
            complete: tally.end.complete,
            nodes: nodes(&tally.nodes),
        }
    }
}

#[derive(Serialize)]
struct Node {
    node: u32,
    online: bool,
    cpus: bool,
    memory: bool,
}

fn nodes(nodes: &Nodes) -> Vec<Node> {
    let node = |info: &NodeInfo| Node {
        node: info.node,
        online: info.online,
        cpus: info.cpus,
        memory: info.memory,
    };
    nodes.infos().iter().map(node).collect()
}

/// `canonical` or `domain`, with the domain's number.
#[derive(Serialize)]
struct TreeName {
    tree: &'static str,
    domain: Option<u32>,
}

impl From<View> for TreeName {
    fn from(view: View) -> Self {
        match view {
            View::Canonical => TreeName {
                tree: "canonical",
                domain: None,
            },
            View::Domain(domain) => TreeName {
                tree: "domain",
                domain: Some(domain),
            },
        }
    }
}

#[derive(Serialize)]
struct Tree {
    #[serde(flatten)]
    name: TreeName,
    node: Option<u32>,
    levels: Vec<Level>,
}

#[derive(Serialize)]
struct Level {
    level: u8,
    nodes: Vec<LevelNode>,
}

#[derive(Serialize)]
struct LevelNode {
    node: u32,
    tables: u64,
    replicas: u64,
    leaf_entries: u64,
    /// Parallel to the snapshot's `nodes`.
    entries: Vec<u64>,
    entries_no_node: u64,
    remote: Option<f64>,
}

fn trees(tally: &Tally) -> Vec<Tree> {
    tally
        .views
        .iter()
        .map(|(&view, tree)| {
            let node = tally
                .domains
                .iter()
                .find(|info| view == View::Domain(info.domain))
                .and_then(|info| info.node);
            let levels = tree.levels.iter().rev();
            Tree {
                name: view.into(),
                node,
                levels: levels
                    .map(|(&level, l)| Level {
                        level,
                        nodes: level_nodes(l, &tally.nodes),
                    })
                    .collect(),
            }
        })
        .collect()
}

fn level_nodes(level: &LevelTally, nodes: &Nodes) -> Vec<LevelNode> {
    let node = |(slot, info): (usize, &NodeInfo)| {
        let (no_node, entries) = level.points[slot]
            .split_last()
            .expect("there is a slot for no node");
        LevelNode {
            node: info.node,
            tables: level.tables[slot],
            replicas: level.replicas[slot],
            leaf_entries: level.leaves[slot],
            entries: entries.to_vec(),
            entries_no_node: *no_node,
            remote: level.remote(slot),
        }
    };
    nodes.infos().iter().enumerate().map(node).collect()
}

#[derive(Serialize)]
struct Domain {
    domain: u32,
    node: Option<u32>,
    /// It has a tree of its own; else its CPUs load the canonical one.
    tree: bool,
}

fn domains(tally: &Tally) -> Vec<Domain> {
    let domain = |info: &DomainInfo| Domain {
        domain: info.domain,
        node: info.node,
        tree: tally.sharers.domains.binary_search(&info.domain).is_ok(),
    };
    tally.domains.iter().map(domain).collect()
}

#[derive(Serialize)]
struct LevelShared {
    level: u8,
    tables_by_sharers: Vec<u64>,
    links: u64,
    copies: u64,
    partial_copies: u64,
    entries_held: u64,
    entries_present: u64,
}

fn sharers(tally: &Tally) -> Vec<LevelShared> {
    let levels = tally.sharers.levels.iter().rev();
    levels
        .map(|(&level, l)| LevelShared {
            level,
            tables_by_sharers: l.tables.clone(),
            links: l.links,
            copies: l.copies,
            partial_copies: l.partial,
            entries_held: l.held,
            entries_present: l.present,
        })
        .collect()
}

#[derive(Serialize)]
struct PageCount {
    #[serde(flatten)]
    class: Class,
    /// Parallel to the snapshot's `nodes`.
    by_node: Vec<u64>,
    no_node: u64,
    total: u64,
}

#[derive(Serialize)]
struct Class {
    state: PageState,
    what: &'static str,
    size: u64,
}

impl From<PageClass> for Class {
    fn from(class: PageClass) -> Self {
        Class {
            state: class.state,
            what: if class.code { "code" } else { "data" },
            size: class.size(),
        }
    }
}

fn page_counts(pages: &Pages, nodes: &Nodes) -> Vec<PageCount> {
    let count = |class: PageClass| {
        let of = pages.of(class);
        PageCount {
            class: class.into(),
            by_node: of[..nodes.infos().len()].to_vec(),
            no_node: of[nodes.slot(None)],
            total: pages.total(class),
        }
    };
    PageClass::all().map(count).collect()
}

#[derive(Serialize)]
struct NotPresent {
    what: &'static str,
    size: u64,
    entries: u64,
}

fn not_present(tally: &Tally) -> Vec<NotPresent> {
    let entry = |(&(kind, level), &entries): (&(u8, u8), &u64)| NotPresent {
        what: match Kind::ALL[usize::from(kind)] {
            Kind::Swap => "swap",
            Kind::Migration => "migration",
            _ => "other",
        },
        size: format::entry_size(level),
        entries,
    };
    tally.not_present.iter().map(entry).collect()
}

#[derive(Serialize)]
struct Point {
    node: u32,
    #[serde(flatten)]
    tree: TreeName,
    local: LeafCount,
    remote: LeafCount,
    absent: LeafCount,
    remote_by_memory: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    remote_by_cover: Option<f64>,
    remote_by_entries: Option<f64>,
}

#[derive(Serialize)]
struct LeafCount {
    entries: Option<u64>,
    bytes: Option<u64>,
    /// Of address space, where entries were not read.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_covered: Option<u64>,
}

impl LeafCount {
    fn new(leaves: Leaves, unread: bool) -> Self {
        LeafCount {
            entries: (!unread).then_some(leaves.entries),
            bytes: (!unread).then_some(leaves.bytes),
            bytes_covered: unread.then_some(leaves.bytes),
        }
    }
}

impl Point {
    fn new(point: &Viewpoint) -> Self {
        Point {
            node: point.node,
            tree: point.tree.into(),
            local: LeafCount::new(point.local, point.unread),
            remote: LeafCount::new(point.remote, point.unread),
            absent: LeafCount::new(point.absent, point.unread),
            remote_by_memory: point.remote_by_memory().filter(|_| !point.unread),
            remote_by_cover: point.remote_by_memory().filter(|_| point.unread),
            remote_by_entries: point.remote_by_entries(),
        }
    }
}

#[derive(Serialize)]
struct Changes {
    elapsed_ns: u64,
    /// As the snapshot's, and those that only the one before had.
    nodes: Vec<Node>,
    tables: Vec<TableChange>,
    pages: Vec<PageChange>,
    page_moves: Vec<PageMoves>,
    table_moves: MoveCounts,
    split: u64,
    collapsed: u64,
}

#[derive(Serialize)]
struct TableChange {
    #[serde(flatten)]
    name: TreeName,
    level: u8,
    added: Vec<u64>,
    removed: Vec<u64>,
}

#[derive(Serialize)]
struct PageChange {
    #[serde(flatten)]
    class: Class,
    added: Vec<u64>,
    removed: Vec<u64>,
    added_no_node: u64,
    removed_no_node: u64,
}

#[derive(Serialize)]
struct PageMoves {
    size: u64,
    #[serde(flatten)]
    counts: MoveCounts,
}

#[derive(Serialize)]
struct MoveCounts {
    migrated: u64,
    replaced: u64,
    /// Rows: node before; columns: node after.
    matrix: Vec<Vec<u64>>,
}

impl MoveCounts {
    fn new(moves: &Moves, nodes: usize) -> Self {
        let rows = moves.matrix[..nodes].iter();
        MoveCounts {
            migrated: moves.total(),
            replaced: moves.replaced,
            matrix: rows.map(|row| row[..nodes].to_vec()).collect(),
        }
    }
}

impl Changes {
    fn new(diff: &Diff, tally: &Tally) -> Self {
        let count = diff.nodes.infos().len();
        let table = |(&(view, level), change): (&(View, u8), &Change)| TableChange {
            name: view.into(),
            level,
            added: change.added[..count].to_vec(),
            removed: change.removed[..count].to_vec(),
        };
        let page = |class: PageClass| PageChange {
            class: class.into(),
            added: diff.pages_added.of(class)[..count].to_vec(),
            removed: diff.pages_removed.of(class)[..count].to_vec(),
            added_no_node: diff.pages_added.of(class)[count],
            removed_no_node: diff.pages_removed.of(class)[count],
        };
        let changed = |c: &PageClass| diff.pages_added.total(*c) + diff.pages_removed.total(*c) > 0;
        debug_assert!(count >= tally.nodes.infos().len());
        Changes {
            elapsed_ns: diff.elapsed_ns,
            nodes: nodes(&diff.nodes),
            tables: diff.tables.iter().map(table).collect(),
            pages: PageClass::all().filter(changed).map(page).collect(),
            page_moves: diff
                .page_moves
                .iter()
                .zip(SIZES)
                .map(|(moves, size)| PageMoves {
                    size,
                    counts: MoveCounts::new(moves, count),
                })
                .collect(),
            table_moves: MoveCounts::new(&diff.table_moves, count),
            split: diff.split,
            collapsed: diff.collapsed,
        }
    }
}
