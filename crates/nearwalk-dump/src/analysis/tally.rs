// SPDX-License-Identifier: GPL-2.0-or-later
//! Counts over one snapshot.

use std::collections::BTreeMap;
use std::io::Read;

use super::sharers::SharersBuilder;
use super::{Nodes, PageClass, Pages, SharedTable, Sharers};
use crate::format;
use crate::stream::{
    DomainInfo, End, Header, Kind, NodeInfo, Reader, Record, StreamError, Table, View,
};

/// Counts of the tables of one level of one tree. Vectors are by slot of the
/// table page's node, see [`Nodes`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LevelTally {
    /// Table pages.
    pub tables: Vec<u64>,
    /// Those of them that are not the canonical page.
    pub replicas: Vec<u64>,
    /// Valid entries, to tables as well as to memory, by slot of the frame
    /// that they name.
    pub points: Vec<Vec<u64>>,
    /// Valid entries that are leaves.
    pub leaves: Vec<u64>,
    /// Tables whose entries were not read.
    pub unread: Vec<u64>,
}

impl LevelTally {
    fn new(slots: usize) -> Self {
        LevelTally {
            tables: vec![0; slots],
            replicas: vec![0; slots],
            points: vec![vec![0; slots]; slots],
            leaves: vec![0; slots],
            unread: vec![0; slots],
        }
    }

    /// Fraction of the valid entries of the tables in `slot` that name a
    /// frame elsewhere; `None` without valid entries.
    pub fn remote(&self, slot: usize) -> Option<f64> {
        let all: u64 = self.points[slot].iter().sum();
        let local = self.points[slot][slot];
        (all > 0).then(|| (all - local) as f64 / all as f64)
    }
}

/// Counts of one tree.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ViewTally {
    /// By level; only levels that have tables.
    pub levels: BTreeMap<u8, LevelTally>,
}

impl ViewTally {
    /// Table pages, of those replicas.
    pub fn tables(&self) -> (u64, u64) {
        self.levels.values().fold((0, 0), |(tables, replicas), l| {
            (
                tables + l.tables.iter().sum::<u64>(),
                replicas + l.replicas.iter().sum::<u64>(),
            )
        })
    }
}

/// Everything that `nearwalk dump` and `nearwalk locality` count of a snapshot.
#[derive(Debug, Clone)]
pub struct Tally {
    pub header: Header,
    pub nodes: Nodes,
    pub domains: Vec<DomainInfo>,
    /// The canonical tree and each domain's that has a root of its own.
    pub views: BTreeMap<View, ViewTally>,
    /// Pages that the canonical tree maps.
    pub pages: Pages,
    /// Entries of the canonical tree that are neither empty nor valid, by
    /// kind and level.
    pub not_present: BTreeMap<(u8, u8), u64>,
    /// Which domains share the canonical tables.
    pub sharers: Sharers,
    pub end: End,
    /// Length of the stream.
    pub bytes: u64,
}

impl Tally {
    /// Counts the snapshot that `reader` has begun, to its end.
    pub fn read<R: Read>(reader: &mut Reader<R>) -> Result<Tally, StreamError> {
        Tally::read_both(reader, |_| (), |_| Ok(()))
    }

    /// As [`Tally::read`], and shows each table to `seen`.
    ///
    /// # Errors
    /// Those of the stream.
    pub fn read_tables<R: Read>(
        reader: &mut Reader<R>,
        seen: impl FnMut(&Table),
    ) -> Result<Tally, StreamError> {
        Tally::read_both(reader, seen, |_| Ok(()))
    }

    /// As [`Tally::read`], and hands on each canonical table as soon as it is
    /// known who shares it, in the order of the stream.
    ///
    /// # Errors
    /// Those of the stream, and those that `each` returns, which end it.
    pub fn read_each<R: Read, E: From<StreamError>>(
        reader: &mut Reader<R>,
        each: impl FnMut(&SharedTable) -> Result<(), E>,
    ) -> Result<Tally, E> {
        Tally::read_both(reader, |_| (), each)
    }

    fn read_both<R: Read, E: From<StreamError>>(
        reader: &mut Reader<R>,
        mut seen: impl FnMut(&Table),
        mut each: impl FnMut(&SharedTable) -> Result<(), E>,
    ) -> Result<Tally, E> {
        let mut builder = Builder::default();
        let mut sharers = SharersBuilder::default();
        let header = reader.header().clone();
        let mut end = None;
        while let Some(record) = reader.next_record()? {
            match record {
                Record::Node(info) => builder.nodes.add(info),
                Record::Domain(info) => builder.domains.push(info),
                Record::Table(table) => {
                    builder.table(&table);
                    seen(&table);
                    if let Some(done) = sharers.table(&table) {
                        each(&done)?;
                    }
                }
                Record::End(e) => end = Some(e),
            }
        }
        let end = end.ok_or(StreamError::Truncated {
            offset: reader.offset(),
        })?;
        if let Some(done) = sharers.flush() {
            each(&done)?;
        }
        let slots = builder.nodes.slots();
        if header.outside {
            builder.add_named();
        }
        Ok(Tally {
            header,
            nodes: builder.nodes,
            domains: builder.domains,
            views: builder.views,
            pages: builder.pages.unwrap_or_else(|| Pages::new(slots)),
            not_present: builder.not_present,
            sharers: sharers.finish(),
            end,
            bytes: reader.offset(),
        })
    }

    pub fn canonical(&self) -> Option<&ViewTally> {
        self.views.get(&View::Canonical)
    }

    /// Tables of the canonical tree whose entries were not read.
    pub fn unread(&self) -> u64 {
        let levels = self.canonical().map(|view| view.levels.values());
        levels
            .into_iter()
            .flatten()
            .flat_map(|level| &level.unread)
            .sum()
    }

    /// Domains that have a tree of their own, with it.
    pub fn domain_trees(&self) -> impl Iterator<Item = (DomainInfo, &ViewTally)> {
        self.domains.iter().filter_map(|&info| {
            let view = self.views.get(&View::Domain(info.domain))?;
            Some((info, view))
        })
    }

    /// Entries of the canonical tree that are of `kind`, at all levels.
    pub fn not_present(&self, kind: Kind) -> u64 {
        self.not_present
            .iter()
            .filter(|((k, _), _)| *k == kind as u8)
            .map(|(_, n)| n)
            .sum()
    }

    /// Slots worth showing: nodes that are online or hold anything, and "no
    /// node" when something is there.
    pub fn shown_slots(&self) -> Vec<usize> {
        let mut used = vec![false; self.nodes.slots()];
        for (slot, info) in self.nodes.infos().iter().enumerate() {
            used[slot] = info.online;
        }
        for level in self.views.values().flat_map(|v| v.levels.values()) {
            for (slot, used) in used.iter_mut().enumerate() {
                *used |= level.tables[slot] > 0 || level.points.iter().any(|row| row[slot] > 0);
            }
        }
        (0..used.len()).filter(|&slot| used[slot]).collect()
    }

    /// The node in `slot`; `None` for the slot of frames without node.
    pub fn node_at(&self, slot: usize) -> Option<&NodeInfo> {
        self.nodes.infos().get(slot)
    }
}

#[derive(Default)]
struct Builder {
    nodes: Nodes,
    domains: Vec<DomainInfo>,
    views: BTreeMap<View, ViewTally>,
    pages: Option<Pages>,
    not_present: BTreeMap<(u8, u8), u64>,
    /// Leaf tables that the canonical tree's entries name, by slot.
    named: Vec<u64>,
}

impl Builder {
    /// Where no leaf table was read, those that are named count as unread ones.
    fn add_named(&mut self) {
        let Some(canonical) = self.views.get_mut(&View::Canonical) else {
            return;
        };
        if canonical.levels.contains_key(&1) || self.named.iter().all(|&tables| tables == 0) {
            return;
        }
        let mut level = LevelTally::new(self.named.len());
        level.tables.clone_from(&self.named);
        level.unread.clone_from(&self.named);
        canonical.levels.insert(1, level);
    }

    fn table(&mut self, table: &Table) {
        let head = table.head;
        let slots = self.nodes.slots();
        let level = self
            .views
            .entry(head.view)
            .or_default()
            .levels
            .entry(head.level)
            .or_insert_with(|| LevelTally::new(slots));
        let slot = self.nodes.slot(head.node);
        level.tables[slot] += 1;
        level.replicas[slot] += u64::from(head.replica);
        level.unread[slot] += u64::from(head.unread);

        let pages = self.pages.get_or_insert_with(|| Pages::new(slots));
        self.named.resize(slots, 0);
        for run in table.runs {
            let count = u64::from(run.count);
            let target = self.nodes.slot(run.node);
            if head.level == 2 && run.kind == Kind::Table && head.view == View::Canonical {
                self.named[target] += count;
            }
            if run.kind.has_frame() {
                level.points[slot][target] += count;
            }
            if run.kind.is_leaf() {
                level.leaves[slot] += count;
            }
            if head.view != View::Canonical {
                continue;
            }
            if let Some(class) = PageClass::of(run, head.level) {
                pages.add(class, target, count);
            } else if !run.kind.has_frame() {
                *self
                    .not_present
                    .entry((run.kind as u8, head.level))
                    .or_default() += count;
            }
        }
    }
}

/// Bytes that one leaf entry of a table of `level` maps.
pub(super) fn leaf_bytes(level: u8) -> u64 {
    format::entry_size(level)
}
