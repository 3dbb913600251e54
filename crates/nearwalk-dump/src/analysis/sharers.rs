// SPDX-License-Identifier: GPL-2.0-or-later
//! Which domains share a page-table page.
//!
//! A domain shares a canonical table when its tree leads there: by a link to
//! the canonical page itself, or by a copy of its own, which in a lazy tree
//! holds only entries that the domain has used (Hydra, section 3). Whoever
//! changes the table has to reach these copies, and the TLBs of these domains.
//! A domain without a tree of its own walks the canonical one, and so all of
//! it; it is not counted here.

use std::collections::BTreeMap;

use crate::format;
use crate::stream::{Run, Table, TableHead, View};

/// How a domain has a canonical table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Share {
    /// Its tree leads to the canonical page.
    Link,
    /// It has a page of its own.
    Copy {
        frame: u64,
        node: Option<u32>,
        /// Valid entries of the canonical table that the copy has, too.
        held: u16,
    },
}

/// A canonical table and who shares it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedTable {
    pub level: u8,
    /// First virtual address that it translates.
    pub addr: u64,
    pub frame: u64,
    pub node: Option<u32>,
    /// Valid entries: those that name a table or memory.
    pub entries: u16,
    /// Domains that share it, in ascending order.
    pub sharers: Vec<(u32, Share)>,
}

/// Counts over the tables of one level.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LevelSharers {
    /// Canonical tables by the number of domains that share them, from none
    /// to all that have a tree of their own.
    pub tables: Vec<u64>,
    /// Links of domain trees to canonical pages.
    pub links: u64,
    /// Copies in domain trees.
    pub copies: u64,
    /// Copies that lack a valid entry of the canonical table.
    pub partial: u64,
    /// Valid entries of canonical tables, once for each copy.
    pub present: u64,
    /// Those of them that the copies hold.
    pub held: u64,
}

impl LevelSharers {
    /// Fraction of the canonical tables' entries that their copies hold;
    /// `None` without such an entry.
    pub fn held_share(&self) -> Option<f64> {
        (self.present > 0).then(|| self.held as f64 / self.present as f64)
    }

    fn add(&mut self, table: &SharedTable) {
        let sharers = table.sharers.len();
        if self.tables.len() <= sharers {
            self.tables.resize(sharers + 1, 0);
        }
        self.tables[sharers] += 1;
        for (_, share) in &table.sharers {
            match *share {
                Share::Link => self.links += 1,
                Share::Copy { held, .. } => {
                    self.copies += 1;
                    self.partial += u64::from(held < table.entries);
                    self.present += u64::from(table.entries);
                    self.held += u64::from(held);
                }
            }
        }
    }
}

/// Who shares the tables of a snapshot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sharers {
    /// Domains that have a tree of their own, in ascending order.
    pub domains: Vec<u32>,
    /// By level; only levels that have canonical tables.
    pub levels: BTreeMap<u8, LevelSharers>,
}

/// Puts together what the stream says of one table after the other.
#[derive(Default)]
pub(super) struct SharersBuilder {
    counts: Sharers,
    table: Option<(SharedTable, Entries)>,
}

impl SharersBuilder {
    /// Takes the next table of the stream; returns the canonical table before
    /// it once all its sharers are known.
    pub fn table(&mut self, table: &Table) -> Option<SharedTable> {
        let TableHead {
            level, addr, frame, ..
        } = table.head;
        let node = table.head.node;
        match table.head.view {
            View::Canonical => {
                let done = self.flush();
                let entries = Entries::of(table.runs);
                let shared = SharedTable {
                    level,
                    addr,
                    frame,
                    node,
                    entries: entries.count(),
                    sharers: Vec::new(),
                };
                self.table = Some((shared, entries));
                done
            }
            View::Domain(domain) => {
                if let Err(at) = self.counts.domains.binary_search(&domain) {
                    self.counts.domains.insert(at, domain);
                }
                // The reader lets no domain's table come before its canonical one.
                let (shared, entries) = self.table.as_mut()?;
                let share = if table.head.replica {
                    let held = if table.head.same {
                        shared.entries
                    } else {
                        Entries::of(table.runs).common(entries)
                    };
                    Share::Copy { frame, node, held }
                } else {
                    Share::Link
                };
                shared.sharers.push((domain, share));
                None
            }
        }
    }

    /// The last canonical table, at the end of the stream or before the next.
    pub fn flush(&mut self) -> Option<SharedTable> {
        let (shared, _) = self.table.take()?;
        self.counts
            .levels
            .entry(shared.level)
            .or_default()
            .add(&shared);
        Some(shared)
    }

    pub fn finish(mut self) -> Sharers {
        let all = self.counts.domains.len();
        for level in self.counts.levels.values_mut() {
            level.tables.resize(all + 1, 0);
        }
        self.counts
    }
}

/// Which entries of a table are valid, a bit for each.
struct Entries([u64; format::ENTRIES as usize / 64]);

impl Entries {
    fn of(runs: &[Run]) -> Self {
        let mut bits = [0; format::ENTRIES as usize / 64];
        for run in runs.iter().filter(|run| run.kind.has_frame()) {
            for index in run.first..run.first + run.count {
                bits[usize::from(index / 64)] |= 1u64 << (index % 64);
            }
        }
        Entries(bits)
    }

    fn count(&self) -> u16 {
        self.0.iter().map(|word| word.count_ones() as u16).sum()
    }

    fn common(&self, other: &Entries) -> u16 {
        let words = self.0.iter().zip(&other.0);
        words.map(|(a, b)| (a & b).count_ones() as u16).sum()
    }
}
