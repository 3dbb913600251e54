// SPDX-License-Identifier: GPL-2.0-or-later
//! Which table comes next.
//!
//! Depth first, an upper table when its first address comes up, tables of the
//! lowest level many at once. Each address range is gone through once, by the
//! entries of the table above as they were read: so the order is strict and the
//! walk ends, whatever the process does meanwhile. Nothing is kept that points
//! into the process, but addresses.

use std::io;

use crate::entry;
use crate::tables::{ASKS, Ask, ENTRIES, State, Table, Tables};

/// A table of a process.
#[derive(Debug)]
pub struct Found<'a> {
    /// 1 (its entries map 4 KiB) up to the number of levels (the root).
    pub level: u8,
    /// First address that it translates.
    pub addr: u64,
    /// Its physical address.
    pub table: u64,
    /// Its entries.
    pub entries: &'a Table,
}

/// Gives one table after the other, ordered by address, higher levels first.
#[derive(Debug)]
pub struct Walk<T> {
    tables: T,
    levels: u8,
    /// The lowest level that is read.
    lowest: u8,
    /// Tables above the lowest level, from the root down.
    upper: Vec<Upper>,
    /// Tables of the lowest level.
    batch: Vec<Ask>,
    next: usize,
    started: bool,
}

#[derive(Debug)]
struct Upper {
    level: u8,
    addr: u64,
    table: u64,
    entries: Box<Table>,
    next: usize,
}

/// Where what was found is.
enum Place {
    Upper,
    Batch(usize),
}

impl<T: Tables> Walk<T> {
    /// Reads tables down to level `lowest`, 1 or 2.
    pub fn new(mut tables: T, map: crate::Map, lowest: u8) -> Self {
        tables.set_map(map);
        Walk {
            tables,
            levels: map.levels,
            lowest,
            upper: Vec::new(),
            batch: Vec::new(),
            next: 0,
            started: false,
        }
    }

    pub fn tables(&mut self) -> &mut T {
        &mut self.tables
    }

    /// The next table; `None` after the last.
    pub fn next_table(&mut self) -> io::Result<Option<Found<'_>>> {
        Ok(self.advance()?.map(|place| self.found(place)))
    }

    fn found(&self, place: Place) -> Found<'_> {
        match place {
            Place::Upper => {
                let upper = self.upper.last().expect("it was just pushed");
                Found {
                    level: upper.level,
                    addr: upper.addr,
                    table: upper.table,
                    entries: &upper.entries,
                }
            }
            Place::Batch(at) => Found {
                level: self.lowest,
                addr: self.batch[at].from,
                table: self.batch[at].table,
                entries: self.tables.page(at),
            },
        }
    }

    fn advance(&mut self) -> io::Result<Option<Place>> {
        if !self.started {
            self.started = true;
            let mut root = Ask::table(self.levels, 0);
            return Ok(self.descend(&mut root)?.then_some(Place::Upper));
        }
        loop {
            if let Some(place) = self.advance_in_batch() {
                return Ok(Some(place));
            }
            let Some(top) = self.upper.last_mut() else {
                return Ok(None);
            };
            let (level, most) = (
                top.level - 1,
                if top.level - 1 > self.lowest { 1 } else { ASKS },
            );
            let mut asks = Vec::new();
            // The upper half of the root is the kernel's.
            let end = ENTRIES >> usize::from(top.level == self.levels);
            while top.next < end && asks.len() < most {
                let index = top.next;
                top.next += 1;
                if entry::is_table(top.entries[index], top.level) {
                    let addr = top.addr + index as u64 * entry::size(top.level);
                    asks.push(Ask::table(level, addr));
                }
            }
            if asks.is_empty() {
                self.upper.pop();
            } else if level > self.lowest {
                if self.descend(&mut asks[0])? {
                    return Ok(Some(Place::Upper));
                }
            } else {
                self.tables.ask(&mut asks)?;
                self.batch = asks;
                self.next = 0;
            }
        }
    }

    /// Reads a table above the lowest level. False when there is none.
    fn descend(&mut self, ask: &mut Ask) -> io::Result<bool> {
        self.tables.ask(std::slice::from_mut(ask))?;
        if ask.state != State::Read {
            return Ok(false);
        }
        self.upper.push(Upper {
            level: ask.level,
            addr: ask.from,
            table: ask.table,
            entries: Box::new(*self.tables.page(0)),
            next: 0,
        });
        Ok(true)
    }

    fn advance_in_batch(&mut self) -> Option<Place> {
        while self.next < self.batch.len() {
            let at = self.next;
            self.next += 1;
            if self.batch[at].state == State::Read {
                return Some(Place::Batch(at));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests;
