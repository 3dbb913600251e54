// SPDX-License-Identifier: GPL-2.0-or-later
//! The coherence directory: which CPUs may hold a line (thesis 2.4.3).
//!
//! Of a line of table entries that a scheme tracks, "hold" means in private
//! caches *or* translation structures, and the line takes further entries for the
//! TLB sets; they come and go with the first. There is no time in here.

use crate::machine::DirectorySize;
use lens::hash::mix;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// What is known of a line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Known {
    /// Its number.
    pub line: u64,
    /// CPUs that may hold it, one bit each.
    pub sharers: u64,
    /// The nPT bit: a walker has taken a translation from it.
    pub table: bool,
}

/// Hashes line numbers, which come from the model itself.
#[derive(Debug, Clone, Default)]
pub struct LineHasher(u64);

impl Hasher for LineHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for &b in bytes {
            self.write_u64(u64::from(b));
        }
    }
    fn write_u64(&mut self, n: u64) {
        self.0 = mix(self.0 ^ n);
    }
}

#[derive(Debug, Clone)]
enum Store {
    Finite(Finite),
    Infinite(HashMap<u64, Known, BuildHasherDefault<LineHasher>>),
}

#[derive(Debug, Clone)]
struct Finite {
    /// Entries in recency order, most recent first; `len` of each set are used.
    entries: Box<[Known]>,
    len: Box<[u8]>,
    ways: usize,
    /// Entries that a tracked line takes.
    table_cost: usize,
}

/// Which CPUs may hold which line.
#[derive(Debug, Clone)]
pub struct Directory(Store);

impl Directory {
    /// A directory of `size` entries, or with room for all. Lines with the nPT bit
    /// take `1 + extra` entries.
    pub fn new(size: Option<DirectorySize>, extra: usize) -> Self {
        Directory(match size {
            None => Store::Infinite(HashMap::default()),
            Some(s) => Store::Finite(Finite {
                entries: vec![Known::default(); s.entries].into(),
                len: vec![0; s.entries / s.ways].into(),
                ways: s.ways,
                table_cost: 1 + extra,
            }),
        })
    }

    /// Notes that `cpu` has got `line`, for a walker's use if `table`. What had to
    /// make room goes to `gone`. Returns who may have held it before.
    #[inline]
    pub fn add(&mut self, line: u64, cpu: usize, table: bool, gone: &mut Vec<Known>) -> u64 {
        self.update(line, table, gone, |k| k.sharers |= 1 << cpu)
    }

    /// Notes a store to `line`, after which only `by` holds it, or nobody. Returns
    /// who else may have held it, and whether it has the nPT bit.
    #[inline]
    pub fn write(&mut self, line: u64, by: Option<usize>, gone: &mut Vec<Known>) -> (u64, bool) {
        let own = by.map_or(0, |cpu| 1 << cpu);
        let Some(known) = self.known(line) else {
            if by.is_some() {
                self.update(line, false, gone, |k| k.sharers = own);
            }
            return (0, false);
        };
        match own {
            0 => self.forget(line),
            _ => {
                self.update(line, false, gone, |k| k.sharers = own);
            }
        }
        (known.sharers, known.table)
    }

    /// Takes `cpu` from the sharers of `line`.
    pub fn remove(&mut self, line: u64, cpu: usize) {
        let mut empty = false;
        if let Some(k) = self.known_mut(line) {
            k.sharers &= !(1 << cpu);
            empty = k.sharers == 0;
        }
        if empty {
            self.forget(line);
        }
    }

    /// What is known of `line`.
    pub fn known(&self, line: u64) -> Option<Known> {
        match &self.0 {
            Store::Infinite(all) => all.get(&line).copied(),
            Store::Finite(f) => {
                let (set, _) = f.set(line);
                set.iter().find(|k| k.line == line).copied()
            }
        }
    }

    fn known_mut(&mut self, line: u64) -> Option<&mut Known> {
        match &mut self.0 {
            Store::Infinite(all) => all.get_mut(&line),
            Store::Finite(f) => {
                let (start, len) = f.range(line);
                let set = &mut f.entries[start..start + len];
                set.iter_mut().find(|k| k.line == line)
            }
        }
    }

    fn forget(&mut self, line: u64) {
        match &mut self.0 {
            Store::Infinite(all) => {
                all.remove(&line);
            }
            Store::Finite(f) => {
                let (start, len) = f.range(line);
                let set = &mut f.entries[start..start + len];
                if let Some(at) = set.iter().position(|k| k.line == line) {
                    set.copy_within(at + 1.., at);
                    f.len[start / f.ways] -= 1;
                }
            }
        }
    }

    /// Applies `change` to `line`, which gets an entry if it has none, and returns
    /// its sharers before.
    #[inline]
    fn update(
        &mut self,
        line: u64,
        table: bool,
        gone: &mut Vec<Known>,
        change: impl FnOnce(&mut Known),
    ) -> u64 {
        match &mut self.0 {
            Store::Infinite(all) => {
                let known = all.entry(line).or_insert(Known {
                    line,
                    ..Known::default()
                });
                let before = known.sharers;
                known.table |= table;
                change(known);
                before
            }
            Store::Finite(f) => f.update(line, table, gone, change),
        }
    }
}

impl Finite {
    /// Where the set of `line` starts, and how many of it are used.
    #[inline]
    fn range(&self, line: u64) -> (usize, usize) {
        // A hash, as banks and slices use: pages begin at the same low bits.
        let set = ((u128::from(mix(line)) * self.len.len() as u128) >> 64) as usize;
        (set * self.ways, usize::from(self.len[set]))
    }

    fn set(&self, line: u64) -> (&[Known], usize) {
        let (start, len) = self.range(line);
        (&self.entries[start..start + len], start)
    }

    fn cost(&self, k: &Known) -> usize {
        if k.table { self.table_cost } else { 1 }
    }

    fn update(
        &mut self,
        line: u64,
        table: bool,
        gone: &mut Vec<Known>,
        change: impl FnOnce(&mut Known),
    ) -> u64 {
        let (start, mut len) = self.range(line);
        let set = &self.entries[start..start + len];
        let at = set.iter().position(|k| k.line == line);
        let mut known = match at {
            Some(at) => set[at],
            None => Known {
                line,
                ..Known::default()
            },
        };
        let before = known.sharers;
        let grows = at.is_none() || table && !known.table;
        known.table |= table;
        change(&mut known);
        let last = match at {
            Some(at) => at,
            None => {
                len += 1;
                len - 1
            }
        };
        // One more than fits for a moment, if the set was full of plain lines.
        if last == self.ways {
            gone.push(self.entries[start + last - 1]);
            len -= 1;
        }
        let last = last.min(self.ways - 1);
        self.entries.copy_within(start..start + last, start + 1);
        self.entries[start] = known;
        if grows {
            let used = |f: &Self, len: usize| -> usize {
                let set = &f.entries[start..start + len];
                set.iter().map(|k| f.cost(k)).sum()
            };
            while used(self, len) > self.ways && len > 1 {
                len -= 1;
                gone.push(self.entries[start + len]);
            }
        }
        self.len[start / self.ways] = len as u8;
        before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small(extra: usize) -> Directory {
        let size = DirectorySize {
            entries: 4,
            ways: 4,
        };
        Directory::new(Some(size), extra)
    }

    #[test]
    fn sharers_come_with_reads_and_go_with_writes() {
        for mut d in [small(2), Directory::new(None, 2)] {
            let mut gone = Vec::new();
            assert_eq!(d.add(7, 1, false, &mut gone), 0);
            assert_eq!(d.add(7, 3, false, &mut gone), 0b10);
            assert_eq!(d.write(7, Some(0), &mut gone), (0b1010, false));
            assert_eq!(d.known(7).unwrap().sharers, 1);
            d.remove(7, 0);
            assert_eq!(d.known(7), None, "no entry without sharers");
            d.add(8, 2, true, &mut gone);
            assert_eq!(d.write(8, None, &mut gone), (0b100, true));
            assert_eq!(d.known(8), None);
            assert!(gone.is_empty());
        }
    }

    #[test]
    fn a_tracked_line_takes_entries_of_others_and_the_oldest_leave() {
        let mut d = small(2);
        let mut gone = Vec::new();
        for line in 1..=4 {
            d.add(line, 0, false, &mut gone);
        }
        assert!(gone.is_empty());
        d.add(5, 1, true, &mut gone);
        let lines: Vec<u64> = gone.iter().map(|k| k.line).collect();
        assert_eq!(lines, [1, 2, 3], "three entries");
        gone.clear();
        // Line 4 is used and becomes a table's: no room for both.
        d.add(4, 0, true, &mut gone);
        assert_eq!(gone.len(), 1);
        assert_eq!((gone[0].line, gone[0].sharers, gone[0].table), (5, 2, true));
    }

    #[test]
    fn without_tracking_a_table_line_is_like_any_other() {
        let mut d = small(0);
        let mut gone = Vec::new();
        for line in 0..4 {
            d.add(line, 0, line % 2 == 0, &mut gone);
        }
        assert!(gone.is_empty());
        d.add(9, 0, true, &mut gone);
        assert_eq!(gone.len(), 1);
    }

    #[test]
    fn the_tlb_sets_of_a_line_fit_into_two_entries() {
        // Thesis 2.4.3: 4 and 7 bits for each of 8 translations, entries of 48.
        let (first, second) = (16u32.ilog2(), 128u32.ilog2());
        assert_eq!((first + second) * 8, 88);
        assert!((first + second) * 8 <= 2 * 48);
        // Co-tags of 16 bits against the whole addresses of UNITD's two TLBs.
        assert_eq!((64 + 512 + 48 + 32) * 16, 10_496);
        assert_eq!((64 + 512) * 64, 36_864);
    }
}
