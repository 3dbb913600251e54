// SPDX-License-Identifier: GPL-2.0-or-later
//! What changed between two snapshots of a process.
//!
//! Streams are in address order, so two of them are merged as they are read:
//! memory is needed for two tables, however large the process.

use std::collections::BTreeMap;
use std::io::Read;

use super::{Nodes, PageClass, Pages};
use crate::format;
use crate::stream::{Attrs, Kind, Reader, Record, Run, StreamError, TableHead, View};

/// Appeared and vanished, by slot of the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    pub added: Vec<u64>,
    pub removed: Vec<u64>,
}

impl Change {
    fn new(slots: usize) -> Self {
        Change {
            added: vec![0; slots],
            removed: vec![0; slots],
        }
    }
}

/// Moves between nodes, and replacements on the same node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moves {
    /// Numbers by slot of the node before and slot of the node after; those
    /// of frames that stayed on their node are in `replaced`.
    pub matrix: Vec<Vec<u64>>,
    /// Another frame on the same node.
    pub replaced: u64,
}

impl Moves {
    fn new(slots: usize) -> Self {
        Moves {
            matrix: vec![vec![0; slots]; slots],
            replaced: 0,
        }
    }

    fn add(&mut self, from: usize, to: usize) {
        if from == to {
            self.replaced += 1;
        } else {
            self.matrix[from][to] += 1;
        }
    }

    /// Moves between nodes.
    pub fn total(&self) -> u64 {
        self.matrix.iter().flatten().sum()
    }
}

/// What changed from one snapshot to the next.
///
/// A page or table page counts as removed and added when it is another one
/// than before, on whatever node, or when a page changes its class. So a count
/// of the new snapshot is the old one + added - removed.
#[derive(Debug, Clone)]
pub struct Diff {
    /// Nodes of the new snapshot, and of the old one if it had more.
    pub nodes: Nodes,
    /// Nanoseconds between the starts of the two.
    pub elapsed_ns: u64,
    /// Table pages, by tree and level.
    pub tables: BTreeMap<(View, u8), Change>,
    /// Pages that the canonical tree maps.
    pub pages_added: Pages,
    pub pages_removed: Pages,
    /// Canonical table pages at the same address and level.
    pub table_moves: Moves,
    /// Mapped pages at the same address and of the same size, by level - 1.
    /// Special pages do not count.
    pub page_moves: [Moves; format::MAX_LEAF_LEVEL as usize],
    /// Huge leaves that became tables, and the other way round.
    pub split: u64,
    pub collapsed: u64,
}

/// Compares two snapshots of the same process, reading both to their end.
///
/// # Errors
/// When either stream is damaged, with the stream's error.
pub fn diff<A: Read, B: Read>(
    old: &mut Reader<A>,
    new: &mut Reader<B>,
) -> Result<Diff, StreamError> {
    let elapsed_ns = new
        .header()
        .boottime_ns
        .saturating_sub(old.header().boottime_ns);
    let mut old = Cursor::new(old)?;
    let mut new = Cursor::new(new)?;
    let mut nodes = new.nodes.clone();
    for &info in old.nodes.infos() {
        if !nodes.infos().iter().any(|n| n.node == info.node) {
            nodes.add(info);
        }
    }

    let slots = nodes.slots();
    let mut diff = Diff {
        nodes,
        elapsed_ns,
        tables: BTreeMap::new(),
        pages_added: Pages::new(slots),
        pages_removed: Pages::new(slots),
        table_moves: Moves::new(slots),
        page_moves: [Moves::new(slots), Moves::new(slots), Moves::new(slots)],
        split: 0,
        collapsed: 0,
    };
    loop {
        match (old.head, new.head) {
            (None, None) => return Ok(diff),
            (Some(a), Some(b)) if a.key() == b.key() => {
                diff.both(&a, &old.runs, &b, &new.runs);
                old.advance()?;
                new.advance()?;
            }
            (Some(a), b) if b.is_none_or(|b| a.key() < b.key()) => {
                diff.removed(&a, &old.runs);
                old.advance()?;
            }
            (_, Some(b)) => {
                diff.added(&b, &new.runs);
                new.advance()?;
            }
            (Some(_), None) => unreachable!("covered by the guard before"),
        }
    }
}

impl Diff {
    fn added(&mut self, head: &TableHead, runs: &[Run]) {
        self.table(head, true);
        if head.view == View::Canonical {
            for run in runs {
                self.page(head.level, run, u64::from(run.count), true);
            }
        }
    }

    fn removed(&mut self, head: &TableHead, runs: &[Run]) {
        self.table(head, false);
        if head.view == View::Canonical {
            for run in runs {
                self.page(head.level, run, u64::from(run.count), false);
            }
        }
    }

    fn both(&mut self, a: &TableHead, a_runs: &[Run], b: &TableHead, b_runs: &[Run]) {
        // The node decides too: a machine booted with other nodes has the same
        // frame on another one, and the counts have to add up there as well.
        if (a.frame, a.node) != (b.frame, b.node) {
            self.table(a, false);
            self.table(b, true);
            if a.view == View::Canonical {
                let from = self.nodes.slot(a.node);
                let to = self.nodes.slot(b.node);
                self.table_moves.add(from, to);
            }
        }
        if a.view == View::Canonical && a_runs != b_runs {
            self.entries(a.level, a_runs, b_runs);
        }
    }

    fn entries(&mut self, level: u8, old: &[Run], new: &[Run]) {
        let old = expand(level, old);
        let new = expand(level, new);
        for (a, b) in old.iter().zip(&new) {
            match (a, b) {
                (Some(a), Some(b)) => self.entry(level, a, b),
                (Some(a), None) => self.page(level, a, 1, false),
                (None, Some(b)) => self.page(level, b, 1, true),
                (None, None) => {}
            }
        }
    }

    fn entry(&mut self, level: u8, a: &Run, b: &Run) {
        let old = PageClass::of(a, level);
        let new = PageClass::of(b, level);
        match (old, new) {
            (Some(_), None) if b.kind == Kind::Table => self.split += 1,
            (None, Some(_)) if a.kind == Kind::Table => self.collapsed += 1,
            _ => {}
        }
        let same = (a.frame, a.node) == (b.frame, b.node);
        if same && old == new {
            return;
        }
        self.page(level, a, 1, false);
        self.page(level, b, 1, true);
        let own = |run: &Run| run.kind.is_leaf() && !run.attrs.contains(Attrs::SPECIAL);
        if own(a) && own(b) && !same {
            let from = self.nodes.slot(a.node);
            let to = self.nodes.slot(b.node);
            self.page_moves[usize::from(level) - 1].add(from, to);
        }
    }

    fn table(&mut self, head: &TableHead, added: bool) {
        let slots = self.nodes.slots();
        let slot = self.nodes.slot(head.node);
        let change = self
            .tables
            .entry((head.view, head.level))
            .or_insert_with(|| Change::new(slots));
        let side = if added {
            &mut change.added
        } else {
            &mut change.removed
        };
        side[slot] += 1;
    }

    fn page(&mut self, level: u8, run: &Run, count: u64, added: bool) {
        let Some(class) = PageClass::of(run, level) else {
            return;
        };
        let slot = self.nodes.slot(run.node);
        let side = if added {
            &mut self.pages_added
        } else {
            &mut self.pages_removed
        };
        side.add(class, slot, count);
    }
}

/// One run of length 1 for each entry of a table.
fn expand(level: u8, runs: &[Run]) -> [Option<Run>; format::ENTRIES as usize] {
    let mut entries = [None; format::ENTRIES as usize];
    for run in runs {
        for i in 0..run.count {
            entries[usize::from(run.first + i)] = Some(Run {
                first: run.first + i,
                count: 1,
                frame: run.frame + u64::from(i) * run.step(level),
                ..*run
            });
        }
    }
    entries
}

/// A stream at one of its tables.
struct Cursor<'r, R> {
    reader: &'r mut Reader<R>,
    nodes: Nodes,
    /// `None` at the end.
    head: Option<TableHead>,
    runs: Vec<Run>,
}

impl<'r, R: Read> Cursor<'r, R> {
    fn new(reader: &'r mut Reader<R>) -> Result<Self, StreamError> {
        let mut cursor = Cursor {
            reader,
            nodes: Nodes::default(),
            head: None,
            runs: Vec::new(),
        };
        cursor.advance()?;
        Ok(cursor)
    }

    fn advance(&mut self) -> Result<(), StreamError> {
        self.head = None;
        while let Some(record) = self.reader.next_record()? {
            match record {
                Record::Node(info) => self.nodes.add(info),
                Record::Table(table) => {
                    self.head = Some(table.head);
                    self.runs.clear();
                    self.runs.extend_from_slice(table.runs);
                    return Ok(());
                }
                Record::Domain(_) | Record::End(_) => {}
            }
        }
        Ok(())
    }
}
